//! Keyboard navigation: Tab reaches the elements of each page in order, and the focus is visible.

use fantoccini::key::Key;
use serde_json::json;

use super::driver::Driver;
use crate::support::client::until;

/// Numbers the tab stops in the order of the page, and returns their count. Radio buttons with the same name count once.
/// From then on, `reachedStops` has each stop that gets the focus: its number, whether its focus is visible, and its HTML.
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
    const rings = (one, part) => getComputedStyle(one, part).outlineStyle !== 'none';
    window.reachedStops = [];
    document.addEventListener('focusin', ({ target }) => {
        if (target.dataset.stop === undefined) return;
        const isVisible = rings(target) || rings(target, '::after') || rings(target.closest('label') ?? target);
        window.reachedStops.push([Number(target.dataset.stop), isVisible, target.outerHTML.slice(0, 200)]);
    });
    return stops.length;";

/// The number of times that Tab is pressed per call of the driver.
const TABS_PER_CALL: usize = 25;

impl Driver {
    /// Presses Tab through the page; asserts that it reaches all focusable elements in order, with a visible focus.
    pub async fn assert_tab_order(&self, name: &str) {
        if !self.checks_pages() {
            return;
        }
        let count = self.script(NUMBER_STOPS).await.as_u64().expect("a number");
        let mut reached = Vec::new();
        // A date and time field has several tab stops.
        for _ in 0..count as usize / TABS_PER_CALL + 4 {
            self.press_key_times(Key::Tab, TABS_PER_CALL).await;
            let stops = self.script("return window.reachedStops").await;
            let stops = stops.as_array().expect("an array");
            reached = vec![];
            for stop in stops {
                assert_eq!(stop[1], json!(true), "{name}: the focus cannot be seen: {stop}");
                reached.push(stop[0].as_u64().expect("a number"));
            }
            reached.dedup();
            // After the last stop, the first one follows.
            if let Some(end) = reached.iter().skip(1).position(|number| *number == 0) {
                reached.truncate(end + 1);
                break;
            }
        }
        self.script("document.activeElement?.blur(); scrollTo(0, 0)").await;
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
