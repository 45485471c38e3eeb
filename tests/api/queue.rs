//! The queue of a brand: its slots, and the times that posts take from them.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::access::Role;
use crier_domain::analytics::zone;
use crier_domain::job::JobState;
use crier_domain::queue::{LEAD, MAX_QUEUED_POSTS, Slot, occurrences};
use crier_domain::recurrence::parse_time;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Reply, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::console::ConsoleUser;
use crate::support::size::sized;

on_both_apps!("unlimited" =>
    concurrent_posts_take_different_slots,
    a_post_takes_the_next_slot_of_all_its_accounts,
    a_post_with_a_time_of_its_own_leaves_the_queue,
    a_queued_post_keeps_its_slot_when_it_changes,
    new_slots_move_only_queued_posts,
    posts_are_moved_in_the_queue,
    posts_that_have_begun_stay,
    concurrent_changes_of_the_slots_and_posts_agree,
    a_full_queue_rejects_posts,
    places_of_published_posts_are_deleted,
);
on_both_apps!(console "unlimited" => any_changes_leave_each_post_in_a_slot_of_its_own);
on_one_app!("unlimited" => invalid_requests_are_reported, slots_are_returned_as_sent, contributors_cannot_use_the_queue);
on_both_apps!(queues_of_brands_are_separate);

/// Returns slots at these times on every day of the week.
fn daily(times: &[&str]) -> Vec<Value> {
    let slot = |weekday: i64| times.iter().map(move |time| json!({ "weekday": weekday, "time": time }));
    (1..=7).flat_map(slot).collect()
}

async fn set_slots(t: &Tenant<'_>, slots: Vec<Value>) -> Value {
    t.put(&t.path("/queue"), json!({ "slots": slots })).await.data(200)
}

async fn queue(t: &Tenant<'_>, accounts: &[i64]) -> Reply {
    let body = json!({ "content": "x", "schedule_type": "queue", "accounts": accounts });
    t.post(&t.path("/posts"), body).await
}

/// Adds a post to the queue, and returns its id and its time.
async fn queued(t: &Tenant<'_>, accounts: &[i64]) -> (i64, String) {
    let created = queue(t, accounts).await.data(201);
    assert_eq!(
        (&created["queued"], &created["status"], &created["schedule_type"]),
        (&json!(true), &json!("scheduled"), &json!("scheduled"))
    );
    (created["id"].as_i64().unwrap(), time_of(&created))
}

fn time_of(post: &Value) -> String {
    post["scheduled_at"].as_str().unwrap().to_owned()
}

async fn next(t: &Tenant<'_>, query: &str) -> Vec<String> {
    let found = t.get(&t.path(&format!("/queue/next{query}"))).await.data(200);
    found.as_array().unwrap().iter().map(time_of).collect()
}

async fn put(t: &Tenant<'_>, post: i64, body: Value) -> Value {
    t.put(&t.path(&format!("/posts/{post}")), body).await.data(200)
}

async fn show(t: &Tenant<'_>, post: i64) -> Value {
    t.get(&t.path(&format!("/posts/{post}"))).await.data(200)
}

/// Returns the posts in the queue, in their order, with their times.
async fn order(t: &Tenant<'_>) -> Vec<(i64, String)> {
    let found = t.get(&t.path("/queue")).await.data(200);
    found["posts"].as_array().unwrap().iter().map(|post| (post["id"].as_i64().unwrap(), time_of(post))).collect()
}

fn ids(posts: &[(i64, String)]) -> Vec<i64> {
    posts.iter().map(|(id, _)| *id).collect()
}

/// Asserts that each queued post has exactly its places, and that all jobs are due at the times of their posts.
async fn assert_consistent(app: &TestApp) {
    let waiting = "p.queued AND p.status = 'scheduled' AND p.deleted_at IS NULL";
    let wrong_places = format!(
        "posts p WHERE {waiting} AND (
            SELECT count(*) FROM queue_places q JOIN post_targets t ON t.post_id = q.post_id AND t.account_id = q.account_id
            WHERE q.post_id = p.id AND q.brand_id = p.brand_id AND q.at = p.scheduled_at
         ) <> (SELECT count(*) FROM post_targets t WHERE t.post_id = p.id)"
    );
    let foreign = format!("queue_places q WHERE q.post_id NOT IN (SELECT p.id FROM posts p WHERE {waiting})");
    let surplus = "queue_places q WHERE q.account_id NOT IN (
        SELECT t.account_id FROM post_targets t WHERE t.post_id = q.post_id)";
    let jobs = "jobs j JOIN post_targets t ON t.id = j.subject_id JOIN posts p ON p.id = t.post_id
        WHERE j.kind = 'publish_target' AND j.state = 'scheduled' AND j.run_at <> p.scheduled_at";
    let without = "post_targets t JOIN posts p ON p.id = t.post_id
        WHERE p.status = 'scheduled' AND p.deleted_at IS NULL AND NOT EXISTS (
            SELECT 1 FROM jobs j WHERE j.kind = 'publish_target' AND j.subject_id = t.id AND j.state = 'scheduled')";
    // One statement, because a test asserts this after each of hundreds of steps.
    let faults = [
        ("queued posts without their places", wrong_places.as_str()),
        ("places without a queued post", foreign.as_str()),
        ("places on another account", surplus),
        ("jobs at another time than their post", jobs),
        ("scheduled posts without a job", without),
    ];
    let counts = faults.map(|(name, rows)| format!("'{name}: ' || (SELECT count(*) FROM {rows})")).join(" || ', ' || ");
    let found: String = app.value(format!("SELECT {counts}")).await;
    assert_eq!(found, faults.map(|(name, _)| format!("{name}: 0")).join(", "));
}

async fn concurrent_posts_take_different_slots(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let times: Vec<String> = (0..12).map(|n| format!("{:02}:30", 2 * n)).collect();
    set_slots(&t, daily(&times.iter().map(String::as_str).collect::<Vec<_>>())).await;
    let expected = next(&t, &format!("?accounts={account}&count=64")).await;
    assert_eq!(expected.len(), 64);
    let accounts = [account];
    // On a busy machine, a request may wait for a connection until it is rejected. Then it has changed nothing.
    let queue = async || loop {
        let reply = queue(&t, &accounts).await;
        if reply.status != 503 {
            return reply;
        }
    };
    let replies = join_all((0..64).map(|_| queue())).await;
    let taken: BTreeSet<String> = replies.iter().map(|reply| time_of(&reply.data(201))).collect();
    assert_eq!(taken, expected.into_iter().collect());
    assert_eq!(t.app.count_rows("queue_places").await, 64);
    assert_consistent(t.app).await;
}

async fn a_post_takes_the_next_slot_of_all_its_accounts(t: Tenant<'_>) {
    let (one, two) = (t.account("one").await, t.account("two").await);
    let error = queue(&t, &[one]).await;
    assert_eq!(error.invalid_fields(), ["schedule_type"], "there are no slots");
    let mut slots = daily(&["12:00"]);
    slots.extend(daily(&["18:00"]).into_iter().map(|mut slot| {
        slot["account_ids"] = json!([two]);
        slot
    }));
    set_slots(&t, slots).await;
    let of_one = next(&t, &format!("?accounts={one}")).await;
    let of_two = next(&t, &format!("?accounts={two}")).await;
    assert_eq!(next(&t, &format!("?accounts={one},{two}")).await, of_one);
    assert!(of_two.len() == 10 && of_one.iter().all(|at| !at.contains("T17:") && !at.contains("T18:")));
    let (_, first) = queued(&t, &[one]).await;
    assert_eq!(first, of_one[0]);
    let (_, both) = queued(&t, &[one, two]).await;
    assert_eq!(both, of_one[1]);
    // The gap before it is free on the other account.
    let (_, other) = queued(&t, &[two]).await;
    assert_eq!(other, of_two[0]);
    let free = next(&t, "?count=3").await;
    assert!(!free.contains(&first) && !free.contains(&both) && !free.contains(&other), "{free:?}");
    let places = t.app.count_rows(format!("queue_places WHERE account_id = {two}")).await;
    assert_eq!(places, 2);
    assert_consistent(t.app).await;
    // The queued posts of the other account would have no slot.
    let only = json!([{ "weekday": 1, "time": "08:00", "account_ids": [one] }]);
    let rejected = t.put(&t.path("/queue"), json!({ "slots": only })).await;
    assert_eq!(rejected.invalid_fields(), ["slots"]);
}

async fn a_post_with_a_time_of_its_own_leaves_the_queue(t: Tenant<'_>) {
    let account = t.account("demo").await;
    set_slots(&t, daily(&["12:00"])).await;
    let own = (t.app.now() + TimeDelta::days(30)).to_rfc3339();
    let leave = [
        json!({ "scheduled_at": own }),
        json!({ "schedule_type": "scheduled" }),
        json!({ "schedule_type": "draft" }),
        json!({ "schedule_type": "now" }),
    ];
    for body in leave {
        let (post, at) = queued(&t, &[account]).await;
        let changed = put(&t, post, body.clone()).await;
        assert_eq!(changed["queued"], false, "{body}");
        let (second, again) = queued(&t, &[account]).await;
        assert_eq!(again, at, "{body}: its slot is free");
        t.delete(&t.path(&format!("/posts/{second}"))).await.expect(204);
        assert_eq!(t.app.count_rows("queue_places").await, 0);
    }
    let (post, at) = queued(&t, &[account]).await;
    let moved = json!({ "ids": [post], "action": "shift", "shift_minutes": 5 });
    t.post(&t.path("/posts/bulk"), moved).await.expect(200);
    assert_eq!(show(&t, post).await["queued"], false);
    // It returns to the queue.
    let returned = put(&t, post, json!({ "schedule_type": "queue" })).await;
    assert_eq!((&returned["queued"], time_of(&returned)), (&json!(true), at));
    assert_consistent(t.app).await;
}

async fn a_queued_post_keeps_its_slot_when_it_changes(t: Tenant<'_>) {
    let (one, two) = (t.account("one").await, t.account("two").await);
    set_slots(&t, daily(&["12:00"])).await;
    let (gap, first) = queued(&t, &[one]).await;
    let (post, at) = queued(&t, &[one]).await;
    t.delete(&t.path(&format!("/posts/{gap}"))).await.expect(204);
    for body in [
        json!({ "content": "y" }),
        json!({ "schedule_type": "queue" }),
        json!({ "accounts": [one] }),
        json!({ "accounts": [one, two] }),
    ] {
        let changed = put(&t, post, body.clone()).await;
        assert_eq!((&changed["queued"], time_of(&changed)), (&json!(true), at.clone()), "{body}");
        assert_consistent(t.app).await;
    }
    // A slot that is taken on the new account is left.
    let (_, taken) = queued(&t, &[two]).await;
    assert_eq!(taken, first);
    let (other, later) = queued(&t, &[two]).await;
    assert!(later > at, "{later}");
    let changed = put(&t, other, json!({ "accounts": [two, one] })).await;
    assert_eq!(time_of(&changed), later);
    let changed = put(&t, post, json!({ "accounts": [one] })).await;
    assert_eq!(time_of(&changed), at);
    let changed = put(&t, other, json!({ "accounts": [one] })).await;
    assert_eq!(time_of(&changed), later);
    assert_consistent(t.app).await;
}

async fn new_slots_move_only_queued_posts(t: Tenant<'_>) {
    let account = t.account("demo").await;
    set_slots(&t, daily(&["12:00"])).await;
    let mut before = Vec::new();
    for _ in 0..4 {
        before.push(queued(&t, &[account]).await);
    }
    let at = (t.app.now() + TimeDelta::days(2)).format("%FT%TZ").to_string();
    let own = json!({ "content": "x", "schedule_type": "scheduled", "scheduled_at": at, "accounts": [account] });
    let own = t.post(&t.path("/posts"), own).await.data(201)["id"].as_i64().unwrap();
    let updated = set_slots(&t, daily(&["10:00", "15:00"])).await;
    assert_eq!(updated["slots"].as_array().unwrap().len(), 14);
    let after = order(&t).await;
    assert_eq!(ids(&after), ids(&before));
    assert!(after.windows(2).all(|pair| pair[0].1 < pair[1].1), "{after:?}");
    assert!(after.iter().all(|(_, at)| !at.contains("T11:") && !at.contains("T12:")), "{after:?}");
    assert!(after[3].1 < before[3].1);
    assert_eq!(time_of(&show(&t, own).await), at);
    assert_consistent(t.app).await;
    // The same slots move nothing.
    set_slots(&t, daily(&["10:00", "15:00"])).await;
    assert_eq!(order(&t).await, after);
    let empty = t.put(&t.path("/queue"), json!({ "slots": [] })).await;
    assert_eq!(empty.invalid_fields(), ["slots"]);
    assert_eq!(order(&t).await, after);
    assert_eq!(t.get(&t.path("/queue")).await.data(200)["slots"], updated["slots"]);
}

async fn posts_are_moved_in_the_queue(t: Tenant<'_>) {
    let account = t.account("demo").await;
    set_slots(&t, daily(&["12:00"])).await;
    let mut before = Vec::new();
    for _ in 0..4 {
        before.push(queued(&t, &[account]).await);
    }
    let [a, b, c, d] = [before[0].0, before[1].0, before[2].0, before[3].0];
    let times: Vec<String> = before.iter().map(|(_, at)| at.clone()).collect();
    let move_post =
        async |post: i64, to: Value| t.post(&t.path("/queue/move"), json!({ "post_id": post, "before": to })).await;
    for (post, to, expected) in [
        (d, json!(b), [a, d, b, c]),
        (a, Value::Null, [d, b, c, a]),
        (b, json!(d), [b, d, c, a]),
        (b, json!(d), [b, d, c, a]),
    ] {
        move_post(post, to).await.expect(200);
        let after = order(&t).await;
        assert_eq!(ids(&after), expected);
        assert_eq!(after.into_iter().map(|(_, at)| at).collect::<Vec<_>>(), times, "the slots stay the same");
        assert_consistent(t.app).await;
    }
    let draft = t.post(&t.path("/posts"), json!({ "content": "x" })).await.data(201)["id"].as_i64().unwrap();
    for missing in [draft, MISSING_ID] {
        assert_eq!(move_post(missing, json!(a)).await.invalid_fields(), ["post_id"]);
        assert_eq!(move_post(a, json!(missing)).await.invalid_fields(), ["before"]);
    }
    assert_eq!(move_post(a, json!(a)).await.invalid_fields(), ["before"]);
}

async fn posts_that_have_begun_stay(t: Tenant<'_>) {
    let account = t.account("demo").await;
    set_slots(&t, daily(&["00:00", "06:00", "12:00", "18:00"])).await;
    let (first, at) = queued(&t, &[account]).await;
    let (second, _) = queued(&t, &[account]).await;
    let (third, _) = queued(&t, &[account]).await;
    // A worker runs a job of the second post.
    let jobs = format!("jobs WHERE subject_id IN (SELECT id FROM post_targets WHERE post_id = {second})");
    t.app.set_job_state(&jobs, JobState::Running).await;
    // The first one is less than a minute away.
    let until = at.parse::<DateTime<Utc>>().unwrap() - TimeDelta::seconds(59);
    t.app.clock.advance(until - t.app.now());
    let before = (time_of(&show(&t, first).await), time_of(&show(&t, second).await));
    set_slots(&t, daily(&["03:00", "09:00"])).await;
    assert_eq!((time_of(&show(&t, first).await), time_of(&show(&t, second).await)), before);
    let third = time_of(&show(&t, third).await);
    assert!(["T01:", "T02:", "T07:", "T08:"].iter().any(|hour| third.contains(hour)), "{third}");
    t.app.set_job_state(&jobs, JobState::Scheduled).await;
    let moved = t.post(&t.path("/queue/move"), json!({ "post_id": first, "before": null })).await;
    assert_eq!(moved.invalid_fields(), ["post_id"]);
}

async fn concurrent_changes_of_the_slots_and_posts_agree(t: Tenant<'_>) {
    let (one, two) = (t.account("one").await, t.account("two").await);
    set_slots(&t, daily(&["09:00", "12:00"])).await;
    let mut posts = Vec::new();
    for n in 0..8 {
        let accounts = if n % 2 == 0 { vec![one] } else { vec![one, two] };
        posts.push(queued(&t, &accounts).await.0);
    }
    let change = async |n: usize| {
        let path = t.path("/queue");
        match n % 4 {
            0 => t.put(&path, json!({ "slots": daily(&[["10:00", "11:00", "20:00"][n / 4 % 3], "13:00"]) })).await,
            1 => queue(&t, &[one, two]).await,
            2 => t.put(&t.path(&format!("/posts/{}", posts[n / 4])), json!({ "accounts": [two] })).await,
            _ => t.post(&t.path("/queue/move"), json!({ "post_id": posts[7], "before": posts[n / 4] })).await,
        }
    };
    let replies = join_all((0..24).map(change)).await;
    assert!(replies.iter().all(|reply| matches!(reply.status, 200 | 201)), "{replies:?}");
    assert_consistent(t.app).await;
    let slots = t.get(&t.path("/queue")).await.data(200)["slots"].as_array().unwrap().len();
    assert_eq!((slots, order(&t).await.len()), (14, 14));
}

async fn a_full_queue_rejects_posts(t: Tenant<'_>) {
    let account = t.account("demo").await;
    set_slots(&t, daily(&["06:00", "12:00", "18:00"])).await;
    let (first, _) = queued(&t, &[account]).await;
    let copies = i64::try_from(MAX_QUEUED_POSTS).unwrap() - 2;
    t.app.copy_newest_row("posts", copies, &[]).await;
    t.app
        .sql(format!(
            "INSERT INTO queue_places (brand_id, account_id, at, post_id)
             SELECT brand_id, 1000000 + id, scheduled_at, id FROM posts WHERE id <> {first}"
        ))
        .await;
    let (last, _) = queued(&t, &[account]).await;
    assert_eq!(queue(&t, &[account]).await.invalid_fields(), ["schedule_type"]);
    t.delete(&t.path(&format!("/posts/{last}"))).await.expect(204);
    queued(&t, &[account]).await;
}

async fn places_of_published_posts_are_deleted(t: Tenant<'_>) {
    let account = t.account("demo").await;
    set_slots(&t, daily(&["12:00"])).await;
    let (post, _) = queued(&t, &[account]).await;
    let (late, at) = queued(&t, &[account]).await;
    t.app.end_post(post, "published", &["published"]).await;
    assert_eq!(ids(&order(&t).await), [late]);
    t.app.clock.advance(at.parse::<DateTime<Utc>>().unwrap() - t.app.now() + TimeDelta::days(2));
    queued(&t, &[account]).await;
    // The late post has not begun, so it keeps its place.
    let kept = t.app.count_rows(format!("queue_places WHERE post_id = {late}")).await;
    assert_eq!((kept, t.app.count_rows("queue_places").await), (1, 2));
    assert_eq!(show(&t, post).await["queued"], true);
}

/// Asserts that each queued post that is not due within a minute is in a slot of its accounts.
async fn assert_in_slots(t: &Tenant<'_>, step: usize) {
    let found = t.get(&t.path("/queue")).await.data(200);
    let numbers = |ids: &Value| ids.as_array().into_iter().flatten().filter_map(Value::as_i64).collect::<Vec<i64>>();
    let slot = |slot: &Value| Slot {
        weekday: slot["weekday"].as_u64().and_then(|day| u32::try_from(day).ok()).unwrap(),
        time: parse_time(slot["time"].as_str().unwrap()).unwrap(),
        account_ids: numbers(&slot["account_ids"]),
    };
    let slots: Vec<Slot> = found["slots"].as_array().unwrap().iter().map(slot).collect();
    let zone = zone(found["timezone"].as_str());
    for post in found["posts"].as_array().unwrap() {
        let at: DateTime<Utc> = time_of(post).parse().unwrap();
        let is_in_slot =
            occurrences(&slots, zone, at, at).next().is_some_and(|o| o.is_for(&numbers(&post["accounts"])));
        assert!(is_in_slot || at < t.app.now() + LEAD, "step {step}: {post} in {slots:?}");
    }
}

/// A generator of numbers, so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Whatever happens, each queued post is in a free slot: its accounts can use it, and no other post has it.
async fn any_changes_leave_each_post_in_a_slot_of_its_own(t: Tenant<'_>, person: ConsoleUser<'_>) {
    const ZONES: [&str; 5] = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"];
    let accounts = [t.account("one").await, t.account("two").await, t.account("three").await];
    let slots = [
        daily(&["02:15", "12:00"]),
        daily(&["01:45", "02:30", "23:59"]),
        (1..=7).map(|weekday| json!({ "weekday": weekday, "time": "09:00", "account_ids": accounts })).collect(),
    ];
    let mut numbers = Numbers(47);
    let mut posts: Vec<i64> = Vec::new();
    let settings = t.path("/settings");
    for step in 0..sized(300, 60) {
        let post = if posts.is_empty() { MISSING_ID } else { numbers.of(&posts) };
        let path = t.path(&format!("/posts/{post}"));
        match numbers.below(12) {
            0..=3 => {
                let some: Vec<i64> = accounts.into_iter().filter(|_| numbers.below(2) == 0).collect();
                let some = if some.is_empty() { vec![accounts[0]] } else { some };
                let reply = queue(&t, &some).await;
                if reply.status == 201 {
                    posts.push(reply.data(201)["id"].as_i64().unwrap());
                }
            }
            4 => drop(t.put(&t.path("/queue"), json!({ "slots": slots[numbers.below(3)] })).await),
            5 => {
                let zone = numbers.of(&ZONES);
                let form = [("name", "Bakery"), ("description", ""), ("website", ""), ("timezone", zone)];
                person.submit(&settings, &settings, &form).await.expect(200, zone);
            }
            6 => {
                let before = numbers.of(&[None, posts.first().copied(), posts.last().copied()]);
                drop(t.post(&t.path("/queue/move"), json!({ "post_id": post, "before": before })).await);
            }
            7 => drop(t.put(&path, json!({ "accounts": [numbers.of(&accounts)] })).await),
            8 => {
                let at = t.app.now() + TimeDelta::hours(1 + i64::try_from(numbers.below(99)).unwrap());
                drop(t.put(&path, json!({ "scheduled_at": at })).await);
            }
            9 => drop(t.put(&path, json!({ "schedule_type": numbers.of(&["queue", "draft", "scheduled"]) })).await),
            10 => drop(t.delete(&path).await),
            _ => t.app.clock.advance(TimeDelta::minutes(i64::try_from(numbers.below(30)).unwrap())),
        }
        assert_consistent(t.app).await;
        assert_in_slots(&t, step).await;
    }
    assert!(posts.len() > 10);
}

async fn invalid_requests_are_reported(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let path = t.path("/queue");
    let invalid = async |slot: Value| t.put(&path, json!({ "slots": [slot] })).await.invalid_fields();
    assert_eq!(t.put(&path, json!({})).await.invalid_fields(), ["slots"]);
    assert_eq!(invalid(json!({})).await, ["slots.0.time", "slots.0.weekday"]);
    assert_eq!(invalid(json!({ "weekday": 8, "time": "9:00" })).await, ["slots.0.time", "slots.0.weekday"]);
    assert_eq!(invalid(json!({ "weekday": 1, "time": "24:00" })).await, ["slots.0.time"]);
    let of = |ids: Value| json!({ "weekday": 1, "time": "09:00", "account_ids": ids });
    assert_eq!(invalid(of(json!([]))).await, ["slots.0.account_ids"]);
    assert_eq!(invalid(of(json!([account, MISSING_ID]))).await, ["slots.0.account_ids.1"]);
    let many: Vec<Value> = (0..201).map(|_| json!({ "weekday": 1, "time": "09:00" })).collect();
    assert_eq!(t.put(&path, json!({ "slots": many[..200] })).await.data(200)["slots"].as_array().unwrap().len(), 200);
    assert_eq!(t.put(&path, json!({ "slots": many })).await.invalid_fields(), ["slots"]);
    for query in ["?accounts=x", "?accounts=1,,2", "?accounts=0", "?accounts="] {
        assert_eq!(t.get(&t.path(&format!("/queue/next{query}"))).await.invalid_fields(), ["accounts"], "{query}");
    }
    for query in ["?count=0", "?count=101", "?count=x"] {
        assert_eq!(t.get(&t.path(&format!("/queue/next{query}"))).await.invalid_fields(), ["count"], "{query}");
    }
    let at = (t.app.now() + TimeDelta::days(1)).to_rfc3339();
    let both = json!({ "content": "x", "schedule_type": "queue", "scheduled_at": at, "accounts": [account] });
    assert_eq!(t.post(&t.path("/posts"), both.clone()).await.invalid_fields(), ["scheduled_at"]);
    assert_eq!(t.post(&t.path("/posts/validate"), both).await.invalid_fields(), ["scheduled_at"]);
    assert_eq!(queue(&t, &[]).await.invalid_fields(), ["accounts"]);
    t.post(&t.path("/posts/validate"), json!({ "content": "x", "schedule_type": "queue", "accounts": [account] }))
        .await
        .expect(200);
}

async fn slots_are_returned_as_sent(t: Tenant<'_>) {
    let account = t.account("demo").await;
    // As a change of the time zone does.
    t.app.write(async |tx| crier_store::queues::lock(tx, t.brand).await).await;
    let empty = t.get(&t.path("/queue")).await.data(200);
    assert_eq!(empty, json!({ "timezone": "Europe/Berlin", "slots": [], "posts": [], "updated_at": null }));
    assert!(next(&t, "").await.is_empty());
    let slots = json!([
        { "weekday": 7, "time": "23:59", "account_ids": [account] },
        { "weekday": 1, "time": "00:00", "account_ids": null },
    ]);
    let updated = t.put(&t.path("/queue"), json!({ "slots": slots })).await.data(200);
    assert_eq!(updated["slots"], slots);
    assert_eq!(t.get(&t.path("/queue")).await.data(200), updated);
    // What was read can be sent again, even if an account was disconnected since.
    t.delete(&t.path(&format!("/social-accounts/{account}"))).await.expect(200);
    assert_eq!(t.put(&t.path("/queue"), json!({ "slots": updated["slots"] })).await.data(200)["slots"], slots);
}

async fn contributors_cannot_use_the_queue(t: Tenant<'_>) {
    let account = t.account("demo").await;
    set_slots(&t, daily(&["12:00"])).await;
    let contributor = t.colleague(Role::Contributor).await;
    queue(&contributor, &[account]).await.expect_error(403, "insufficient_scope");
    assert_eq!(t.app.count_rows("queue_places").await, 0);
    contributor.get(&t.path("/queue")).await.expect(200);
    assert_eq!(next(&contributor, "").await.len(), 10);
}

async fn queues_of_brands_are_separate(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let (own, foreign) = (t.account("mine").await, other.account("theirs").await);
    set_slots(&t, daily(&["12:00"])).await;
    let slot = json!([{ "weekday": 1, "time": "09:00", "account_ids": [own] }]);
    let rejected = other.put(&other.path("/queue"), json!({ "slots": slot })).await;
    assert_eq!(rejected.invalid_fields(), ["slots.0.account_ids.0"]);
    let (post, at) = queued(&t, &[own]).await;
    let (second, _) = queued(&t, &[own]).await;
    assert_eq!(other.get(&other.path("/queue")).await.data(200)["posts"], json!([]));
    set_slots(&other, daily(&["12:00"])).await;
    let (theirs, _) = queued(&other, &[foreign]).await;
    let body = json!({ "post_id": post, "before": null });
    assert_eq!(other.post(&other.path("/queue/move"), body).await.invalid_fields(), ["post_id"]);
    let body = json!({ "post_id": theirs, "before": second });
    assert_eq!(other.post(&other.path("/queue/move"), body).await.invalid_fields(), ["before"]);
    assert_eq!(time_of(&show(&t, post).await), at);
    // A second brand with the same account has slots of its own.
    let brand = t.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].as_i64().unwrap();
    assert_eq!(t.get(&format!("/brands/{brand}/queue")).await.data(200)["slots"], json!([]));
}
