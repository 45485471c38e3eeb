//! The keyboard alone: each page can be walked through with Tab, in its order, and shows where the focus is.

use fantoccini::key::Key;
use serde_json::json;

use super::driver::Driver;

/// Numbers what a person can press or fill, in the order of the page. Of radio buttons with one name, one has a stop.
const NUMBER: &str = "
    const shown = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.disabled;
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

/// Returns the number of what has the focus, and whether it shows that.
const FOCUSED: &str = "
    const element = document.activeElement;
    if (element?.dataset.stop === undefined) return null;
    const rings = (one, part) => getComputedStyle(one, part).outlineStyle !== 'none';
    const own = rings(element) || rings(element, '::after');
    return [Number(element.dataset.stop), own || rings(element.closest('label') ?? element), element.outerHTML.slice(0, 200)];";

impl Driver {
    /// Presses Tab through the page: each stop is reached, in the order of the page, and shows that it has the focus.
    pub async fn walks_by_keyboard(&self, name: &str) {
        let count = self.script(NUMBER).await.as_u64().expect("a number");
        let mut reached = Vec::new();
        // A field of a date and time has several stops inside.
        for _ in 0..count + 60 {
            self.press_key(Key::Tab).await;
            let focused = self.script(FOCUSED).await;
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
        assert_eq!(reached, (0..count).collect::<Vec<_>>(), "{name}: the order of the stops");
    }

    /// Loads the page again and follows its first link, which skips the navigation: the next stop is in the content.
    pub async fn skips_to_the_content(&self) {
        self.open(&self.path().await).await;
        self.press_key(Key::Tab).await;
        self.press_key(Key::Enter).await;
        self.press_key(Key::Tab).await;
        let inside = self.script("return document.getElementById('main').contains(document.activeElement)").await;
        assert_eq!(inside, json!(true));
    }

    /// Presses Tab until the button or link with these words has the focus, then Enter; waits for the page it leads to.
    pub async fn presses_by_keyboard(&self, words: &str) {
        self.script("document.activeElement?.blur()").await;
        for _ in 0..200 {
            self.press_key(Key::Tab).await;
            let text = self.script("return document.activeElement?.textContent.trim()").await;
            if text == json!(words) {
                return self.leaves(words, self.press_key(Key::Enter)).await;
            }
        }
        panic!("{} has no stop {words:?}: {}", self.path().await, self.text().await);
    }
}
