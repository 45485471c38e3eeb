//! Records of a feature that the workspace's plan does not include, from an earlier plan. They can be listed and
//! deleted, but not changed.

use serde_json::{Value, json};

use crate::support::app::{BARE, Tenant, TestApp, on_both_apps};

on_both_apps!(records_of_an_earlier_plan_are_listed_and_deleted);

/// Returns the path of the list of each feature, with a body that creates a record.
fn lists(t: &Tenant<'_>) -> Vec<(String, Value)> {
    vec![
        ("/webhooks".to_owned(), json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"] })),
        (t.path("/feeds"), json!({ "url": "https://8.8.8.8/feed.xml" })),
        (t.path("/content-plans"), json!({ "name": "June" })),
        (t.path("/link-in-bio"), json!({ "title": "Bakery" })),
        (t.path("/reports"), json!({ "name": "Monthly", "widgets": [{ "type": "summary" }] })),
    ]
}

async fn records_of_an_earlier_plan_are_listed_and_deleted(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant(BARE).await);
    let mut records = Vec::new();
    for (list, body) in lists(&t) {
        records.push(format!("{list}/{}", t.post(&list, body).await.data(201)["id"]));
    }
    app.set_plan(t.workspace, BARE).await;
    for ((list, body), record) in lists(&t).into_iter().zip(&records) {
        assert_eq!(t.get(&list).await.data(200).as_array().unwrap().len(), 1, "{list}");
        t.get(record).await.expect(200);
        t.post(&list, body).await.expect_error(402, "feature_not_available");
        t.put(record, json!({})).await.expect_error(402, "feature_not_available");
        let delete = async |key: &str| t.request("DELETE", record).idempotency_key(key).send().await;
        let (first, again) = (delete(record).await, delete(record).await);
        assert_eq!((first.status, again.status, again.replayed()), (204, 204, true), "{record}");
        for path in [&list, record] {
            t.get(path).await.expect_error(402, "feature_not_available");
        }
        delete("another").await.expect_error(402, "feature_not_available");
    }
    for (list, _) in lists(&other) {
        other.get(&list).await.expect_error(402, "feature_not_available");
    }
}
