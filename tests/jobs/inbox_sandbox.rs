//! The sandbox end to end: a visitor's comment arrives in the inbox, is answered, and the answer is on the page.

use crier_domain::conversation::{ConversationStatus, MessageStatus};
use crier_domain::failure::Category;
use crier_domain::post::TargetStatus;
use crier_store::inbox_syncs;
use crier_store::sandbox::{self, CommentOutcome, SandboxComment};

use super::inbox::{all, bodies, start, sync};
use super::replies::{message, reply};
use crate::support::jobs::TestWorker;
use crate::support::store::{TestStore, on_both};

on_both!(
    a_comment_is_answered_on_the_page,
    more_comments_than_a_page_arrive,
    the_fail_keyword_refuses_an_answer,
    the_flaky_keyword_is_tried_again,
    an_expired_handle_is_not_read,
);

async fn worker(s: TestStore) -> TestWorker {
    let w = TestWorker::with_sandbox(s).await;
    w.write(async |tx| sandbox::claim_handle(tx, w.world.workspace, "demo").await).await;
    start(&w).await;
    w
}

/// Publishes a post; returns its id on the page and ours.
async fn published(w: &TestWorker) -> (i64, i64) {
    let (post, target) = w.publish_one().await;
    w.run_jobs().await;
    let ended = w.target(target).await;
    assert_eq!(ended.status, TargetStatus::Published);
    (ended.external_id.unwrap().parse().unwrap(), post)
}

async fn comment(w: &TestWorker, post: i64, body: &str) -> i64 {
    match w.write(async |tx| sandbox::comment(tx, "demo", post, "Vera", body).await).await {
        CommentOutcome::Added(id) => id,
        other => panic!("{other:?}"),
    }
}

async fn on_page(w: &TestWorker, post: i64) -> Vec<SandboxComment> {
    let found = sandbox::comments(&mut w.conn().await, &[post], 200).await.unwrap();
    found.into_iter().map(|counted| counted.comment).collect()
}

async fn a_comment_is_answered_on_the_page(s: TestStore) {
    let w = worker(s).await;
    let (page, post) = published(&w).await;
    let asked = comment(&w, page, "When do you open?").await;
    sync(&w).await;
    let found = all(&w, w.world.brand).await.remove(0);
    assert_eq!((found.thread_id, found.unread_count, found.post_id), (asked.to_string(), 1, Some(post)));
    assert_eq!((found.participant_name.as_deref(), found.subject_external_id), (Some("Vera"), Some(page.to_string())));
    let subject_url = found.subject_url.unwrap();
    assert!(subject_url.ends_with(&format!("/sandbox/demo?from={page}#post-{page}")), "{subject_url}");
    let id = reply(&w, found.id, "At seven.").await;
    w.run_jobs().await;
    assert_eq!(message(&w, id).await.status, MessageStatus::Sent);
    let shown = on_page(&w, page).await;
    let answer = &shown[1];
    assert_eq!(
        (shown.len(), answer.body.as_str(), answer.is_own, answer.parent_id),
        (2, "At seven.", true, Some(asked))
    );
    // It is read back as the reply that it is.
    w.advance(70);
    sync(&w).await;
    assert_eq!(bodies(&w, found.id).await, ["When do you open?", "At seven."]);
    assert_eq!(all(&w, w.world.brand).await.len(), 1);
}

async fn more_comments_than_a_page_arrive(s: TestStore) {
    let w = worker(s).await;
    let (page, _) = published(&w).await;
    for n in 0..130 {
        comment(&w, page, &format!("comment {n}")).await;
    }
    sync(&w).await;
    assert_eq!(w.number("SELECT count(*) FROM conversations WHERE unread_count = 1").await, 130);
    w.advance(70);
    comment(&w, page, "one more").await;
    sync(&w).await;
    assert_eq!(w.number("SELECT count(*) FROM messages").await, 131);
    assert_eq!(all(&w, w.world.brand).await[0].status, ConversationStatus::Open);
}

async fn the_fail_keyword_refuses_an_answer(s: TestStore) {
    let w = worker(s).await;
    let (page, _) = published(&w).await;
    comment(&w, page, "When do you open?").await;
    sync(&w).await;
    let conversation = all(&w, w.world.brand).await[0].id;
    let id = reply(&w, conversation, "[fail]").await;
    w.run_jobs().await;
    let failed = message(&w, id).await;
    assert_eq!((failed.status, failed.error.unwrap().category), (MessageStatus::Failed, Category::PlatformRejected));
    assert_eq!(on_page(&w, page).await.len(), 1);
}

async fn the_flaky_keyword_is_tried_again(s: TestStore) {
    let w = worker(s).await;
    let (page, _) = published(&w).await;
    comment(&w, page, "When do you open?").await;
    sync(&w).await;
    let conversation = all(&w, w.world.brand).await[0].id;
    let id = reply(&w, conversation, "At seven [flaky]").await;
    for attempts in 1..=2 {
        w.run_jobs().await;
        assert_eq!((message(&w, id).await.status, message(&w, id).await.attempts), (MessageStatus::Pending, attempts));
        w.advance(1);
    }
    w.run_jobs().await;
    assert_eq!((message(&w, id).await.status, on_page(&w, page).await.len()), (MessageStatus::Sent, 2));
}

async fn an_expired_handle_is_not_read(s: TestStore) {
    let w = worker(s).await;
    w.write(async |tx| sandbox::expire(tx, "demo").await).await;
    sync(&w).await;
    assert_eq!(w.account_status().await.as_str(), "expired");
    let row = inbox_syncs::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap();
    assert_eq!(row.last_error.unwrap().category, Category::AuthExpired);
}
