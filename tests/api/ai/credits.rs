//! Credits: taken once for each result, given back for everything else.

use chrono::{DateTime, TimeDelta, Utc};
use crier_common::domain::ai::Operation;
use crier_common::store::ai_credits::{self, Want};
use crier_common::store::users;
use crier_scheduler::Scheduler;
use crier_scheduler::tasks::reservations;
use serde_json::json;

use crate::support::ai_server::{AiApp, Hold, captions};
use crate::support::app::{Reply, Tenant};
use crate::support::jobs::StillBell;
use crate::support::store::{TestStore, on_both};

on_both!(
    of_many_at_once_so_many_pass_as_there_are_credits_for,
    a_month_begins_where_the_workspace_is,
    what_a_dead_request_took_comes_back_when_its_lease_is_over,
    a_request_that_was_taken_for_dead_is_paid_all_the_same,
    a_request_that_was_taken_for_dead_gives_nothing_for_free,
    a_client_that_hangs_up_is_served_all_the_same,
    what_was_used_is_told_by_brand,
);

async fn write(t: &Tenant<'_>) -> Reply {
    t.post(&t.path("/ai/captions"), json!({ "prompt": "bread" })).await
}

fn three() -> wiremock::ResponseTemplate {
    captions(&["A", "B", "C"])
}

/// Leaves so many of the free plan's credits.
async fn leave(app: &AiApp, t: &Tenant<'_>, credits: i64) {
    let sql = format!(
        "INSERT INTO ai_usage (workspace_id, month, used) VALUES ({}, '2026-06', {})",
        t.workspace,
        100 - credits
    );
    app.sql(sql).await;
}

async fn clean_up(app: &AiApp) {
    let scheduler = Scheduler {
        store: app.store.store.clone(),
        transport: StillBell::with_room(1),
        library: app.library(&app.url),
    };
    reservations::run(&scheduler).await.unwrap();
}

async fn of_many_at_once_so_many_pass_as_there_are_credits_for(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("free").await;
    leave(&app, &t, 44).await;
    app.ai.says((0..8).map(|_| three()));
    let replies = futures::future::join_all((0..8).map(|_| write(&t))).await;
    let mut left: Vec<u64> = replies
        .iter()
        .filter(|reply| reply.status == 200)
        .map(|reply| reply.data(200)["credits_remaining"].as_u64().unwrap())
        .collect();
    replies.iter().filter(|reply| reply.status != 200).for_each(|r| drop(r.refused(402, "insufficient_credits")));
    left.sort_unstable();
    assert_eq!((left.len(), left[0]), (2, 14));
    assert_eq!((app.used(t.workspace).await, app.ai.asked().await.len()), (86, 2));
}

async fn a_month_begins_where_the_workspace_is(s: TestStore) {
    let app = AiApp::start(s).await;
    let (early, utc) = (app.tenant("free").await, app.tenant("free").await);
    app.write(async |tx| users::set_timezone(tx, early.workspace, "Pacific/Kiritimati").await).await;
    for t in [&early, &utc] {
        leave(&app, t, 3).await;
        write(t).await.refused(402, "insufficient_credits");
    }
    // Fourteen hours before it is July in Greenwich.
    let july: DateTime<Utc> = "2026-06-30T10:00:00Z".parse().unwrap();
    app.clock.advance(july - app.now() - TimeDelta::microseconds(1));
    write(&early).await.refused(402, "insufficient_credits");
    app.clock.advance(TimeDelta::microseconds(1));
    app.ai.says([three(), three()]);
    assert_eq!(write(&early).await.data(200)["credits_remaining"], 85);
    write(&utc).await.refused(402, "insufficient_credits");
    let usage = early.get(&early.path("/usage")).await.data(200);
    assert_eq!((&usage["ai_credits"]["used"], &usage["credits_remaining"]), (&json!(15), &json!(85)));
    app.clock.advance(TimeDelta::hours(14));
    assert_eq!(write(&utc).await.data(200)["credits_remaining"], 85);
}

async fn what_a_dead_request_took_comes_back_when_its_lease_is_over(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("free").await;
    leave(&app, &t, 15).await;
    let want = Want {
        workspace_id: t.workspace,
        brand_id: t.brand,
        operation: Operation::Captions,
        credits: 15,
        cap: Some(100),
    };
    app.write(async |tx| ai_credits::reserve(tx, &want).await).await.expect("there are enough");
    write(&t).await.refused(402, "insufficient_credits");
    app.clock.advance(TimeDelta::seconds(60) - TimeDelta::microseconds(1));
    clean_up(&app).await;
    assert_eq!((app.used(t.workspace).await, app.held().await), (100, 1));
    app.clock.advance(TimeDelta::microseconds(1));
    clean_up(&app).await;
    assert_eq!((app.used(t.workspace).await, app.held().await), (85, 0));
    app.ai.says([three()]);
    assert_eq!(write(&t).await.data(200)["credits_remaining"], 0);
}

/// A request is at work while its lease ends; gives its answer.
async fn taken_for_dead(app: &AiApp, t: &Tenant<'_>, meanwhile: impl AsyncFnOnce()) -> Reply {
    let hold = Hold::new();
    app.ai.holds(&hold, three());
    let events = async {
        hold.asked().await;
        app.clock.advance(TimeDelta::seconds(61));
        clean_up(app).await;
        meanwhile().await;
        hold.let_go();
    };
    tokio::join!(write(t), events).0
}

async fn a_request_that_was_taken_for_dead_is_paid_all_the_same(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("free").await;
    let reply = taken_for_dead(&app, &t, async || assert_eq!(app.used(t.workspace).await, 0)).await;
    assert_eq!(reply.data(200)["credits_remaining"], 85);
    assert_eq!((app.used(t.workspace).await, app.held().await), (15, 0));
}

async fn a_request_that_was_taken_for_dead_gives_nothing_for_free(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("free").await;
    let spend = async || {
        app.sql(format!("UPDATE ai_usage SET used = 90 WHERE workspace_id = {}", t.workspace)).await;
    };
    let reply = taken_for_dead(&app, &t, spend).await;
    reply.refused(402, "insufficient_credits");
    assert_eq!((app.used(t.workspace).await, app.held().await), (90, 0));
}

async fn a_client_that_hangs_up_is_served_all_the_same(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("free").await;
    let hold = Hold::new();
    app.ai.holds(&hold, three());
    let path = t.path("/ai/captions");
    let send = || t.request("POST", &path).idem("once").json(&json!({ "prompt": "bread" })).send();
    tokio::select! { _ = send() => panic!("it is held"), () = hold.asked() => {} }
    send().await.refused(409, "idempotency_in_progress");
    hold.let_go();
    let answer = crate::support::client::until("the answer", || async {
        let reply = send().await;
        (reply.status == 200).then_some(reply)
    })
    .await;
    assert!(answer.replayed());
    assert_eq!((app.used(t.workspace).await, app.held().await, app.ai.asked().await.len()), (15, 0, 1));
}

async fn what_was_used_is_told_by_brand(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("unlimited").await;
    let second = t.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].as_i64().unwrap();
    app.ai.says([three(), three(), three()]);
    for brand in [t.brand, t.brand, second] {
        t.post(&format!("/brands/{brand}/ai/captions"), json!({ "prompt": "bread" })).await.expect(200);
    }
    let told = ai_credits::by_brand(&mut app.conn().await, t.workspace, app.now()).await.unwrap();
    let told: Vec<_> = told.iter().map(|one| (one.brand_id, one.operation, one.requests, one.credits)).collect();
    assert_eq!(told, [(t.brand, Operation::Captions, 2, 30), (second, Operation::Captions, 1, 15)]);
    // The plan is of the workspace: both brands draw on the same credits.
    for brand in [t.brand, second] {
        let usage = t.get(&format!("/brands/{brand}/usage")).await.data(200);
        assert_eq!(usage["ai_credits"]["used"], 45);
    }
}
