//! The outbox: how an email is stored, and what its attempts change.

use crier_domain::job::JobKind;
use crier_domain::mail::{Mail, MailStatus};
use crier_jobs as jobs;
use crier_store::mails::{self, NewMail};
use crier_store::users;

use crate::support::store::{TestStore, on_both};

on_both![
    a_mail_round_trips_and_has_a_job,
    a_rolled_back_mail_is_never_sent,
    a_message_id_is_unique,
    deleting_a_user_deletes_its_mails,
    a_deferred_mail_keeps_its_error_until_sent,
    a_sent_mail_stays_sent,
    a_dead_job_fails_its_mail,
    old_mails_that_have_ended_are_purged,
];

const NEW_MAIL: NewMail<'_> = NewMail {
    recipient: "ann@example.com",
    subject: "Naïve ☃",
    body_text: "One\nTwo\n",
    message_id: "<mail-1@example.com>",
    body_html: None,
    unsubscribe_url: None,
    delivery_id: None,
    has_file: false,
};

async fn create_mail(s: &TestStore) -> i64 {
    let w = s.create_world().await;
    s.write(async |tx| mails::enqueue_mail(tx, w.user, &NEW_MAIL, Some("request-1")).await).await
}

async fn find_mail(s: &TestStore, id: i64) -> Mail {
    mails::find(&mut s.conn().await, id).await.unwrap().unwrap()
}

async fn a_mail_round_trips_and_has_a_job(s: TestStore) {
    let id = create_mail(&s).await;
    let mail = find_mail(&s, id).await;
    assert_eq!((mail.id, mail.recipient.as_str(), mail.subject.as_str()), (id, "ann@example.com", "Naïve ☃"));
    assert_eq!((mail.body_text.as_str(), mail.message_id.as_str()), ("One\nTwo\n", "<mail-1@example.com>"));
    assert_eq!((mail.status, mail.error, mail.sent_at), (MailStatus::Pending, None, None));
    assert_eq!((mail.created_at, mail.user_id), (s.now(), s.number("SELECT id FROM users").await));
    let job = s.show(s.notifier.take()[0]).await;
    assert_eq!((job.kind, job.subject_id, job.trace.as_deref()), (JobKind::SendMail, id, Some("request-1")));
    assert_eq!(job.lane.as_deref(), Some("mail_server"));
    assert!(mails::find(&mut s.conn().await, 999).await.unwrap().is_none());
}

async fn a_rolled_back_mail_is_never_sent(s: TestStore) {
    let w = s.create_world().await;
    s.discard(async |tx| mails::enqueue_mail(tx, w.user, &NEW_MAIL, None).await).await;
    assert_eq!(s.number("SELECT count(*) FROM mails").await, 0);
    assert_eq!((s.number("SELECT count(*) FROM jobs").await, s.notifier.take().len()), (0, 0));
}

async fn a_message_id_is_unique(s: TestStore) {
    let w = s.create_world().await;
    s.write(async |tx| mails::enqueue_mail(tx, w.user, &NEW_MAIL, None).await).await;
    let duplicate = s.try_write(async |tx| mails::enqueue_mail(tx, w.user, &NEW_MAIL, None).await).await;
    assert!(duplicate.unwrap_err().is_unique_violation());
}

async fn deleting_a_user_deletes_its_mails(s: TestStore) {
    let id = create_mail(&s).await;
    assert!(s.write(async |tx| users::delete(tx, "ann@example.com").await).await);
    assert!(mails::find(&mut s.conn().await, id).await.unwrap().is_none());
    assert!(jobs::describe(&mut s.conn().await, JobKind::SendMail, id).await.unwrap().is_none());
}

async fn a_deferred_mail_keeps_its_error_until_sent(s: TestStore) {
    let id = create_mail(&s).await;
    s.write(async |tx| mails::mark_deferred(tx, id, "nobody answers").await).await;
    let mail = find_mail(&s, id).await;
    assert_eq!((mail.status, mail.error.as_deref()), (MailStatus::Pending, Some("nobody answers")));
    assert_eq!(mail.body_text, "One\nTwo\n");
    s.advance(60);
    s.write(async |tx| mails::mark_sent(tx, id).await).await;
    let mail = find_mail(&s, id).await;
    assert_eq!((mail.status, mail.error, mail.sent_at), (MailStatus::Sent, None, Some(s.now())));
    let text = (mail.body_text.as_str(), mail.body_html, mail.unsubscribe_url);
    assert_eq!(text, ("", None, None), "the links in a sent email are not kept");
}

async fn a_sent_mail_stays_sent(s: TestStore) {
    let id = create_mail(&s).await;
    s.write(async |tx| mails::mark_sent(tx, id).await).await;
    s.write(async |tx| mails::mark_deferred(tx, id, "late").await).await;
    s.write(async |tx| mails::mark_failed(tx, id, "late").await).await;
    assert!(!s.write(async |tx| mails::retry_failed(tx, id).await).await);
    let mail = find_mail(&s, id).await;
    assert_eq!((mail.status, mail.error), (MailStatus::Sent, None));
}

async fn a_dead_job_fails_its_mail(s: TestStore) {
    let id = create_mail(&s).await;
    s.write(async |tx| {
        jobs::lock(tx, JobKind::SendMail, id).await?;
        jobs::on_dead(tx, JobKind::SendMail, id, None).await
    })
    .await;
    let mail = find_mail(&s, id).await;
    assert_eq!(mail.status, MailStatus::Failed);
    assert!(mail.error.unwrap().contains("retry"), "the error names the fix");
    let retry = async || s.write(async |tx| jobs::on_retry(tx, JobKind::SendMail, id).await).await;
    assert!(retry().await);
    assert_eq!((find_mail(&s, id).await.status, find_mail(&s, id).await.error), (MailStatus::Pending, None));
    assert!(!retry().await, "it has not failed");
    s.write(async |tx| jobs::on_cancelled(tx, JobKind::SendMail, id).await).await;
    assert!(find_mail(&s, id).await.error.unwrap().contains("operator"));
    let description = jobs::describe(&mut s.conn().await, JobKind::SendMail, id).await.unwrap().unwrap();
    assert!(
        description.words.contains("failed") && !description.words.contains("example.com"),
        "{}",
        description.words
    );
}

async fn old_mails_that_have_ended_are_purged(s: TestStore) {
    let w = s.create_world().await;
    let mut ids = Vec::new();
    for message_id in ["<1@example.com>", "<2@example.com>", "<3@example.com>", "<4@example.com>"] {
        ids.push(
            s.write(async |tx| mails::enqueue_mail(tx, w.user, &NewMail { message_id, ..NEW_MAIL }, None).await).await,
        );
        s.advance(10);
    }
    s.write(async |tx| {
        mails::mark_sent(tx, ids[0]).await?;
        mails::mark_failed(tx, ids[1], "rejected").await?;
        mails::mark_sent(tx, ids[3]).await
    })
    .await;
    let before = s.later(-15);
    assert_eq!(s.write(async |tx| mails::purge(tx, before, 1).await).await, 1, "the oldest first");
    assert!(mails::find(&mut s.conn().await, ids[0]).await.unwrap().is_none());
    assert_eq!(s.write(async |tx| mails::purge(tx, before, 10).await).await, 1);
    let remaining = [find_mail(&s, ids[2]).await.status, find_mail(&s, ids[3]).await.status];
    assert_eq!(remaining, [MailStatus::Pending, MailStatus::Sent], "one waits, one is too young");
}
