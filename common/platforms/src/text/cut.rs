//! Cuts texts that are too long.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;

/// Returns `text` with at most `max` characters: unchanged, or cut between two words, with an ellipsis. A text without
/// words is cut between graphemes.
pub fn at_word(text: &str, max: usize) -> Cow<'_, str> {
    let Some(last) = max.checked_sub(1) else { return Cow::Borrowed("") };
    if text.chars().nth(max).is_none() {
        return Cow::Borrowed(text);
    }
    // One character is for the ellipsis.
    let limit = text.char_indices().nth(last).map_or(0, |(at, _)| at);
    let is_filler = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '-');
    let at_word = text[..last_before(limit, text.split_word_bound_indices())].trim_end_matches(is_filler);
    let kept = if at_word.is_empty() { &text[..last_before(limit, text.grapheme_indices(true))] } else { at_word };
    Cow::Owned(format!("{kept}…"))
}

fn last_before<'a>(limit: usize, parts: impl Iterator<Item = (usize, &'a str)>) -> usize {
    parts.map(|(at, _)| at).take_while(|at| *at <= limit).last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_word() {
        for (text, max, cut) in [
            ("fresh bread", 11, "fresh bread"),
            ("fresh bread", 10, "fresh…"),
            ("fresh, bread", 8, "fresh…"),
            ("fresh bread.", 12, "fresh bread."),
            ("fresh bread, cake", 14, "fresh bread…"),
            ("fresh", 3, "fr…"),
            ("日本語のパン", 4, "日本語…"),
            ("👩\u{200D}🚀👩\u{200D}🚀", 5, "👩\u{200D}🚀…"),
            ("👩\u{200D}🚀👩\u{200D}🚀", 3, "…"),
            ("ab", 1, "…"),
            ("ab", 0, ""),
        ] {
            assert_eq!(at_word(text, max), cut, "{text} {max}");
        }
    }

    proptest! {
        #[test]
        fn a_cut_text_fits_and_is_the_beginning(text in r"(\PC|[a-z ,]){0,40}", max in 0_usize..50) {
            let cut = at_word(&text, max);
            prop_assert!(cut.chars().count() <= max);
            prop_assert!(text.starts_with(cut.strip_suffix('…').unwrap_or(&cut)));
            prop_assert_eq!(cut.as_ref() == text, text.chars().count() <= max);
        }
    }
}
