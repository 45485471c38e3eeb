//! Notes on a post that a user should know before it is published, and that do not prevent publishing: what it costs,
//! or who will see it.
//!
//! **To add a note:** add a branch to [`of`], with the source of the fact and the date on which it was checked.

use crier_domain::platform::Platform;

use super::text::{count_hashtags, links};

/// The price that X charges the application's owner for a post, in thousandths of a dollar (docs.x.com, pricing, August
/// 2026).
const X_POST: u32 = 15;
const X_POST_WITH_LINK: u32 = 200;
/// The maximum number of hashtags that Instagram counts (reported since December 2025).
const INSTAGRAM_HASHTAGS: usize = 5;

/// Returns the notes on a text for a platform.
pub fn of(platform: Platform, text: &str) -> Vec<String> {
    match platform {
        Platform::Twitter => {
            let has_link = !links::find(text, true).is_empty();
            let (thousandths, what) =
                if has_link { (X_POST_WITH_LINK, "a post with a link") } else { (X_POST, "a post without a link") };
            let price = format!("${}.{:03}", thousandths / 1_000, thousandths % 1_000);
            vec![format!("X charges the owner of the application for each post: about {price} for {what}.")]
        }
        Platform::Instagram => {
            let hashtags = count_hashtags(text);
            let note = format!(
                "Instagram counts {INSTAGRAM_HASHTAGS} hashtags at most. This text has {hashtags}, so fewer people \
                 may see it."
            );
            if hashtags > INSTAGRAM_HASHTAGS { vec![note] } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_names_its_price() {
        let [plain] = of(Platform::Twitter, "Fresh bread").try_into().unwrap();
        assert!(plain.contains("$0.015"), "{plain}");
        let [linked] = of(Platform::Twitter, "Fresh bread at example.com").try_into().unwrap();
        assert!(linked.contains("$0.200 for a post with a link"), "{linked}");
    }

    #[test]
    fn instagram_names_the_hashtags_that_do_not_count() {
        assert!(of(Platform::Instagram, "#a #b #c #d #e").is_empty());
        assert!(of(Platform::Instagram, "#a #b #c #d #e #f")[0].contains("has 6"));
        assert!(of(Platform::Bluesky, "#a #b #c #d #e #f").is_empty());
    }
}
