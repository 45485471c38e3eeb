//! Splits texts into words, for the search in the inbox. Indexed texts and searches are split in the same way, on both
//! engines.
//!
//! A word is a run of letters and digits, without case and accents. In scripts without spaces (Chinese, Japanese,
//! Thai, …) each pair of adjacent characters is a word, and the last character alone is one, so that a search finds any
//! part of a text. A search finds a word by its beginning ([`SearchTerm`]).

use std::collections::BTreeSet;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The maximum length of a word in characters; longer words are truncated in the index and in searches.
const MAX_WORD: usize = 32;
/// The maximum number of distinct words of one text that are indexed.
pub const MAX_INDEXED: usize = 2_000;
/// The maximum number of words of a search; further ones are ignored.
const MAX_SEARCH_TERMS: usize = 8;

/// A word of a search, as the range of indexed words that match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchTerm {
    /// Inclusive, compared by bytes.
    pub from: String,
    /// Exclusive, compared by bytes.
    pub to: String,
}

impl SearchTerm {
    /// Returns the term for a word. A single letter matches only itself, because as a beginning it would match almost
    /// everything. A single character of a script without spaces matches all pairs that begin with it.
    fn of(word: &str) -> Self {
        let mut chars = word.chars();
        let is_letter = matches!((chars.next(), chars.next()), (Some(c), None) if !is_unspaced(c));
        // The lowest character that Postgres stores; words contain no control characters.
        let end = if is_letter { '\u{1}' } else { char::MAX };
        Self { from: word.to_owned(), to: format!("{word}{end}") }
    }
}

/// Returns the terms of a search. A conversation is found if each of them matches one of its words.
pub fn search_terms(search: &str) -> Vec<SearchTerm> {
    let mut found: Vec<SearchTerm> = Vec::new();
    for run in runs(search) {
        let mut pieces = pieces(&run);
        // The pair before it contains the last character.
        if pieces.len() > 1 && run.chars().next().is_some_and(is_unspaced) {
            pieces.pop();
        }
        for piece in pieces.iter().map(|piece| SearchTerm::of(piece)) {
            if !found.contains(&piece) && found.len() < MAX_SEARCH_TERMS {
                found.push(piece);
            }
        }
    }
    found
}

/// Returns the words of a text, each once, at most [`MAX_INDEXED`].
pub fn indexed(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for run in runs(text) {
        for piece in pieces(&run) {
            if found.len() == MAX_INDEXED {
                return found;
            }
            found.insert(piece);
        }
    }
    found
}

/// Returns the runs of letters and digits, normalized. Each run is either of scripts with spaces or of scripts without.
fn runs(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let (mut run, mut unspaced) = (String::new(), false);
    for c in text.nfkd().filter(|c| !is_accent(*c)).nfc().flat_map(fold) {
        let is_part = c.is_alphanumeric() || (is_combining_mark(c) && !run.is_empty());
        let changes = c.is_alphanumeric() && !run.is_empty() && is_unspaced(c) != unspaced;
        if (!is_part || changes) && !run.is_empty() {
            found.push(std::mem::take(&mut run));
        }
        if is_part {
            if run.is_empty() {
                unspaced = is_unspaced(c);
            }
            run.push(c);
        }
    }
    if !run.is_empty() {
        found.push(run);
    }
    found
}

/// Splits a run into the words that are indexed.
fn pieces(run: &str) -> Vec<String> {
    if !run.chars().next().is_some_and(is_unspaced) {
        return vec![run.chars().take(MAX_WORD).collect()];
    }
    let chars: Vec<char> = run.chars().collect();
    (0..chars.len()).map(|at| chars[at..chars.len().min(at + 2)].iter().collect()).collect()
}

/// Returns whether a character is an accent of Latin, Greek or Cyrillic letters, or a vowel point of Hebrew or Arabic,
/// which people omit. The vowel signs of other scripts count as letters.
const fn is_accent(c: char) -> bool {
    matches!(c,
        '\u{0300}'..='\u{036F}'
        | '\u{0591}'..='\u{05BD}'
        | '\u{05BF}'..='\u{05C7}'
        | '\u{0610}'..='\u{061A}'
        | '\u{064B}'..='\u{065F}'
        | '\u{0670}'
        | '\u{1AB0}'..='\u{1AFF}'
        | '\u{200B}'..='\u{200F}'
        | '\u{FE00}'..='\u{FE0F}')
}

/// Folds the case of a character.
fn fold(c: char) -> impl Iterator<Item = char> {
    let more = match c {
        'ß' | 'ẞ' => Some('s'),
        _ => None,
    };
    let first = match c {
        'ß' | 'ẞ' => 's',
        'ς' => 'σ',
        'ı' => 'i',
        _ => c,
    };
    first.to_lowercase().filter(|c| !is_accent(*c)).chain(more)
}

/// Returns whether a character belongs to a script without spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer,
/// Japanese, Chinese, Yi.
pub const fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{0E00}'..='\u{0FFF}'
        | '\u{1000}'..='\u{109F}'
        | '\u{1780}'..='\u{17FF}'
        | '\u{3005}'..='\u{3007}'
        | '\u{3040}'..='\u{30FF}'
        | '\u{31F0}'..='\u{31FF}'
        | '\u{3400}'..='\u{4DBF}'
        | '\u{4E00}'..='\u{9FFF}'
        | '\u{A000}'..='\u{A4CF}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{20000}'..='\u{3FFFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        indexed(text).into_iter().collect()
    }

    /// Returns whether a search finds a text, with the comparison of the database.
    fn finds(search: &str, text: &str) -> bool {
        let words = indexed(text);
        let terms = search_terms(search);
        !terms.is_empty() && terms.iter().all(|w| words.iter().any(|word| *word >= w.from && *word < w.to))
    }

    #[test]
    fn case_accents_and_punctuation_do_not_matter() {
        assert_eq!(words("Crème brûlée, BITTE! creme"), ["bitte", "brulee", "creme"]);
        for (search, text) in [
            ("STRASSE", "Straße 5"),
            ("cafe", "Café"),
            ("café", "cafe"),
            ("ΟΔΟΣ", "οδος"),
            ("istanbul", "İstanbul"),
            ("йод", "ЙОД"),
            ("ﬁn", "final"),
            ("كتاب", "كِتَاب"),
            ("25", "No.25!"),
        ] {
            assert!(finds(search, text), "{search} in {text}");
        }
    }

    #[test]
    fn a_word_is_found_by_its_beginning_only() {
        assert!(finds("ref", "A refund, please") && finds("refund pl", "A refund, please"));
        assert!(!finds("fund", "A refund, please") && !finds("refunds", "A refund, please"));
        assert!(finds("a", "A refund") && !finds("r", "A refund"), "a single letter is a word");
        assert!(finds("प्रश", "यह एक प्रश्न है") && finds("주문", "주문이 늦어요"));
        assert!(search_terms("!?  …").is_empty());
    }

    #[test]
    fn any_part_is_found_in_scripts_without_spaces() {
        let text = "東京都の注文はいつ届きますか";
        for part in ["東", "東京", "京都", "東京都", "注文", "か", "届きます", text] {
            assert!(finds(part, text), "{part}");
        }
        assert!(!finds("大阪", text) && !finds("都東", text));
        assert!(finds("ราคา", "สินค้าราคาเท่าไหร่") && finds("iPhone 手机", "我的iPhone手机坏了"));
    }

    #[test]
    fn words_are_bounded_in_length_and_number() {
        let long = "x".repeat(100_000);
        assert_eq!(words(&long)[0].len(), MAX_WORD);
        assert!(finds(&long, &long));
        let many = (0..100_000).map(|n| format!("w{n} ")).collect::<String>();
        assert_eq!((indexed(&many).len(), search_terms(&many).len()), (MAX_INDEXED, MAX_SEARCH_TERMS));
    }
}
