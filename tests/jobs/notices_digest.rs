//! Emails about problems: what they contain, how often a user gets them, and that no problem is in two of them.

use chrono::TimeDelta;
use crier_domain::access::Role;
use crier_domain::event::EventName;
use crier_domain::failure::{Category, Failure};
use crier_domain::feed::FeedType;
use crier_domain::job::{JobKind, NewJob};
use crier_domain::notice::{NoticeFrequency, NoticeKind};
use crier_scheduler::tasks;
use crier_store::feeds::{self, NewFeed};
use crier_store::{jobs, notices};

use crate::support::fake_platform::{PublishStep, permanent};
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::mail_server::MailServer;
use crate::support::store::{TestStore, on_both, run_concurrently};

on_both!(
    problems_of_an_hour_are_one_email,
    the_frequency_decides_when_an_email_is_sent,
    solved_problems_are_left_out,
    a_later_rejection_is_reported_once,
    members_get_what_they_can_act_on,
    a_lower_role_gets_no_email,
    a_long_list_is_cut,
    concurrent_schedulers_send_one_email,
    a_late_scheduler_sends_no_email_within_the_hour,
    a_clock_that_was_ahead_delays_no_email,
    problems_of_users_who_want_no_emails_are_discarded,
    a_dead_job_discards_the_problems,
);
worker_on_both!(without_a_mail_server_problems_are_only_counted, a_feed_that_fails_three_times_is_a_problem);

pub(super) async fn with_mail(s: TestStore) -> (TestWorker, MailServer) {
    let mails = MailServer::start().await;
    (TestWorker::with_mailer(s, mails.mailer()).await, mails)
}

/// Fails a post; returns its id.
async fn fail_post(w: &TestWorker) -> i64 {
    w.fake.script_publishes([PublishStep::Reject(permanent())]);
    let (post, _) = w.publish_one().await;
    w.run_jobs().await;
    post
}

/// Runs the task of the scheduler, and the jobs.
pub(super) async fn tick(w: &TestWorker) {
    tasks::notices::run(&w.scheduler).await.unwrap();
    w.run_jobs().await;
}

pub(super) async fn waiting(w: &TestWorker) -> i64 {
    w.count_rows("notices").await
}

/// Returns an email without the encoding of long lines.
pub(super) fn decode(mail: &str) -> String {
    mail.replace("=\n", "").replace("=3D", "=")
}

/// Asserts that each link in an email is that of a page of the console; returns how many there are.
pub(super) fn links_to_pages(mail: &str) -> usize {
    let pages = crier_api::console_paths().into_iter().filter(|(method, _)| *method == "GET");
    let pages: Vec<Vec<&str>> = pages.map(|(_, path)| path.split('/').collect()).collect();
    let is_page = |link: &str| {
        let path: Vec<&str> = link.split('?').next().unwrap().split('/').collect();
        let is_path = |page: &Vec<&str>| {
            page.len() == path.len() && page.iter().zip(&path).all(|(one, other)| one.starts_with('{') || one == other)
        };
        pages.iter().any(is_path)
    };
    let text = decode(mail);
    let links = text.split_whitespace().filter_map(|word| word.strip_prefix("https://crier.example"));
    links.inspect(|link| assert!(is_page(link), "{link} is no page")).count()
}

async fn problems_of_an_hour_are_one_email(s: TestStore) {
    let (w, mails) = with_mail(s).await;
    let post = fail_post(&w).await;
    w.clock.advance(TimeDelta::minutes(30));
    let other = fail_post(&w).await;
    tick(&w).await;
    assert_eq!((mails.mails().len(), waiting(&w).await), (0, 2));
    w.clock.advance(TimeDelta::minutes(30));
    tick(&w).await;
    let [mail] = &mails.mails()[..] else { panic!("one email: {:?}", mails.mails()) };
    assert!(mail.contains("Subject: Crier: 2 problems need your attention"), "{mail}");
    for expected in [
        "Posts that could not be published on an account:".to_owned(),
        "Fresh bread (Bakery)".to_owned(),
        format!("https://crier.example/brands/{}/posts/{post}", w.world.brand),
        format!("https://crier.example/brands/{}/posts/{other}", w.world.brand),
        format!("https://crier.example/brands/{}/settings/notifications", w.world.brand),
    ] {
        assert!(mail.replace("=\n", "").contains(&expected), "{expected} in {mail}");
    }
    assert_eq!(links_to_pages(mail), 3, "{mail}");
    assert_eq!(waiting(&w).await, 0);
    w.clock.advance(TimeDelta::days(2));
    tick(&w).await;
    assert_eq!(mails.mails().len(), 1);
}

async fn the_frequency_decides_when_an_email_is_sent(s: TestStore) {
    let (w, mails) = with_mail(s).await;
    let set = async |frequency| w.write(async |tx| notices::set_frequency(tx, w.world.user, frequency).await).await;
    set(NoticeFrequency::Immediately).await;
    fail_post(&w).await;
    tick(&w).await;
    assert_eq!(mails.mails().len(), 1);
    // At most one per hour.
    fail_post(&w).await;
    w.clock.advance(TimeDelta::minutes(59));
    tick(&w).await;
    assert_eq!(mails.mails().len(), 1);
    w.clock.advance(TimeDelta::minutes(1));
    tick(&w).await;
    assert_eq!(mails.mails().len(), 2);
    set(NoticeFrequency::Daily).await;
    w.clock.advance(TimeDelta::hours(2));
    fail_post(&w).await;
    w.clock.advance(TimeDelta::hours(23));
    tick(&w).await;
    assert_eq!(mails.mails().len(), 2);
    w.clock.advance(TimeDelta::hours(1));
    tick(&w).await;
    assert_eq!(mails.mails().len(), 3);
    fail_post(&w).await;
    set(NoticeFrequency::Never).await;
    assert_eq!(waiting(&w).await, 0);
    fail_post(&w).await;
    assert_eq!(waiting(&w).await, 0);
    let frequency = notices::frequency(&mut w.conn().await, w.world.user).await.unwrap();
    assert_eq!(frequency, Some(NoticeFrequency::Never));
}

async fn solved_problems_are_left_out(s: TestStore) {
    let (w, mails) = with_mail(s).await;
    let post = fail_post(&w).await;
    w.publish_again(post).await;
    w.run_jobs().await;
    w.clock.advance(TimeDelta::hours(1));
    tick(&w).await;
    assert_eq!((mails.mails().len(), waiting(&w).await), (0, 0), "it was published");
    // Nothing was sent, so the next email need not wait for an hour.
    fail_post(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    tick(&w).await;
    assert_eq!(mails.mails().len(), 1);
}

async fn a_later_rejection_is_reported_once(s: TestStore) {
    let (w, mails) = with_mail(s).await;
    w.fake.enable_metrics();
    let (post, target) = w.publish_one().await;
    w.run_jobs().await;
    w.listen_for("http://127.0.0.1:1/", &[EventName::PostRejectedByPlatform]).await;
    let collect_after = async |hours| {
        let failure = Failure::with_code(Category::PlatformRejected, "rejected_later", "It is a duplicate.");
        w.fake.reject_later([Some(failure)]);
        w.clock.advance(TimeDelta::hours(hours));
        tasks::analytics::run(&w.scheduler).await.unwrap();
        w.run_jobs().await;
    };
    collect_after(0).await;
    assert_eq!(waiting(&w).await, 0, "it is not checked yet");
    collect_after(1).await;
    assert_eq!(w.target(target).await.error.unwrap().code, "rejected_later");
    let [data] = &w.event_data("post.rejected_by_platform").await[..] else { panic!("one event") };
    assert_eq!((&data["post_id"], &data["error"]["message"]), (&post.into(), &"It is a duplicate.".into()));
    w.clock.advance(TimeDelta::hours(1));
    tick(&w).await;
    let [mail] = &mails.mails()[..] else { panic!("one email: {:?}", mails.mails()) };
    assert!(mail.contains("Published posts that a platform rejected later:"), "{mail}");
    assert!(mail.replace("=\n", "").contains(&format!("/posts/{post}")), "{mail}");

    collect_after(4).await;
    assert_eq!((w.event_data("post.rejected_by_platform").await.len(), waiting(&w).await), (1, 0));
}

async fn members_get_what_they_can_act_on(s: TestStore) {
    let (w, mails) = with_mail(s).await;
    let mut users = vec![w.world.user];
    for (email, role) in
        [("admin@x.example", Role::Admin), ("editor@x.example", Role::Editor), ("writer@x.example", Role::Contributor)]
    {
        let user = w.user(w.world.workspace, email).await;
        w.member(w.world.brand, user, role).await;
        users.push(user);
    }
    let of = async |kind: NoticeKind| w.count_rows(format!("notices WHERE kind = '{kind}'")).await;
    let post = fail_post(&w).await;
    assert_eq!(of(NoticeKind::PostFailed).await, 3);
    w.write(async |tx| notices::add(tx, NoticeKind::PostPending, w.world.brand, post).await).await;
    w.write(async |tx| notices::add(tx, NoticeKind::PostPending, w.world.brand, post).await).await;
    assert_eq!(of(NoticeKind::PostPending).await, 2);
    // A member who leaves the brand gets no email about it.
    w.remove_member(w.world.brand, users[1]).await;
    w.clock.advance(TimeDelta::hours(1));
    tick(&w).await;
    let recipients: Vec<bool> = ["ann@example.com", "editor@x.example"]
        .iter()
        .map(|email| mails.mails().iter().any(|mail| mail.contains(email)))
        .collect();
    assert_eq!((recipients, mails.mails().len()), (vec![true, true], 2));
}

async fn a_lower_role_gets_no_email(s: TestStore) {
    let (w, mails) = with_mail(s).await;
    fail_post(&w).await;
    w.member(w.world.brand, w.world.user, Role::Contributor).await;
    w.clock.advance(TimeDelta::hours(1));
    tick(&w).await;
    assert_eq!((mails.mails().len(), waiting(&w).await), (0, 0));
}

async fn a_long_list_is_cut(s: TestStore) {
    let (w, mails) = with_mail(s).await;
    let post = fail_post(&w).await;
    w.copy_newest_row("posts", 60, &[]).await;
    w.sql(format!(
        "INSERT INTO notices (user_id, kind, subject_id, created_at)
         SELECT n.user_id, n.kind, p.id, n.created_at
         FROM notices n
         CROSS JOIN posts p
         WHERE p.id <> {post}"
    ))
    .await;
    w.expire_account(w.account.id).await;
    w.write(async |tx| notices::add_for_account(tx, NoticeKind::AccountExpired, w.account.id).await).await;
    w.clock.advance(TimeDelta::hours(1));
    tick(&w).await;
    let mail = mails.mails().remove(0);
    assert!(mail.contains("62 problems need your attention") && mail.contains("And 12 more."), "{mail}");
    assert!(mail.contains("/accounts/connect/sandbox"), "posts do not displace an account: {mail}");
    assert_eq!(waiting(&w).await, 0);
}

async fn concurrent_schedulers_send_one_email(s: TestStore) {
    let (w, mails) = with_mail(s).await;
    fail_post(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    let scheduler = &w.scheduler;
    run_concurrently(4, |_| {
        let scheduler = scheduler.clone();
        async move { tasks::notices::run(&scheduler).await.unwrap() }
    })
    .await;
    assert_eq!(w.count_rows("jobs WHERE kind = 'send_digest'").await, 1);
    w.run_jobs().await;
    tick(&w).await;
    assert_eq!(mails.mails().len(), 1);
}

/// A scheduler reads that an email is due, and enqueues its job after another job has sent it.
async fn a_late_scheduler_sends_no_email_within_the_hour(s: TestStore) {
    let (w, mails) = with_mail(s).await;
    fail_post(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    tick(&w).await;
    assert_eq!(mails.mails().len(), 1);
    fail_post(&w).await;
    w.write(async |tx| jobs::enqueue(tx, &NewJob::new(JobKind::SendDigest, w.world.user, tx.now)).await).await;
    w.run_jobs().await;
    assert_eq!((mails.mails().len(), waiting(&w).await), (1, 1));
    w.clock.advance(TimeDelta::hours(1));
    tick(&w).await;
    assert_eq!((mails.mails().len(), waiting(&w).await), (2, 0));
}

async fn a_clock_that_was_ahead_delays_no_email(s: TestStore) {
    let (w, mails) = with_mail(s).await;
    let ahead = TimeDelta::days(30);
    w.clock.advance(ahead);
    w.write(async |tx| notices::mark_mailed(tx, w.world.user).await).await;
    w.clock.advance(-ahead);
    let post = fail_post(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    tick(&w).await;
    assert_eq!(mails.mails().len(), 1, "the time of the last email");
    w.clock.advance(ahead);
    w.write(async |tx| notices::add(tx, NoticeKind::PostFailed, w.world.brand, post).await).await;
    w.clock.advance(TimeDelta::hours(1) - ahead);
    tick(&w).await;
    assert_eq!(mails.mails().len(), 2, "the time of a problem");
}

/// The transaction of a problem reads the frequency before the user changes it.
async fn problems_of_users_who_want_no_emails_are_discarded(s: TestStore) {
    let (w, mails) = with_mail(s).await;
    fail_post(&w).await;
    w.sql("UPDATE users SET notice_frequency = 'never'").await;
    w.clock.advance(TimeDelta::days(1));
    tick(&w).await;
    assert_eq!((mails.mails().len(), waiting(&w).await), (0, 0));
}

async fn a_dead_job_discards_the_problems(s: TestStore) {
    let (w, mails) = with_mail(s).await;
    fail_post(&w).await;
    let kind = JobKind::SendDigest;
    w.write(async |tx| crier_jobs::on_dead(tx, kind, w.world.user, None).await).await;
    let described = crier_jobs::describe(&mut w.conn().await, kind, w.world.user).await.unwrap().unwrap();
    assert_eq!(described.words, format!("notices of user {}, hourly", w.world.user));
    w.clock.advance(TimeDelta::hours(1));
    tick(&w).await;
    assert_eq!((waiting(&w).await, mails.mails().len()), (0, 0));
}

async fn without_a_mail_server_problems_are_only_counted(w: TestWorker) {
    fail_post(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    tick(&w).await;
    assert_eq!((waiting(&w).await, w.count_rows("mails").await), (0, 0));
    let (brand, user) = (w.world.brand, w.world.user);
    let count = notices::count_problems(&mut w.conn().await, brand, user, true, 100).await.unwrap();
    assert_eq!(count, 1);
    w.expire_account(w.account.id).await;
    let count = notices::count_problems(&mut w.conn().await, brand, user, true, 100).await.unwrap();
    assert_eq!(count, 2);
}

async fn a_feed_that_fails_three_times_is_a_problem(w: TestWorker) {
    // Nothing listens there.
    let new = NewFeed { name: "News", named: true, url: "http://127.0.0.1:1/feed", kind: FeedType::Rss };
    let feed = w.write(async |tx| feeds::create(tx, w.world.brand, &new, None).await).await;
    w.run_jobs().await;
    for failures in 2..5 {
        let at = feeds::find_any(&mut w.conn().await, feed.id).await.unwrap().unwrap().next_fetch_at;
        w.clock.advance(at - w.clock.now());
        tasks::feeds::run(&w.scheduler).await.unwrap();
        w.run_jobs().await;
        assert_eq!(waiting(&w).await, i64::from(failures >= 3), "{failures}");
    }
}
