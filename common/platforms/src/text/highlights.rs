//! Finds the parts of a text that a platform shows as links, for previews.

use std::ops::Range;

use crier_domain::platform::Platform;

use super::links;
use crate::bluesky::facets;

/// Returns the URLs, hashtags and mentions that the platform makes links of, as byte offsets, in order and without
/// overlap. On all platforms but Bluesky, a mention counts whether or not its account exists.
pub fn find(platform: Platform, text: &str) -> Vec<Range<usize>> {
    // Whether URLs are links, including those without a scheme (`Some(true)`), and the first characters of words that are.
    let (urls, signs): (Option<bool>, &[char]) = match platform {
        Platform::Bluesky => return facets::find(text).into_iter().map(|found| found.range).collect(),
        Platform::Twitter | Platform::Telegram => (Some(true), &['#', '@']),
        Platform::Mastodon | Platform::Threads | Platform::Sandbox => (Some(false), &['#', '@']),
        Platform::Facebook | Platform::Youtube => (Some(false), &['#']),
        Platform::Instagram | Platform::Tiktok => (None, &['#', '@']),
        // The signs are escaped in posts on LinkedIn.
        Platform::Linkedin | Platform::Reddit => (Some(false), &[]),
        Platform::Wordpress
        | Platform::Woocommerce
        | Platform::Shopify
        | Platform::Pinterest
        | Platform::GoogleBusiness
        | Platform::Tumblr => return Vec::new(),
    };
    let mut found = urls.map_or_else(Vec::new, |bare| links::find(text, bare));
    let mut words = words(text, signs);
    let mut urls = found.iter().peekable();
    words.retain(|word| {
        while urls.peek().is_some_and(|url| url.end <= word.start) {
            urls.next();
        }
        urls.peek().is_none_or(|url| word.end <= url.start)
    });
    found.append(&mut words);
    found.sort_unstable_by_key(|range| range.start);
    found
}

/// Returns the words that begin with one of `signs`. A hashtag is not only a number, and a mention may have a server.
fn words(text: &str, signs: &[char]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut previous = ' ';
    for (at, sign) in text.char_indices() {
        let follows_word = previous.is_alphanumeric() || matches!(previous, '_' | '/' | '#' | '@');
        previous = sign;
        if follows_word || !signs.contains(&sign) || found.last().is_some_and(|last| at < last.end) {
            continue;
        }
        let rest = &text[at + sign.len_utf8()..];
        let is_part = |c: char| is_word(c) || (sign == '@' && matches!(c, '.' | '-' | '@'));
        let word = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        let word = word.trim_end_matches(['.', '-', '@']);
        if word.starts_with(is_word) && (sign == '@' || word.contains(|c: char| !c.is_numeric())) {
            found.push(at..at + sign.len_utf8() + word.len());
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(platform: Platform, text: &str) -> Vec<&str> {
        find(platform, text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn each_platform_has_its_own_links() {
        let text = "@ann.b: see https://a.example/#x, b.com or #größe, not #1, a@b.org or x#y.";
        for (platform, links) in [
            (Platform::Mastodon, vec!["@ann.b", "https://a.example/#x", "#größe"]),
            (Platform::Twitter, vec!["@ann.b", "https://a.example/#x", "b.com", "#größe"]),
            (Platform::Facebook, vec!["https://a.example/#x", "#größe"]),
            (Platform::Instagram, vec!["@ann.b", "#größe"]),
            (Platform::Linkedin, vec!["https://a.example/#x"]),
            (Platform::Pinterest, vec![]),
        ] {
            assert_eq!(found(platform, text), links, "{platform}");
        }
        assert_eq!(found(Platform::Mastodon, "(@ann@a.example), @@b, @. #"), ["@ann@a.example"]);
        assert_eq!(found(Platform::Bluesky, "See b.com #bread"), ["b.com", "#bread"]);
    }

    proptest! {
        #[test]
        fn links_are_ordered_and_do_not_overlap(text in r"([ .:/@#a-z1-]|https?://|\.com|\PC){0,60}") {
            for platform in Platform::ALL {
                let mut end = 0;
                for range in find(*platform, &text) {
                    prop_assert!(range.start >= end && text.get(range.clone()).is_some_and(|part| !part.is_empty()));
                    end = range.end;
                }
            }
        }
    }
}
