//! `crier resume`: resumes publishing after a restore, once the operator has reviewed what is overdue.

use chrono::{DateTime, Utc};
use crier_domain::job::{JobKind, JobState};
use crier_store::Conn;
use crier_store::jobs::operate::{self, JobQuery};
use crier_store::post_overview::{self, PostSummary};
use serde::Serialize;

use super::super::{Context, Result, fail, jobs};
use super::held_kinds;
use crate::cli::{Overdue, ResumeArgs};
use crate::output::{print_line, print_rows, shortened};

const MAX_SHOWN: i64 = 100;
const MAX_TEXT: usize = 60;

#[derive(Serialize)]
struct OverdueLine {
    id: i64,
    brand: i64,
    was_due: Option<String>,
    text: String,
}

pub async fn run(cx: &Context, args: ResumeArgs) -> Result {
    let mut conn = cx.store.read().await?;
    let paused = operate::paused_kinds(&mut conn).await?;
    let held: Vec<JobKind> = held_kinds().filter(|kind| paused.contains(kind)).collect();
    if held.is_empty() {
        return fail("nothing is held; `crier jobs kinds` shows the kinds of jobs that were paused individually");
    }
    let running = count_running(&mut conn, &held).await?;
    if running > 0 {
        return fail(format!(
            "{running} posts, comments, deletions, replies and emails were in progress when the backup was made; start \
             crier and wait a minute until it has recovered them, then run `crier resume` again"
        ));
    }
    let now = cx.store.now();
    let overdue = operate::due_ids(&mut conn, &held, now).await?;
    let what = describe_due(&mut conn, &held, now).await?;
    let posts = post_overview::overdue(&mut conn, now, MAX_SHOWN).await?;
    drop(conn);
    match args.overdue {
        _ if overdue.is_empty() => {}
        None => {
            show(posts);
            return fail(format!(
                "{what} are overdue, and may have been completed after the backup was made. Check the accounts, then \
                 choose: `crier resume --overdue cancel` marks them as failed, `crier resume --overdue publish` starts \
                 them, however late they are"
            ));
        }
        Some(Overdue::Cancel) => jobs::change::cancel(cx, &overdue).await?,
        Some(Overdue::Publish) => print_line(format_args!("{what} start now.")),
    }
    let mut tx = cx.store.begin().await?;
    if matches!(args.overdue, Some(Overdue::Publish)) {
        operate::make_due_now(&mut tx, &overdue).await?;
    }
    for kind in held {
        operate::resume_kind(&mut tx, kind).await?;
    }
    tx.commit().await?;
    print_line("Resumed publishing, comments, deletions, replies and emails.");
    Ok(())
}

/// Describes the number of due posts, and of everything else that is due. A post to several accounts counts once.
async fn describe_due(conn: &mut Conn, held: &[JobKind], now: DateTime<Utc>) -> crier_store::Result<String> {
    let posts = if held.contains(&JobKind::PublishTarget) { operate::count_due_posts(conn, now).await? } else { 0 };
    let others: Vec<JobKind> = held.iter().copied().filter(|kind| *kind != JobKind::PublishTarget).collect();
    let others = operate::due_ids(conn, &others, now).await?.len();
    Ok(format!("Posts: {posts}; comments, deletions, replies and emails: {others}. They"))
}

/// Returns the number of running jobs of these kinds. A restored one belongs to a process that no longer exists. Until it
/// is rescued, it is not among the due jobs, and would run without a review.
async fn count_running(conn: &mut Conn, kinds: &[JobKind]) -> crier_store::Result<i64> {
    let mut running = 0;
    for kind in kinds {
        let of_kind = JobQuery { kind: Some(*kind), state: Some(JobState::Running), lane: None, created_before: None };
        running += operate::count(conn, &of_kind).await?;
    }
    Ok(running)
}

fn show(posts: Vec<PostSummary>) {
    let row = |post: PostSummary| OverdueLine {
        id: post.id,
        brand: post.brand_id,
        was_due: post.scheduled_at.map(|at| at.format("%F %H:%M").to_string()),
        text: shortened(&post.content, MAX_TEXT),
    };
    if !posts.is_empty() {
        print_rows(&posts.into_iter().map(row).collect::<Vec<_>>(), false);
    }
}
