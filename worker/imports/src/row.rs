//! From the cells of a row to a post.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use crier_domain::platform::Platform;
use crier_domain::post::{MAX_LABEL, MAX_LABELS};
use crier_domain::post_import::{MAX_EXTERNAL_REF, PostSchedule};
use unicode_normalization::UnicodeNormalization;

use crate::columns::{Columns, Source};
use crate::table::{MAX_CELL_CHARS, Table, TableRow};
use crate::{ReadOptions, Row, RowProblem, dates};

/// The maximum number of files of a post. No platform accepts as many.
const MAX_MEDIA: usize = 20;
/// The maximum length of a file's URL, in characters, as in the API.
const MAX_URL_CHARS: usize = 2_048;
/// The maximum length of a description, in characters, as in the API.
const MAX_ALT_TEXT_CHARS: usize = 2_000;
/// The maximum number of links of a post. Each is searched for in the text.
const MAX_LINKS: usize = 20;
/// The maximum number of accounts of a post.
const MAX_ACCOUNTS: usize = 1_000;

/// A post in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPost {
    pub content: String,
    pub schedule: PostSchedule,
    /// The time when the post is published, or that of a draft. `None` in the queue.
    pub scheduled_at: Option<DateTime<Utc>>,
    pub accounts: Vec<AccountName>,
    pub media: Vec<RowMedia>,
    pub labels: Vec<String>,
    pub first_comment: Option<String>,
    pub external_ref: Option<String>,
}

/// An empty draft.
impl Default for RowPost {
    fn default() -> Self {
        Self {
            content: String::new(),
            schedule: PostSchedule::Draft,
            scheduled_at: None,
            accounts: Vec::new(),
            media: Vec::new(),
            labels: Vec::new(),
            first_comment: None,
            external_ref: None,
        }
    }
}

/// The time of a row.
enum RowTime {
    At(DateTime<Utc>),
    /// The word `queue` instead of a time.
    NextSlot,
}

/// An account in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountName {
    /// Its id, its name or its username.
    Named(String),
    /// The brand's only account on this platform.
    On(Platform),
}

impl AccountName {
    /// Returns the id that the name may be.
    pub fn id(&self) -> Option<i64> {
        match self {
            Self::Named(name) => name.parse().ok(),
            Self::On(_) => None,
        }
    }
}

/// An image or a video in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowMedia {
    pub url: String,
    pub alt_text: Option<String>,
    /// Whether the path of the URL ends like that of a video.
    pub is_video: bool,
}

/// Reads all rows. A name of a post that occurs again is a problem of the later row.
pub fn read_all(columns: &Columns, table: &Table, options: &ReadOptions) -> Vec<Row> {
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut rows = Vec::with_capacity(table.rows.len());
    for row in &table.rows {
        let reader = RowReader { columns, row, problems: Vec::new() };
        let mut post = reader.read(options);
        if let Ok(RowPost { external_ref: Some(external_ref), .. }) = &post {
            match seen.get(external_ref) {
                Some(first) => {
                    let message = format!("Row {first} has the same value. Give each post its own.");
                    let column = columns.sources().find(|(_, source)| *source == Source::ExternalRef);
                    let column = column.map(|(position, _)| columns.name(position)).unwrap_or_default();
                    post = Err(vec![RowProblem { row: row.number, column, message }]);
                }
                None => drop(seen.insert(external_ref.clone(), row.number)),
            }
        }
        rows.push(Row { number: row.number, post });
    }
    rows
}

struct RowReader<'a> {
    columns: &'a Columns,
    row: &'a TableRow,
    problems: Vec<RowProblem>,
}

impl RowReader<'_> {
    fn read(mut self, options: &ReadOptions) -> Result<RowPost, Vec<RowProblem>> {
        let (schedule, scheduled_at) = self.schedule(options);
        let post = RowPost {
            content: self.content(),
            schedule,
            scheduled_at,
            accounts: self.accounts(),
            media: self.media(),
            labels: self.labels(),
            first_comment: self.text(Source::FirstComment, MAX_CELL_CHARS),
            external_ref: self.text(Source::ExternalRef, MAX_EXTERNAL_REF).map(|text| text.trim().to_owned()),
        };
        if self.problems.is_empty() { Ok(post) } else { Err(self.problems) }
    }

    /// Returns the cells of a kind that are not empty, with their positions.
    fn cells(&mut self, wanted: Source) -> Vec<(usize, String)> {
        let (columns, row) = (self.columns, self.row);
        let mut cells = Vec::new();
        for (position, _) in columns.sources().filter(|(_, source)| *source == wanted) {
            let cell = row.cell(position);
            if cell.contains('\0') {
                self.problem(position, "Must not contain the NUL character.");
            } else if !cell.trim().is_empty() {
                cells.push((position, cell.nfc().collect()));
            }
        }
        cells
    }

    fn problem(&mut self, position: usize, message: impl Into<String>) {
        let column = self.columns.name(position);
        self.problems.push(RowProblem { row: self.row.number, column, message: message.into() });
    }

    /// Returns a text of at most `max` characters.
    fn text(&mut self, source: Source, max: usize) -> Option<String> {
        let (position, text) = self.cells(source).into_iter().next()?;
        self.check_length(position, &text, max);
        Some(text)
    }

    fn check_length(&mut self, position: usize, text: &str, max: usize) {
        let length = text.chars().count();
        if length > max {
            self.problem(position, format!("Must have at most {max} characters; this has {length}."));
        }
    }

    /// Returns the text, with the links that it does not contain on lines of their own.
    fn content(&mut self) -> String {
        let texts = self.cells(Source::Content);
        let (position, mut content) = texts.into_iter().next().unwrap_or_default();
        let mut count = 0;
        for (position, links) in self.cells(Source::Link) {
            for link in links.split_whitespace().map(|link| link.trim_end_matches([',', ';'])) {
                count += 1;
                if count > MAX_LINKS {
                    self.problem(position, format!("List at most {MAX_LINKS} links."));
                    return String::new();
                }
                if !content.contains(link) {
                    content.push_str(if content.is_empty() { "" } else { "\n" });
                    content.push_str(link);
                }
            }
        }
        self.check_length(position, &content, MAX_CELL_CHARS);
        content
    }

    /// Returns when the post is published. Without a word for it, a post with a time is scheduled, and another one is a
    /// draft: publishing it could not be undone.
    fn schedule(&mut self, options: &ReadOptions) -> (PostSchedule, Option<DateTime<Utc>>) {
        let is_draft = self.cells(Source::Draft).iter().any(|(position, cell)| self.flag(*position, cell));
        let named = self.named_schedule();
        let schedule = named.map(|(_, schedule)| schedule);
        // With `queue`, a time is ignored, even one that cannot be read.
        let time = if schedule == Some(PostSchedule::Queue) { None } else { self.time(options) };
        match (schedule, time) {
            _ if is_draft => (PostSchedule::Draft, None),
            (Some(PostSchedule::Queue), _) | (None, Some(RowTime::NextSlot)) => (PostSchedule::Queue, None),
            (Some(PostSchedule::Draft), Some(RowTime::At(at))) => (PostSchedule::Draft, Some(at)),
            (Some(PostSchedule::Draft), _) | (None, None) => (PostSchedule::Draft, None),
            (Some(PostSchedule::Scheduled) | None, Some(RowTime::At(at))) => (PostSchedule::Scheduled, Some(at)),
            (Some(PostSchedule::Scheduled), Some(RowTime::NextSlot) | None) => {
                if let (Some((position, _)), true) = (named, self.problems.is_empty()) {
                    self.problem(position, "A scheduled post needs a time. Add one, or use `draft` or `queue`.");
                }
                (PostSchedule::Draft, None)
            }
        }
    }

    /// Returns the word in the column for it, and its position.
    fn named_schedule(&mut self) -> Option<(usize, PostSchedule)> {
        let (position, word) = self.cells(Source::Schedule).into_iter().next()?;
        let schedule: Option<PostSchedule> = word.trim().to_lowercase().parse().ok();
        if schedule.is_none() {
            self.problem(position, "Must be `draft`, `scheduled` or `queue`.");
        }
        Some((position, schedule?))
    }

    fn time(&mut self, options: &ReadOptions) -> Option<RowTime> {
        let times = self.cells(Source::Time);
        let dates = self.cells(Source::Date);
        let (position, date, time) = match self.cells(Source::ScheduledAt).into_iter().next() {
            Some((_, word)) if word.trim().eq_ignore_ascii_case(PostSchedule::Queue.as_str()) => {
                return Some(RowTime::NextSlot);
            }
            Some((position, both)) => (position, both, String::new()),
            None => match (dates.into_iter().next(), times.into_iter().next()) {
                (None, None) => return None,
                (Some((position, date)), time) => (position, date, time.map(|(_, time)| time).unwrap_or_default()),
                (None, Some((position, _))) => {
                    self.problem(position, "Add a date, or clear the time.");
                    return None;
                }
            },
        };
        match dates::parse(&date, &time, options.date_format, options.zone) {
            Ok(at) => Some(RowTime::At(at)),
            Err(message) => {
                self.problem(position, message);
                None
            }
        }
    }

    fn accounts(&mut self) -> Vec<AccountName> {
        let mut accounts = Vec::new();
        for (position, cell) in self.cells(Source::Accounts) {
            accounts.extend(entries(&cell).map(|name| AccountName::Named(name.to_owned())));
            if accounts.len() > MAX_ACCOUNTS {
                self.problem(position, format!("List at most {MAX_ACCOUNTS} accounts."));
                return Vec::new();
            }
        }
        let (columns, row) = (self.columns, self.row);
        for (position, source) in columns.sources() {
            if let Source::Platform(platform) = source {
                let cell = row.cell(position);
                if !cell.is_empty() && self.flag(position, cell) {
                    accounts.push(AccountName::On(platform));
                }
            }
        }
        accounts
    }

    fn media(&mut self) -> Vec<RowMedia> {
        let descriptions: Vec<String> =
            self.cells(Source::AltTexts).into_iter().flat_map(|(_, cell)| lines(&cell)).collect();
        let mut descriptions = descriptions.into_iter();
        let mut media = Vec::new();
        for (position, cell) in self.cells(Source::MediaUrls) {
            for url in urls(&cell) {
                if !url.starts_with("https://") && !url.starts_with("http://") {
                    self.problem(position, "Each file must be a URL that begins with https:// or http://.");
                    return Vec::new();
                }
                self.check_length(position, url, MAX_URL_CHARS);
                let alt_text = descriptions.next().map(|text| text.chars().take(MAX_ALT_TEXT_CHARS).collect());
                media.push(RowMedia { url: url.to_owned(), alt_text, is_video: is_video(url) });
            }
            if media.len() > MAX_MEDIA {
                self.problem(position, format!("List at most {MAX_MEDIA} files."));
                return Vec::new();
            }
        }
        media
    }

    fn labels(&mut self) -> Vec<String> {
        let mut labels: Vec<String> = Vec::new();
        for (position, cell) in self.cells(Source::Labels) {
            for label in entries(&cell) {
                self.check_length(position, label, MAX_LABEL);
                if labels.iter().any(|other| other == label) {
                    continue;
                }
                if labels.len() == MAX_LABELS {
                    self.problem(position, format!("A post can have at most {MAX_LABELS} labels."));
                    return Vec::new();
                }
                labels.push(label.to_owned());
            }
        }
        labels
    }

    /// Returns whether a cell says yes.
    fn flag(&mut self, position: usize, cell: &str) -> bool {
        match cell.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" | "x" => true,
            "" | "false" | "no" | "0" => false,
            _ => {
                self.problem(position, "Must be TRUE or FALSE.");
                false
            }
        }
    }
}

/// Splits a list: at line breaks if it has one, so that entries may contain the other separators; otherwise at commas and
/// semicolons.
fn entries(cell: &str) -> impl Iterator<Item = &str> {
    let has_lines = cell.contains('\n');
    let is_separator = move |c: char| if has_lines { c == '\n' } else { matches!(c, ',' | ';') };
    cell.split(is_separator).map(str::trim).filter(|entry| !entry.is_empty())
}

/// Splits descriptions: one per line.
fn lines(cell: &str) -> Vec<String> {
    cell.lines().map(|line| line.trim().to_owned()).collect()
}

/// Splits a list of URLs at white space, and at commas, semicolons and bars before the next URL or the end.
fn urls(cell: &str) -> impl Iterator<Item = &str> {
    let mut urls = Vec::new();
    for word in cell.split_whitespace() {
        let mut rest = word;
        while let Some(at) = separator(rest) {
            let (url, after) = rest.split_at(at);
            urls.push(url);
            rest = after.get(1..).unwrap_or_default();
        }
        urls.push(rest);
    }
    urls.into_iter().filter(|url| !url.is_empty())
}

/// Returns the position of a separator that is followed by a URL or by nothing.
fn separator(text: &str) -> Option<usize> {
    let is_end = |after: &str| after.is_empty() || after.starts_with("http://") || after.starts_with("https://");
    let mut separators = text.match_indices([',', ';', '|']).map(|(at, _)| at);
    separators.find(|at| text.get(at + 1..).is_some_and(is_end))
}

fn is_video(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    [".mp4", ".mov", ".webm"].iter().any(|ending| path.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split() {
        let split = |cell| entries(cell).collect::<Vec<_>>();
        assert_eq!(split("1, 2;Ann"), ["1", "2", "Ann"]);
        assert_eq!(split("a,b\n"), ["a,b"]);
        assert_eq!(split("a\r\n b \n"), ["a", "b"]);
        let split = |cell| urls(cell).collect::<Vec<_>>();
        assert_eq!(
            split("https://a.example/1.png,https://a.example/2.png"),
            ["https://a.example/1.png", "https://a.example/2.png"]
        );
        assert_eq!(split("https://a.example/a,b;c.png;"), ["https://a.example/a,b;c.png"]);
        assert_eq!(
            split("https://a.example/1.png | http://b.example"),
            ["https://a.example/1.png", "http://b.example"]
        );
        assert!(is_video("https://a.example/Film.MP4?x=1") && !is_video("https://a.example/?mp4"));
    }
}
