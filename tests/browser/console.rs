//! The console as a person uses it: from the first sign-in to a colleague who may do less. Screenshots of each page are
//! left in `target/screenshots/console`.

use chrono::{NaiveDate, TimeDelta};
use crier_base::clock::Clock;

use super::driver::Driver;
use crate::support::client::until;
use crate::support::picture;
use crate::support::process::Installation;
use crate::support::receiver::Receiver;

/// Signs a user in, with a link that the operator prints.
async fn sign_in(browser: &Driver, crier: &Installation, email: &str) {
    let link = crier.command(&["login", "--user", email]);
    browser.open(link.trim()).await;
    browser.sees("Sign in as").await;
    browser.press("Sign in").await;
}

async fn connect_sandbox(browser: &Driver, handle: &str) {
    browser.open("/brands/1/accounts/connect/sandbox").await;
    browser.fill("credentials.handle", handle).await;
    browser.press("Connect").await;
    browser.sees(handle).await;
}

/// Opens the page of the post with this text.
async fn open_post(browser: &Driver, text: &str) {
    browser.open("/brands/1/posts").await;
    browser.press(text).await;
}

/// Loads the page again until it shows the words.
async fn reload_until(browser: &Driver, words: &str) {
    let path = browser.path().await;
    until(words, || async {
        browser.open(&path).await;
        browser.text().await.to_lowercase().contains(&words.to_lowercase()).then_some(())
    })
    .await;
}

async fn walk(crier: Installation) {
    let Some(browser) = Driver::start(&crier.url).await else { return };
    browser.open("/").await;
    browser.sees("crier login --user EMAIL").await;
    browser.pictures("sign-in").await;
    sign_in(&browser, &crier, "owner@localhost").await;
    if browser.path().await == "/brands/new" {
        browser.pictures("brand-first").await;
        browser.fill("name", "My brand").await;
        browser.press("Create").await;
    }
    browser.sees("Get started").await;
    browser.pictures("home-first").await;

    browser.press("Connect").await;
    browser.pictures("connect").await;
    connect_sandbox(&browser, "demo").await;
    connect_sandbox(&browser, "second").await;
    browser.pictures("accounts").await;

    a_post_with_a_picture_is_planned_moved_and_published(&browser, &crier).await;
    a_failure_is_mended(&browser).await;
    a_key_is_made_and_used(&browser, &crier).await;
    a_webhook_is_added_and_replayed(&browser).await;
    a_member_may_do_less(&browser, &crier).await;
    browser.quit().await;
}

async fn a_post_with_a_picture_is_planned_moved_and_published(browser: &Driver, crier: &Installation) {
    let file = tempfile::Builder::new().suffix(".png").tempfile().unwrap();
    std::fs::write(file.path(), picture::png(640, 480)).unwrap();
    browser.open("/brands/1/posts/new").await;
    browser.fill("content", "Sunday bread").await;
    browser.tick("demo").await;
    browser.tick("second").await;
    browser.sees("12").await;
    browser.fill("file", &file.path().display().to_string()).await;
    browser.fill("alt_text", "A loaf").await;
    browser.press("Upload and add").await;
    browser.sees("A loaf").await;
    browser.toggle("Sbsecond").await;
    browser.press("Choose other images").await;
    browser.sees("Choose the images for this account.").await;
    browser.pictures("composer-own-pictures").await;
    browser.press("Use the images above").await;
    let in_two_days = Clock::system().now() + TimeDelta::days(2);
    browser.set_time("scheduled_at", &in_two_days.format("%Y-%m-%dT09:30").to_string()).await;
    browser.pictures("composer").await;
    browser.walks_by_keyboard("composer").await;
    browser.presses_by_keyboard("Schedule").await;
    browser.sees("Post scheduled.").await;
    browser.pictures("post-scheduled").await;

    let date = in_two_days.format("%Y-%m-%d");
    browser.open(&format!("/brands/1/calendar?date={date}")).await;
    browser.sees("Sunday bread").await;
    browser.pictures("calendar-month").await;
    browser.walks_by_keyboard("calendar").await;
    let date = a_post_is_dragged(browser, crier).await;
    browser.open(&format!("/brands/1/calendar?view=week&date={date}")).await;
    browser.sees("Sunday bread").await;
    browser.pictures("calendar-week").await;

    open_post(browser, "Sunday bread").await;
    let later = in_two_days + TimeDelta::days(1);
    browser.set_time("scheduled_at", &later.format("%Y-%m-%dT10:00").to_string()).await;
    browser.press("Reschedule").await;
    browser.sees("Post scheduled.").await;
    let moved = crier.read("/brands/1/posts/1").await.unwrap()["data"]["scheduled_at"].as_str().unwrap().to_owned();
    assert!(moved.starts_with(&later.format("%Y-%m-%dT10:00").to_string()), "{moved}");

    browser.toggle("Publish now").await;
    browser.press_inner("Publish now").await;
    reload_until(browser, "Published").await;
    browser.pictures("post-published").await;
    assert!(crier.page("demo").await.contains("Sunday bread") && crier.page("second").await.contains("A loaf"));
}

/// Drags the only post of the calendar to a day beside its own, which may be in another week. Returns that day.
async fn a_post_is_dragged(browser: &Driver, crier: &Installation) -> NaiveDate {
    let planned = async || {
        let post = crier.read("/brands/1/posts/1").await.unwrap();
        post["data"]["scheduled_at"].as_str().unwrap().to_owned()
    };
    let before = planned().await;
    let day: NaiveDate = before[..10].parse().unwrap();
    // At the edge of the calendar, one of them is not shown.
    let days = [day.succ_opt().unwrap(), day.pred_opt().unwrap()];
    let shown = days.map(|day| format!("[data-date=\"{day}\"]"));
    let is_shown = browser.script(&format!("return document.querySelector('{}') !== null", shown[0])).await == true;
    let (to, cell) = if is_shown { (days[0], &shown[0]) } else { (days[1], &shown[1]) };
    browser.drag("[data-post]", cell).await;
    browser.sees("Post moved to").await;
    assert_eq!(planned().await, before.replace(&before[..10], &to.to_string()));
    // It stays there.
    let path = browser.path().await;
    browser.open(&format!("{path}?date={to}")).await;
    assert!(browser.text_of(cell).await.contains("Sunday bread"));
    to
}

async fn a_failure_is_mended(browser: &Driver) {
    let post = async |text: &str, button: &str| {
        browser.open("/brands/1/posts/new").await;
        browser.fill("content", text).await;
        browser.tick("demo").await;
        if button == "Schedule" {
            let at = Clock::system().now() + TimeDelta::days(5);
            browser.set_time("scheduled_at", &at.format("%Y-%m-%dT09:30").to_string()).await;
        }
        browser.press(button).await;
    };
    post("Monday bread", "Schedule").await;
    post("[expire] this account", "Publish now").await;
    reload_until(browser, "Failed").await;
    browser.pictures("post-failed").await;
    browser.open("/brands/1").await;
    browser.sees("Accounts that need attention").await;
    browser.pictures("home-failed").await;
    browser.walks_by_keyboard("home").await;
    browser.skips_to_the_content().await;
    browser.press("Reconnect").await;
    browser.fill("credentials.handle", "demo").await;
    browser.press("Connect").await;
    open_post(browser, "Monday bread").await;
    browser.toggle("Publish now").await;
    browser.press_inner("Publish now").await;
    reload_until(browser, "Published").await;
}

async fn a_key_is_made_and_used(browser: &Driver, crier: &Installation) {
    browser.open("/brands/1/developers").await;
    browser.press("Create key").await;
    let key = browser.text_of("#secret").await;
    assert!(key.starts_with("svc_live_"), "{key}");
    browser.pictures("key").await;
    let http = &crier.http;
    let request = http.request(reqwest::Method::GET, &format!("{}/api/public/v1/brands", crier.url));
    let answer = http.send(request.bearer_auth(&key)).await.unwrap();
    assert_eq!(answer.status, 200);
    browser.open("/brands/1/developers").await;
    browser.does_not_see(&key).await;
    browser.pictures("keys").await;
}

async fn a_webhook_is_added_and_replayed(browser: &Driver) {
    let receiver = Receiver::start().await;
    browser.open("/brands/1/developers/webhooks/new").await;
    browser.fill("url", &receiver.url()).await;
    browser.tick("post.published").await;
    browser.pictures("webhook-new").await;
    browser.press("Add webhook").await;
    assert!(browser.text_of("#secret").await.starts_with("whsec_"));
    browser.open("/brands/1/developers/webhooks/1").await;
    browser.press("Send test event").await;
    reload_until(browser, "Delivered").await;
    browser.pictures("webhook").await;
    browser.open("/brands/1/developers/webhooks/1/deliveries/1").await;
    browser.pictures("delivery").await;
    browser.press("Retry delivery").await;
    until("it is sent again", || async { (receiver.count().await >= 2).then_some(()) }).await;
}

async fn a_member_may_do_less(browser: &Driver, crier: &Installation) {
    crier.command(&["user", "add", "bob@example.com", "--name", "Bob", "--workspace", "1"]);
    browser.open("/brands/1/settings/members").await;
    browser.fill("email", "bob@example.com").await;
    browser.tick("Editor").await;
    browser.press("Add").await;
    browser.sees("Member added.").await;
    browser.pictures("members").await;
    for (path, name) in [
        ("/brands/1/settings", "settings"),
        ("/brands/1/settings/plan", "plan"),
        ("/brands/1/settings/sessions", "sessions"),
        ("/brands/1/posts", "posts"),
        ("/brands/new", "brand-new"),
        ("/brands/1/calendar?view=list", "calendar-list"),
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
        ("/brands/1/developers/requests", "requests"),
        ("/operator", "operator"),
        ("/operator/users", "operator-users"),
        ("/operator/plans", "operator-plans"),
        ("/operator/system", "operator-system"),
    ] {
        browser.open(path).await;
        browser.pictures(name).await;
        if matches!(name, "settings" | "inbox" | "analytics" | "media" | "operator" | "requests") {
            browser.walks_by_keyboard(name).await;
        }
    }
    browser.press("Sign out").await;
    sign_in(browser, crier, "bob@example.com").await;
    browser.sees("editor").await;
    browser.open("/brands/1/settings/members").await;
    browser.does_not_see("Email address").await;
    browser.pictures("members-editor").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_walks_through_the_console_embedded() {
    walk(Installation::embedded().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn a_person_walks_through_the_console_split() {
    walk(Installation::split().await).await;
}
