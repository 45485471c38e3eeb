//! Lists with 10,000 rows (1,100 unless the tests run in full): each page is small, the first and the last page can be
//! reached, and filters work.

use serde_json::json;

use super::inbox::inbox;
use crate::support::app::{Tenant, TestApp, on_both_apps};
use crate::support::console::{ConsoleUser, Page};
use crate::support::images;
use crate::support::size::sized;

on_both_apps!(console "unlimited" => every_long_list_is_paged);

const MAX_PAGE: usize = 100_000;

/// Fills every list that can have so many rows.
async fn fill_lists(app: &TestApp, t: &Tenant<'_>) {
    let rows = sized(10_000, 1_100);
    let hash = if app.store.is_postgres() { "sha256(n::text::bytea)" } else { "CAST(n AS BLOB)" };
    let text = "'x' || n";
    let long = "Bread ".repeat(2_000);
    t.post(&t.path("/posts"), json!({ "content": long, "scheduled_at": "2026-07-01T09:30" })).await.expect(201);
    app.copy_newest_row("posts", rows, &[]).await;
    t.upload("bread.png", &images::png(20, 20), &[]).await.expect(201);
    app.copy_newest_row("media", rows, &[]).await;
    inbox(app, t, &["Where is my refund?"], false).await;
    app.copy_newest_row("conversations", rows, &[("thread_id", text)]).await;
    app.sql(
        "INSERT INTO conversation_words (brand_id, word, conversation_id) \
         SELECT brand_id, 'refund', id FROM conversations WHERE thread_id LIKE 'x%'",
    )
    .await;
    app.copy_accounts(t.brand, rows).await;
    let webhook = json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"] });
    let webhook = t.post("/webhooks", webhook).await.data(201)["id"].clone();
    t.post(&format!("/webhooks/{webhook}/test"), json!({ "event": "brand.created" })).await.expect(202);
    app.copy_newest_row("webhook_deliveries", rows, &[]).await;
    app.copy_newest_row("idempotency_keys", rows, &[("key", text)]).await;
    app.copy_newest_row("api_keys", rows, &[("hash", hash), ("prefix", "'session'")]).await;
    app.sql(
        "INSERT INTO sessions (api_key_id, user_agent, address) SELECT k.id, 'x', '127.0.0.1' FROM api_keys k \
         WHERE k.prefix = 'session' AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.api_key_id = k.id)",
    )
    .await;
    let other = if app.store.is_postgres() { "sha256(('k' || n)::bytea)" } else { "CAST('k' || n AS BLOB)" };
    app.copy_newest_row("api_keys", rows, &[("hash", other), ("prefix", "'svc_live'")]).await;
    app.copy_newest_row("users", rows, &[("email", "n || '@example.com'")]).await;
    app.sql(format!(
        "INSERT INTO brand_members (brand_id, user_id, role, created_at) \
         SELECT {}, u.id, 'editor', u.created_at FROM users u WHERE u.id <> {}",
        t.brand, t.user
    ))
    .await;
    app.copy_newest_row("jobs", rows, &[("state", "'dead'"), ("finished_at", "created_at"), ("last_error", "'Cold.'")])
        .await;
}

/// Returns the number of the last page of a list, from "1–20 of 10001". A period of the calendar and the log of
/// requests show only the first thousand rows.
fn last_page(first: &Page) -> i64 {
    let shown = first.text.split("aria-label=\"Pages\"><span class=\"muted\">1–").nth(1).unwrap_or_default();
    let (size, total) = shown.split('<').next().and_then(|shown| shown.split_once(" of ")).expect("a pager");
    let (size, total): (i64, i64) = (size.parse().unwrap(), total.parse().unwrap());
    assert!(total >= 1_000, "{}: {total}", first.path);
    (total + size - 1) / size
}

async fn every_long_list_is_paged(t: Tenant<'_>, person: ConsoleUser<'_>) {
    fill_lists(t.app, &t).await;
    // Autovacuum would do this soon after so many inserts.
    t.app.sql("ANALYZE".to_owned()).await;
    let webhook = t.app.newest_id("webhooks").await;
    for path in [
        t.path("/posts"),
        t.path("/posts?status=draft"),
        t.path("/calendar?view=list&date=2026-07-01"),
        t.path("/media"),
        t.path("/media?search=bread"),
        t.path("/inbox"),
        t.path("/inbox?status=open"),
        t.path("/inbox?search=refund"),
        t.path("/accounts"),
        t.path("/developers"),
        t.path("/developers/requests"),
        t.path(&format!("/developers/webhooks/{webhook}")),
        t.path("/settings/members"),
        t.path("/settings/sessions"),
        "/operator".to_owned(),
        "/operator/users".to_owned(),
    ] {
        let page = person.get(&path).await;
        page.expect(200, "page=2");
        assert!(page.reply.body.len() < MAX_PAGE, "{path}: {} bytes", page.reply.body.len());
        let separator = if path.contains('?') { '&' } else { '?' };
        let last = last_page(&page);
        let last_page_shown = person.get(&format!("{path}{separator}page={last}")).await;
        last_page_shown.expect(200, &format!("page={}", last - 1));
        assert!(last_page_shown.reply.body.len() < MAX_PAGE, "{path}: {} bytes", last_page_shown.reply.body.len());
    }
    // Pages that count the rows or show only the first ones.
    let conversation = t.app.newest_id("conversations").await;
    for path in [
        t.path(""),
        t.path("/calendar?date=2026-07-01"),
        t.path("/posts/new"),
        t.path("/analytics"),
        t.path(&format!("/inbox/{conversation}")),
    ] {
        let page = person.get(&path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        assert!(page.reply.body.len() < MAX_PAGE, "{path}: {} bytes", page.reply.body.len());
    }
    // The composer shows the options only of the chosen accounts.
    let (new, account) = (t.path("/posts/new"), t.app.newest_id("social_accounts").await.to_string());
    let part = format!(".account_id\" value=\"{account}\"");
    let page = person.get(&new).await;
    assert!(!page.has(&part), "{}", page.text);
    person.submit_from(&page, &new, &[("accounts", &account), ("_action", "list")]).await.expect(200, &part);
}
