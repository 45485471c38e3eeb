//! Finds links, hashtags and mentions in a text. Bluesky marks up nothing by itself: a post lists each with its UTF-8
//! byte offsets.
//!
//! Source: lexicon `app.bsky.richtext.facet` (byteStart inclusive, byteEnd exclusive; a tag has at most 64 graphemes
//! and 640 bytes, without its sign). Names without `https://` are left as text: without the registry's list of
//! top-level domains, a missing space between two sentences would make a link.

use std::ops::Range;

use serde_json::{Value, json};
use unicode_properties::{GeneralCategoryGroup, UnicodeEmoji, UnicodeGeneralCategory};
use unicode_segmentation::UnicodeSegmentation;

use crate::text::links;

/// A link, tag or mention in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FacetMatch {
    pub range: Range<usize>,
    pub feature: FacetFeature,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FacetFeature {
    Link(String),
    Tag(String),
    /// A handle, to be resolved to a DID.
    Mention(String),
}

impl FacetMatch {
    /// Returns the facet in the lexicon's format; `None` for a mention, which needs its DID.
    pub fn facet(&self) -> Option<Value> {
        match &self.feature {
            FacetFeature::Link(uri) => Some(self.with(json!({ "$type": "app.bsky.richtext.facet#link", "uri": uri }))),
            FacetFeature::Tag(tag) => Some(self.with(json!({ "$type": "app.bsky.richtext.facet#tag", "tag": tag }))),
            FacetFeature::Mention(_) => None,
        }
    }

    /// Returns the facet of a mention of `did`.
    pub fn mention(&self, did: &str) -> Value {
        self.with(json!({ "$type": "app.bsky.richtext.facet#mention", "did": did }))
    }

    fn with(&self, feature: Value) -> Value {
        json!({ "index": { "byteStart": self.range.start, "byteEnd": self.range.end }, "features": [feature] })
    }
}

/// Returns all links, tags and mentions, in order and without overlap.
pub fn find(text: &str) -> Vec<FacetMatch> {
    let mut found: Vec<FacetMatch> = links::find(text, false)
        .into_iter()
        .map(|link| FacetMatch { feature: FacetFeature::Link(text[link.range.clone()].to_owned()), range: link.range })
        .collect();
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        let here = match c {
            '#' | '\u{FF03}' if previous.is_whitespace() => {
                tag(rest).map(|tag| (tag.len(), FacetFeature::Tag(tag.to_owned())))
            }
            '@' if previous.is_whitespace() || previous == '(' => {
                handle(rest).map(|handle| (handle.len(), FacetFeature::Mention(handle.to_ascii_lowercase())))
            }
            _ => None,
        };
        found.extend(here.map(|(len, feature)| FacetMatch { range: at..at + c.len_utf8() + len, feature }));
        previous = c;
    }
    found.sort_by_key(|f| f.range.start);
    let mut end = 0;
    found.retain(|f| {
        let free = f.range.start >= end;
        if free {
            end = f.range.end;
        }
        free
    });
    found
}

/// Returns the tag at the start of `text`: letters, marks, digits, emoji, `_` and `-`, beginning with a letter or
/// emoji.
fn tag(text: &str) -> Option<&str> {
    use GeneralCategoryGroup::{Letter, Mark, Number};
    let emoji = |c: char| c.is_emoji_char() && !c.is_ascii();
    let inside = |c: char| {
        matches!(c.general_category_group(), Letter | Mark | Number)
            || emoji(c)
            || matches!(c, '_' | '-' | '\u{200D}' | '\u{FE0F}')
    };
    let first = text.chars().next()?;
    if first.general_category_group() != Letter && !emoji(first) {
        return None;
    }
    let run = text.find(|c| !inside(c)).unwrap_or(text.len());
    let tag = text[..run].trim_end_matches(['_', '-']);
    (tag.len() <= 640 && tag.graphemes(true).count() <= 64).then_some(tag)
}

/// Returns the handle at the start of `text` (AT Protocol specification, "Handle": a host name of at least two labels,
/// at most 253 characters, the last label not beginning with a digit).
fn handle(text: &str) -> Option<&str> {
    let run = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))).unwrap_or(text.len());
    let handle = text[..run].trim_end_matches(['.', '-']);
    let (_, last) = handle.rsplit_once('.')?;
    let labels = handle.split('.').all(|l| (1..=63).contains(&l.len()) && !l.starts_with('-') && !l.ends_with('-'));
    (labels && handle.len() <= 253 && !last.starts_with(|c: char| c.is_ascii_digit())).then_some(handle)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(text: &str) -> Vec<&str> {
        find(text).into_iter().map(|f| &text[f.range]).collect()
    }

    #[test]
    fn facets_have_byte_offsets() {
        let text = "Grüße 👋 @alice.example.com: https://example.com/ä #Straße (@bob.example)";
        assert_eq!(parts(text), ["@alice.example.com", "https://example.com/ä", "#Straße", "@bob.example"]);
        let found = find(text);
        assert_eq!(found[0].range.start, "Grüße 👋 ".len());
        assert_eq!(found[2].feature, FacetFeature::Tag("Straße".to_owned()));
        assert_eq!(
            found[1].facet(),
            Some(json!({
                "index": { "byteStart": 33, "byteEnd": 55 },
                "features": [{ "$type": "app.bsky.richtext.facet#link", "uri": "https://example.com/ä" }],
            }))
        );
    }

    #[test]
    fn lookalikes_are_not_facets() {
        for text in ["me@example.com", "C#", "a#b", "#1", "# x", "@alice", "@-a.b", "#", "@1.2", "example.com", "#-"] {
            assert!(find(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn tags_end_before_punctuation() {
        assert_eq!(
            parts("#one, #two. #three! #日本語。 #🎉 ＃full"),
            ["#one", "#two", "#three", "#日本語", "#🎉", "＃full"]
        );
        assert!(find(&format!("#{}", "a".repeat(65))).is_empty());
        assert_eq!(find(&format!("#{}", "a".repeat(64))).len(), 1);
    }

    proptest! {
        #[test]
        fn facet_ranges_are_ordered_and_do_not_overlap(text in r"([ #@()a-zA-Zß日👩\u{200D}.:/-]|https://|\PC){0,80}") {
            let mut end = 0;
            for found in find(&text) {
                prop_assert!(found.range.start >= end && found.range.end > found.range.start);
                prop_assert!(text.get(found.range.clone()).is_some());
                end = found.range.end;
            }
        }
    }
}
