//! Keyboard navigation: Tab reaches the elements of each page in order, and the focus is visible.

use fantoccini::key::Key;
use serde_json::json;

use super::driver::Driver;
use crate::support::client::until;

/// Numbers the tab stops in the order of the page, and returns their count. Radio buttons with the same name count once.
const NUMBER_STOPS: &str = "
    const visible = (element) => element.checkVisibility({ visibilityProperty: true });
    const shown = (element) => visible(element) && !element.disabled && element.tabIndex >= 0;
    const groups = new Set();
    const isFirst = (element) => {
        if (element.type !== 'radio') return true;
        const group = [...document.getElementsByName(element.name)].filter((one) => one.form === element.form);
        const stop = group.find((one) => one.checked) ?? group[0];
        return stop === element;
    };
    const all = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex=\"0\"]';
    const stops = [...document.querySelectorAll(all)].filter((element) => shown(element) && isFirst(element));
    stops.forEach((element, n) => { element.dataset.stop = n; });
    document.activeElement?.blur();
    return stops.length;";

/// Returns the number of the element with the focus, whether its focus is visible, and its HTML.
const FOCUSED_STOP: &str = "
    const element = document.activeElement;
    if (element?.dataset.stop === undefined) return null;
    const rings = (one, part) => getComputedStyle(one, part).outlineStyle !== 'none';
    const own = rings(element) || rings(element, '::after');
    return [Number(element.dataset.stop), own || rings(element.closest('label') ?? element), element.outerHTML.slice(0, 200)];";

impl Driver {
    /// Presses Tab through the page; asserts that it reaches all focusable elements in order, with a visible focus.
    pub async fn assert_tab_order(&self, name: &str) {
        if !self.checks_pages() {
            return;
        }
        let count = self.script(NUMBER_STOPS).await.as_u64().expect("a number");
        let mut reached = Vec::new();
        // A date and time field has several tab stops.
        for _ in 0..count + 60 {
            self.press_key(Key::Tab).await;
            let focused = self.script(FOCUSED_STOP).await;
            let Some(number) = focused[0].as_u64() else { continue };
            if reached.last() == Some(&number) {
                continue;
            }
            assert_eq!(focused[1], json!(true), "{name}: the focus cannot be seen: {focused}");
            if number == 0 && !reached.is_empty() {
                break;
            }
            reached.push(number);
        }
        let missed = (0..count).find(|stop| !reached.contains(stop)).unwrap_or_default();
        let missed = self.script(&format!("return document.querySelector('[data-stop=\"{missed}\"]').outerHTML")).await;
        assert_eq!(reached, (0..count).collect::<Vec<_>>(), "{name}: the order of the stops; missed: {missed}");
    }

    /// Reloads the page and follows its first link, which skips the navigation; asserts that the next focus is in the
    /// content.
    pub async fn assert_skip_link(&self) {
        self.open(&self.path().await).await;
        // A page that has not painted yet ignores keys, so each key is pressed until it has an effect.
        until("the link has the focus", || async {
            self.press_key(Key::Tab).await;
            (self.script("return document.activeElement?.getAttribute('href')").await == json!("#main")).then_some(())
        })
        .await;
        until("the link is followed", || async {
            self.press_key(Key::Enter).await;
            (self.script("return location.hash").await == json!("#main")).then_some(())
        })
        .await;
        self.press_key(Key::Tab).await;
        let is_in_content =
            self.script("return document.getElementById('main').contains(document.activeElement)").await;
        assert_eq!(is_in_content, json!(true));
    }

    /// Presses Tab until the button or link with this text has the focus, presses Enter, and waits for the next page.
    pub async fn press_by_keyboard(&self, words: &str) {
        self.script("document.activeElement?.blur()").await;
        for _ in 0..200 {
            self.press_key(Key::Tab).await;
            let text = self.script("return document.activeElement?.textContent.trim()").await;
            if text == json!(words) {
                return self.navigate(words, self.press_key(Key::Enter)).await;
            }
        }
        panic!("{} has no stop {words:?}: {}", self.path().await, self.text().await);
    }
}
