//! Credits are charged once per result, and refunded in every other case.

use chrono::{DateTime, TimeDelta, Utc};
use crier_api::ai::PROVIDER_TIMEOUT;
use crier_domain::ai::Operation;
use crier_scheduler::Scheduler;
use crier_scheduler::tasks::reservations;
use crier_store::ai_credits::{self, CreditRequest};
use crier_store::users;
use serde_json::json;

use crate::support::ai_server::{AiApp, AiServer, ResponseGate, captions, error};
use crate::support::app::{Reply, Tenant};
use crate::support::store::on_both;
use crate::support::transport::FixedCapacityTransport;

on_both!(AiApp::start =>
    months_start_in_the_workspace_time_zone,
    expired_reservations_are_refunded,
    a_request_that_outlives_its_lease_is_charged,
    a_request_that_outlives_its_lease_can_run_out_of_credits,
    a_key_taken_over_by_another_process_is_charged_once,
    refunds_go_to_the_month_of_the_charge,
    time_zone_changes_grant_no_extra_credits,
    a_request_completes_after_its_client_disconnects,
    usage_is_reported_by_brand,
);

async fn write(t: &Tenant<'_>) -> Reply {
    t.post(&t.path("/ai/captions"), json!({ "prompt": "bread" })).await
}

fn three() -> wiremock::ResponseTemplate {
    captions(&["A", "B", "C"])
}

async fn clean_up(app: &AiApp) {
    let scheduler =
        Scheduler::new(app.store.store.clone(), FixedCapacityTransport::with_room(1), app.library(&app.url));
    reservations::run(&scheduler).await.unwrap();
}

async fn months_start_in_the_workspace_time_zone(app: AiApp) {
    let (early, utc) = (app.tenant("free").await, app.tenant("free").await);
    app.write(async |tx| users::set_timezone(tx, early.workspace, "Pacific/Kiritimati").await).await;
    for t in [&early, &utc] {
        app.set_used_credits(t.workspace, 97).await;
        write(t).await.expect_error(402, "insufficient_credits");
    }
    // July begins in this time zone 14 hours before it begins in UTC.
    let july: DateTime<Utc> = "2026-06-30T10:00:00Z".parse().unwrap();
    app.clock.advance(july - app.now() - TimeDelta::microseconds(1));
    write(&early).await.expect_error(402, "insufficient_credits");
    app.clock.advance(TimeDelta::microseconds(1));
    app.ai.queue_responses([three(), three()]);
    assert_eq!(write(&early).await.data(200)["credits_remaining"], 85);
    write(&utc).await.expect_error(402, "insufficient_credits");
    let usage = early.get(&early.path("/usage")).await.data(200);
    assert_eq!((&usage["ai_credits"]["used"], &usage["credits_remaining"]), (&json!(15), &json!(85)));
    app.clock.advance(TimeDelta::hours(14));
    assert_eq!(write(&utc).await.data(200)["credits_remaining"], 85);
}

async fn expired_reservations_are_refunded(app: AiApp) {
    let t = app.tenant("free").await;
    app.set_used_credits(t.workspace, 85).await;
    let request = CreditRequest {
        workspace_id: t.workspace,
        brand_id: t.brand,
        operation: Operation::Captions,
        credits: 15,
        cap: Some(100),
    };
    app.write(async |tx| ai_credits::reserve(tx, &request).await).await.expect("enough credits");
    write(&t).await.expect_error(402, "insufficient_credits");
    app.clock.advance(TimeDelta::seconds(60) - TimeDelta::microseconds(1));
    clean_up(&app).await;
    assert_eq!((app.used(t.workspace).await, app.held().await), (100, 1));
    app.clock.advance(TimeDelta::microseconds(1));
    clean_up(&app).await;
    assert_eq!((app.used(t.workspace).await, app.held().await), (85, 0));
    app.ai.queue_responses([three()]);
    assert_eq!(write(&t).await.data(200)["credits_remaining"], 0);
}

/// Makes the lease of a running request expire, and returns the response.
async fn expire_lease_during_request(app: &AiApp, t: &Tenant<'_>, meanwhile: impl AsyncFnOnce()) -> Reply {
    let hold = ResponseGate::new();
    app.ai.queue_held_response(&hold, three());
    let events = async {
        hold.wait_for_request().await;
        app.clock.advance(TimeDelta::seconds(61));
        clean_up(app).await;
        meanwhile().await;
        hold.let_go();
    };
    tokio::join!(write(t), events).0
}

async fn a_request_that_outlives_its_lease_is_charged(app: AiApp) {
    let t = app.tenant("free").await;
    let reply = expire_lease_during_request(&app, &t, async || assert_eq!(app.used(t.workspace).await, 0)).await;
    assert_eq!(reply.data(200)["credits_remaining"], 85);
    assert_eq!((app.used(t.workspace).await, app.held().await), (15, 0));
}

async fn a_request_that_outlives_its_lease_can_run_out_of_credits(app: AiApp) {
    let t = app.tenant("free").await;
    let spend = async || app.set_used_credits(t.workspace, 90).await;
    let reply = expire_lease_during_request(&app, &t, spend).await;
    reply.expect_error(402, "insufficient_credits");
    assert_eq!((app.used(t.workspace).await, app.held().await), (90, 0));
}

/// A process stalls until its lease on the key expires. The client repeats the request at another process; then the
/// first process resumes.
async fn a_key_taken_over_by_another_process_is_charged_once(app: AiApp) {
    let t = app.tenant("free").await;
    let other = AiServer::start().await;
    let replica = app.replica_with(other.ai(PROVIDER_TIMEOUT)).await;
    for (n, late) in [three(), error(500, serde_json::Value::Null, "down")].into_iter().enumerate() {
        let hold = ResponseGate::new();
        app.ai.queue_held_response(&hold, late);
        other.queue_responses([captions(&["D", "E", "F"])]);
        let (key, path, body) = (format!("once{n}"), t.path("/ai/captions"), json!({ "prompt": "bread" }));
        let again = || t.request_at(&replica, "POST", &path).idempotency_key(&key).json(&body).send();
        let events = async {
            hold.wait_for_request().await;
            again().await.expect_error(409, "idempotency_in_progress");
            app.clock.advance(TimeDelta::seconds(30));
            let second = again().await;
            assert!(!second.replayed() && second.status == 200, "{second:?}");
            hold.let_go();
            second.data(200)
        };
        let (first, second) = tokio::join!(t.request("POST", &path).idempotency_key(&key).json(&body).send(), events);
        if n == 0 {
            assert!(first.replayed(), "{first:?}");
            assert_eq!(first.data(200), second);
        } else {
            first.expect_error(502, "ai_provider_unavailable");
        }
        let third = again().await;
        assert!(third.replayed(), "{third:?}");
        assert_eq!(third.data(200), second);
        assert_eq!((app.used(t.workspace).await, app.held().await), (15 * (n as i64 + 1), 0));
    }
}

async fn refunds_go_to_the_month_of_the_charge(app: AiApp) {
    let t = app.tenant("free").await;
    let june = async || app.number("SELECT used FROM ai_usage WHERE month = '2026-06'").await;
    let july: DateTime<Utc> = "2026-07-01T00:00:00Z".parse().unwrap();
    app.clock.advance(july - app.now() - TimeDelta::seconds(1));
    let hold = ResponseGate::new();
    // In July, the first request fails, and the second succeeds.
    for (response, status, left, used) in
        [(error(500, serde_json::Value::Null, "down"), 502, 0, 0), (three(), 200, 100, 15)]
    {
        app.ai.queue_held_response(&hold, response);
        let events = async {
            hold.wait_for_request().await;
            assert_eq!(june().await, 15);
            app.clock.advance(TimeDelta::seconds(1));
            hold.let_go();
        };
        let reply = tokio::join!(write(&t), events).0;
        assert_eq!((reply.status, june().await, app.held().await), (status, used, 0));
        if status == 200 {
            assert_eq!(reply.data(200)["credits_remaining"], left, "July's credits are complete");
        }
        app.clock.advance(TimeDelta::seconds(-1));
    }
    assert_eq!(app.count_rows("ai_usage").await, 1);
}

/// A change of the time zone, or of the clock to an earlier time, moves the end of a month. The credits of each month
/// are granted once.
async fn time_zone_changes_grant_no_extra_credits(app: AiApp) {
    let t = app.tenant("free").await;
    let at = async |zone: &str| app.write(async |tx| users::set_timezone(tx, t.workspace, zone).await).await;
    let spend = async || {
        let mut passed = 0;
        loop {
            app.clock.advance(TimeDelta::seconds(1));
            app.ai.queue_responses([three()]);
            let reply = write(&t).await;
            if reply.status != 200 {
                reply.expect_error(402, "insufficient_credits");
                app.ai.clear_responses();
                return passed;
            }
            passed += 1;
        }
    };
    let border: DateTime<Utc> = "2026-07-01T00:00:00Z".parse().unwrap();
    app.clock.advance(border - app.now() - TimeDelta::hours(1));
    assert_eq!(spend().await, 6, "June's credits");
    at("Pacific/Kiritimati").await;
    assert_eq!(spend().await, 6, "it is July in that zone");
    for zone in ["Etc/GMT+12", "America/New_York", "UTC", "Pacific/Apia"] {
        at(zone).await;
        assert_eq!(spend().await, 0, "{zone}");
    }
    app.clock.advance(TimeDelta::hours(30));
    for zone in ["UTC", "Etc/GMT+12", "Pacific/Kiritimati"] {
        at(zone).await;
        assert_eq!(spend().await, 0, "{zone}");
    }
    app.clock.advance(TimeDelta::hours(-60));
    // The rate limit depends on the clock too. The next request starts a new period.
    t.get("/brands").await;
    app.clock.advance(TimeDelta::minutes(2));
    assert_eq!(spend().await, 0, "a clock that was set back");
    assert_eq!(app.used(t.workspace).await, 180);
}

async fn a_request_completes_after_its_client_disconnects(app: AiApp) {
    let t = app.tenant("free").await;
    let hold = ResponseGate::new();
    app.ai.queue_held_response(&hold, three());
    let path = t.path("/ai/captions");
    let send = || t.request("POST", &path).idempotency_key("once").json(&json!({ "prompt": "bread" })).send();
    tokio::select! { _ = send() => panic!("the response is held back"), () = hold.wait_for_request() => {} }
    send().await.expect_error(409, "idempotency_in_progress");
    hold.let_go();
    let response = crate::support::client::until("the response", || async {
        let reply = send().await;
        (reply.status == 200).then_some(reply)
    })
    .await;
    assert!(response.replayed());
    assert_eq!((app.used(t.workspace).await, app.held().await, app.ai.request_bodies().await.len()), (15, 0, 1));
}

async fn usage_is_reported_by_brand(app: AiApp) {
    let t = app.tenant("unlimited").await;
    let second = t.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].as_i64().unwrap();
    app.ai.queue_responses([three(), three(), three()]);
    for brand in [t.brand, t.brand, second] {
        t.post(&format!("/brands/{brand}/ai/captions"), json!({ "prompt": "bread" })).await.expect(200);
    }
    let rows = ai_credits::by_brand(&mut app.conn().await, t.workspace, app.now()).await.unwrap();
    let rows: Vec<_> = rows.iter().map(|one| (one.brand_id, one.operation, one.requests, one.credits)).collect();
    assert_eq!(rows, [(t.brand, Operation::Captions, 2, 30), (second, Operation::Captions, 1, 15)]);
    // Both brands use the same credits, because the plan belongs to the workspace.
    for brand in [t.brand, second] {
        let usage = t.get(&format!("/brands/{brand}/usage")).await.data(200);
        assert_eq!(usage["ai_credits"]["used"], 45);
    }
}
