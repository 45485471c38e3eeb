//! `GET /brands/{brand}/posts/export`
//!
//! The posts are read in pages while the file is sent, each with a short read, so an export of any number of posts takes
//! the memory of one page. They are in the order of their ids, which does not change: a post that is created during the
//! export is not part of the file.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use crier_domain::access::Scope;
use crier_domain::post::{self, MAX_LABEL, PostStatus};
use crier_domain::post_import::{PostColumn, PostExportFormat, PostSchedule};
use crier_domain::spreadsheet::{BYTE_ORDER_MARK, csv_line};
use crier_store::posts::{self, PostFilter};
use crier_store::{Conn, media, targets};
use futures::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Serialize;

use super::TAG;
use super::list::ListPosts;
use crate::app::App;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::fields::Fields;
use crate::file::FileStream;
use crate::openapi::schema::{Schemas, TextEnum};
use crate::request::{Parsed, Request};
use crate::response::{File, ScheduledTimestamp};
use crate::routes::conversations::list::MAX_SEARCH_CHARS;

/// The maximum number of posts that are read together, and the maximum size of their texts in bytes. A single post may be
/// larger.
const PAGE_POSTS: i64 = 200;
const PAGE_BYTES: usize = 512 << 10;

/// The posts to export.
#[derive(Clone, Debug, Default, Request)]
#[request(check = check)]
pub struct ExportPosts {
    /// The format of the file.
    #[field(enum_value(), default = PostExportFormat::Csv)]
    pub format: Option<PostExportFormat>,
    /// Whether a CSV file begins with a byte order mark, by which Excel detects its encoding.
    #[field(flag(), default = true)]
    pub bom: Option<bool>,
    /// Only posts with this status.
    #[field(enum_value())]
    pub status: Option<PostStatus>,
    /// Only posts whose text contains these words. Maximum: 200 characters.
    #[field(text(0..=MAX_SEARCH_CHARS))]
    pub search: Option<String>,
    /// Only posts with this label.
    #[field(text(0..=MAX_LABEL))]
    pub label: Option<String>,
    /// Only posts for this account.
    #[field(id())]
    pub account_id: Option<i64>,
    /// Only posts at this time or later. The time of a post is `scheduled_at`, or else `published_at`, or else
    /// `created_at`.
    #[field(time())]
    pub from: Option<DateTime<Utc>>,
    /// Only posts before this time.
    #[field(time())]
    pub to: Option<DateTime<Utc>>,
}

fn check(request: &ExportPosts, fields: &Fields<'_>) {
    if request.from.zip(request.to).is_some_and(|(from, to)| to < from) {
        fields.problem("to", "Must not be earlier than `from`.");
    }
}

impl ExportPosts {
    fn filter(&self) -> Option<PostFilter> {
        let Self { format: _, bom: _, status, search, label, account_id, from, to } = self.clone();
        ListPosts { status, search, label, account_id, from, to, ..ListPosts::default() }.filter()
    }
}

/// A post in a file. An import reads the same fields.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExportedPost {
    #[schemars(extend("examples" = ["Fresh bread!"]))]
    pub content: String,
    pub scheduled_at: Option<ScheduledTimestamp>,
    /// Whether the post is a draft, scheduled, or in the queue. An import schedules a queued post at the next free slot.
    /// Null if publishing has begun.
    #[schemars(with = "Option<TextEnum<PostSchedule>>")]
    pub schedule: Option<PostSchedule>,
    /// The IDs of the post's accounts.
    pub accounts: Vec<i64>,
    /// The URLs of the post's images and videos.
    #[schemars(extend("examples" = [["https://crier.example/media/bread.jpg"]]))]
    pub media_urls: Vec<String>,
    #[schemars(extend("examples" = [["spring"]]))]
    pub labels: Vec<String>,
    #[schemars(extend("examples" = [null]))]
    pub first_comment: Option<String>,
    #[schemars(extend("examples" = ["post-1"]))]
    pub external_ref: Option<String>,
}

/// A file with posts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExportedPosts {
    pub data: Vec<ExportedPost>,
}

pub fn endpoint() -> Endpoint<ExportPosts, File> {
    Endpoint::get("/brands/{brand}/posts/export", "exportPosts", Scope::PostsRead)
        .tag(TAG)
        .summary("Download posts as a file")
        .description(
            "The file contains the posts that the list returns with the same filters, newest first, with the columns \
             that an import reads. It does not contain threads or overrides. In CSV, a text that a spreadsheet program \
             would evaluate as a formula begins with an apostrophe, which an import removes.",
        )
        .extension()
        .file_type(PostExportFormat::Csv.media_type(), None)
        .file_type(PostExportFormat::Json.media_type(), Some(Schemas::response::<ExportedPosts>))
        .streams(export)
}

async fn export(cx: &Context, _: &mut Conn, parsed: Arc<Parsed<ExportPosts>>) -> Result<FileStream> {
    let request = parsed.valid()?;
    let format = request.format.unwrap_or(PostExportFormat::Csv);
    let export = Export {
        app: cx.app.clone(),
        brand_id: cx.brand()?.id,
        filter: request.filter(),
        format,
        has_mark: request.bom.unwrap_or(true),
        before: None,
        count: 0,
        stage: Stage::Begin,
    };
    let body = stream::try_unfold(export, Export::next).boxed();
    Ok(FileStream { media_type: format.media_type(), name: format!("posts.{format}"), body })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    Posts,
    Ended,
}

/// An export in progress.
struct Export {
    app: Arc<App>,
    brand_id: i64,
    /// `None` if no post matches.
    filter: Option<PostFilter>,
    format: PostExportFormat,
    has_mark: bool,
    /// The id of the last post that was sent.
    before: Option<i64>,
    /// The number of posts that were sent.
    count: usize,
    stage: Stage,
}

impl Export {
    /// Returns the next piece of the file.
    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        let text = match self.stage {
            Stage::Begin => {
                self.stage = Stage::Posts;
                self.beginning()
            }
            Stage::Posts => match self.page().await.map_err(io::Error::other)? {
                Some(posts) => self.lines(&posts)?,
                None => {
                    self.stage = Stage::Ended;
                    if self.format == PostExportFormat::Csv {
                        return Ok(None);
                    }
                    "]}".to_owned()
                }
            },
            Stage::Ended => return Ok(None),
        };
        Ok(Some((Bytes::from(text), self)))
    }

    fn beginning(&self) -> String {
        let mark = if self.has_mark { BYTE_ORDER_MARK } else { "" };
        match self.format {
            PostExportFormat::Csv => {
                format!("{mark}{}", csv_line(PostColumn::ALL.iter().copied().map(PostColumn::as_str)))
            }
            PostExportFormat::Json => r#"{"data":["#.to_owned(),
        }
    }

    /// Reads the next posts. `None` after the last one.
    async fn page(&mut self) -> crier_store::Result<Option<Vec<ExportedPost>>> {
        let Some(filter) = &self.filter else { return Ok(None) };
        let mut conn = self.app.store.read().await?;
        loop {
            let ids = posts::ids_before(&mut conn, self.brand_id, filter, self.before, PAGE_POSTS).await?;
            if ids.is_empty() {
                return Ok(None);
            }
            let fit = posts::count_fitting(&mut conn, self.brand_id, &ids, PAGE_BYTES).await?.max(1);
            let ids = ids.get(..fit).unwrap_or(&ids);
            self.before = ids.last().copied();
            let found = posts::find_each(&mut conn, self.brand_id, ids).await?;
            // All of them may have been deleted in the meantime.
            if !found.is_empty() {
                return Ok(Some(load(&mut conn, &self.app, self.brand_id, found).await?));
            }
        }
    }

    fn lines(&mut self, posts: &[ExportedPost]) -> io::Result<String> {
        let mut text = String::new();
        for post in posts {
            match self.format {
                PostExportFormat::Csv => text += &to_line(post),
                PostExportFormat::Json => {
                    text += if self.count == 0 { "\n" } else { ",\n" };
                    text += &serde_json::to_string(post).map_err(io::Error::other)?;
                }
            }
            self.count += 1;
        }
        Ok(text)
    }
}

/// Loads the accounts and the files of posts.
async fn load(
    conn: &mut Conn,
    app: &App,
    brand_id: i64,
    found: Vec<post::Post>,
) -> crier_store::Result<Vec<ExportedPost>> {
    let ids: Vec<i64> = found.iter().map(|post| post.id).collect();
    let mut accounts: HashMap<i64, Vec<i64>> = HashMap::new();
    for target in targets::target_summaries(conn, &ids).await? {
        accounts.entry(target.post_id).or_default().push(target.account_id);
    }
    let media_ids: HashSet<i64> = found.iter().flat_map(|post| &post.media).copied().collect();
    let media_ids: Vec<i64> = media_ids.into_iter().collect();
    let assets = media::find_many(conn, brand_id, &media_ids).await?;
    let urls: HashMap<i64, String> = assets.into_iter().map(|asset| (asset.id, app.library.url(&asset.key))).collect();
    let exported = |post: post::Post| ExportedPost {
        accounts: accounts.remove(&post.id).unwrap_or_default(),
        media_urls: post.media.iter().filter_map(|id| urls.get(id).cloned()).collect(),
        schedule: schedule_of(&post),
        content: post.content,
        scheduled_at: post.scheduled_at.map(Into::into),
        labels: post.labels,
        first_comment: post.first_comment.map(|comment| comment.content),
        external_ref: post.external_ref,
    };
    Ok(found.into_iter().map(exported).collect())
}

/// Returns what an import makes of a post. A post that awaits approval becomes a draft again.
fn schedule_of(post: &post::Post) -> Option<PostSchedule> {
    match post.status {
        PostStatus::Draft | PostStatus::PendingApproval => Some(PostSchedule::Draft),
        PostStatus::Scheduled if post.queued => Some(PostSchedule::Queue),
        PostStatus::Scheduled => Some(PostSchedule::Scheduled),
        PostStatus::Publishing | PostStatus::Published | PostStatus::PartiallyPublished | PostStatus::Failed => None,
    }
}

fn to_line(post: &ExportedPost) -> String {
    let at = post.scheduled_at.map(|at| at.0.to_rfc3339_opts(SecondsFormat::AutoSi, true)).unwrap_or_default();
    let accounts: Vec<String> = post.accounts.iter().map(i64::to_string).collect();
    let cells = PostColumn::ALL.iter().map(|column| match column {
        PostColumn::Content => post.content.clone(),
        PostColumn::ScheduledAt => at.clone(),
        PostColumn::Schedule => post.schedule.map(|schedule| schedule.to_string()).unwrap_or_default(),
        PostColumn::Accounts => list(&accounts),
        PostColumn::MediaUrls => post.media_urls.join("\n"),
        PostColumn::Labels => list(&post.labels),
        PostColumn::FirstComment => post.first_comment.clone().unwrap_or_default(),
        PostColumn::ExternalRef => post.external_ref.clone().unwrap_or_default(),
    });
    let cells: Vec<String> = cells.collect();
    csv_line(cells.iter().map(String::as_str))
}

/// Returns a list as an import reads it: on lines, if an entry contains a separator.
fn list(entries: &[String]) -> String {
    if entries.iter().any(|entry| entry.contains([',', ';'])) {
        return entries.iter().map(|entry| format!("{entry}\n")).collect();
    }
    entries.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_with_separators_are_on_lines() {
        let owned = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
        assert_eq!(list(&owned(&["a", "b c"])), "a, b c");
        assert_eq!(list(&owned(&["a,b"])), "a,b\n");
        assert_eq!(list(&[]), "");
    }
}
