//! The webhook endpoints of a user, and their deliveries.

use chrono::TimeDelta;
use serde_json::json;

use crate::support::app::{Tenant, on_one_app, on_sqlite_app};
use crate::support::console::ConsoleUser;

on_one_app!("unlimited" => failed_deliveries_are_recovered_since_a_local_time);
on_one_app!(console "unlimited" =>
    a_webhook_is_changed_paused_and_deleted,
    a_new_secret_replaces_the_old_one,
    deliveries_are_filtered_and_sent_again,
    a_webhook_is_created_and_its_secret_shown_once,
);
on_sqlite_app!(console "unlimited" => errors_in_a_webhook_are_shown, webhooks_of_an_earlier_plan_can_be_deleted);

/// Creates an endpoint; returns its id.
async fn create_webhook(t: &Tenant<'_>) -> i64 {
    let body = json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"] });
    t.post("/webhooks", body).await.data(201)["id"].as_i64().expect("an id")
}

async fn a_webhook_is_created_and_its_secret_shown_once(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (list, new) = (t.path("/developers/webhooks"), t.path("/developers/webhooks/new"));
    person.get(&list).await.expect(200, "No webhooks yet");
    let page = person.get(&new).await;
    page.expect(200, "A post was published on an account");
    let form = [
        ("url", "https://8.8.8.8/hook"),
        ("description", "Production"),
        ("events", "post.failed"),
        ("events", "post.published"),
        ("is_active", "true"),
    ];
    for _ in 0..2 {
        person.submit_from(&page, &new, &form).await.expect(200, "whsec_").expect(200, "It is not shown again.");
    }
    let listed = person.get(&list).await;
    listed.expect(200, "https://8.8.8.8/hook").expect(200, "2 events").expect(200, "Production").expect(200, "Active");
    assert!(!listed.has("whsec_"));
    assert_eq!(t.app.count_rows("webhooks").await, 1);
}

async fn errors_in_a_webhook_are_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let new = t.path("/developers/webhooks/new");
    let page = person.submit(&new, &new, &[("url", ""), ("description", "Typed")]).await;
    page.expect(422, "e-url").expect(422, "e-events").expect(422, "value=\"Typed\"");
    let page = person.submit(&new, &new, &[("url", "https://127.0.0.1/x"), ("events", "post.failed")]).await;
    page.expect(422, "Use a public https:// URL.").expect(422, "value=\"post.failed\" checked");
    let page = person.submit(&new, &new, &[("url", "https://8.8.8.8/x"), ("events", "post.flown")]).await;
    page.expect(422, "e-events");
    assert_eq!(t.app.count_rows("webhooks").await, 0);
}

async fn a_webhook_is_changed_paused_and_deleted(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = create_webhook(&t).await;
    let path = t.path(&format!("/developers/webhooks/{id}"));
    let edit = format!("{path}/edit");
    person
        .get(&edit)
        .await
        .expect(200, "value=\"https://8.8.8.8/hook\"")
        .expect(200, "value=\"brand.created\" checked");
    person.submit(&edit, &edit, &[("url", ""), ("events", "post.failed")]).await.expect(422, "e-url");
    let form = [("url", "https://8.8.4.4/new"), ("description", "Shop"), ("events", "post.failed")];
    let page = person.submit(&edit, &edit, &form).await;
    page.expect(200, "Webhook saved.")
        .expect(200, "https://8.8.4.4/new")
        .expect(200, "post.failed")
        .expect(200, "Shop");
    person.submit(&path, &format!("{path}/pause"), &[]).await.expect(200, "Paused");
    assert_eq!(t.app.count_rows("webhooks WHERE is_active").await, 0);
    t.app.sql("UPDATE webhooks SET disabled_reason = 'It failed for 3 days.'").await;
    person.get(&path).await.expect(200, "Disabled").expect(200, "It failed for 3 days.");
    person.submit(&path, &format!("{path}/activate"), &[]).await.expect(200, "Active");
    let page = person.submit(&path, &format!("{path}/test"), &[]).await;
    page.expect(200, "Sending a test event").expect(200, "1–1 of 1");
    person.submit(&path, &format!("{path}/delete"), &[]).await.expect(200, "No webhooks yet");
    person.get(&path).await.expect(404, "Page not found");
}

async fn a_new_secret_replaces_the_old_one(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = create_webhook(&t).await;
    let secret = async || t.app.value::<Vec<u8>>("SELECT secret FROM webhooks").await;
    let before = secret().await;
    let path = t.path(&format!("/developers/webhooks/{id}"));
    let page = person.get(&path).await;
    let first = person.submit_from(&page, &format!("{path}/rotate-secret"), &[]).await;
    first.expect(200, "whsec_");
    let after = secret().await;
    assert_ne!(before, after);
    person.submit_from(&page, &format!("{path}/rotate-secret"), &[]).await.expect(200, "whsec_");
    assert_eq!(secret().await, after, "the same form makes one secret");
}

async fn deliveries_are_filtered_and_sent_again(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let hook = create_webhook(&t).await;
    for n in 0..21 {
        t.post("/brands", json!({ "name": format!("Brand {n}") })).await.expect(201);
    }
    let id = t.app.newest_id("webhook_deliveries").await;
    t.app
        .sql(format!(
            "
        UPDATE webhook_deliveries
        SET status = 'failed', attempts = 8, response_code = 503, error = 'HTTP 503', duration_ms = 230,
            response_body = '<b>No</b>'
        WHERE id = {id}"
        ))
        .await;
    let path = t.path(&format!("/developers/webhooks/{hook}"));
    person.get(&path).await.expect(200, "1–20 of 21").expect(200, "230 ms").expect(200, "8 of 8");
    person.get(&format!("{path}?page=2")).await.expect(200, "21–21 of 21");
    person.get(&format!("{path}?status=failed&event=brand.created")).await.expect(200, "1–1 of 1");
    person.get(&format!("{path}?status=succeeded")).await.expect(200, "No matching deliveries");
    for query in ["status=flown", "event=x", "page=0"] {
        person.get(&format!("{path}?{query}")).await.expect(200, "1–20 of 21");
    }
    let delivery = format!("{path}/deliveries/{id}");
    let page = person.get(&delivery).await;
    page.expect(200, "HTTP 503")
        .expect(200, "\"name\": \"Brand 20\"")
        .expect(200, &format!("X-Webhook-Delivery-Id: {id}"));
    assert!(!String::from_utf8_lossy(&page.reply.body).contains("<b>No"), "responses are escaped");
    for _ in 0..2 {
        person.submit_from(&page, &format!("{delivery}/retry"), &[]).await.expect(200, "Retrying the delivery.");
    }
    let webhook = format!("/webhooks/{hook}");
    assert_eq!(t.get(&format!("{webhook}/deliveries/{id}")).await.data(200)["max_attempts"], 9);
    t.put(&webhook, json!({ "is_active": false })).await.expect(200);
    person.get(&delivery).await.expect(200, "The webhook is not active.");
    person.submit_from(&person.get(&path).await, &format!("{path}/activate"), &[]).await.expect(200, "Active");
}

async fn failed_deliveries_are_recovered_since_a_local_time(t: Tenant<'_>) {
    let hook = create_webhook(&t).await;
    t.post("/brands", json!({ "name": "Second" })).await.expect(201);
    t.app.fail_deliveries(&[t.app.newest_id("webhook_deliveries").await]).await;
    let created_at = t.app.now().with_timezone(&chrono_tz::Europe::Berlin);
    t.app.advance(3_600);
    let person = ConsoleUser::sign_in(&t).await;
    let path = t.path(&format!("/developers/webhooks/{hook}"));
    let recover = format!("{path}/recover");
    let pending = "webhook_deliveries WHERE status = 'pending'";
    for (since, problem) in
        [("", "This field is required."), ("x", "Must be a time"), ("2020-01-01T00:00", "at most 14 days")]
    {
        person.submit(&path, &recover, &[("since", since)]).await.expect(422, problem);
    }
    let local = |at: chrono::DateTime<chrono_tz::Tz>| at.format("%Y-%m-%dT%H:%M").to_string();
    let later = local(created_at + TimeDelta::minutes(10));
    person.submit(&path, &recover, &[("since", &later)]).await.expect(200, "Retrying the deliveries");
    assert_eq!(t.app.count_rows(pending).await, 0, "it was made before that");
    person.submit(&path, &recover, &[("since", &local(created_at))]).await.expect(200, "Retrying the deliveries");
    assert_eq!(t.app.count_rows(pending).await, 1);
}

async fn webhooks_of_an_earlier_plan_can_be_deleted(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = create_webhook(&t).await;
    t.app.set_plan(t.workspace, "free").await;
    let (list, path) = (t.path("/developers/webhooks"), t.path(&format!("/developers/webhooks/{id}")));
    let page = person.get(&list).await;
    page.expect(200, "Your plan does not include webhooks.").expect(200, "https://8.8.8.8/hook");
    assert!(!page.has("/developers/webhooks/new"), "{}", page.text);
    let page = person.get(&path).await;
    page.expect(200, "Your plan does not include webhooks.");
    for action in ["test", "pause", "edit", "recover", "rotate-secret"] {
        assert!(!page.has(&format!("{path}/{action}")), "{action}: {}", page.text);
    }
    for _ in 0..2 {
        person.submit_from(&page, &format!("{path}/delete"), &[]).await.expect(200, "Webhook deleted");
    }
    assert_eq!(t.app.count_rows("webhooks").await, 0);
    person.get(&list).await.expect(402, "Not in your plan");
}
