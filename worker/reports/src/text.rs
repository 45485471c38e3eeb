//! Prepares texts for the programs that show them: removes characters, limits lengths, and formats numbers and times.

use std::borrow::Cow;

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use crier_domain::report_naming as naming;
use unicode_segmentation::UnicodeSegmentation;

use crate::{Cell, Document};

/// Returns a text for office programs: without the characters that XML 1.0 forbids and without those that change the
/// direction (which can make a URL look like another), and with line feeds as line breaks.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_forbidden(c) || is_direction(c) || c == '\r') {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    let mut after_return = false;
    for c in text.chars() {
        match c {
            '\r' => cleaned.push('\n'),
            '\n' if after_return => {}
            c if is_forbidden(c) || is_direction(c) => {}
            c => cleaned.push(c),
        }
        after_return = c == '\r';
    }
    Cow::Owned(cleaned)
}

/// <https://www.w3.org/TR/xml/#charsets>. A `char` is never a surrogate.
fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Returns whether a character overrides, embeds or isolates a direction.
pub fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns a cleaned text on one line, with each run of white space as one space.
pub fn single_line(text: &str) -> String {
    let text = clean(text);
    let mut line = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// Returns at most `max` grapheme clusters (visible characters) of a text. A longer text ends with an ellipsis.
pub fn clip(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    // A grapheme cluster may have any number of characters, so the number of bytes is limited too.
    let mut end = 0;
    for (count, (at, grapheme)) in text.grapheme_indices(true).enumerate() {
        if count == max || at + grapheme.len() > max * 8 {
            return Cow::Owned(format!("{}…", text[..end].trim_end()));
        }
        if count + 1 < max {
            end = at + grapheme.len();
        }
    }
    Cow::Borrowed(text)
}

/// Splits a text into parts of at most `max` UTF-16 code units, which Excel uses for limits.
pub fn utf16_parts(mut text: &str, max: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    loop {
        let mut units = 0;
        let end = text.char_indices().find(|(_, c)| {
            units += c.len_utf16();
            units > max
        });
        let Some((end, _)) = end else {
            parts.push(text);
            return parts;
        };
        let (part, rest) = text.split_at(end);
        parts.push(part);
        text = rest;
    }
}

/// Returns the approximate width of a text, in digits.
pub fn width(text: &str) -> usize {
    text.chars()
        .map(|c| match c {
            // Combining marks.
            '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200f}' | '\u{fe00}'..='\u{fe0f}' => 0,
            // East Asian scripts, and emoji.
            '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' => 2,
            '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}' | '\u{1f000}'.. => 2,
            _ => 1,
        })
        .sum()
}

/// Returns whether a text is written from right to left, by the script of its first letter.
pub fn is_right_to_left(text: &str) -> bool {
    let right_to_left = |c: char| {
        matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
            || matches!(c, '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}')
    };
    text.chars().find(|c| c.is_alphabetic()).is_some_and(right_to_left)
}

/// Returns a URL in the form that office programs accept as a link; `None` if its scheme is not `http` or `https`.
pub fn link_target(url: &str) -> Option<String> {
    let url = url::Url::parse(url).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.host().is_some()).then(|| url.into())
}

/// Returns a day as `1 Oct 2026`.
pub fn day(day: NaiveDate) -> String {
    day.format("%-d %b %Y").to_string()
}

/// Returns a time as `1 Oct 2026 09:30`.
pub fn time(time: NaiveDateTime) -> String {
    time.format("%-d %b %Y %H:%M").to_string()
}

/// Returns a cell as text for readers. An unknown value is a dash.
pub fn cell(cell: &Cell) -> Cow<'_, str> {
    match cell {
        Cell::Empty => Cow::Borrowed("–"),
        Cell::Text(text) | Cell::Link(text) => clean(text),
        Cell::Count(count) => Cow::Owned(naming::count(*count)),
        Cell::Percent(tenths) => Cow::Owned(naming::percent(*tenths)),
        Cell::Date(date) => Cow::Owned(day(*date)),
        Cell::Time(at) => Cow::Owned(time(*at)),
    }
}

/// Returns when the document was created, in UTC, for the properties of office files.
pub fn created_at(document: &Document) -> DateTime<Utc> {
    let zone = document.timezone.parse::<chrono_tz::Tz>().unwrap_or(chrono_tz::UTC);
    match document.created_at.and_local_timezone(zone).earliest() {
        Some(time) => time.with_timezone(&Utc),
        None => document.created_at.and_utc(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_removes_forbidden_and_directional_characters() {
        assert_eq!(clean("a\0b\u{1b}c\u{202e}d\u{2066}e\u{fffe}f\u{ffff}g"), "abcdefg");
        assert_eq!(clean("a\r\nb\rc\nd\te"), "a\nb\nc\nd\te");
        assert_eq!(clean("a\r\u{1}\nb"), "a\n\nb");
        assert!(matches!(clean("plain – text 🥕"), Cow::Borrowed(_)));
        assert_eq!(single_line(" a \r\n\t b\u{a0}c "), "a b c");
    }

    #[test]
    fn clip_counts_grapheme_clusters() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("abcd", 3), "ab…");
        assert_eq!(clip("äöü", 3), "äöü");
        assert_eq!(clip("👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧", 2), "…");
        assert!(clip(&format!("a{}", "\u{301}".repeat(60_000)), 10).len() < 100);
    }

    #[test]
    fn utf16_parts_are_not_longer_than_the_maximum() {
        assert_eq!(utf16_parts("", 2), [""]);
        assert_eq!(utf16_parts("abc", 2), ["ab", "c"]);
        assert_eq!(utf16_parts("a🥕b", 2), ["a", "🥕", "b"]);
    }

    #[test]
    fn the_first_letter_decides_the_direction() {
        assert!(is_right_to_left("1. לחם") && !is_right_to_left("1. Brot לחם"));
    }

    #[test]
    fn only_web_urls_are_links() {
        assert_eq!(
            link_target("https://brot.example/a b?c=\"d\"").as_deref(),
            Some("https://brot.example/a%20b?c=%22d%22")
        );
        for other in
            ["javascript:alert(1)", "file:///etc/passwd", "internal:Sheet1!A1", "//brot.example", "http://[", ""]
        {
            assert_eq!(link_target(other), None, "{other}");
        }
    }
}
