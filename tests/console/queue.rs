//! The page of the queue, and the queue in the composer, the calendar and the settings.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::access::Role;
use serde_json::{Value, json};

use crate::support::app::{Tenant, on_one_app};
use crate::support::console::ConsoleUser;
use crate::support::reports::{post_metrics, publish};

on_one_app!(console "unlimited" =>
    slots_are_painted_added_and_removed,
    errors_in_a_slot_are_shown,
    slots_of_somebody_else_are_not_overwritten,
    queued_posts_are_moved,
    a_post_is_added_to_the_queue,
    an_edited_post_stays_in_the_queue,
    a_new_time_zone_moves_queued_posts,
);
on_one_app!("unlimited" => contributors_only_see_the_queue, the_best_times_become_slots);

async fn slots(t: &Tenant<'_>) -> Value {
    t.get(&t.path("/queue")).await.data(200)["slots"].take()
}

/// Gives the brand a slot at noon every day.
async fn noon(t: &Tenant<'_>) {
    let slots: Vec<Value> = (1..=7).map(|weekday| json!({ "weekday": weekday, "time": "12:00" })).collect();
    t.put(&t.path("/queue"), json!({ "slots": slots })).await.expect(200);
}

async fn queue(t: &Tenant<'_>, account: i64, content: &str) -> Value {
    let body = json!({ "content": content, "schedule_type": "queue", "accounts": [account] });
    t.post(&t.path("/posts"), body).await.data(201)
}

async fn slots_are_painted_added_and_removed(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let path = t.path("/queue");
    let page = person.get(&path).await;
    page.expect(200, "No queued posts").expect(200, "value=\"1-09:00\" aria-label=\"Monday 09:00\">");
    assert!(!page.has("Add best times"), "they are not known");
    let form = [("slots", "1-09:00"), ("slots", "7-23:00"), ("_action", "save")];
    let page = person.submit(&path, &path, &form).await;
    page.expect(200, "Slots saved.").expect(200, "aria-label=\"Monday 09:00\" checked>");
    let two = json!([
        { "weekday": 1, "time": "09:00", "account_ids": null },
        { "weekday": 7, "time": "23:00", "account_ids": null },
    ]);
    assert_eq!(slots(&t).await, two);
    let id = account.to_string();
    let new = [("slots", "1-09:00"), ("weekday", "3"), ("time", "09:30"), ("accounts", &id), ("_action", "add")];
    let page = person.submit(&path, &path, &new).await;
    page.expect(200, "Wednesday 09:30, ");
    let value = format!("3-09:30-{account}");
    page.expect(200, &format!("value=\"{value}\" checked"));
    let added = json!([
        { "weekday": 1, "time": "09:00", "account_ids": null },
        { "weekday": 3, "time": "09:30", "account_ids": [account] },
    ]);
    assert_eq!(slots(&t).await, added);
    person.submit(&path, &path, &[("slots", &value), ("_action", "save")]).await.expect(200, "Slots saved.");
    assert_eq!(slots(&t).await, json!([added[1]]));
    // Enter in the field of the time saves.
    let entered = [("slots", "1-09:00"), ("weekday", "3"), ("time", "09:30"), ("accounts", &id), ("_action", "save")];
    person.submit(&path, &path, &entered).await.expect(200, "Wednesday 09:30, ");
    assert_eq!(slots(&t).await, added);
}

async fn the_best_times_become_slots(t: Tenant<'_>) {
    let account = t.account("demo").await;
    // Mondays at 9:00 and Tuesdays at 10:00 in Berlin, in winter.
    let monday: DateTime<Utc> = "2027-01-04T08:20:00Z".parse().unwrap();
    t.app.clock.advance(monday + TimeDelta::days(30) - t.app.now());
    for post in 0..10 {
        let (hours, likes) = if post < 4 { (0, 9) } else { (25, 2) };
        let at = monday + TimeDelta::hours(hours) + TimeDelta::minutes(post);
        publish(&t, account, "x", &at.to_rfc3339(), post_metrics(1, likes)).await;
    }
    let person = ConsoleUser::sign_in(&t).await;
    let path = t.path("/queue");
    person.get(&path).await.expect(200, "Add best times");
    // A slot that is already chosen is not added again.
    let form = [("slots", "1-09:00"), ("slots", "5-12:00"), ("_action", "best")];
    person.submit(&path, &path, &form).await.expect(200, "Slots saved.");
    let of = |weekday: u32, time: &str| json!({ "weekday": weekday, "time": time, "account_ids": null });
    assert_eq!(slots(&t).await, json!([of(1, "09:00"), of(5, "12:00"), of(2, "10:00")]));
}

async fn errors_in_a_slot_are_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/queue");
    let form = [("slots", "1-09:00"), ("weekday", "3"), ("time", ""), ("_action", "add")];
    let page = person.submit(&path, &path, &form).await;
    page.expect(422, "Must be a time such as 09:30.").expect(422, "aria-label=\"Monday 09:00\" checked>");
    page.expect(422, "<div class=\"error\" id=\"e-time\">").expect(422, "<a href=\"#f-time\">Time</a>");
    for (weekday, time) in [("9", "09:00"), ("x", "09:00"), ("1", "25:00"), ("1", "9-9")] {
        let form = [("weekday", weekday), ("time", time), ("_action", "add")];
        assert_eq!(person.submit(&path, &path, &form).await.status, 422, "{weekday} {time}");
    }
    let account = t.account("demo").await;
    noon(&t).await;
    queue(&t, account, "Fresh bread").await;
    person.submit(&path, &path, &[("_action", "save")]).await.expect(422, "1 queued post would have no slot.");
}

async fn slots_of_somebody_else_are_not_overwritten(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/queue");
    let form = [("slots", "1-09:00"), ("_action", "save")];
    for is_new in [true, false] {
        let page = person.get(&path).await;
        t.app.clock.advance(TimeDelta::minutes(1));
        noon(&t).await;
        let before = slots(&t).await;
        // An error of a field does not hide the change.
        let wrong = person.submit_from(&page, &path, &[("weekday", "1"), ("time", "x"), ("_action", "add")]).await;
        wrong.expect(422, "id=\"e-time\"");
        let shown = person.submit_from(&wrong, &path, &form).await;
        shown.expect(422, "The slots were changed after you opened this page.");
        shown.expect(422, "aria-label=\"Monday 09:00\" checked>");
        assert_eq!(slots(&t).await, before, "{is_new}");
        person.submit_from(&shown, &path, &form).await.expect(200, "Slots saved.");
        assert_eq!(slots(&t).await, json!([{ "weekday": 1, "time": "09:00", "account_ids": null }]));
    }
}

async fn queued_posts_are_moved(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    noon(&t).await;
    let mut ids = Vec::new();
    for content in ["First", "Second", "Third"] {
        ids.push(queue(&t, account, content).await["id"].as_i64().unwrap());
    }
    let [first, second, third] = [ids[0], ids[1], ids[2]];
    let (path, action) = (t.path("/queue"), t.path("/queue/move"));
    let order = async || {
        let found = t.get(&path).await.data(200);
        found["posts"].as_array().unwrap().iter().map(|post| post["id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    let page = person.get(&path).await;
    for value in
        [format!("{first}:{third}"), format!("{second}:{first}"), format!("{second}:"), format!("{third}:{second}")]
    {
        page.expect(200, &format!("name=\"move\" value=\"{value}\""));
    }
    let page = person.submit(&path, &action, &[("move", &format!("{third}:{second}"))]).await;
    page.expect(200, "Queue order saved.");
    assert_eq!(page.path, format!("{path}?page=1&note=queue-moved#post-{third}"));
    assert_eq!(order().await, [first, third, second]);
    person.submit(&path, &action, &[("move", &format!("{first}:"))]).await.expect(200, "Queue order saved.");
    assert_eq!(order().await, [third, second, first]);
    for value in ["", "x:y", "999999999:"] {
        person.submit(&path, &action, &[("move", value)]).await.expect(422, "is not waiting in the queue");
    }
    for page in [path, t.path("/calendar"), t.path("/posts"), t.path(&format!("/posts/{first}"))] {
        let page = person.get(&page).await;
        page.expect(200, ">Queued<");
        assert!(!page.has("badge-info\">Scheduled<"), "{}: {}", page.path, page.text);
    }
}

async fn a_post_is_added_to_the_queue(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await.to_string();
    let new = t.path("/posts/new");
    let page = person.get(&new).await;
    page.expect(200, "queue</a> has no free slot.");
    assert!(!page.has("Add to queue"), "there are no slots");
    noon(&t).await;
    let page = person.get(&new).await;
    page.expect(200, "Add to queue").expect(200, "Next free slot of the");
    let form = [("content", "Fresh bread"), ("accounts", account.as_str()), ("schedule_type", "queue")];
    person.submit_from(&page, &new, &form).await.expect(200, "Post added to the queue.");
    let listed = t.get(&t.path("/posts")).await.data(200);
    assert_eq!((&listed[0]["queued"], &listed[0]["status"]), (&json!(true), &json!("scheduled")));
}

async fn an_edited_post_stays_in_the_queue(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    noon(&t).await;
    let post = queue(&t, account, "Fresh bread").await;
    let path = t.path(&format!("/posts/{}", post["id"]));
    let edit = format!("{path}/edit");
    let page = person.get(&edit).await;
    let (_, rest) = page.text.split_once("name=\"scheduled_at\" value=\"").unwrap();
    let time = rest.split('"').next().unwrap();
    let id = account.to_string();
    let form = |content, at| {
        [("content", content), ("accounts", id.as_str()), ("scheduled_at", at), ("schedule_type", "scheduled")]
    };
    person.submit(&edit, &edit, &form("Fresh rye bread", time)).await.expect(200, "Post scheduled.");
    let saved = t.get(&path).await.data(200);
    assert_eq!((&saved["queued"], &saved["content"]), (&json!(true), &json!("Fresh rye bread")));
    person.submit(&edit, &edit, &form("Fresh rye bread", "2027-01-01T09:00")).await.expect(200, "Post scheduled.");
    let saved = t.get(&path).await.data(200);
    assert_eq!((&saved["queued"], &saved["scheduled_at"]), (&json!(false), &json!("2027-01-01T08:00:00Z")));
}

async fn a_new_time_zone_moves_queued_posts(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    noon(&t).await;
    let post = t.path(&format!("/posts/{}", queue(&t, account, "Fresh bread").await["id"]));
    let time = async || t.get(&post).await.data(200)["scheduled_at"].as_str().unwrap().to_owned();
    assert!(time().await.ends_with("T10:00:00Z"), "{}", time().await);
    let path = t.path("/settings");
    let form = [("name", "Bakery"), ("description", ""), ("website", ""), ("timezone", "America/New_York")];
    person.submit(&path, &path, &form).await.expect(200, "Brand saved.");
    assert!(time().await.ends_with("T16:00:00Z"), "{}", time().await);
    let job = "jobs j JOIN post_targets t ON t.id = j.subject_id JOIN posts p ON p.id = t.post_id
        WHERE j.kind = 'publish_target' AND j.run_at = p.scheduled_at";
    assert_eq!(t.app.count_rows(job).await, 1);
}

async fn contributors_only_see_the_queue(t: Tenant<'_>) {
    let account = t.account("demo").await;
    noon(&t).await;
    queue(&t, account, "Fresh bread").await;
    let contributor = t.colleague(Role::Contributor).await;
    let person = ConsoleUser::sign_in(&contributor).await;
    let page = person.get(&t.path("/queue")).await;
    page.expect(200, "Fresh bread").expect(200, "checked disabled>");
    assert!(!page.has("Save slots") && !page.has("name=\"move\""));
    assert!(!person.get(&t.path("/posts/new")).await.has("Add to queue"));
}
