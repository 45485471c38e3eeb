//! Determines what the columns of a file are, by the headings of Crier, and of the files for bulk uploads of Buffer,
//! Hootsuite, Metricool and Publer. Case, spaces and punctuation in a heading are ignored.
//!
//! A file of Hootsuite has no headings: its columns are the time, the text and a link. It is recognized by a time in the
//! place of the first heading.

use std::collections::HashMap;

use crier_domain::platform::Platform;
use crier_domain::post_import::PostColumn;
use crier_domain::untrusted;

use crate::table::Table;
use crate::{FileError, ReadOptions, RowProblem, dates};

/// The headings of a file without headings, in the order of Hootsuite.
const HOOTSUITE: [&str; 3] = ["scheduled_at", "content", "link"];
/// The maximum length of a heading in a problem, in characters.
const MAX_NAMED: usize = 60;

/// What a column contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Content,
    /// A time, with its date.
    ScheduledAt,
    /// A date, which may have a time.
    Date,
    Time,
    /// Whether the post is a draft, has its time, or takes a slot of the queue.
    Schedule,
    Accounts,
    MediaUrls,
    AltTexts,
    Labels,
    FirstComment,
    ExternalRef,
    /// A link, which is appended to the text.
    Link,
    /// Whether the post is for the brand's account on a platform.
    Platform(Platform),
    /// Whether the post is a draft although it has a time.
    Draft,
}

impl Source {
    fn of(heading: &str) -> Option<Self> {
        let letters: String = heading.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        // Metricool numbers its images.
        let name = letters.trim_end_matches(|c: char| c.is_ascii_digit());
        Some(match name {
            "content" | "text" | "message" | "caption" | "posttext" => Self::Content,
            "scheduledat" | "postingtime" | "datetime" | "dateandtime" | "dateandtimeofpost" => Self::ScheduledAt,
            "date" => Self::Date,
            "time" => Self::Time,
            "schedule" | "scheduletype" => Self::Schedule,
            "accounts" | "account" | "socialaccounts" => Self::Accounts,
            "mediaurls" | "mediaurl" | "imageurls" | "imageurl" | "pictureurl" | "videourl" => Self::MediaUrls,
            "alttexts" | "alttext" | "alttextpicture" => Self::AltTexts,
            "labels" | "label" | "tags" | "tag" => Self::Labels,
            "firstcomment" | "firstcommenttext" | "comments" | "comment" => Self::FirstComment,
            "externalref" => Self::ExternalRef,
            "links" | "link" | "url" => Self::Link,
            "draft" => Self::Draft,
            name => Self::Platform(platform(name)?),
        })
    }

    /// Returns the column of Crier whose problems are those of this column.
    const fn column(self) -> PostColumn {
        match self {
            Self::Content | Self::Link => PostColumn::Content,
            Self::Schedule => PostColumn::Schedule,
            Self::ScheduledAt | Self::Date | Self::Time | Self::Draft => PostColumn::ScheduledAt,
            Self::Accounts | Self::Platform(_) => PostColumn::Accounts,
            Self::MediaUrls | Self::AltTexts => PostColumn::MediaUrls,
            Self::Labels => PostColumn::Labels,
            Self::FirstComment => PostColumn::FirstComment,
            Self::ExternalRef => PostColumn::ExternalRef,
        }
    }
}

/// Returns the platform of a heading of Metricool.
fn platform(name: &str) -> Option<Platform> {
    Some(match name {
        "facebook" => Platform::Facebook,
        "twitter" | "twitterx" => Platform::Twitter,
        "linkedin" => Platform::Linkedin,
        "gbp" => Platform::GoogleBusiness,
        "instagram" => Platform::Instagram,
        "pinterest" => Platform::Pinterest,
        "tiktok" => Platform::Tiktok,
        "youtube" => Platform::Youtube,
        "threads" => Platform::Threads,
        "bluesky" => Platform::Bluesky,
        _ => return None,
    })
}

/// The columns of a file, by position. `None` is one that is not imported.
pub struct Columns {
    names: Vec<String>,
    sources: Vec<Option<Source>>,
}

impl Columns {
    /// Returns the columns of a table, and the table with headings.
    pub fn of(table: Table, options: &ReadOptions) -> Result<(Self, Table), FileError> {
        if table.headings.is_empty() {
            return Err(FileError::Empty);
        }
        let columns = Self::read(&table);
        if columns.has_posts() {
            return Ok((columns, table));
        }
        let first = table.headings.first().map_or("", String::as_str);
        if dates::parse(first, "", options.date_format, options.zone).is_err() || table.headings.len() < 2 {
            return Err(FileError::NoHeadings);
        }
        let table = table.with_headings(&HOOTSUITE)?;
        Ok((Self::read(&table), table))
    }

    fn read(table: &Table) -> Self {
        Self { names: table.headings.clone(), sources: table.headings.iter().map(|name| Source::of(name)).collect() }
    }

    fn has_posts(&self) -> bool {
        self.sources.iter().any(|source| matches!(source, Some(Source::Content | Source::MediaUrls | Source::Link)))
    }

    /// Returns the columns that are imported, each with its position.
    pub fn sources(&self) -> impl Iterator<Item = (usize, Source)> {
        self.sources.iter().enumerate().filter_map(|(position, source)| Some((position, (*source)?)))
    }

    /// Returns the heading at a position, as it is shown and stored.
    pub fn name(&self, position: usize) -> String {
        // Postgres stores no NUL character.
        untrusted::line(self.names.get(position).map_or("", String::as_str), MAX_NAMED)
    }

    /// Returns the headings of Crier's columns: of several columns, the first one.
    pub fn headings(&self) -> HashMap<PostColumn, String> {
        let mut headings = HashMap::new();
        for (position, source) in self.sources() {
            headings.entry(source.column()).or_insert_with(|| self.name(position));
        }
        headings
    }

    /// Returns the problems of the headings: columns with values that are not imported.
    pub fn problems(&self, table: &Table) -> Vec<RowProblem> {
        let width = table.rows.iter().map(|row| row.cells.len()).max().unwrap_or_default();
        let unknown = (0..width).filter(|position| self.sources.get(*position).copied().flatten().is_none());
        let used = unknown.filter(|position| table.rows.iter().any(|row| !row.cell(*position).is_empty()));
        let problem = |position: usize| {
            let column = match self.name(position) {
                name if name.is_empty() => format!("column {}", position + 1),
                name => name,
            };
            RowProblem { row: 1, column, message: "This column is unknown and is not imported.".to_owned() }
        };
        used.map(problem).collect()
    }
}
