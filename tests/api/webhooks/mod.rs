//! Webhook endpoints and their deliveries.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::support::app::{Reply, Tenant};

mod concurrency;
mod deliveries;
mod endpoints;
mod events;
mod recover;
mod sample;

async fn create(t: &Tenant<'_>, url: &str) -> Reply {
    t.post("/webhooks", json!({ "url": url, "events": ["brand.created", "post.failed"] })).await
}

/// Creates an endpoint that is subscribed to these events, and returns its path.
async fn subscribe(t: &Tenant<'_>, events: &[&str]) -> String {
    let created = t.post("/webhooks", json!({ "url": "https://8.8.8.8/hook", "events": events })).await.data(201);
    format!("/webhooks/{}", created["id"])
}

/// Creates an endpoint and this many brands. Returns the path of the endpoint and the ids of its deliveries, oldest
/// first.
async fn create_deliveries(t: &Tenant<'_>, brands: usize) -> (String, Vec<i64>) {
    let hook = subscribe(t, &["brand.created"]).await;
    for n in 0..brands {
        t.post("/brands", json!({ "name": format!("Brand {n}") })).await.expect(201);
    }
    let mut ids = ids(&t.get(&format!("{hook}/deliveries?per_page=100")).await.data(200));
    ids.reverse();
    (hook, ids)
}

fn ids(list: &Value) -> Vec<i64> {
    list.as_array().expect("a list").iter().map(|record| record["id"].as_i64().expect("an id")).collect()
}

/// Returns the number of unfinished jobs of a delivery.
async fn open_jobs(t: &Tenant<'_>, delivery: i64) -> i64 {
    let open = "kind = 'deliver_webhook' AND state IN ('scheduled', 'ready', 'running')";
    t.app.count_rows(format!("jobs WHERE {open} AND subject_id = {delivery}")).await
}

/// Formats the time of a past event.
fn stamp(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Formats the time of a planned event, in whole seconds.
fn planned(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}
