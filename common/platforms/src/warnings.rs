//! Warnings about a text: facts that a user should know before the post is published, and that do not prevent
//! publishing, such as what it costs, or who will see it.
//!
//! **To add a warning:** add a branch to [`of`], with the source of the fact and the date on which it was checked.

use crier_domain::catalogue::descriptor;
use crier_domain::platform::Platform;

use super::text::{self, ContentProblem, count_hashtags, links};

/// The maximum number of hashtags that Instagram counts (reported since December 2025).
const INSTAGRAM_HASHTAGS: usize = 5;

/// Returns the warning about a text for a platform.
pub fn of(platform: Platform, text: &str) -> Option<ContentProblem> {
    let (code, message) = match platform {
        Platform::Twitter => link_price(text),
        Platform::Instagram => too_many_hashtags(text),
        Platform::Threads => too_many_bytes(text),
        _ => None,
    }?;
    Some(ContentProblem { field: "content", code, message })
}

/// The price that X charges the application's owner for a post (docs.x.com, pricing, August 2026): $0.200 with a link,
/// and $0.015 without one.
fn link_price(text: &str) -> Option<(&'static str, String)> {
    let message = "X charges the owner of the application about $0.200 for a post with a link, and about $0.015 for \
                   one without a link.";
    (!links::find(text, true).is_empty()).then(|| ("link_costs_more", message.to_owned()))
}

fn too_many_hashtags(text: &str) -> Option<(&'static str, String)> {
    let hashtags = count_hashtags(text);
    let message = || {
        format!(
            "Instagram counts at most {INSTAGRAM_HASHTAGS} hashtags. This text has {hashtags}, so fewer people \
             may see it."
        )
    };
    (hashtags > INSTAGRAM_HASHTAGS).then(|| ("hashtags_not_counted", message()))
}

/// Threads documents that only emoji count as their bytes. Some texts whose bytes exceed the limit were rejected, and
/// others published (reports of other projects, 2026).
fn too_many_bytes(text: &str) -> Option<(&'static str, String)> {
    let rules = &descriptor(Platform::Threads).capabilities.text;
    let max = rules.max?;
    let is_doubtful = text.len() > max as usize && text::length(Platform::Threads, rules, text) <= max;
    let message = || {
        format!(
            "Threads may count bytes instead of characters: this text has {} bytes, and the limit is {max}. If Threads \
             rejects the post, shorten the text.",
            text.len()
        )
    };
    is_doubtful.then(|| ("text_may_be_too_long", message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(platform: Platform, text: &str) -> Option<&'static str> {
        of(platform, text).map(|warning| warning.code)
    }

    fn message(platform: Platform, text: &str) -> String {
        of(platform, text).map(|warning| warning.message).unwrap_or_default()
    }

    #[test]
    fn x_names_the_price_of_a_link() {
        assert_eq!(code(Platform::Twitter, "Fresh bread"), None);
        assert_eq!(code(Platform::Twitter, "Fresh bread at example.com"), Some("link_costs_more"));
        assert_eq!(code(Platform::Bluesky, "Fresh bread at example.com"), None);
        assert!(message(Platform::Twitter, "https://example.com").contains("$0.200 for a post with a link"));
    }

    #[test]
    fn instagram_names_the_hashtags_that_do_not_count() {
        assert_eq!(code(Platform::Instagram, "#a #b #c #d #e"), None);
        assert_eq!(code(Platform::Instagram, "#a #b #c #d #e #f"), Some("hashtags_not_counted"));
        assert!(message(Platform::Instagram, "#a #b #c #d #e #f").contains("has 6"));
        assert_eq!(code(Platform::Bluesky, "#a #b #c #d #e #f"), None);
    }

    #[test]
    fn threads_warns_of_texts_with_more_bytes_than_characters() {
        for (text, expected) in [
            ("x".repeat(500), None),
            ("é".repeat(250), None),
            ("é".repeat(251), Some("text_may_be_too_long")),
            ("빵".repeat(500), Some("text_may_be_too_long")),
            // The length is a problem, so it needs no warning.
            ("é".repeat(501), None),
            ("🥖".repeat(126), None),
        ] {
            assert_eq!(code(Platform::Threads, &text), expected, "{text}");
        }
        assert!(message(Platform::Threads, &"é".repeat(251)).contains("has 502 bytes, and the limit is 500"));
    }
}
