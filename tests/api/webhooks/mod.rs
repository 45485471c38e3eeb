//! Webhook endpoints and their deliveries: the endpoints themselves, what their owner sees of deliveries and does with them,
//! who hears of which event, and all of it at once.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::support::app::{Reply, Tenant};

mod at_once;
mod deliveries;
mod endpoints;
mod events;
mod recover;
mod sample;

async fn create(t: &Tenant<'_>, url: &str) -> Reply {
    t.post("/webhooks", json!({ "url": url, "events": ["brand.created", "post.failed"] })).await
}

/// An endpoint that asks for these events: its path.
async fn listening(t: &Tenant<'_>, events: &[&str]) -> String {
    let made = t.post("/webhooks", json!({ "url": "https://8.8.8.8/hook", "events": events })).await.data(201);
    format!("/webhooks/{}", made["id"])
}

/// An endpoint that was told of so many brands: its path and its deliveries' ids, the oldest first.
async fn told(t: &Tenant<'_>, brands: usize) -> (String, Vec<i64>) {
    let hook = listening(t, &["brand.created"]).await;
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

/// Leaves deliveries as a worker does that tried them as often as is allowed.
async fn fail(t: &Tenant<'_>, deliveries: &[i64]) {
    let list = deliveries.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let ended = "status = 'failed', attempts = 8, response_code = 500, next_attempt_at = NULL";
    t.app.sql(format!("UPDATE webhook_deliveries SET {ended} WHERE id IN ({list})")).await;
    let ended = "state = 'done', finished_at = created_at";
    t.app.sql(format!("UPDATE jobs SET {ended} WHERE kind = 'deliver_webhook' AND subject_id IN ({list})")).await;
}

/// How many jobs of a delivery have not ended.
async fn open_jobs(t: &Tenant<'_>, delivery: i64) -> i64 {
    let open = "kind = 'deliver_webhook' AND state IN ('scheduled', 'ready', 'running')";
    t.app.number(format!("SELECT count(*) FROM jobs WHERE {open} AND subject_id = {delivery}")).await
}

/// A time at which something happened.
fn stamp(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// A time, of a whole second, at which something is to happen.
fn planned(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}
