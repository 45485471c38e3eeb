//! Planning: the queue, recurring posts, imports, feeds that publish, and the notifications about problems.

use std::io::Write as _;

use chrono::TimeDelta;
use crier_base::clock::Clock;
use fantoccini::key::Key;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::console::{connect_sandbox, reload_until, sign_in};
use super::driver::Driver;
use super::{DESKTOP, PHONE};
use crate::support::client::{id, until};
use crate::support::process::Installation;

/// Returns the controls of the page that are lower than 40 pixels.
const SMALL_CONTROLS: &str = "
    const all = document.querySelectorAll('main :is(button, .btn, select, textarea, input, .option)');
    const isSmall = (control) => control.checkVisibility() && control.getBoundingClientRect().height < 39.9;
    const isBox = (control) => ['hidden', 'checkbox', 'radio'].includes(control.type);
    const small = [...all].filter((control) => !isBox(control) && isSmall(control));
    return small.map((control) => control.outerHTML.slice(0, 150));";

const FEED: &str = "<rss version=\"2.0\"><channel><title>Blog</title>
    <item><guid>a</guid><title>Fresh bread today</title><link>https://blog.example/a</link></item>
    <item><guid>b</guid><title>Rolls again</title><link>https://blog.example/b</link></item></channel></rss>";

async fn test_planning(crier: Installation) {
    let Some(browser) = Driver::start_on(&crier).await else { return };
    sign_in(&browser, &crier, "owner@localhost").await;
    if browser.path().await == "/brands/new" {
        browser.fill("name", "My brand").await;
        browser.press("Create").await;
    }
    connect_sandbox(&browser, "demo").await;
    let accounts = crier.read("/brands/1/social-accounts").await.unwrap();
    let account = id(&accounts["data"][0]);

    browser.resize(DESKTOP).await;
    slots_are_painted(&browser).await;
    slots_are_chosen_by_keyboard(&browser).await;
    queued_posts_are_moved(&browser, &crier, account).await;
    a_file_is_corrected_and_imported(&browser, &crier).await;
    a_rule_creates_posts(&browser).await;
    a_feed_is_published(&browser, &crier).await;
    problems_are_counted(&browser, &crier, account).await;
    for path in [
        "queue",
        "recurring/new",
        "recurring/1",
        "posts/imports",
        "posts/imports/1",
        "feeds/1/publishing",
        "settings/notifications",
    ] {
        assert_fits_phone(&browser, &format!("/brands/1/{path}")).await;
    }
    browser.quit().await;
}

async fn assert_fits_phone(browser: &Driver, path: &str) {
    browser.resize(PHONE).await;
    browser.open(path).await;
    let is_too_wide = browser.script("return document.documentElement.scrollWidth > innerWidth").await;
    assert_eq!(is_too_wide, json!(false), "{path} scrolls sideways");
    assert_eq!(browser.script(SMALL_CONTROLS).await, json!([]), "{path} has low controls");
    browser.resize(DESKTOP).await;
}

/// Waits until these slots are checked: those of the grid by hour, then the others.
async fn wait_for_slots(browser: &Driver, wanted: &[&str]) {
    let script = "return [...document.querySelectorAll('[name=slots]:checked')].map((box) => box.value)";
    until(&format!("the slots {wanted:?}"), || async { (browser.script(script).await == json!(wanted)).then_some(()) })
        .await;
}

async fn slots_are_painted(browser: &Driver) {
    let paint = async |slots: &[&str]| {
        let boxes: Vec<String> = slots.iter().map(|slot| format!("[name=slots][value=\"{slot}\"]")).collect();
        browser.paint(&boxes.iter().map(String::as_str).collect::<Vec<_>>()).await;
    };
    browser.open("/brands/1/queue").await;
    paint(&["1-09:00", "1-10:00", "2-10:00"]).await;
    wait_for_slots(browser, &["1-09:00", "1-10:00", "2-10:00"]).await;
    // The mouse is released where it was pressed.
    paint(&["4-12:00", "4-13:00", "4-12:00"]).await;
    wait_for_slots(browser, &["1-09:00", "1-10:00", "2-10:00", "4-12:00", "4-13:00"]).await;
    // From a chosen hour, painting erases.
    paint(&["1-10:00", "2-10:00"]).await;
    let left = ["1-09:00", "4-12:00", "4-13:00"];
    wait_for_slots(browser, &left).await;
    browser.press("Save slots").await;
    browser.wait_for_text("Slots saved.").await;
    browser.open("/brands/1/queue").await;
    wait_for_slots(browser, &left).await;
}

async fn slots_are_chosen_by_keyboard(browser: &Driver) {
    browser.open("/brands/1/queue").await;
    browser.assert_tab_order("queue").await;
    browser.script("document.querySelector('[name=slots]').focus()").await;
    for key in [Key::Down, Key::Down, Key::Right, Key::Space] {
        browser.press_key(key).await;
    }
    wait_for_slots(browser, &["2-02:00", "1-09:00", "4-12:00", "4-13:00"]).await;
    browser.press_by_keyboard("Save slots").await;
    browser.wait_for_text("Slots saved.").await;
    browser.set_time("time", "09:30").await;
    browser.script("document.getElementById('f-time').focus()").await;
    browser.navigate("Enter", browser.press_key(Key::Enter)).await;
    browser.wait_for_text("Monday 09:30, all accounts").await;
    browser.open("/brands/1/queue").await;
    wait_for_slots(browser, &["2-02:00", "1-09:00", "4-12:00", "4-13:00", "1-09:30"]).await;
}

/// Returns the texts of the queued posts, in order.
async fn queued_texts(browser: &Driver) -> Value {
    let script =
        "return [...document.querySelectorAll('[data-queue] .post-text')].map((one) => one.textContent.trim())";
    browser.script(script).await
}

async fn queued_times(browser: &Driver) -> Value {
    browser.script("return [...document.querySelectorAll('[data-queue] time')].map((one) => one.textContent)").await
}

async fn queued_posts_are_moved(browser: &Driver, crier: &Installation, account: i64) {
    browser.open("/brands/1/posts/new").await;
    browser.fill("content", "First in line").await;
    browser.press("Add to queue").await;
    browser.wait_for_text("Post added to the queue.").await;
    let mut newest = 0;
    for text in ["Second in line", "Third in line"] {
        let body = json!({ "content": text, "schedule_type": "queue", "accounts": [account] });
        newest = id(&crier.write("/brands/1/posts", body).await);
    }

    browser.open("/brands/1/queue").await;
    assert_eq!(queued_texts(browser).await, json!(["First in line", "Second in line", "Third in line"]));
    let times = queued_times(browser).await;
    assert_eq!(times.as_array().map(Vec::len), Some(3), "{times}");
    let row = |n: usize| format!("[data-queue] .post-row:nth-child({n})");
    browser.navigate("the drop", browser.drag(&row(3), &row(1))).await;
    browser.wait_for_text("Queue order saved.").await;
    browser.open("/brands/1/queue").await;
    assert_eq!(queued_texts(browser).await, json!(["Third in line", "First in line", "Second in line"]));
    assert_eq!(queued_times(browser).await, times, "each post has the time of its new place");

    // After each move, the post has the focus, so the next Tab leads to its buttons.
    for order in
        [["First in line", "Third in line", "Second in line"], ["First in line", "Second in line", "Third in line"]]
    {
        browser.press_by_keyboard(&format!("Later: post {newest}")).await;
        browser.wait_for_text("Queue order saved.").await;
        assert_eq!(queued_texts(browser).await, json!(order));
        let focused = format!("post-{newest}");
        until("the post has the focus", || async {
            (browser.script("return document.activeElement?.id").await == json!(focused)).then_some(())
        })
        .await;
    }
    browser.open("/brands/1/queue").await;
    assert_eq!(queued_times(browser).await, times);
    browser.save_screenshots("queue-posts").await;
    browser.resize(DESKTOP).await;

    let post = crier.read(&format!("/brands/1/posts/{newest}")).await.unwrap();
    let date = &post["data"]["scheduled_at"].as_str().unwrap()[..10];
    browser.open(&format!("/brands/1/calendar?date={date}")).await;
    let script = format!("return document.querySelector('[data-post=\"{newest}\"]').textContent");
    let entry = browser.script(&script).await;
    let entry = entry.as_str().unwrap();
    assert!(entry.contains("Queued") && entry.contains("Third in line"), "{entry}");
}

/// Chooses a file with these rows below the headings, and checks it.
async fn check_file(browser: &Driver, rows: &str) {
    let mut file: NamedTempFile = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    write!(file, "content,accounts\n{rows}").unwrap();
    browser.open("/brands/1/posts/imports").await;
    browser.fill("file", &file.path().display().to_string()).await;
    browser.press("Check file").await;
}

async fn a_file_is_corrected_and_imported(browser: &Driver, crier: &Installation) {
    check_file(browser, "Seed cake,demo\nPlum tart,nobody\n").await;
    browser.wait_for_text("1 of 2 rows can be imported").await;
    let problem = browser.text_of("main tbody tr").await;
    assert!(problem.starts_with('3') && problem.contains("accounts") && problem.contains("nobody"), "{problem}");
    browser.save_screenshots("post-import").await;
    browser.resize(DESKTOP).await;
    let download = "return fetch(document.querySelector('a[download]').href).then((response) => response.text())";
    let download = browser.script(download).await;
    let download = download.as_str().unwrap();
    assert!(
        download.contains("\"row\",\"column\",\"message\"") && download.contains("\"3\",\"accounts\","),
        "{download}"
    );

    check_file(browser, "Seed cake,demo\nPlum tart,demo\n").await;
    browser.wait_for_text("2 of 2 rows can be imported").await;
    browser.assert_not_shown("Download problems").await;
    crier.command(&["jobs", "pause", "import_posts"]);
    browser.press("Import 2 posts").await;
    browser.wait_for_text("Waiting").await;
    let progress = browser.script("return document.querySelectorAll('main progress').length").await;
    assert_eq!(progress, json!(1));
    // The page is not left until the import has ended.
    browser.script("window.isSamePage = true").await;
    crier.command(&["jobs", "resume", "import_posts"]);
    browser.wait_for_text("2 of 2 rows imported").await;
    assert_eq!(browser.script("return window.isSamePage").await, json!(true));
    let spoken = browser.script("return document.getElementById('live').textContent").await;
    assert_eq!(spoken, json!("Finished. The page shows the result."));
    browser.open("/brands/1/posts").await;
    browser.wait_for_text("Seed cake").await;
    browser.wait_for_text("Plum tart").await;
}

async fn a_rule_creates_posts(browser: &Driver) {
    browser.open("/brands/1/recurring/new").await;
    browser.fill("name", "Daily offer").await;
    for (n, text) in ["Rye bread", "Poppy seed rolls"].iter().enumerate() {
        browser.fill_field(&format!("[id=\"f-variations.{n}.content\"]"), text).await;
    }
    browser.select("demo").await;
    for (frequency, shown) in [
        ("monthly", vec!["day", "time"]),
        ("cron", vec!["cron"]),
        ("weekly", vec!["weekdays", "time"]),
        ("daily", vec!["time"]),
    ] {
        let script = format!(
            "document.getElementById('f-frequency').value = '{frequency}'; const all = ['weekdays', 'day', 'cron', 'time']; \
             return all.filter((name) => document.getElementById('f-' + name).checkVisibility());"
        );
        assert_eq!(browser.script(&script).await, json!(shown), "{frequency}");
    }
    // A hidden field with an invalid value would block the form without a word.
    let invalid = "const day = document.getElementById('f-day'); day.value = '1.5'; const shown = day.checkVisibility(); \
                   day.value = ''; return shown;";
    assert_eq!(browser.script(invalid).await, json!(true));
    // No post is due during the test.
    let time = (Clock::system().now() + TimeDelta::hours(12)).format("%H:%M").to_string();
    browser.set_time("time", &time).await;
    browser.press("Create recurring post").await;
    browser.wait_for_text("Recurring post created.").await;
    browser.press("Daily offer").await;
    let next = browser.script("return document.querySelectorAll('[aria-labelledby=next] time').length").await;
    assert!(next.as_u64().is_some_and(|next| next >= 3), "{next}");
    browser.save_screenshots("recurring-rule").await;
    browser.resize(DESKTOP).await;

    for text in ["Poppy seed rolls", "Rye bread"] {
        let word = text.split(' ').next().unwrap();
        until(&format!("a post with {text}"), || async {
            browser.open(&format!("/brands/1/posts?search={word}")).await;
            let mark = "return document.querySelector('.post-row .tag[href$=\"/recurring/1\"]') !== null";
            (browser.script(mark).await == json!(true)).then_some(())
        })
        .await;
        browser.press(text).await;
        browser.press("Edit").await;
        assert!(browser.path().await.ends_with("/edit"), "{}", browser.path().await);
        let content = browser.script("return document.getElementById('f-content').value").await;
        assert_eq!(content, json!(text));
    }
}

async fn a_feed_is_published(browser: &Driver, crier: &Installation) {
    let server = MockServer::start().await;
    let response = ResponseTemplate::new(200).set_body_raw(FEED, "application/rss+xml");
    Mock::given(any()).respond_with(response).mount(&server).await;
    browser.open("/brands/1/feeds").await;
    browser.fill("url", &format!("{}/feed", server.uri())).await;
    browser.press("Add feed").await;
    browser.wait_for_text("Feed added.").await;
    browser.open("/brands/1/feeds/1").await;
    reload_until(browser, "Fresh bread today").await;

    browser.press("Publishing").await;
    browser.fill("auto_post.template", "News: {title} {url}").await;
    browser.select("demo").await;
    browser.press("Preview").await;
    browser.wait_for_text("News: Fresh bread today https://blog.example/a").await;
    browser.wait_for_text("News: Rolls again https://blog.example/b").await;
    until("the preview has the focus", || async {
        (browser.script("return document.activeElement?.id").await == json!("preview")).then_some(())
    })
    .await;
    browser.save_screenshots("feed-publishing").await;
    browser.resize(DESKTOP).await;
    browser.press("Save").await;
    browser.wait_for_text("Feed saved.").await;
    let feed = crier.read("/brands/1/feeds/1").await.unwrap();
    let settings = &feed["data"]["auto_post"];
    let saved = (&settings["is_active"], &settings["template"]);
    assert_eq!(saved, (&json!(true), &json!("News: {title} {url}")), "{feed}");
}

async fn problems_are_counted(browser: &Driver, crier: &Installation, account: i64) {
    browser.open("/brands/1/settings/notifications").await;
    browser.select("Daily").await;
    browser.press("Save").await;
    browser.wait_for_text("Notifications saved.").await;
    browser.open("/brands/1/settings/notifications").await;
    let chosen = browser.script("return document.querySelector('[name=frequency]:checked').value").await;
    assert_eq!(chosen, json!("daily"));

    let count = "return document.querySelector('.side .nav a[href=\"/brands/1\"] .count')?.textContent ?? null";
    assert_eq!(browser.script(count).await, Value::Null);
    let post = crier.post(1, account, "[fail] Burnt bread").await;
    let target = crier.wait_for_post(1, post).await;
    assert_eq!(target["status"], "failed", "{target}");
    browser.open("/brands/1/settings/notifications").await;
    assert_eq!(browser.script(count).await, json!("1 needs attention"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planning_works_in_a_browser_embedded() {
    test_planning(Installation::embedded().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn planning_works_in_a_browser_split() {
    test_planning(Installation::split().await).await;
}
