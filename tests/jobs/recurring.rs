//! Recurring posts: each occurrence becomes one post, whatever happens in between, and the posts that users change stay.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::access::Role;
use crier_domain::content_plan::Destination;
use crier_domain::job::{JobKind, Outcome};
use crier_domain::post::Post;
use crier_domain::recurrence::Frequency;
use crier_domain::recurring_post::{RecurringPost, Variation};
use crier_jobs::publishing;
use crier_scheduler::tasks;
use crier_store::{brands, posts, recurring_posts};

use crate::support::jobs::{TestWorker, worker_on_both};

worker_on_both!(
    the_posts_of_30_days_are_made_once,
    a_late_scheduler_makes_up_for_missed_days,
    a_crash_in_between_makes_no_post_twice,
    two_runs_at_the_same_time_make_each_post_once,
    posts_that_users_change_or_delete_stay_as_they_are,
    a_change_during_a_run_is_carried_out,
    a_rule_that_ends_or_is_deleted_takes_its_posts_with_it,
    each_destination_has_its_status,
    a_contributor_changes_no_text_that_waits_for_its_approval,
    a_full_plan_is_a_problem_of_the_rule,
    a_full_plan_does_not_keep_the_old_text_of_posts,
    posts_stop_at_the_storage_of_the_plan,
    a_rejected_variation_does_not_block_the_others,
    a_rule_without_its_author_has_a_problem,
    a_time_zone_moves_the_posts,
    daylight_saving_neither_skips_nor_repeats_a_post,
    rules_that_are_not_due_cost_nothing,
    a_dead_job_is_a_problem_of_the_rule,
);

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// Returns a rule that publishes every day at 09:00. The tests begin on 2026-06-09 at 10:13.
fn daily(w: &TestWorker) -> RecurringPost {
    let now = w.store.now();
    let variation = |text: &str| Variation { content: text.to_owned(), media: Vec::new() };
    RecurringPost {
        id: 0,
        brand_id: w.world.brand,
        author_id: Some(w.world.user),
        name: "Menu".to_owned(),
        frequency: Frequency::Daily,
        weekdays: Vec::new(),
        day: None,
        cron: None,
        time: Some("09:00".to_owned()),
        starts_on: now.date_naive(),
        ends_on: None,
        count: None,
        destination: Destination::Calendar,
        is_active: true,
        accounts: vec![w.account.id],
        labels: vec!["menu".to_owned()],
        planned: 0,
        version: 1,
        planned_version: 0,
        problem: None,
        deleted_at: None,
        created_at: now,
        updated_at: now,
        variations: vec![variation("first"), variation("second")],
        overrides: Vec::new(),
    }
}

async fn create(w: &TestWorker, rule: RecurringPost) -> i64 {
    let id = w.write(async |tx| recurring_posts::create(tx, rule, None).await).await.id;
    w.run_jobs().await;
    id
}

async fn stored(w: &TestWorker, id: i64) -> RecurringPost {
    recurring_posts::find_any(&mut w.conn().await, id).await.unwrap().unwrap()
}

/// Changes a rule, and runs its jobs. The clock moves, so that the posts have another time of their last change.
async fn change(w: &TestWorker, id: i64, edit: impl FnOnce(&mut RecurringPost)) {
    w.advance(1);
    let mut rule = stored(w, id).await;
    edit(&mut rule);
    w.write(async |tx| recurring_posts::update(tx, &rule, None).await).await;
    w.run_jobs().await;
}

/// Runs the due rules.
async fn tick(w: &TestWorker) {
    tasks::recurring::run(&w.scheduler).await.unwrap();
    w.run_jobs().await;
}

async fn count(w: &TestWorker, condition: &str) -> i64 {
    w.count_rows(format!("posts WHERE deleted_at IS NULL AND {condition}")).await
}

/// Returns the id of the n-th post by its time.
async fn post(w: &TestWorker, n: usize) -> i64 {
    w.number(format!("SELECT id FROM posts WHERE deleted_at IS NULL ORDER BY scheduled_at, id LIMIT 1 OFFSET {n}"))
        .await
}

async fn time_of(w: &TestWorker, post: i64) -> DateTime<Utc> {
    posts::find_any(&mut w.conn().await, post).await.unwrap().unwrap().scheduled_at.unwrap()
}

/// Changes a post like a user.
async fn edit(w: &TestWorker, post: i64, change: impl FnOnce(&mut Post)) {
    w.advance(1);
    w.write(async |tx| {
        let mut found = posts::find_for_update(tx, w.world.brand, post).await?.unwrap();
        change(&mut found);
        posts::update(tx, &found).await
    })
    .await;
}

async fn the_posts_of_30_days_are_made_once(w: TestWorker) {
    let id = create(&w, daily(&w)).await;
    let of_rule = format!("recurring_id = {id} AND status = 'scheduled'");
    assert_eq!(count(&w, &of_rule).await, 30);
    assert_eq!(w.count_rows("jobs WHERE kind = 'publish_target' AND state = 'scheduled'").await, 30);
    assert_eq!(count(&w, "content = 'first'").await, 15);
    assert_eq!(w.count_rows("post_labels WHERE label = 'menu'").await, 30);
    assert_eq!(time_of(&w, post(&w, 0).await).await, at("2026-06-10T09:00:00Z"));
    assert_eq!(time_of(&w, post(&w, 29).await).await, at("2026-07-09T09:00:00Z"));
    assert_eq!(w.used_posts(w.world.workspace).await, 30);
    // Another run changes nothing.
    tick(&w).await;
    w.enqueue_job(JobKind::MakeOccurrences, id, None).await;
    w.run_jobs().await;
    assert_eq!((count(&w, &of_rule).await, w.count_rows("recurring_occurrences").await), (30, 30));
    // The next day has the next occurrence.
    w.clock.advance(TimeDelta::hours(23));
    tick(&w).await;
    assert_eq!(count(&w, "status = 'scheduled'").await, 30);
    assert_eq!(count(&w, "status = 'published'").await, 1);
}

async fn a_late_scheduler_makes_up_for_missed_days(w: TestWorker) {
    let id = create(&w, daily(&w)).await;
    w.clock.advance(TimeDelta::days(45));
    tick(&w).await;
    assert_eq!(count(&w, &format!("recurring_id = {id} AND status = 'scheduled'")).await, 30);
    // Nothing is made for times that have passed.
    assert_eq!(count(&w, &format!("recurring_id = {id}")).await, 60);
}

async fn a_crash_in_between_makes_no_post_twice(w: TestWorker) {
    w.leaves_jobs();
    let id = w.write(async |tx| recurring_posts::create(tx, daily(&w), None).await).await.id;
    let job = w.newest_id("jobs").await;
    let claimed = w.claim(&[job], "one").await.remove(0);
    // The run makes all posts, and its worker dies before it settles the job.
    let _lost = w.run_claimed(&claimed).await;
    assert_eq!(count(&w, &format!("recurring_id = {id}")).await, 30);
    // Another worker repeats it.
    let report = w.run_claimed(&claimed).await;
    assert!(w.settle_result(&claimed, &report).await);
    assert_eq!(count(&w, &format!("recurring_id = {id}")).await, 30);
}

async fn two_runs_at_the_same_time_make_each_post_once(w: TestWorker) {
    w.leaves_jobs();
    let id = w.write(async |tx| recurring_posts::create(tx, daily(&w), None).await).await.id;
    let claimed = w.claim(&[w.newest_id("jobs").await], "one").await.remove(0);
    let (one, two) = futures::join!(w.run_claimed(&claimed), w.run_claimed(&claimed));
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(count(&w, &format!("recurring_id = {id}")).await, 30);
}

async fn posts_that_users_change_or_delete_stay_as_they_are(w: TestWorker) {
    let id = create(&w, daily(&w)).await;
    let (edited, moved, deleted) = (post(&w, 0).await, post(&w, 1).await, post(&w, 2).await);
    edit(&w, edited, |post| post.content = "mine".to_owned()).await;
    let other = at("2026-06-20T15:00:00Z");
    edit(&w, moved, |post| post.scheduled_at = Some(other)).await;
    w.write(async |tx| {
        posts::lock(tx, deleted).await?;
        publishing::delete(tx, deleted).await
    })
    .await;
    change(&w, id, |rule| {
        rule.time = Some("11:00".to_owned());
        rule.variations = vec![Variation { content: "new".to_owned(), media: Vec::new() }];
    })
    .await;
    assert_eq!(count(&w, "content = 'mine'").await, 1);
    assert_eq!((time_of(&w, edited).await, time_of(&w, moved).await), (at("2026-06-10T09:00:00Z"), other));
    assert_eq!(count(&w, &format!("recurring_id = {id}")).await, 29, "the deleted one is not made again");
    assert_eq!(count(&w, "content = 'new'").await, 27);
    assert_eq!(w.used_posts(w.world.workspace).await, 30, "a post that moves does not count again");
    // Without the days of the changed posts, these still stay.
    change(&w, id, |rule| {
        rule.frequency = Frequency::Weekly;
        rule.weekdays = vec![1];
    })
    .await;
    assert_eq!(count(&w, &format!("recurring_id = {id}")).await, 6);
    assert_eq!(count(&w, &format!("id IN ({edited}, {moved})")).await, 2);
}

async fn a_change_during_a_run_is_carried_out(w: TestWorker) {
    let id = w.write(async |tx| recurring_posts::create(tx, daily(&w), None).await).await.id;
    let claimed = w.claim(&[w.newest_id("jobs").await], "one").await.remove(0);
    let report = w.run_claimed(&claimed).await;
    w.advance(1);
    let mut rule = stored(&w, id).await;
    rule.time = Some("12:30".to_owned());
    w.write(async |tx| recurring_posts::update(tx, &rule, None).await).await;
    let (tx, outcome) = w.write_result(&claimed, &report).await;
    tx.rollback().await.unwrap();
    assert!(matches!(outcome, Outcome::RetryAt(..)), "{outcome:?}");
    assert!(w.settle_result(&claimed, &report).await);
    w.run_jobs().await;
    assert_eq!(time_of(&w, post(&w, 0).await).await, at("2026-06-09T12:30:00Z"));
}

async fn a_rule_that_ends_or_is_deleted_takes_its_posts_with_it(w: TestWorker) {
    let id = create(&w, RecurringPost { count: Some(5), ..daily(&w) }).await;
    assert_eq!(count(&w, "status = 'scheduled'").await, 5);
    change(&w, id, |rule| rule.count = Some(3)).await;
    assert_eq!(count(&w, "status = 'scheduled'").await, 3);
    change(&w, id, |rule| rule.is_active = false).await;
    assert_eq!(count(&w, "TRUE").await, 0);
    assert_eq!(w.count_rows("recurring_posts WHERE due_at IS NULL").await, 1);
    change(&w, id, |rule| {
        rule.is_active = true;
        rule.count = None;
        rule.ends_on = "2026-06-12".parse().ok();
    })
    .await;
    assert_eq!(count(&w, "status = 'scheduled'").await, 3);
    let kept = post(&w, 1).await;
    edit(&w, kept, |post| post.content = "mine".to_owned()).await;
    let rule = stored(&w, id).await;
    w.write(async |tx| recurring_posts::hide(tx, &rule, None).await).await;
    w.run_jobs().await;
    assert_eq!((count(&w, "TRUE").await, count(&w, &format!("id = {kept}")).await), (1, 1));
    assert_eq!((w.count_rows("recurring_posts").await, w.count_rows("recurring_occurrences").await), (0, 0));
}

async fn each_destination_has_its_status(w: TestWorker) {
    w.set_plan(w.world.workspace, "business").await;
    let id = create(&w, RecurringPost { destination: Destination::Draft, count: Some(2), ..daily(&w) }).await;
    assert_eq!(count(&w, "status = 'draft' AND scheduled_at IS NOT NULL").await, 2);
    assert_eq!(w.used_posts(w.world.workspace).await, 0);
    for (destination, status) in [
        (Destination::Approval, "pending_approval"),
        (Destination::Calendar, "scheduled"),
        (Destination::Approval, "pending_approval"),
        (Destination::Draft, "draft"),
    ] {
        change(&w, id, |rule| rule.destination = destination).await;
        assert_eq!(count(&w, &format!("status = '{status}' AND scheduled_at IS NOT NULL")).await, 2, "{status}");
        assert_eq!(stored(&w, id).await.problem, None);
    }
    assert_eq!(w.used_posts(w.world.workspace).await, 2, "each post counts once");
    w.set_plan(w.world.workspace, "free").await;
    change(&w, id, |rule| rule.destination = Destination::Approval).await;
    assert!(stored(&w, id).await.problem.unwrap().contains("does not include approvals"));
}

async fn a_contributor_changes_no_text_that_waits_for_its_approval(w: TestWorker) {
    w.set_plan(w.world.workspace, "business").await;
    let other = w.user(w.world.workspace, "ben@example.com").await;
    w.member(w.world.brand, other, Role::Contributor).await;
    let (author_id, destination) = (Some(other), Destination::Approval);
    let id = create(&w, RecurringPost { author_id, destination, count: Some(1), ..daily(&w) }).await;
    let text = |text: &str| vec![Variation { content: text.to_owned(), media: Vec::new() }];
    let seen = post(&w, 0).await;
    change(&w, id, |rule| rule.variations = text("unseen")).await;
    assert_eq!(count(&w, &format!("id = {seen}")).await, 0, "an approver cannot approve what they have not seen");
    assert_eq!(count(&w, "status = 'pending_approval' AND content = 'unseen'").await, 1);
    assert_eq!((w.used_posts(w.world.workspace).await, stored(&w, id).await.problem), (1, None));
    // An editor may change a pending post.
    w.member(w.world.brand, other, Role::Editor).await;
    let pending = post(&w, 0).await;
    change(&w, id, |rule| rule.variations = text("edited")).await;
    assert_eq!(count(&w, &format!("id = {pending} AND status = 'pending_approval' AND content = 'edited'")).await, 1);
    assert_eq!((count(&w, "TRUE").await, w.used_posts(w.world.workspace).await), (1, 1));
}

async fn a_full_plan_is_a_problem_of_the_rule(w: TestWorker) {
    w.set_plan(w.world.workspace, "free").await;
    w.set_used_posts(w.world.workspace, 28).await;
    let id = create(&w, daily(&w)).await;
    // The first two of them fit.
    assert_eq!(count(&w, "status = 'scheduled'").await, 2);
    let problem = stored(&w, id).await.problem.unwrap();
    assert!(problem.contains("allows only 30 posts per month"), "{problem}");
    // Another rule of the same brand is not blocked, and the problem ends with its cause.
    create(&w, RecurringPost { destination: Destination::Draft, count: Some(1), ..daily(&w) }).await;
    assert_eq!(count(&w, "status = 'draft'").await, 1);
    w.set_plan(w.world.workspace, "unlimited").await;
    w.clock.advance(TimeDelta::hours(7));
    tick(&w).await;
    assert_eq!(stored(&w, id).await.problem, None);
    assert_eq!(count(&w, "status = 'scheduled'").await, 30);
}

async fn a_full_plan_does_not_keep_the_old_text_of_posts(w: TestWorker) {
    w.set_plan(w.world.workspace, "free").await;
    w.set_used_posts(w.world.workspace, 28).await;
    let starts_on = "2026-06-20".parse().unwrap();
    let id = create(&w, RecurringPost { starts_on, ..daily(&w) }).await;
    assert_eq!(count(&w, "status = 'scheduled'").await, 2);
    // The posts of the new days come first, and cannot be created.
    change(&w, id, |rule| {
        rule.starts_on = "2026-06-10".parse().unwrap();
        rule.variations = vec![Variation { content: "new".to_owned(), media: Vec::new() }];
    })
    .await;
    assert!(stored(&w, id).await.problem.unwrap().contains("allows only 30 posts per month"));
    assert_eq!((count(&w, "content = 'new'").await, count(&w, "TRUE").await), (2, 2));
}

async fn posts_stop_at_the_storage_of_the_plan(w: TestWorker) {
    const MIB: i64 = 1 << 20;
    w.set_plan(w.world.workspace, "free").await;
    // The plan has 500 MiB, and a post takes 64 KiB.
    w.set_storage_usage(w.world.workspace, 400 * MIB, 100 * MIB - 150_000).await;
    let text = |length: usize| vec![Variation { content: "x".repeat(length), media: Vec::new() }];
    let draft = RecurringPost { destination: Destination::Draft, variations: text(60_000), ..daily(&w) };
    let id = create(&w, draft).await;
    let made = count(&w, "TRUE").await;
    assert!((1..=2).contains(&made), "{made} posts");
    assert!(stored(&w, id).await.problem.unwrap().contains("storage is full"));
    // Posts do not grow either, but they can become shorter.
    w.set_storage_usage(w.world.workspace, 400 * MIB, 100 * MIB).await;
    change(&w, id, |rule| rule.variations = text(65_000)).await;
    assert_eq!(count(&w, "length(content) = 60000").await, made);
    change(&w, id, |rule| rule.variations = text(10)).await;
    assert!(count(&w, "length(content) = 10").await >= made);
    assert_eq!(count(&w, "length(content) > 10").await, 0);
}

async fn a_rejected_variation_does_not_block_the_others(w: TestWorker) {
    let mut rule = daily(&w);
    rule.variations[0].content = "x".repeat(60_000);
    let id = create(&w, rule).await;
    assert_eq!(count(&w, "content = 'second'").await, 15);
    assert_eq!(count(&w, "TRUE").await, 15);
    assert!(stored(&w, id).await.problem.is_some());
    change(&w, id, |rule| rule.variations[0].content = "short".to_owned()).await;
    assert_eq!((count(&w, "content = 'short'").await, stored(&w, id).await.problem), (15, None));
}

async fn a_rule_without_its_author_has_a_problem(w: TestWorker) {
    let other = w.user(w.world.workspace, "ben@example.com").await;
    let id = create(&w, RecurringPost { author_id: Some(other), ..daily(&w) }).await;
    assert!(stored(&w, id).await.problem.unwrap().contains("no longer a member"));
    assert_eq!(count(&w, "TRUE").await, 0);
    w.member(w.world.brand, other, Role::Contributor).await;
    w.clock.advance(TimeDelta::hours(7));
    tick(&w).await;
    assert!(stored(&w, id).await.problem.unwrap().contains("Contributors cannot publish"));
    w.member(w.world.brand, other, Role::Editor).await;
    w.clock.advance(TimeDelta::hours(7));
    tick(&w).await;
    assert_eq!(stored(&w, id).await.problem, None);
    assert_eq!(count(&w, &format!("author_id = {other}")).await, 30);
}

async fn a_time_zone_moves_the_posts(w: TestWorker) {
    let id = create(&w, RecurringPost { count: Some(3), ..daily(&w) }).await;
    let before = post(&w, 0).await;
    w.advance(1);
    w.write(async |tx| {
        brands::set_timezone(tx, w.world.brand, "America/New_York").await?;
        recurring_posts::replan(tx, w.world.brand, None).await
    })
    .await;
    w.run_jobs().await;
    // 09:00 of today has not passed there.
    assert_eq!(time_of(&w, post(&w, 0).await).await, at("2026-06-09T13:00:00Z"));
    assert_eq!(time_of(&w, before).await, at("2026-06-10T13:00:00Z"), "a post keeps its day");
    assert_eq!(count(&w, &format!("recurring_id = {id}")).await, 3);
}

async fn daylight_saving_neither_skips_nor_repeats_a_post(w: TestWorker) {
    for (zone, time, now, expected) in [
        ("Europe/Berlin", "02:30", "2026-10-24T12:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
        ("America/New_York", "01:30", "2026-10-31T12:00:00Z", ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]),
        ("Africa/Casablanca", "02:30", "2027-02-06T12:00:00Z", ["2027-02-07T01:30:00Z", "2027-02-08T02:30:00Z"]),
        ("Africa/Casablanca", "02:30", "2027-03-13T12:00:00Z", ["2027-03-14T02:00:00Z", "2027-03-15T01:30:00Z"]),
        ("America/New_York", "02:30", "2027-03-13T12:00:00Z", ["2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"]),
        ("Europe/Berlin", "02:30", "2027-03-27T12:00:00Z", ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]),
        ("Australia/Lord_Howe", "01:45", "2027-04-03T12:00:00Z", ["2027-04-03T14:45:00Z", "2027-04-04T15:15:00Z"]),
        ("Australia/Lord_Howe", "02:15", "2027-10-02T12:00:00Z", ["2027-10-02T15:30:00Z", "2027-10-03T15:15:00Z"]),
    ] {
        w.sql("DELETE FROM recurring_posts").await;
        w.sql("DELETE FROM posts").await;
        w.delete_jobs().await;
        w.clock.advance(at(now) - w.store.now());
        w.set_time_zone(w.world.brand, zone).await;
        let rule = RecurringPost { time: Some(time.to_owned()), count: Some(2), ..daily(&w) };
        create(&w, rule).await;
        let times = [time_of(&w, post(&w, 0).await).await, time_of(&w, post(&w, 1).await).await];
        assert_eq!(times, expected.map(at), "{zone} {now}");
    }
}

async fn rules_that_are_not_due_cost_nothing(w: TestWorker) {
    let id = create(&w, RecurringPost { frequency: Frequency::Monthly, day: Some(31), ..daily(&w) }).await;
    let jobs = async || w.count_rows("jobs WHERE kind = 'make_occurrences'").await;
    let before = jobs().await;
    tick(&w).await;
    w.clock.advance(TimeDelta::hours(19));
    tick(&w).await;
    assert_eq!(jobs().await, before);
    w.clock.advance(TimeDelta::days(7));
    tick(&w).await;
    assert_eq!(jobs().await, before + 1);
    assert_eq!(stored(&w, id).await.problem, None);
}

async fn a_dead_job_is_a_problem_of_the_rule(w: TestWorker) {
    w.leaves_jobs();
    let id = create(&w, RecurringPost { count: Some(1), ..daily(&w) }).await;
    w.write(async |tx| crier_jobs::on_dead(tx, JobKind::MakeOccurrences, id, None).await).await;
    assert!(stored(&w, id).await.problem.unwrap().contains("internal error"));
    let described = crier_jobs::describe(&mut w.conn().await, JobKind::MakeOccurrences, id).await.unwrap().unwrap();
    assert_eq!(described.words, format!("recurring post {id} of brand {}, active", w.world.brand));
    assert!(w.write(async |tx| crier_jobs::on_retry(tx, JobKind::MakeOccurrences, id).await).await);
    w.clock.advance(TimeDelta::hours(7));
    tick(&w).await;
    assert_eq!(stored(&w, id).await.problem, None);
}
