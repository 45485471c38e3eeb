//! A row becomes a post, or problems.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use crier_base::patch_field::PatchField;
use crier_base::problems::{ProblemSet, Problems};
use crier_domain::post::{FirstComment, Post, ScheduleType};
use crier_domain::post_import::{MAX_IMPORT_MESSAGE, PostColumn, PostImport, PostImportError, PostSchedule};
use crier_domain::words::MAX_INDEXED;
use crier_http::{Guard, SchemePolicy};
use crier_imports::{PostFile, Row, RowPost, RowProblem};
use crier_posts::check::{self, LookupContext};
use crier_posts::{DesiredPost, PostChange, PostContext, PostError, Result};
use crier_store::{Conn, Tx, post_imports, post_media, posts, queues};

use super::MediaByUrl;
use super::accounts::BrandAccounts;

/// The maximum number of problems of a row that are stored.
const MAX_PROBLEMS: usize = 10;
/// The maximum length of a column's name, in characters.
const MAX_COLUMN: usize = 80;
/// The maximum number of rows of a transaction. On SQLite, it blocks all other writers.
const ROWS_PER_BATCH: usize = 20;
/// The approximate maximum number of records that a transaction writes: the targets of the posts with their jobs, and
/// the words of the texts. A single row may need more.
const RECORDS_PER_BATCH: usize = 2_000;
/// The approximate number of bytes of a text per word.
const BYTES_PER_WORD: usize = 8;

/// The context in which the rows of a file are processed.
pub struct RowContext<'a> {
    pub import: &'a PostImport,
    pub file: &'a PostFile,
    pub accounts: &'a BrandAccounts,
    pub media: &'a MediaByUrl,
    pub guard: &'a Guard,
    pub now: DateTime<Utc>,
}

/// The outcome of a row.
#[derive(Debug)]
pub enum RowOutcome {
    /// Its post could be created.
    Valid,
    Imported,
    /// Its `external_ref` exists.
    Skipped,
    Rejected(Vec<PostImportError>),
    /// The plan's posts are used up. The text is a sentence.
    Stopped(String),
}

/// The change of an empty draft to the post of a row, with its `external_ref`, or the problems of the row.
pub type RowChange<'r> = std::result::Result<(PostChange, Option<&'r str>), Vec<PostImportError>>;

/// Returns problems as they are stored.
pub fn stored(problems: &[RowProblem]) -> Vec<PostImportError> {
    problems.iter().map(|problem| error(problem.row, &problem.column, &problem.message)).collect()
}

fn error(row: u32, column: &str, message: &str) -> PostImportError {
    PostImportError {
        row_number: i32::try_from(row).unwrap_or(i32::MAX),
        column_name: column.chars().take(MAX_COLUMN).collect(),
        message: message.chars().take(MAX_IMPORT_MESSAGE).collect(),
    }
}

/// Returns whether the post of a row takes a slot of the queue.
pub fn is_queued(row: &Row) -> bool {
    row.post.as_ref().is_ok_and(|post| post.schedule == PostSchedule::Queue)
}

/// Splits the rows of the next transaction from the others. `None` if there are no more rows. `default_accounts`: the
/// number of accounts of rows that name none.
pub fn next_batch(rows: &[Row], default_accounts: usize) -> Option<(&[Row], &[Row])> {
    let mut records = 0_usize;
    let fits = |row: &&Row| {
        if let Ok(post) = &row.post {
            let accounts = if post.accounts.is_empty() { default_accounts } else { post.accounts.len() };
            records += 2 * accounts + (post.content.len() / BYTES_PER_WORD).min(MAX_INDEXED);
        }
        records <= RECORDS_PER_BATCH
    };
    let size = rows.iter().take(ROWS_PER_BATCH).take_while(fits).count().max(1);
    rows.split_at_checked(size)
}

/// Checks rows, and writes nothing.
pub async fn check_all(
    cx: &RowContext<'_>,
    post_cx: &PostContext<'_>,
    conn: &mut Conn,
    rows: &[Row],
) -> Result<Vec<RowOutcome>> {
    let used = used_names(conn, cx, rows).await?;
    let slots = match rows.iter().any(is_queued) {
        true => queues::find(conn, cx.import.brand_id).await?.0,
        false => Vec::new(),
    };
    let mut outcomes = Vec::with_capacity(rows.len());
    for row in rows {
        outcomes.push(match cx.change(row) {
            Err(problems) => RowOutcome::Rejected(problems),
            Ok((_, Some(name))) if used.contains(name) => RowOutcome::Skipped,
            Ok((change, _)) => match check(post_cx, conn, row, &change, !slots.is_empty()).await? {
                None => RowOutcome::Valid,
                Some(found) => RowOutcome::Rejected(cx.problems(row.number, &found)),
            },
        });
    }
    Ok(outcomes)
}

/// Returns the changes of an empty draft that give the posts of rows.
pub fn changes<'r>(cx: &RowContext<'_>, rows: &'r [Row]) -> Vec<RowChange<'r>> {
    rows.iter().map(|row| cx.change(row)).collect()
}

/// Creates the posts of rows, each from its change. Stops after a row for which the plan has no post left.
pub async fn create_all(
    cx: &RowContext<'_>,
    post_cx: &PostContext<'_>,
    tx: &mut Tx,
    rows: &[Row],
    changes: Vec<RowChange<'_>>,
) -> Result<Vec<RowOutcome>> {
    // Before the first post is counted: a deletion of a file locks the file first and then the counts of the workspace.
    post_media::lock_media(tx, cx.import.brand_id, &media_of(&changes)).await?;
    // After the files and before the counts, as for a single post.
    if rows.iter().any(is_queued) {
        queues::lock(tx, cx.import.brand_id).await?;
    }
    if post_cx.posts_per_month.is_some() {
        post_imports::lock_texts(tx, post_cx.workspace_id).await?;
    }
    let used = used_names(tx, cx, rows).await?;
    let mut outcomes = Vec::with_capacity(rows.len());
    for (row, change) in rows.iter().zip(changes) {
        let outcome = match change {
            Err(problems) => RowOutcome::Rejected(problems),
            Ok((_, Some(name))) if used.contains(name) => RowOutcome::Skipped,
            Ok((change, name)) => create(cx, post_cx, tx, row, (&change, name)).await?,
        };
        let is_last = matches!(outcome, RowOutcome::Stopped(_));
        outcomes.push(outcome);
        if is_last {
            break;
        }
    }
    Ok(outcomes)
}

fn media_of(changes: &[RowChange<'_>]) -> Vec<i64> {
    let valid = changes.iter().filter_map(|change| change.as_ref().ok());
    let ids = |(change, _): &(PostChange, Option<&str>)| match &change.media {
        PatchField::Value(ids) => ids.clone(),
        _ => Vec::new(),
    };
    valid.flat_map(ids).collect()
}

/// Creates the post of a row, in a savepoint, because a rejection may come after the first write.
async fn create(
    cx: &RowContext<'_>,
    post_cx: &PostContext<'_>,
    tx: &mut Tx,
    row: &Row,
    (change, name): (&PostChange, Option<&str>),
) -> Result<RowOutcome> {
    let savepoint = tx.set_savepoint().await?;
    let draft = Post { external_ref: name.map(str::to_owned), ..post_cx.empty_draft() };
    let created = crier_posts::create_from(post_cx, tx, draft, change, false, Problems::default()).await;
    let rejection = match created {
        Ok(_) => {
            tx.release(savepoint).await?;
            return Ok(RowOutcome::Imported);
        }
        Err(rejection) if rejection.is_rejection() => rejection,
        Err(error) => return Err(error),
    };
    tx.roll_back_to(savepoint).await?;
    Ok(match rejection {
        PostError::Invalid(found) => RowOutcome::Rejected(cx.problems(row.number, &found)),
        PostError::LimitReached { .. } => RowOutcome::Stopped(rejection.to_string()),
        rejection => RowOutcome::Rejected(vec![error(row.number, "", &rejection.to_string())]),
    })
}

/// Returns which `external_ref`s of rows exist.
async fn used_names(conn: &mut Conn, cx: &RowContext<'_>, rows: &[Row]) -> Result<HashSet<String>> {
    let posts_of_rows = rows.iter().filter_map(|row| row.post.as_ref().ok());
    let names: Vec<&str> = posts_of_rows.filter_map(|post| post.external_ref.as_deref()).collect();
    Ok(posts::with_external_refs(conn, cx.import.brand_id, &names).await?.into_iter().collect())
}

/// Checks a row as the creation of its post would. The files are not in the library yet, so what depends on them is not
/// checked. Nor is it checked whether the queue has enough free slots: `has_slots` is whether it has any slot.
async fn check(
    post_cx: &PostContext<'_>,
    conn: &mut Conn,
    row: &Row,
    change: &PostChange,
    has_slots: bool,
) -> Result<Option<ProblemSet>> {
    let draft = post_cx.empty_draft();
    let mut desired = DesiredPost::from_change(&draft, &[], change);
    let lookup = LookupContext::load(post_cx, conn, &mut desired, change).await?;
    let problems = Problems::default();
    check::check(&draft, &desired, change, &lookup, &problems);
    let has_media = row.post.as_ref().is_ok_and(|post| !post.media.is_empty());
    let has_text = !desired.content.is_empty();
    let mut found = problems.into_set().into_fields();
    if has_media {
        found.retain(|path, _| PostColumn::of(path) != Some(PostColumn::MediaUrls) && (has_text || path != "content"));
    }
    if desired.schedule_type == Some(ScheduleType::Scheduled) && !post_cx.role.can_publish() {
        found.entry("scheduled_at".to_owned()).or_default().push(PostError::ForPublishers.to_string());
    }
    if desired.schedule_type == Some(ScheduleType::Queue) {
        let problem = match (post_cx.role.can_publish(), has_slots) {
            (false, _) => Some(PostError::ForPublishers.to_string()),
            (true, false) => Some("The queue has no slots. Add slots to the queue, or choose a time.".to_owned()),
            (true, true) => None,
        };
        if let Some(problem) = problem {
            found.entry("schedule_type".to_owned()).or_default().push(problem);
        }
    }
    Ok((!found.is_empty()).then(|| found.into()))
}

impl RowContext<'_> {
    /// Returns the change of an empty draft to the post of a row, and its `external_ref`.
    fn change<'r>(&self, row: &'r Row) -> RowChange<'r> {
        let post = row.post.as_ref().map_err(|problems| stored(problems.get(..MAX_PROBLEMS).unwrap_or(problems)))?;
        let mut errors = Vec::new();
        let accounts = self.account_ids(row.number, post, &mut errors);
        let media = self.media_ids(row.number, post, &mut errors);
        if !errors.is_empty() {
            errors.truncate(MAX_PROBLEMS);
            return Err(errors);
        }
        let schedule_type = match post.schedule {
            PostSchedule::Draft => ScheduleType::Draft,
            PostSchedule::Scheduled => ScheduleType::Scheduled,
            PostSchedule::Queue => ScheduleType::Queue,
        };
        // The time of a draft may pass between an export and the import.
        let is_kept = |at: &DateTime<Utc>| post.schedule != PostSchedule::Draft || *at > self.now;
        let comment = |content: &String| FirstComment { content: content.clone(), delay_seconds: 0 };
        let change = PostChange {
            content: PatchField::Value(post.content.clone()),
            schedule_type: PatchField::Value(schedule_type),
            scheduled_at: post.scheduled_at.filter(is_kept).map_or(PatchField::Omitted, PatchField::Value),
            accounts: PatchField::Value(accounts),
            media: PatchField::Value(media),
            labels: PatchField::Value(post.labels.clone()),
            first_comment: post
                .first_comment
                .as_ref()
                .map_or(PatchField::Omitted, |text| PatchField::Value(comment(text))),
            ..PostChange::default()
        };
        Ok((change, post.external_ref.as_deref()))
    }

    fn account_ids(&self, row: u32, post: &RowPost, errors: &mut Vec<PostImportError>) -> Vec<i64> {
        if post.accounts.is_empty() {
            return self.import.accounts.clone();
        }
        let mut ids = Vec::new();
        for name in &post.accounts {
            let chosen = self.accounts.chosen(name, &ids, &self.import.accounts);
            if !chosen.is_empty() {
                let missing: Vec<i64> = chosen.into_iter().filter(|id| !ids.contains(id)).collect();
                ids.extend(missing);
                continue;
            }
            match self.accounts.id(name) {
                Ok(id) if ids.contains(&id) => {}
                Ok(id) => ids.push(id),
                Err(message) => errors.push(error(row, self.file.column_name(PostColumn::Accounts), &message)),
            }
        }
        ids
    }

    /// Returns the assets of a row's files. In a dry run, there are none.
    fn media_ids(&self, row: u32, post: &RowPost, errors: &mut Vec<PostImportError>) -> Vec<i64> {
        let mut ids = Vec::new();
        for media in &post.media {
            let result = match self.guard.check_url(&media.url, SchemePolicy::HttpOrHttps) {
                Err(reason) => Err(format!("The URL {reason}.")),
                Ok(_) if self.import.dry_run => continue,
                Ok(_) => {
                    self.media.get(&media.url).cloned().unwrap_or_else(|| Err("The file was not requested.".to_owned()))
                }
            };
            match result {
                Ok(id) if ids.contains(&id) => {}
                Ok(id) => ids.push(id),
                Err(message) => {
                    let message = format!("{}: {message}", media.url.chars().take(200).collect::<String>());
                    errors.push(error(row, self.file.column_name(PostColumn::MediaUrls), &message));
                }
            }
        }
        ids
    }

    /// Returns the problems of a post as those of its row.
    fn problems(&self, row: u32, found: &ProblemSet) -> Vec<PostImportError> {
        let problem = |(path, messages): (&String, &Vec<String>)| {
            let column = PostColumn::of(path).map_or(path.as_str(), |column| self.file.column_name(column));
            error(row, column, &messages.join(" "))
        };
        found.fields().iter().take(MAX_PROBLEMS).map(problem).collect()
    }
}

#[cfg(test)]
mod tests {
    use crier_imports::AccountName;

    use super::*;

    fn rows(count: usize, accounts: usize, bytes: usize) -> Vec<Row> {
        let accounts = vec![AccountName::Named("demo".to_owned()); accounts];
        let post = RowPost { content: "x".repeat(bytes), accounts, ..RowPost::default() };
        vec![Row { number: 2, post: Ok(post) }; count]
    }

    fn batches(rows: &[Row], default_accounts: usize) -> Vec<usize> {
        let mut sizes = Vec::new();
        let mut rest = rows;
        while let Some((batch, after)) = next_batch(rest, default_accounts) {
            sizes.push(batch.len());
            rest = after;
        }
        sizes
    }

    #[test]
    fn a_batch_is_bounded_by_its_rows_accounts_and_texts() {
        assert_eq!(batches(&rows(45, 3, 300), 0), [20, 20, 5]);
        assert_eq!(batches(&rows(5, 400, 10), 0), [2, 2, 1]);
        assert_eq!(batches(&rows(5, 0, 10), 400), [2, 2, 1]);
        assert_eq!(batches(&rows(2, 0, 60_000), 0), [1, 1]);
        assert_eq!(batches(&rows(2, 1_000, 60_000), 0), [1, 1]);
        assert_eq!(batches(&[], 1), [0_usize; 0]);
    }
}
