//! The sandbox end to end: a visitor's comment arrives in the inbox, and the reply appears on the page.

use crier_domain::conversation::{ConversationStatus, MessageStatus};
use crier_domain::failure::Category;
use crier_domain::post::TargetStatus;
use crier_domain::sandbox::SandboxComment;
use crier_platforms::{Connector, Published, ReplyKind};
use crier_store::inbox_syncs;
use crier_store::sandbox::{self, CommentOutcome};

use super::inbox::{bodies, start, sync};
use super::replies::message;
use super::sandbox::{account, connector, reply_to};
use crate::support::inbox::{all, reply};
use crate::support::jobs::TestWorker;
use crate::support::store::{TestStore, on_both};

on_both!(worker =>
    a_reply_appears_on_the_page,
    a_first_comment_is_no_message,
    comments_beyond_one_page_are_synced,
    the_fail_keyword_rejects_a_reply,
    the_flaky_keyword_is_retried,
    an_expired_handle_is_not_synced,
);

async fn worker(s: TestStore) -> TestWorker {
    let w = TestWorker::with_sandbox(s).await;
    w.write(async |tx| sandbox::claim_handle(tx, w.world.workspace, "demo").await).await;
    start(&w).await;
    w
}

/// Publishes a post. Returns its id on the sandbox page and its id in Crier.
async fn publish_post(w: &TestWorker) -> (i64, i64) {
    let (post, target) = w.publish_one().await;
    w.run_jobs().await;
    let found_target = w.target(target).await;
    assert_eq!(found_target.status, TargetStatus::Published);
    (found_target.external_id.unwrap().parse().unwrap(), post)
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

async fn a_reply_appears_on_the_page(w: TestWorker) {
    let (sandbox_post, post) = publish_post(&w).await;
    let comment_id = comment(&w, sandbox_post, "When do you open?").await;
    sync(&w).await;
    let found = all(&w, w.world.brand).await.remove(0);
    assert_eq!((found.thread_id, found.unread_count, found.post_id), (comment_id.to_string(), 1, Some(post)));
    assert_eq!(
        (found.participant_name.as_deref(), found.subject_external_id),
        (Some("Vera"), Some(sandbox_post.to_string()))
    );
    let subject_url = found.subject_url.unwrap();
    assert!(subject_url.ends_with(&format!("/sandbox/demo?from={sandbox_post}#post-{sandbox_post}")), "{subject_url}");
    let id = reply(&w, found.id, "At seven.").await;
    w.run_jobs().await;
    assert_eq!(message(&w, id).await.status, MessageStatus::Sent);
    let shown = on_page(&w, sandbox_post).await;
    let shown_reply = &shown[1];
    assert_eq!(
        (shown.len(), shown_reply.body.as_str(), shown_reply.is_own, shown_reply.parent_id),
        (2, "At seven.", true, Some(comment_id))
    );
    // The next sync recognizes the comment as the reply.
    w.advance(70);
    sync(&w).await;
    assert_eq!(bodies(&w, found.id).await, ["When do you open?", "At seven."]);
    assert_eq!(all(&w, w.world.brand).await.len(), 1);
}

async fn a_first_comment_is_no_message(w: TestWorker) {
    let (sandbox_post, _) = publish_post(&w).await;
    let post = Published::new(sandbox_post.to_string(), None);
    let first = reply_to(ReplyKind::Comment, &post, &post, "Order at bakery.example");
    connector(&w.s).publish(&account(&w), &first).await.unwrap();
    sync(&w).await;
    assert_eq!(all(&w, w.world.brand).await.len(), 0);
    comment(&w, sandbox_post, "When do you open?").await;
    w.advance(70);
    sync(&w).await;
    let found = all(&w, w.world.brand).await.remove(0);
    assert_eq!(bodies(&w, found.id).await, ["When do you open?"]);
    assert_eq!(on_page(&w, sandbox_post).await.len(), 1);
}

async fn comments_beyond_one_page_are_synced(w: TestWorker) {
    let (sandbox_post, _) = publish_post(&w).await;
    for n in 0..130 {
        comment(&w, sandbox_post, &format!("comment {n}")).await;
    }
    sync(&w).await;
    assert_eq!(w.count_rows("conversations WHERE unread_count = 1").await, 130);
    w.advance(70);
    comment(&w, sandbox_post, "one more").await;
    sync(&w).await;
    assert_eq!(w.count_rows("messages").await, 131);
    assert_eq!(all(&w, w.world.brand).await[0].status, ConversationStatus::Open);
}

async fn the_fail_keyword_rejects_a_reply(w: TestWorker) {
    let (sandbox_post, _) = publish_post(&w).await;
    comment(&w, sandbox_post, "When do you open?").await;
    sync(&w).await;
    let conversation = all(&w, w.world.brand).await[0].id;
    let id = reply(&w, conversation, "[fail]").await;
    w.run_jobs().await;
    let failed = message(&w, id).await;
    assert_eq!((failed.status, failed.error.unwrap().category), (MessageStatus::Failed, Category::PlatformRejected));
    assert_eq!(on_page(&w, sandbox_post).await.len(), 1);
}

async fn the_flaky_keyword_is_retried(w: TestWorker) {
    let (sandbox_post, _) = publish_post(&w).await;
    comment(&w, sandbox_post, "When do you open?").await;
    sync(&w).await;
    let conversation = all(&w, w.world.brand).await[0].id;
    let id = reply(&w, conversation, "At seven [flaky]").await;
    for attempts in 1..=2 {
        w.run_jobs().await;
        assert_eq!((message(&w, id).await.status, message(&w, id).await.attempts), (MessageStatus::Pending, attempts));
        w.advance(1);
    }
    w.run_jobs().await;
    assert_eq!((message(&w, id).await.status, on_page(&w, sandbox_post).await.len()), (MessageStatus::Sent, 2));
}

async fn an_expired_handle_is_not_synced(w: TestWorker) {
    w.write(async |tx| sandbox::expire(tx, "demo").await).await;
    sync(&w).await;
    assert_eq!(w.account_status().await.as_str(), "expired");
    let row = inbox_syncs::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap();
    assert_eq!(row.last_error.unwrap().category, Category::AuthExpired);
}
