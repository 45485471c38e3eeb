//! Texts in CSV files that spreadsheet programs open.
//!
//! A spreadsheet program evaluates a cell that begins like a formula
//! (<https://owasp.org/www-community/attacks/CSV_Injection>), so such a text gets a leading apostrophe. The same applies
//! to each part of a text after a semicolon, a tab or a line break: if a program uses the semicolon as the separator, as
//! Excel does in many languages, quotation marks in the middle of a line do not quote, so these characters begin a new
//! cell.
//!
//! A part that begins with an apostrophe before a formula gets one more, so that [`unguarded`] restores every text.

use std::borrow::Cow;

/// The byte order mark of UTF-8, by which Excel detects the encoding of a CSV file.
pub const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Returns a text in which no spreadsheet program finds a formula.
pub fn guarded(text: &str) -> Cow<'_, str> {
    if !text.contains(begins_formula) && !text.trim_start_matches('\'').starts_with(starts_cell) {
        return Cow::Borrowed(text);
    }
    let mut guarded = String::with_capacity(text.len() + 8);
    for (index, part) in parts(text).enumerate() {
        if is_formula(part) || (index == 0 && is_empty_cell(part)) {
            guarded.push('\'');
        }
        guarded.push_str(part);
    }
    if guarded.len() == text.len() { Cow::Borrowed(text) } else { Cow::Owned(guarded) }
}

/// Returns a line of a CSV file (RFC 4180) with these texts, each guarded and in quotation marks.
pub fn csv_line<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let cells = texts.into_iter().map(|text| format!("\"{}\"", guarded(text).replace('"', "\"\"")));
    cells.collect::<Vec<_>>().join(",") + "\r\n"
}

/// Returns the text from which [`guarded`] made this one.
pub fn unguarded(text: &str) -> Cow<'_, str> {
    if !text.contains('\'') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    for (index, part) in parts(text).enumerate() {
        let rest = part.strip_prefix('\'');
        let is_guarded = |rest: &&str| is_formula(rest) || (index == 0 && is_empty_cell(rest));
        plain.push_str(rest.filter(is_guarded).unwrap_or(part));
    }
    if plain.len() == text.len() { Cow::Borrowed(text) } else { Cow::Owned(plain) }
}

/// Splits a text after each character that may separate cells.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(|c| c == ';' || starts_cell(c))
}

const fn starts_cell(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r')
}

const fn begins_formula(c: char) -> bool {
    matches!(c, '=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠')
}

/// Returns whether the first visible character of a cell begins a formula. Apostrophes count as invisible.
fn is_formula(part: &str) -> bool {
    let is_skipped = |c: char| {
        c.is_whitespace()
            || c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '"' | '\'')
    };
    part.trim_start_matches(is_skipped).starts_with(begins_formula)
}

/// Returns whether a cell ends before any visible character. At the beginning of a text, some programs drop it.
fn is_empty_cell(part: &str) -> bool {
    part.trim_start_matches('\'').starts_with(starts_cell)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_that_begins_like_a_formula_is_guarded() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", " \u{a0}=1", "\u{feff}=1", "＝1", "\u{1}=1", "'=1"]
        {
            assert!(guarded(text).starts_with('\''), "{text:?}");
            assert_eq!(guarded(text).len(), text.len() + 1, "{text:?}");
        }
        for text in ["", "1+1", "a=b", "'", "https://brot.example/?a=b", "a; b=c; d-e", "one\n1-2", ";", "'tis"] {
            assert_eq!(guarded(text), text);
        }
        for (text, expected) in [
            ("a;=1+1", "a;'=1+1"),
            ("a; \u{a0}@x;b;-2;\"+3", "a;' \u{a0}@x;b;'-2;'\"+3"),
            ("Plan:\n- one\n-two", "Plan:\n'- one\n'-two"),
            ("a\t=1", "a\t'=1"),
            ("=1;=2", "'=1;'=2"),
            ("\t=1", "'\t'=1"),
            ("a;;\n=1", "a;;\n'=1"),
            ("a;'=1", "a;''=1"),
        ] {
            assert_eq!(guarded(text), expected, "{text:?}");
        }
        // In linear time.
        let long = "\n".repeat(64 << 10) + "=1";
        assert_eq!(guarded(&long).len(), long.len() + 2);
    }

    #[test]
    fn a_line_has_quoted_cells() {
        assert_eq!(csv_line(["a,b", "say \"=1\"", "=1", ""]), "\"a,b\",\"say \"\"=1\"\"\",\"'=1\",\"\"\r\n");
    }

    proptest! {
        #[test]
        fn every_text_is_restored(text in "[-=+@'\";\t\r\n a＝\u{feff}]{0,12}") {
            let safe = guarded(&text).into_owned();
            prop_assert_eq!(unguarded(&safe), text.as_str());
        }
    }
}
