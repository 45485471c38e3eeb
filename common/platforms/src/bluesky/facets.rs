//! Finds links, tags, cashtags and mentions in a text. Bluesky does not detect them itself: a post lists each one with
//! its UTF-8 byte offsets. The rules are those of Bluesky's own app, so that a text looks the same from both.
//!
//! Sources: lexicon `app.bsky.richtext.facet` (`byteStart` inclusive, `byteEnd` exclusive; a tag has at most 64
//! graphemes and 640 bytes, without its sign); `packages/api/src/rich-text` of the AT Protocol's reference
//! implementation, August 2026.

use std::ops::Range;

use serde_json::{Value, json};
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};
use unicode_segmentation::UnicodeSegmentation;
use url::Url;

use crate::text::domains::is_top_level;

/// The maximum length of a tag, without its sign.
const MAX_TAG_GRAPHEMES: usize = 64;
const MAX_TAG_BYTES: usize = 640;
/// The maximum number of letters and digits of a cashtag.
const MAX_CASHTAG: usize = 5;

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
    /// A handle, which must be resolved to a DID.
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
    let mut found: Vec<FacetMatch> = Vec::new();
    let mut previous = ' ';
    // The end of the last match, and of the run in which the last link was searched.
    let (mut end, mut searched) = (0, 0);
    for (at, c) in text.char_indices() {
        let (after_space, after_bracket) = (is_space(previous), previous == '(');
        previous = c;
        if at < end || !(after_space || after_bracket) {
            continue;
        }
        let rest = &text[at + c.len_utf8()..];
        let sign = |(length, feature)| (c.len_utf8() + length, feature);
        let matched = match c {
            '#' | '\u{FF03}' if after_space => tag(rest).map(sign),
            '$' => cashtag(rest).map(sign),
            '@' => mention(rest).map(sign),
            _ if at >= searched => link(&text[at..], &mut searched, at),
            _ => None,
        };
        if let Some((length, feature)) = matched {
            end = at + length;
            found.push(FacetMatch { range: at..end, feature });
        }
    }
    found
}

/// Returns the URL of the first link.
pub fn first_link(text: &str) -> Option<String> {
    find(text).into_iter().find_map(|found| match found.feature {
        FacetFeature::Link(url) => Some(url),
        FacetFeature::Tag(_) | FacetFeature::Mention(_) => None,
    })
}

/// Returns the length and the URL of the link at the start of `text`, which is at `at`. Sets `searched` to the end of
/// the run, because a run contains at most one link.
fn link(text: &str, searched: &mut usize, at: usize) -> Option<(usize, FacetFeature)> {
    let run = &text[..text.find(is_space).unwrap_or(text.len())];
    let scheme = ["https://", "http://"]
        .into_iter()
        .find(|scheme| run.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    if scheme.is_none_or(|scheme| run.len() == scheme.len()) {
        let domain = bare_domain(run)?;
        *searched = at + run.len();
        // Lower case only, because a missing space before "It" or "In" must not make a link.
        domain.rsplit('.').next().filter(|label| !has_upper_case(label) && is_top_level(label))?;
    }
    *searched = at + run.len();
    let link = run.strip_suffix(['.', ',', ';', ':', '!', '?']).unwrap_or(run);
    let link = if link.contains('(') { link } else { link.strip_suffix(')').unwrap_or(link) };
    let uri = match scheme {
        Some(scheme) => format!("{scheme}{}", link.get(scheme.len()..)?),
        None => format!("https://{link}"),
    };
    // A server rejects a post with an invalid URL.
    Url::parse(&uri).is_ok().then_some((link.len(), FacetFeature::Link(uri)))
}

/// Returns the domain name of at least two labels at the start of `text`: a letter, then letters and digits, separated
/// by dots.
fn bare_domain(text: &str) -> Option<&str> {
    let run = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).unwrap_or(text.len());
    let name = &text[..run];
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let name = &name[..name.find("..").unwrap_or(name.len())];
    let name = name.strip_suffix('.').unwrap_or(name);
    name.contains('.').then_some(name)
}

fn has_upper_case(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Returns the length and the text of the tag at the start of `text`: a run with at least one character that is neither
/// a digit nor punctuation, without the punctuation at its end.
fn tag(text: &str) -> Option<(usize, FacetFeature)> {
    if text.starts_with('\u{FE0F}') {
        return None;
    }
    let run = &text[..text.find(|c| is_space(c) || is_zero_width(c)).unwrap_or(text.len())];
    if !run.chars().any(|c| !c.is_ascii_digit() && !is_punctuation(c)) {
        return None;
    }
    let tag = run.trim_end_matches(is_punctuation);
    let fits = tag.len() <= MAX_TAG_BYTES && tag.graphemes(true).count() <= MAX_TAG_GRAPHEMES;
    fits.then(|| (tag.len(), FacetFeature::Tag(tag.to_owned())))
}

/// Returns the length and the tag of the ticker symbol at the start of `text`, in capitals and with its sign.
fn cashtag(text: &str) -> Option<(usize, FacetFeature)> {
    let run = &text[..text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len())];
    let ends = |c: char| is_space(c) || matches!(c, '.' | ',' | ';' | ':' | '!' | '?' | ')' | '"' | '\'' | '\u{2019}');
    let is_whole = text[run.len()..].chars().next().is_none_or(ends);
    let is_symbol = run.len() <= MAX_CASHTAG && run.starts_with(|c: char| c.is_ascii_alphabetic());
    (is_whole && is_symbol).then(|| (run.len(), FacetFeature::Tag(format!("${}", run.to_ascii_uppercase()))))
}

/// Returns the length and the handle of the mention at the start of `text` (AT Protocol specification, "Handle": a host
/// name of at least two labels, at most 253 characters). It ends in a top-level domain, or in `.test`.
fn mention(text: &str) -> Option<(usize, FacetFeature)> {
    let run = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))).unwrap_or(text.len());
    if text[run..].starts_with('_') {
        return None;
    }
    let handle = text[..run].trim_end_matches(['.', '-']).to_ascii_lowercase();
    let (_, last) = handle.rsplit_once('.')?;
    let is_label = |l: &str| (1..=63).contains(&l.len()) && !l.starts_with('-') && !l.ends_with('-');
    let is_handle = handle.len() <= 253 && handle.split('.').all(is_label) && (last == "test" || is_top_level(last));
    is_handle.then_some((handle.len(), FacetFeature::Mention(handle)))
}

/// Returns whether `c` is white space in JavaScript, in which Bluesky's app is written.
fn is_space(c: char) -> bool {
    c == '\u{FEFF}' || (c.is_whitespace() && c != '\u{85}')
}

/// Returns whether `c` is one of the invisible characters that end a tag.
fn is_zero_width(c: char) -> bool {
    matches!(c, '\u{AD}' | '\u{200A}'..='\u{200D}' | '\u{2060}' | '\u{20E2}')
}

fn is_punctuation(c: char) -> bool {
    c.general_category_group() == GeneralCategoryGroup::Punctuation
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(text: &str) -> Vec<&str> {
        find(text).into_iter().map(|f| &text[f.range]).collect()
    }

    fn features(text: &str) -> Vec<String> {
        let name = |found: FacetMatch| match found.feature {
            FacetFeature::Link(name) | FacetFeature::Tag(name) | FacetFeature::Mention(name) => name,
        };
        find(text).into_iter().map(name).collect()
    }

    #[test]
    fn facets_have_byte_offsets() {
        let text = "Grüße 👋 @Alice.example.com: https://example.com/ä #Straße (@bob.test)";
        assert_eq!(parts(text), ["@Alice.example.com", "https://example.com/ä", "#Straße", "@bob.test"]);
        let found = find(text);
        assert_eq!(found[0].range.start, "Grüße 👋 ".len());
        assert_eq!(found[0].feature, FacetFeature::Mention("alice.example.com".to_owned()));
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
        for text in [
            "me@example.com",
            "C#",
            "a#b",
            "#1",
            "#1.5!",
            "# x",
            "@alice",
            "@-a.test",
            "#",
            "#-",
            "#\u{FE0F}a",
            "#\u{200B}a",
            "@1.2",
            "@bob.example",
            "@bob.local",
            "@bob.test_1",
            "end.Then",
            "One.It",
            "a-b.com",
            "1.com",
            "example.example",
            "version 1.2.3",
            "http://",
            "https://.",
            "https://?",
            "https:// a",
            "(#a",
            "$",
            "$1",
            "$GOOGLE",
            "$A-B",
            "a$A",
            "$AB€",
            "a.b@example.com",
        ] {
            assert!(find(text).is_empty(), "{text}: {:?}", find(text));
        }
    }

    #[test]
    fn a_link_is_the_whole_run() {
        for (text, shown, uri) in [
            ("https://例え.jp/パス です", "https://例え.jp/パス", "https://例え.jp/パス"),
            ("(see https://a.test/b_(c))", "https://a.test/b_(c))", "https://a.test/b_(c))"),
            ("(https://a.test/b)", "https://a.test/b", "https://a.test/b"),
            ("(https://a.test/b).", "https://a.test/b", "https://a.test/b"),
            ("https://a.test/b?!", "https://a.test/b?", "https://a.test/b?"),
            ("HTTPS://A.test\u{A0}x", "HTTPS://A.test", "https://A.test"),
            ("read\nexample.com/x?y=1#z, now", "example.com/x?y=1#z", "https://example.com/x?y=1#z"),
            ("www.example.photography.", "www.example.photography", "https://www.example.photography"),
            ("(t.co)", "t.co", "https://t.co"),
            ("http.cat/404", "http.cat/404", "https://http.cat/404"),
            ("example.com-x", "example.com-x", "https://example.com-x"),
            ("foo.bar.com..", "foo.bar.com.", "https://foo.bar.com."),
        ] {
            assert_eq!((parts(text), features(text)), (vec![shown], vec![uri.to_owned()]), "{text}");
        }
        assert!(find("see.notatld(https://a.test)").is_empty(), "the run is no link");
        assert_eq!(parts("https://a.test(https://b.test) c.com"), ["https://a.test(https://b.test)", "c.com"]);
    }

    #[test]
    fn a_tag_is_the_whole_run_without_its_last_punctuation() {
        assert_eq!(
            features(
                "#100DaysOfCode #rock&roll #don't #C++ #C# #one, #two_. #日本語。 #🎉! ＃full #a\u{200B}b ##c #👩\u{200D}🚀"
            ),
            ["100DaysOfCode", "rock&roll", "don't", "C++", "C", "one", "two", "日本語", "🎉", "full", "a", "#c", "👩"]
        );
        assert!(find(&format!("#{}", "a".repeat(65))).is_empty());
        assert_eq!(find(&format!("#{}", "a".repeat(64))).len(), 1);
        assert!(find(&format!("#{}", "👍🏽".repeat(64))).len() == 1, "64 graphemes of 8 bytes");
        assert!(find(&format!("#{}", "👨🏽\u{301}\u{301}".repeat(64))).is_empty(), "more than 640 bytes");
    }

    #[test]
    fn a_cashtag_is_a_tag_in_capitals_with_its_sign() {
        assert_eq!(features("$aapl ($T) $BRK1, $a’s"), ["$AAPL", "$T", "$BRK1", "$A"]);
        assert_eq!(parts("buy $aapl."), ["$aapl"]);
    }

    #[test]
    fn a_link_in_a_tag_is_not_marked_twice() {
        assert_eq!(parts("#a(https://b.test c"), ["#a(https://b.test"]);
    }

    proptest! {
        #[test]
        fn facet_ranges_are_ordered_and_do_not_overlap(
            text in r"([ #@$()a-zA-Zß日👩\u{200D}.:/-]|https?://|\.com|\PC){0,80}"
        ) {
            let mut end = 0;
            for found in find(&text) {
                prop_assert!(found.range.start >= end && found.range.end > found.range.start);
                let part = text.get(found.range.clone());
                prop_assert!(part.is_some_and(|part| !part.contains(is_space)));
                if let FacetFeature::Link(uri) = &found.feature {
                    prop_assert!(Url::parse(uri).is_ok_and(|url| url.has_host()));
                }
                end = found.range.end;
            }
        }

        #[test]
        fn the_same_words_are_found_in_any_order(mut words in prop::collection::vec(
            prop::sample::select(vec!["#a", "$B", "@c.test", "https://d.test/ä", "e.com", "f", "(g", "#1"]), 0..12
        )) {
            let of = |words: &[&str]| {
                let mut found = features(&words.join(" "));
                found.sort();
                found
            };
            let before = of(&words);
            words.reverse();
            prop_assert_eq!(before, of(&words));
        }
    }
}
