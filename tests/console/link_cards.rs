//! Link cards in the composer.

use crier_domain::platform::Platform;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_one_app};
use crate::support::console::ConsoleUser;
use crate::support::images;

on_one_app!(
    a_link_card_is_switched_off_and_replaced,
    an_edit_keeps_a_link_card,
    the_preview_shows_the_card_as_it_will_look,
    only_some_pages_per_minute_are_read,
);

async fn bluesky(t: &Tenant<'_>) -> String {
    t.account_on(Platform::Bluesky).await.to_string()
}

/// Returns the options of the first target of the brand's newest post.
pub async fn only_options(t: &Tenant<'_>) -> Value {
    let listed = t.get(&t.path("/posts")).await.data(200);
    let post = t.get(&t.path(&format!("/posts/{}", listed[0]["id"]))).await.data(200);
    post["targets"][0]["options"].clone()
}

const CARD: &str = "overrides.0.options.link_card";

fn field(name: &str) -> String {
    format!("{CARD}.{name}")
}

async fn a_link_card_is_switched_off_and_replaced(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = bluesky(&t).await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = format!("/brands/{}/posts/new", t.brand);
    person.get(&path).await.expect(200, "No link card").expect(200, "Image of the page");
    let common = [
        ("content", "See https://example.com"),
        ("accounts", account.as_str()),
        ("overrides.0.account_id", account.as_str()),
        ("schedule_type", "draft"),
    ];
    let off: Vec<(&str, &str)> = common.into_iter().chain([(CARD, "false")]).collect();
    person.submit(&path, &path, &off).await.expect(200, "Draft saved.");
    assert_eq!(only_options(&t).await, json!({ "link_card": false }));

    let id = t.upload("a.png", &images::png(20, 20), &[]).await.data(201)["id"].to_string();
    let (title, media, description) = (field("title"), field("media_id"), field("description"));
    let own = [(CARD, ""), (title.as_str(), "Mine"), (description.as_str(), ""), (media.as_str(), id.as_str())];
    let own: Vec<(&str, &str)> = common.into_iter().chain(own).collect();
    let edit = format!("/brands/{}/posts/{}/edit", t.brand, t.get(&t.path("/posts")).await.data(200)[0]["id"]);
    let page = person.submit(&edit, &edit, &own).await;
    page.expect(200, "Draft saved.").expect(200, "Mine").expect(200, "alt=\"a.png\"");
    let card = json!({ "title": "Mine", "media_id": id.parse::<i64>().unwrap() });
    assert_eq!(only_options(&t).await, json!({ "link_card": card }));

    let automatic: Vec<(&str, &str)> = common.into_iter().chain([(CARD, "")]).collect();
    person.submit(&edit, &edit, &automatic).await.expect(200, "Draft saved.");
    assert_eq!(only_options(&t).await, json!({}));
}

async fn an_edit_keeps_a_link_card(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account: i64 = bluesky(&t).await.parse().unwrap();
    let card = json!({ "url": "https://other.example/a", "title": "A & B", "description": "About" });
    let overrides = json!([{ "account_id": account, "options": { "link_card": card } }]);
    let body = json!({ "content": "Hi", "schedule_type": "draft", "accounts": [account], "overrides": overrides });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].clone();
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&format!("/brands/{}/posts/{id}/edit", t.brand)).await;
    page.expect(200, "value=\"https://other.example/a\"").expect(200, "value=\"A & B\"").expect(200, "About");
    page.expect(200, "data-card=\"");
}

/// The pages are on addresses that are not public, so they cannot be read.
async fn the_preview_shows_the_card_as_it_will_look(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (account, other) = (bluesky(&t).await, t.account("demo").await.to_string());
    let id = t.upload("mine.png", &images::png(20, 20), &[]).await.data(201)["id"].to_string();
    let person = ConsoleUser::sign_in(&t).await;
    let form = format!("/brands/{}/posts/new", t.brand);
    let csrf = person.get(&form).await.hidden_fields(&form);
    let csrf = &csrf.iter().find(|(name, _)| name == "_csrf").expect("a token").1;
    let path = |account: &str| format!("/brands/{}/posts/card?account={account}", t.brand);
    let fields = [
        ("_csrf", csrf.as_str()),
        ("content", "See http://127.0.0.1:1/a"),
        ("accounts", account.as_str()),
        ("overrides.0.account_id", account.as_str()),
    ];
    let post = async |account: &str, more: &[(&str, &str)]| {
        let fields: Vec<(&str, &str)> = fields.iter().chain(more).copied().collect();
        person.post(&path(account), &fields).await
    };
    post(&account, &[]).await.expect(200, "without a link card");
    assert_eq!(post(&account, &[(CARD, "false")]).await.expect(200, "").text, "");
    assert_eq!(post(&other, &[]).await.expect(200, "").text, "", "the sandbox has no cards");
    let (title, description, media) = (field("title"), field("description"), field("media_id"));
    let own = [(title.as_str(), "<b>Mine</b>"), (description.as_str(), "By me"), (media.as_str(), id.as_str())];
    let shown = post(&account, &own).await;
    shown.expect(200, "By me").expect(200, "127.0.0.1").expect(200, "<img src=\"/media/");
    let html = String::from_utf8_lossy(&shown.reply.body).into_owned();
    assert!(html.contains("Mine") && !html.contains("<b>"), "{html}");
    // A link of the signature, which is appended to the text.
    let text = [("content", "No link")];
    assert_eq!(post(&account, &text).await.expect(200, "").text, "");
    let signature = json!({ "name": "Site", "kind": "signature", "content": "http://127.0.0.1:1/b" });
    let signature = json!({ "signature_id": t.post(&t.path("/snippets"), signature).await.data(201)["id"] });
    t.put(&t.path(&format!("/social-accounts/{account}")), signature).await.expect(200);
    post(&account, &text).await.expect(200, "without a link card");
    post("999999", &[]).await.expect(404, "");
    person.post(&path(&account), &[("content", "x")]).await.expect(403, "");
}

async fn only_some_pages_per_minute_are_read(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = bluesky(&t).await;
    let person = ConsoleUser::sign_in(&t).await;
    let form = format!("/brands/{}/posts/new", t.brand);
    let csrf = person.get(&form).await.hidden_fields(&form);
    let csrf = &csrf.iter().find(|(name, _)| name == "_csrf").expect("a token").1;
    let path = format!("/brands/{}/posts/card?account={account}", t.brand);
    let fields = [("_csrf", csrf.as_str()), ("content", "See http://127.0.0.1:1/a")];
    for _ in 0..30 {
        person.post(&path, &fields).await.expect(200, "without a link card");
    }
    person.post(&path, &fields).await.expect(429, "");
}
