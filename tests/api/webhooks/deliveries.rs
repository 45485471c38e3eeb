//! Deliveries for the owner of an endpoint: the list with its filters, a delivery, its attempts, and its retry.

use crier_domain::access::Role;
use crier_domain::webhook::DeliveryStatus;
use crier_store::deliveries::{self, AttemptRow};
use serde_json::{Value, json};

use super::{create_deliveries, ids, open_jobs, planned, stamp, subscribe};
use crate::support::app::{Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::request::assert_fields;

on_both_apps!(a_delivery_can_be_retried_in_any_status, deliveries_are_private_to_the_endpoint_owner);
on_both_apps!("unlimited" =>
    a_delivery_has_the_documented_fields,
    deliveries_are_paginated_newest_first,
    filters_apply_to_the_list_and_its_total,
    attempts_are_listed_oldest_first,
    a_delivery_can_be_retried,
);
on_one_app!("unlimited" => invalid_filters_are_reported_by_name);

async fn a_delivery_has_the_documented_fields(t: Tenant<'_>) {
    let (hook, delivery) = create_deliveries(&t, 1).await;
    let shown = t.get(&format!("{hook}/deliveries/{}", delivery[0])).await.data(200);
    let fields = "id webhook_id event status response_code attempts max_attempts duration_ms error response_body payload next_attempt_at last_attempt_at created_at updated_at";
    assert_eq!(shown.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" "), fields);
    assert_fields(&shown, json!({ "event": "brand.created", "status": "pending", "attempts": 0, "max_attempts": 8 }));
    for unknown in ["response_code", "duration_ms", "error", "response_body", "last_attempt_at"] {
        assert_eq!(shown[unknown], Value::Null, "{unknown}");
    }
    assert_eq!(t.get(&format!("{hook}/deliveries")).await.data(200), json!([shown]));
    t.get(&format!("{hook}/deliveries/{}", delivery[0] + 1)).await.expect_error(404, "not_found");
}

async fn deliveries_are_paginated_newest_first(t: Tenant<'_>) {
    let (hook, mut all) = create_deliveries(&t, 3).await;
    all.reverse();
    let page = t.get(&format!("{hook}/deliveries?per_page=2&page=2")).await.expect(200);
    assert_eq!(ids(&page["data"]), all[2..]);
    assert_eq!((&page["meta"]["total"], &page["meta"]["last_page"]), (&json!(3), &json!(2)));
    let page = t.get(&format!("{hook}/deliveries?per_page=1000")).await.expect(200);
    assert_eq!((ids(&page["data"]), &page["meta"]["per_page"]), (all, &json!(100)));
    assert_eq!(t.get(&format!("{hook}/deliveries?page=0")).await.invalid_fields(), ["page"]);
}

async fn filters_apply_to_the_list_and_its_total(t: Tenant<'_>) {
    let (hook, all) = create_deliveries(&t, 4).await;
    t.app.fail_deliveries(&all[..2]).await;
    let sample = t.post(&format!("{hook}/test"), json!({ "event": "post.failed" })).await.data(202)["id"].clone();
    let sample = sample.as_i64().unwrap();
    for (filter, found) in [
        ("status=failed", vec![all[1], all[0]]),
        ("status=pending", vec![sample, all[3], all[2]]),
        ("status=succeeded", vec![]),
        ("event=brand.created", vec![all[3], all[2], all[1], all[0]]),
        ("event=post.failed", vec![sample]),
        ("event=post.published", vec![]),
        ("status=pending&event=brand.created", vec![all[3], all[2]]),
        ("event=post.failed&status=failed", vec![]),
    ] {
        let page = t.get(&format!("{hook}/deliveries?{filter}")).await.expect(200);
        assert_eq!((ids(&page["data"]), &page["meta"]["total"]), (found.clone(), &json!(found.len())), "{filter}");
    }
    let other = subscribe(&t, &["brand.created"]).await;
    assert_eq!(t.get(&format!("{other}/deliveries?status=failed&event=brand.created")).await.data(200), json!([]));
}

async fn invalid_filters_are_reported_by_name(t: Tenant<'_>) {
    let hook = subscribe(&t, &["brand.created"]).await;
    for (query, wrong) in [
        ("status=nope", vec!["status"]),
        ("status=", vec!["status"]),
        ("event=brand.destroyed", vec!["event"]),
        ("event=Brand.Created&status=FAILED&page=0", vec!["event", "page", "status"]),
    ] {
        assert_eq!(t.get(&format!("{hook}/deliveries?{query}")).await.invalid_fields(), wrong, "{query}");
    }
    t.get("/webhooks/999999/deliveries?status=nope").await.expect_error(404, "not_found");
}

async fn attempts_are_listed_oldest_first(t: Tenant<'_>) {
    let (hook, delivery) = create_deliveries(&t, 2).await;
    let path = format!("{hook}/deliveries/{}/attempts", delivery[0]);
    assert_eq!(t.get(&path).await.expect(200), json!({ "data": [] }));
    let began = t.app.now();
    for (number, outcome, code, error) in [
        (1, "timeout", None, Some("no response within 25 s")),
        (2, "4xx", Some(404), Some("the endpoint returned 404")),
    ] {
        let row = AttemptRow {
            delivery_id: delivery[0],
            number,
            started_at: t.app.now(),
            duration_ms: 25_000,
            outcome,
            response_code: code,
            error: error.map(str::to_owned),
            response_body: code.map(|_| "nobody here".to_owned()),
            status: DeliveryStatus::Retrying,
            next_attempt_at: None,
        };
        t.app.write(async |tx| deliveries::record(tx, std::slice::from_ref(&row)).await).await;
        t.app.advance(30);
    }
    let shown = t.get(&path).await.data(200);
    let at = |seconds| stamp(began + chrono::TimeDelta::seconds(seconds));
    let whole = json!([
        { "id": shown[0]["id"], "number": 1, "started_at": at(0), "duration_ms": 25_000, "outcome": "timeout",
          "response_code": null, "error": "no response within 25 s", "response_body": null },
        { "id": shown[1]["id"], "number": 2, "started_at": at(30), "duration_ms": 25_000, "outcome": "4xx",
          "response_code": 404, "error": "the endpoint returned 404", "response_body": "nobody here" },
    ]);
    assert_eq!(shown, whole);
    assert!(shown[0]["id"].as_i64() < shown[1]["id"].as_i64());
    assert_eq!(t.get(&format!("{hook}/deliveries/{}/attempts", delivery[1])).await.data(200), json!([]));
    t.get(&format!("{hook}/deliveries/{}/attempts", delivery[1] + 1)).await.expect_error(404, "not_found");
}

async fn a_delivery_can_be_retried(t: Tenant<'_>) {
    let (hook, delivery) = create_deliveries(&t, 1).await;
    let path = format!("{hook}/deliveries");
    let delivery = t.get(&format!("{path}/{}", delivery[0])).await.data(200);
    assert_eq!((&delivery["status"], &delivery["max_attempts"]), (&json!("pending"), &json!(8)));
    let retry = format!("{path}/{}/retry", delivery["id"]);
    let again = t.request("POST", &retry).send().await.data(200);
    assert_eq!((&again["id"], &again["max_attempts"]), (&delivery["id"], &json!(9)));
    assert_eq!(t.app.count_rows("jobs").await, 1);
    t.put(&hook, json!({ "is_active": false })).await.expect(200);
    t.request("POST", &retry).send().await.expect_error(409, "webhook_inactive");
    let stranger = format!("{path}/{}/retry", delivery["id"].as_i64().unwrap() + 1);
    t.request("POST", &stranger).send().await.expect_error(404, "not_found");
    let other = subscribe(&t, &["brand.created"]).await;
    let stray = format!("{other}/deliveries/{}", delivery["id"]);
    t.request("POST", &format!("{stray}/retry")).send().await.expect_error(404, "not_found");
    for path in [stray.clone(), format!("{stray}/attempts")] {
        t.get(&path).await.expect_error(404, "not_found");
    }
}

async fn a_delivery_can_be_retried_in_any_status(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (hook, all) = create_deliveries(&t, 3).await;
    app.fail_deliveries(&all[..2]).await;
    app.set_delivery_status(all[1], "succeeded").await;
    // The third delivery waits for its next attempt.
    let later = app.later(300).to_rfc3339();
    app.sql(format!("UPDATE webhook_deliveries SET status = 'retrying', attempts = 1 WHERE id = {}", all[2])).await;
    app.sql(format!("UPDATE jobs SET state = 'scheduled', run_at = '{later}' WHERE subject_id = {}", all[2])).await;
    app.advance(10);
    app.notifier.take();
    for (id, status) in [(all[0], "pending"), (all[1], "pending"), (all[2], "retrying")] {
        let again = t.request("POST", &format!("{hook}/deliveries/{id}/retry")).send().await.data(200);
        assert_fields(&again, json!({ "status": status, "max_attempts": 9, "next_attempt_at": planned(app.now()) }));
        assert_eq!(open_jobs(&t, id).await, 1);
        assert_eq!(app.notifier.take().len(), 1, "it is due now");
    }
}

async fn deliveries_are_private_to_the_endpoint_owner(app: TestApp) {
    let owner = app.tenant("unlimited").await;
    let colleague = owner.colleague(Role::Admin).await;
    let (hook, delivery) = create_deliveries(&owner, 1).await;
    let delivery = format!("{hook}/deliveries/{}", delivery[0]);
    for path in [hook.clone(), format!("{hook}/deliveries"), delivery.clone(), format!("{delivery}/attempts")] {
        owner.get(&path).await.expect(200);
        colleague.get(&path).await.expect_error(404, "not_found");
    }
    colleague.put(&hook, json!({ "is_active": false })).await.expect_error(404, "not_found");
    for path in [format!("{hook}/rotate-secret"), format!("{delivery}/retry")] {
        colleague.request("POST", &path).send().await.expect_error(404, "not_found");
    }
    colleague.post(&format!("{hook}/test"), json!({ "event": "post.failed" })).await.expect_error(404, "not_found");
    colleague.post(&format!("{hook}/recover"), json!({ "since": app.now() })).await.expect_error(404, "not_found");
    colleague.delete(&hook).await.expect_error(404, "not_found");
    assert_eq!(colleague.get("/webhooks").await.data(200), json!([]));
    assert_eq!(owner.get(&delivery).await.data(200)["max_attempts"], 8);
}
