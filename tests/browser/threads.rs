//! A thread with a first comment, from the composer until it is unpublished; and the filters of the list on a phone.

use serde_json::json;

use super::console::reload_until;
use super::driver::Driver;
use super::{DESKTOP, PHONE};
use crate::support::client::until;
use crate::support::process::Installation;

/// Two paragraphs that do not fit into one post on the sandbox.
const WRITE_LONG_TEXT: &str = "
    const text = document.getElementById('f-content');
    text.value = `${'Bread '.repeat(500).trim()}\\n\\n${'Rolls '.repeat(500).trim()}`;
    text.dispatchEvent(new Event('input', { bubbles: true }));";

async fn texts(browser: &Driver) -> Vec<String> {
    let script = "const all = [...document.querySelectorAll('[name=content], [name^=\"thread.\"][name$=\".content\"]')]; \
        return all.map((one) => one.value.slice(0, 5));";
    let texts = browser.script(script).await;
    texts.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

async fn wait_for_texts(browser: &Driver, wanted: &[&str]) {
    until("the form has these parts", || async { (texts(browser).await == wanted).then_some(()) }).await;
}

pub async fn a_thread_is_written_and_unpublished(browser: &Driver, crier: &Installation) {
    browser.open("/brands/1/posts/new").await;
    browser.assert_not_shown("Add part").await;
    browser.select("demo").await;
    browser.script(WRITE_LONG_TEXT).await;
    browser.toggle("Add part").await;
    browser.fill("thread.0.content", "Cakes at noon").await;
    browser.toggle("Add part").await;
    wait_for_texts(browser, &["Bread", "Cakes", ""]).await;
    browser.toggle("Split into parts").await;
    wait_for_texts(browser, &["Bread", "Rolls", "Cakes", ""]).await;
    let focused = browser.script("return document.activeElement.name").await;
    assert_eq!(focused, json!("thread.0.content"));
    browser.wait_for_text("Part 3 of 3").await;
    let remove = "document.querySelector('[value=\"remove-part:1\"]').click()";
    browser.script(remove).await;
    wait_for_texts(browser, &["Bread", "Cakes", ""]).await;
    browser.wait_for_text("Part 2 of 2").await;
    browser.toggle("First comment").await;
    browser.fill("first_comment.content", "The menu is inside").await;
    browser.wait_for_text("The menu is inside").await;
    browser.save_screenshots("composer-thread").await;
    browser.press("Publish now").await;
    until("the thread and the comment are published", || async {
        let page = crier.page("demo").await;
        (page.contains("Cakes at noon") && page.contains("The menu is inside")).then_some(())
    })
    .await;
    reload_until(browser, "Unpublish").await;
    browser.save_screenshots("post-thread").await;
    browser.toggle("Unpublish").await;
    browser.wait_for_text("This cannot be undone.").await;
    browser.press_inner("Unpublish post").await;
    reload_until(browser, "Unpublished").await;
    browser.save_screenshots("post-unpublished").await;
    let page = crier.page("demo").await;
    assert!(!page.contains("Cakes at noon") && !page.contains("The menu is inside"), "{page}");
}

pub async fn filters_are_folded_on_a_phone(browser: &Driver) {
    for (size, query, is_shown) in [(PHONE, "", false), (PHONE, "?search=bread", true), (DESKTOP, "", true)] {
        browser.resize(size).await;
        browser.open(&format!("/brands/1/posts{query}")).await;
        let found = browser.script("return document.getElementById('search').checkVisibility()").await;
        assert_eq!(found, json!(is_shown), "{size:?} {query}");
    }
    browser.resize(PHONE).await;
    browser.open("/brands/1/posts").await;
    browser.toggle("Filters").await;
    browser.fill("search", "bread").await;
    browser.press("Search").await;
    browser.wait_for_text("Show all").await;
    browser.resize(DESKTOP).await;
}
