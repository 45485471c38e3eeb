//! The console as a user sees it, from the first sign-in to an editor with fewer rights. Screenshots of each page are
//! saved in `target/screenshots/console`.

use chrono::{NaiveDate, TimeDelta};
use crier_base::clock::Clock;
use serde_json::json;

use super::driver::Driver;
use super::threads::{a_thread_is_written_and_unpublished, filters_are_folded_on_a_phone};
use super::{DESKTOP, PHONE};
use crate::support::client::until;
use crate::support::images;
use crate::support::process::Installation;
use crate::support::receiver::Receiver;

/// Signs in with a link from `crier login`.
pub async fn sign_in(browser: &Driver, crier: &Installation, email: &str) {
    let link = crier.command(&["login", "--user", email]);
    browser.open(link.trim()).await;
    browser.wait_for_text("Sign in as").await;
    browser.press("Sign in").await;
}

pub async fn connect_sandbox(browser: &Driver, handle: &str) {
    browser.open("/brands/1/accounts/connect/sandbox").await;
    browser.fill("credentials.handle", handle).await;
    browser.press("Connect").await;
    browser.wait_for_text(handle).await;
}

/// Opens the page of the post with this text.
async fn open_post(browser: &Driver, text: &str) {
    browser.open("/brands/1/posts").await;
    browser.press(text).await;
}

/// Reloads the page until it shows the text.
pub async fn reload_until(browser: &Driver, words: &str) {
    let path = browser.path().await;
    until(words, || async {
        browser.open(&path).await;
        browser.text().await.to_lowercase().contains(&words.to_lowercase()).then_some(())
    })
    .await;
}

async fn test_console(crier: Installation) {
    let Some(browser) = Driver::start_on(&crier).await else { return };
    browser.open("/").await;
    browser.wait_for_text("crier login --user EMAIL").await;
    browser.save_screenshots("sign-in").await;
    sign_in(&browser, &crier, "owner@localhost").await;
    if browser.path().await == "/brands/new" {
        browser.save_screenshots("brand-first").await;
        browser.fill("name", "My brand").await;
        browser.press("Create").await;
    }
    browser.wait_for_text("Get started").await;
    browser.save_screenshots("home-first").await;

    browser.press("Connect").await;
    browser.save_screenshots("connect").await;
    connect_sandbox(&browser, "demo").await;
    connect_sandbox(&browser, "second").await;
    browser.save_screenshots("accounts").await;

    a_post_with_an_image_is_scheduled_moved_and_published(&browser, &crier).await;
    a_failure_is_fixed(&browser, &crier).await;
    a_thread_is_written_and_unpublished(&browser, &crier).await;
    filters_are_folded_on_a_phone(&browser).await;
    a_snippet_is_inserted_at_the_cursor(&browser).await;
    several_posts_are_changed_together(&browser).await;
    a_key_is_created_and_used(&browser, &crier).await;
    an_agent_gets_a_key(&browser).await;
    an_application_is_connected(&browser, &crier).await;
    a_webhook_is_added_and_replayed(&browser).await;
    an_editor_has_fewer_rights(&browser, &crier).await;
    browser.quit().await;
}

async fn a_post_with_an_image_is_scheduled_moved_and_published(browser: &Driver, crier: &Installation) {
    let file = tempfile::Builder::new().suffix(".png").tempfile().unwrap();
    std::fs::write(file.path(), images::png(640, 480)).unwrap();
    browser.open("/brands/1/posts/new").await;
    browser.fill("content", "Sunday bread").await;
    browser.select("demo").await;
    browser.select("second").await;
    browser.wait_for_text("12").await;
    browser.fill("file", &file.path().display().to_string()).await;
    browser.fill("alt_text", "A loaf").await;
    // The post is not saved without the file that was chosen for it, which is uploaded first.
    browser.toggle("Save draft").await;
    browser.wait_for_text("The uploads have ended. Submit the post again.").await;
    assert_eq!(browser.path().await, "/brands/1/posts/new");
    browser.wait_for_text("Added to the post").await;
    browser.wait_for_text("A loaf").await;
    browser.toggle("second").await;
    browser.press("Choose other images").await;
    browser.wait_for_text("Choose the images and videos for this account.").await;
    browser.save_screenshots("composer-own-images").await;
    browser.press("Use the images and videos above").await;
    let in_two_days = Clock::system().now() + TimeDelta::days(2);
    browser.set_time("scheduled_at", &in_two_days.format("%Y-%m-%dT09:30").to_string()).await;
    browser.save_screenshots("composer").await;
    browser.assert_tab_order("composer").await;
    browser.press_by_keyboard("Schedule").await;
    browser.wait_for_text("Post scheduled.").await;
    browser.save_screenshots("post-scheduled").await;

    let date = in_two_days.format("%Y-%m-%d");
    browser.open(&format!("/brands/1/calendar?date={date}")).await;
    browser.wait_for_text("Sunday bread").await;
    browser.save_screenshots("calendar-month").await;
    browser.assert_tab_order("calendar").await;
    let date = a_post_is_dragged(browser, crier).await;
    a_post_stays_out_of_the_past(browser, crier).await;
    browser.open(&format!("/brands/1/calendar?view=week&date={date}")).await;
    browser.wait_for_text("Sunday bread").await;
    browser.save_screenshots("calendar-week").await;
    a_day_starts_a_post(browser, in_two_days.date_naive()).await;

    open_post(browser, "Sunday bread").await;
    let later = in_two_days + TimeDelta::days(1);
    browser.set_time("scheduled_at", &later.format("%Y-%m-%dT10:00").to_string()).await;
    browser.press("Reschedule").await;
    browser.wait_for_text("Post scheduled.").await;
    let moved = crier.read("/brands/1/posts/1").await.unwrap()["data"]["scheduled_at"].as_str().unwrap().to_owned();
    assert!(moved.starts_with(&later.format("%Y-%m-%dT10:00").to_string()), "{moved}");

    browser.toggle("Publish now").await;
    browser.press_inner("Publish now").await;
    reload_until(browser, "Published").await;
    browser.save_screenshots("post-published").await;
    assert!(crier.page("demo").await.contains("Sunday bread") && crier.page("second").await.contains("A loaf"));
}

async fn scheduled_at(crier: &Installation) -> String {
    let post = crier.read("/brands/1/posts/1").await.unwrap();
    post["data"]["scheduled_at"].as_str().unwrap().to_owned()
}

/// Drags the only post of the calendar to the next day, or to the previous one; returns that day.
async fn a_post_is_dragged(browser: &Driver, crier: &Installation) -> NaiveDate {
    let before = scheduled_at(crier).await;
    let day: NaiveDate = before[..10].parse().unwrap();
    // At the edge of the calendar, one of these days may not be shown.
    let days = [day.succ_opt().unwrap(), day.pred_opt().unwrap()];
    let selectors = days.map(|day| format!("[data-date=\"{day}\"]"));
    let is_shown = browser.script(&format!("return document.querySelector('{}') !== null", selectors[0])).await == true;
    let (to, cell) = if is_shown { (days[0], &selectors[0]) } else { (days[1], &selectors[1]) };
    browser.drag("[data-post]", cell).await;
    browser.wait_for_text("Post moved to").await;
    assert_eq!(scheduled_at(crier).await, before.replace(&before[..10], &to.to_string()));
    // After a reload, the post is still on that day.
    let path = browser.path().await;
    browser.open(&format!("{path}?date={to}")).await;
    assert!(browser.text_of(cell).await.contains("Sunday bread"));
    to
}

/// Drops the only post of the calendar on a day of the past; asserts that it stays, and that the page says why.
async fn a_post_stays_out_of_the_past(browser: &Driver, crier: &Installation) {
    let before = scheduled_at(crier).await;
    // The page may show no day of the past, so the day beside the post becomes one.
    let script = "const day = document.querySelector('[data-post]').closest('td'); \
         (day.nextElementSibling ?? day.previousElementSibling).dataset.date = '2020-01-06'";
    browser.script(script).await;
    let cell = "[data-date=\"2020-01-06\"]";
    browser.drag("[data-post]", cell).await;
    browser.wait_for_text("The post was not moved. Monday 6 January is in the past.").await;
    assert!(!browser.text_of(cell).await.contains("Sunday bread"));
    assert_eq!(scheduled_at(crier).await, before);
    browser.save_screenshots("calendar-not-moved").await;
}

/// Opens the composer with the "+" of a day.
async fn a_day_starts_a_post(browser: &Driver, date: NaiveDate) {
    for size in [PHONE, DESKTOP] {
        browser.resize(size).await;
        browser.open(&format!("/brands/1/calendar?date={date}")).await;
        browser.press(&format!("New post on {}", date.format("%A %-d %B"))).await;
        let time = browser.script("return document.getElementsByName('scheduled_at')[0].value").await;
        assert_eq!(time, json!(format!("{date}T09:00")));
    }
}

async fn a_failure_is_fixed(browser: &Driver, crier: &Installation) {
    let post = async |text: &str, button: &str| {
        browser.open("/brands/1/posts/new").await;
        browser.fill("content", text).await;
        browser.select("demo").await;
        if button == "Schedule" {
            let at = Clock::system().now() + TimeDelta::days(5);
            browser.set_time("scheduled_at", &at.format("%Y-%m-%dT09:30").to_string()).await;
        }
        browser.press(button).await;
    };
    post("Monday bread", "Schedule").await;
    post("[expire] this account", "Publish now").await;
    reload_until(browser, "Failed").await;
    browser.save_screenshots("post-failed").await;
    browser.open("/brands/1").await;
    browser.wait_for_text("Accounts that need attention").await;
    browser.save_screenshots("home-failed").await;
    browser.assert_tab_order("home").await;
    browser.assert_skip_link().await;
    browser.press("Reconnect").await;
    browser.fill("credentials.handle", "demo").await;
    browser.press("Connect").await;
    open_post(browser, "Monday bread").await;
    browser.toggle("Publish now").await;
    browser.press_inner("Publish now").await;
    reload_until(browser, "Published").await;

    post("[fail] Tuesday bread", "Publish now").await;
    reload_until(browser, "Failed").await;
    browser.press("Edit and retry").await;
    let field = until("the text for the account has the focus", || async {
        let name = browser.script("return document.activeElement.name").await;
        name.as_str().filter(|name| name.starts_with("overrides.")).map(str::to_owned)
    })
    .await;
    browser.fill(&field, "Tuesday bread").await;
    browser.save_screenshots("composer-retry").await;
    browser.press("Save and retry").await;
    until("it is published", || async {
        // The posts that could not be published come first, and have no id.
        let page = crier.page("demo").await;
        page.split("<article id=").skip(1).any(|post| post.contains("Tuesday bread")).then_some(())
    })
    .await;
}

async fn a_snippet_is_inserted_at_the_cursor(browser: &Driver) {
    browser.open("/brands/1/snippets").await;
    browser.fill("name", "Hours").await;
    browser.fill("content", "Open from 6.").await;
    let asks = browser.script("return !dispatchEvent(new Event('beforeunload', { cancelable: true }))").await;
    assert_eq!(asks, json!(true), "leaving the page discards the text without a question");
    browser.press("Add snippet").await;
    browser.wait_for_text("Snippet added.").await;
    browser.open("/brands/1/posts/new").await;
    browser.fill("content", "Bread! See you.").await;
    let text = async || browser.script("return document.getElementById('f-content').value").await;
    browser.script("document.getElementById('f-content').setSelectionRange(6, 6)").await;
    browser.toggle("Insert").await;
    until("the snippet is inserted", || async { (text().await == "Bread!Open from 6. See you.").then_some(()) }).await;
    browser.save_screenshots("composer-snippet").await;
    browser.press("Save draft").await;
    browser.wait_for_text("Draft saved.").await;
}

/// Changes all posts of the list, of which only the newest one is a draft; then labels that one.
async fn several_posts_are_changed_together(browser: &Driver) {
    let count = async |selector: &str| {
        let count = browser.script(&format!("return document.querySelectorAll('{selector}').length")).await;
        count.as_u64().expect("a number")
    };
    browser.resize(PHONE).await;
    browser.open("/brands/1/posts").await;
    browser.assert_not_shown("Return to draft").await;
    browser.script("document.querySelector('[name=ids]').click()").await;
    browser.wait_for_text("Return to draft").await;
    browser.resize(DESKTOP).await;
    browser.open("/brands/1/posts").await;
    browser.select("Select all on this page").await;
    let posts = count("[name=ids]").await;
    assert_eq!(count("[name=ids]:checked").await, posts);
    browser.wait_for_text(&format!("{posts} selected")).await;
    browser.save_screenshots("posts-selected").await;
    browser.press("Return to draft").await;
    browser.wait_for_text("not changed and").await;
    browser.wait_for_text(&format!("{} selected", posts - 1)).await;
    assert_eq!(count("[name=ids]:checked").await, posts - 1);
    assert_eq!(browser.script("return document.activeElement.id").await, json!("errors"));
    browser.save_screenshots("posts-not-changed").await;

    browser.open("/brands/1/posts").await;
    browser.script("document.querySelector('[name=ids]').click()").await;
    browser.wait_for_text("1 selected").await;
    browser.toggle("Label").await;
    browser.script("document.getElementById('f-label').value = 'bakery'").await;
    browser.save_screenshots("posts-label").await;
    browser.press_inner("Add label").await;
    browser.wait_for_text("Label added.").await;
    browser.press("bakery").await;
    assert_eq!(count("[name=ids]").await, 1);
}

async fn a_key_is_created_and_used(browser: &Driver, crier: &Installation) {
    browser.open("/brands/1/developers").await;
    browser.press("Create key").await;
    let key = browser.text_of("#secret").await;
    assert!(key.starts_with("svc_live_"), "{key}");
    browser.save_screenshots("key").await;
    let http = &crier.http;
    let request = http.request(reqwest::Method::GET, &format!("{}/api/public/v1/brands", crier.url));
    let response = http.send(request.bearer_auth(&key)).await.unwrap();
    assert_eq!(response.status, 200);
    browser.open("/brands/1/developers").await;
    browser.assert_not_shown(&key).await;
    browser.save_screenshots("keys").await;
}

async fn an_agent_gets_a_key(browser: &Driver) {
    browser.open("/brands/1/developers/agents").await;
    browser.press("Create key").await;
    assert!(browser.text_of("#claude-code").await.contains("svc_live_"));
    browser.save_screenshots("agent-key").await;
}

/// The policy of the console must not block the way from the form to the application.
async fn an_application_is_connected(browser: &Driver, crier: &Installation) {
    let application = Receiver::start().await;
    let redirect = application.url();
    let registration = json!({ "client_name": "Editor", "redirect_uris": [redirect] }).to_string();
    let request = crier.http.request(reqwest::Method::POST, &format!("{}/mcp/oauth/register", crier.url));
    let request = request.header("content-type", "application/json").body(registration);
    let response = crier.http.send(request).await.unwrap();
    assert_eq!(response.status, 201);
    let registered: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    let resource = format!("{}/mcp/oauth", crier.url);
    let query = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("response_type", "code")
        .append_pair("client_id", registered["client_id"].as_str().unwrap())
        .append_pair("redirect_uri", &redirect)
        .append_pair("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM")
        .append_pair("code_challenge_method", "S256")
        .append_pair("resource", &resource)
        .finish();
    browser.open(&format!("/mcp/oauth/authorize?{query}")).await;
    browser.wait_for_text("This is an application on your computer.").await;
    browser.save_screenshots("oauth-consent").await;
    browser.select("Drafts only").await;
    browser.press("Allow").await;
    until("the browser is at the application", || async { (browser.path().await == "/hook").then_some(()) }).await;
    assert!(application.count().await >= 1);
    browser.open("/brands/1/settings/applications").await;
}

async fn a_webhook_is_added_and_replayed(browser: &Driver) {
    let receiver = Receiver::start().await;
    browser.open("/brands/1/developers/webhooks/new").await;
    browser.fill("url", &receiver.url()).await;
    browser.select("post.published").await;
    browser.save_screenshots("webhook-new").await;
    browser.press("Create webhook").await;
    assert!(browser.text_of("#secret").await.starts_with("whsec_"));
    browser.open("/brands/1/developers/webhooks/1").await;
    browser.press("Send test event").await;
    reload_until(browser, "Delivered").await;
    browser.save_screenshots("webhook").await;
    browser.open("/brands/1/developers/webhooks/1/deliveries/1").await;
    browser.save_screenshots("delivery").await;
    browser.press("Retry delivery").await;
    until("it is sent again", || async { (receiver.count().await >= 2).then_some(()) }).await;
}

async fn an_editor_has_fewer_rights(browser: &Driver, crier: &Installation) {
    crier.command(&["user", "add", "bob@example.com", "--name", "Bob", "--workspace", "1"]);
    browser.open("/brands/1/settings/members").await;
    browser.fill("email", "bob@example.com").await;
    browser.select("Editor").await;
    browser.press("Add").await;
    browser.wait_for_text("Member added.").await;
    browser.save_screenshots("members").await;
    for (path, name) in [
        ("/brands/1/settings", "settings"),
        ("/brands/1/settings/plan", "plan"),
        ("/brands/1/settings/notifications", "notifications"),
        ("/brands/1/settings/sessions", "sessions"),
        ("/brands/1/settings/applications", "applications"),
        ("/brands/1/posts", "posts"),
        ("/brands/1/posts/imports", "post-imports"),
        ("/brands/new", "brand-new"),
        ("/brands/1/calendar?view=list", "calendar-list"),
        ("/brands/1/queue", "queue"),
        ("/brands/1/media", "media"),
        ("/brands/1/media/1", "media-item"),
        ("/brands/1/inbox", "inbox"),
        ("/brands/1/analytics", "analytics"),
        ("/brands/1/reports", "reports"),
        ("/brands/1/reports/new", "report-new"),
        ("/brands/1/bio", "bio"),
        ("/brands/1/bio/new", "bio-new"),
        ("/brands/1/plans", "plans"),
        ("/brands/1/plans/new", "plan-new"),
        ("/brands/1/feeds", "feeds"),
        ("/brands/1/recurring", "recurring"),
        ("/brands/1/recurring/new", "recurring-new"),
        ("/brands/1/snippets", "snippets"),
        ("/brands/1/snippets/1", "snippet"),
        ("/brands/1/accounts/1/signature", "account-signature"),
        ("/brands/1/developers/agents", "agents"),
        ("/brands/1/developers/requests", "requests"),
        ("/operator", "operator"),
        ("/operator/users", "operator-users"),
        ("/operator/plans", "operator-plans"),
        ("/operator/applications", "operator-applications"),
        ("/operator/system", "operator-system"),
    ] {
        browser.open(path).await;
        browser.save_screenshots(name).await;
        if matches!(name, "settings" | "posts" | "inbox" | "analytics" | "media" | "operator" | "requests") {
            browser.assert_tab_order(name).await;
        }
    }
    browser.press("Sign out").await;
    sign_in(browser, crier, "bob@example.com").await;
    browser.wait_for_text("Editor").await;
    browser.open("/brands/1/settings/members").await;
    browser.assert_not_shown("Email address").await;
    browser.save_screenshots("members-editor").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_works_in_a_browser_embedded() {
    test_console(Installation::embedded().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn the_console_works_in_a_browser_split() {
    test_console(Installation::split().await).await;
}
