//! `POST /webhooks/{webhook}/recover`: deliveries that failed while an endpoint was down are sent again.

use crier_domain::job::JobKind;
use crier_domain::job::JobState::{Cancelled, Dead, Ready, Running, Scheduled};
use serde_json::{Value, json};

use super::{create_deliveries, open_jobs, planned, subscribe};
use crate::support::app::{Reply, Tenant, on_both_apps};

on_both_apps!("unlimited" =>
    failed_deliveries_are_recovered,
    only_deliveries_after_since_are_recovered,
    recovered_deliveries_beyond_the_lane_cap_wait,
    many_deliveries_are_recovered_in_batches,
    a_recovered_delivery_has_one_open_job,
    since_must_be_within_the_last_two_weeks,
    recovery_of_an_inactive_endpoint_is_rejected,
);

async fn recover(t: &Tenant<'_>, hook: &str, since: Value) -> Reply {
    t.post(&format!("{hook}/recover"), json!({ "since": since })).await
}

async fn failed_deliveries_are_recovered(t: Tenant<'_>) {
    let (hook, all) = create_deliveries(&t, 3).await;
    t.app.fail_deliveries(&all[..2]).await;
    t.app.advance(60);
    let since = json!(t.app.now() - chrono::TimeDelta::hours(1));
    let reply = recover(&t, &hook, since).await;
    assert_eq!(reply.data(202), json!({ "recovered": 2 }));
    let waiting = format!("{hook}/deliveries?status=pending");
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{waiting}").as_str()));
    let shown = t.get(&waiting).await.data(200);
    let of = |id: i64| shown.as_array().unwrap().iter().find(|d| d["id"] == id).unwrap();
    for id in &all[..2] {
        assert_eq!((&of(*id)["attempts"], &of(*id)["max_attempts"]), (&json!(8), &json!(9)));
        assert_eq!(of(*id)["next_attempt_at"], planned(t.app.now()));
        assert_eq!(open_jobs(&t, *id).await, 1);
    }
    assert_eq!((&of(all[2])["max_attempts"], open_jobs(&t, all[2]).await), (&json!(8), 1), "it was already waiting");
    assert_eq!(t.app.newest_job().await.trace.as_deref(), reply.header("x-request-id"));
    assert_eq!(recover(&t, &hook, json!(t.app.now())).await.data(202), json!({ "recovered": 0 }));
}

async fn only_deliveries_after_since_are_recovered(t: Tenant<'_>) {
    let (hook, _) = create_deliveries(&t, 2).await;
    let (other, others) = create_deliveries(&t, 1).await;
    t.app.advance(60);
    let since = t.app.now();
    for name in ["on the minute", "later"] {
        t.post("/brands", json!({ "name": name })).await.expect(201);
        t.app.advance(1);
    }
    let mut all = super::ids(&t.get(&format!("{hook}/deliveries")).await.data(200));
    all.reverse();
    let of_other = super::ids(&t.get(&format!("{other}/deliveries")).await.data(200));
    t.app.fail_deliveries(&all).await;
    t.app.fail_deliveries(&of_other).await;
    t.app.set_delivery_status(all[4], "succeeded").await;
    // The same time with another offset, and without an offset.
    let local = since.with_timezone(&chrono::FixedOffset::east_opt(7_200).unwrap()).to_rfc3339();
    assert_eq!(recover(&t, &hook, json!(local)).await.data(202), json!({ "recovered": 1 }));
    assert_eq!(t.get(&format!("{hook}/deliveries?status=pending")).await.data(200)[0]["id"], all[3]);
    let bare = since.format("%Y-%m-%dT%H:%M:%S").to_string();
    assert_eq!(recover(&t, &other, json!(bare)).await.data(202), json!({ "recovered": 2 }));
    assert_eq!(t.get(&format!("{other}/deliveries/{}", others[0])).await.data(200)["status"], "failed");
}

/// However many deliveries are recovered, workers are notified only of as many jobs as the lane of the endpoint admits.
async fn recovered_deliveries_beyond_the_lane_cap_wait(t: Tenant<'_>) {
    let places = JobKind::DeliverWebhook.limits().lane_cap.unwrap();
    let (hook, all) = create_deliveries(&t, 1).await;
    t.app.fail_deliveries(&all).await;
    t.app.copy_newest_row("webhook_deliveries", places + 1, &[]).await;
    t.app.notifier.take();
    assert_eq!(recover(&t, &hook, json!(t.app.now())).await.data(202), json!({ "recovered": places + 2 }));
    assert_eq!(t.app.notifier.take().len(), usize::try_from(places).unwrap());
    assert_eq!(t.app.count_rows("jobs WHERE state = 'ready' AND waiting").await, 2);
}

/// A transaction has at most 1,000. All of them are in the response.
async fn many_deliveries_are_recovered_in_batches(t: Tenant<'_>) {
    let places = JobKind::DeliverWebhook.limits().lane_cap.unwrap();
    let (hook, all) = create_deliveries(&t, 1).await;
    t.app.fail_deliveries(&all).await;
    t.app.copy_newest_row("webhook_deliveries", 2_000, &[]).await;
    t.app.notifier.take();
    let since = json!(t.app.now());
    assert_eq!(recover(&t, &hook, since.clone()).await.data(202), json!({ "recovered": 2_001 }));
    assert_eq!(t.app.count_rows("webhook_deliveries WHERE status = 'pending' AND max_attempts = 9").await, 2_001);
    let (waiting, notified) = (t.app.count_rows("jobs WHERE state = 'ready' AND waiting").await, t.app.notifier.take());
    assert_eq!(waiting + notified.len() as i64, 2_001);
    assert!(notified.len() as i64 <= 3 * places, "each batch notifies of as many as the lane has places");
    // A request that was interrupted continues with the others.
    t.app.sql("UPDATE webhook_deliveries SET status = 'failed' WHERE id % 2 = 0").await;
    let left = t.app.count_rows("webhook_deliveries WHERE status = 'failed'").await;
    assert_eq!(recover(&t, &hook, since).await.data(202), json!({ "recovered": left }));
}

async fn a_recovered_delivery_has_one_open_job(t: Tenant<'_>) {
    let (hook, all) = create_deliveries(&t, 5).await;
    t.app.fail_deliveries(&all).await;
    for (id, state) in all.iter().zip([Running, Scheduled, Ready, Cancelled, Dead]) {
        t.app.set_job_state(format!("jobs WHERE subject_id = {id}"), state).await;
    }
    assert_eq!(recover(&t, &hook, json!(t.app.now())).await.data(202), json!({ "recovered": 5 }));
    for id in &all {
        assert_eq!(open_jobs(&t, *id).await, 1, "delivery {id}");
    }
    assert_eq!(t.app.count_rows("jobs").await, 7, "two of the five had finished");
}

async fn since_must_be_within_the_last_two_weeks(t: Tenant<'_>) {
    let hook = subscribe(&t, &["brand.created"]).await;
    let (now, longest) = (t.app.now(), chrono::TimeDelta::days(14));
    let second = chrono::TimeDelta::seconds(1);
    t.put(&hook, json!({ "is_active": false })).await.expect(200);
    for since in [
        json!(now + second),
        json!(now - longest - second),
        json!("yesterday"),
        json!(""),
        json!(1_781_000_000),
        Value::Null,
    ] {
        assert_eq!(recover(&t, &hook, since.clone()).await.invalid_fields(), ["since"], "{since}");
    }
    assert_eq!(t.post(&format!("{hook}/recover"), json!({})).await.invalid_fields(), ["since"]);
    recover(&t, "/webhooks/999999", json!("nope")).await.expect_error(404, "not_found");
    t.put(&hook, json!({ "is_active": true })).await.expect(200);
    for since in [now, now - longest] {
        recover(&t, &hook, json!(since)).await.expect(202);
    }
}

async fn recovery_of_an_inactive_endpoint_is_rejected(t: Tenant<'_>) {
    let (hook, all) = create_deliveries(&t, 1).await;
    t.app.fail_deliveries(&all).await;
    t.put(&hook, json!({ "is_active": false })).await.expect(200);
    recover(&t, &hook, json!(t.app.now())).await.expect_error(409, "webhook_inactive");
    let delivery = t.get(&format!("{hook}/deliveries/{}", all[0])).await.data(200);
    assert_eq!((&delivery["status"], &delivery["max_attempts"]), (&json!("failed"), &json!(8)));
    assert_eq!(open_jobs(&t, all[0]).await, 0);
}
