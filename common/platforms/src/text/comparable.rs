//! Compares a text as it was sent with the text that a platform shows.
//!
//! Platforms strip and collapse white space, replace line endings, compose characters, escape markup, and remove
//! invisible characters. Only what no platform changes is compared. Two texts that differ only in the rest count as the
//! same, because a post that is wrongly reported as missing is published twice.

use unicode_normalization::UnicodeNormalization;

/// The maximum length of a character reference, without `&` and `;`.
const MAX_REFERENCE: usize = 8;

/// Returns whether two texts are the same, apart from what platforms change.
pub fn is_same(a: &str, b: &str) -> bool {
    comparable(a) == comparable(b)
}

/// Returns a text without white space and invisible characters, composed (NFC), with HTML character references
/// resolved, even if they were escaped several times.
pub fn comparable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !is_ignored(*c)).nfc() {
        out.push(c);
        if c == ';' {
            resolve_last_reference(&mut out);
        }
    }
    out.nfc().collect()
}

/// Returns whether platforms remove, add or replace this character.
fn is_ignored(c: char) -> bool {
    let is_invisible = matches!(
        c,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFFD}'
    );
    c.is_whitespace() || c.is_control() || is_invisible
}

/// Replaces the reference that ends with the last `;`, if there is one.
fn resolve_last_reference(out: &mut String) {
    let name_end = out.len() - 1;
    let found = out[..name_end].char_indices().rev().take(MAX_REFERENCE + 1).find(|(_, c)| *c == '&');
    let Some((at, _)) = found else { return };
    let Some(c) = character(&out[at + 1..name_end]) else { return };
    out.truncate(at);
    if !is_ignored(c) {
        out.push(c);
    }
}

fn character(name: &str) -> Option<char> {
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "hellip" => '…',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)?
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_platforms_change_is_the_same() {
        for (sent, shown) in [
            ("  Good morning! \n", "Good morning!"),
            ("a\r\n\r\n\r\nb", "a\n\nb"),
            ("a\n\n\nb", "a b"),
            ("Cafe\u{301}", "Café"),
            ("Bread & <b>", "Bread &amp;amp; &lt;b&gt;"),
            ("it's \"new\"", "it&#39;s &#x22;new&quot;"),
            ("zero\u{200B}width\u{FEFF}", "zerowidth"),
            ("❤\u{FE0F}", "❤"),
            ("non\u{A0}breaking", "non&nbsp;breaking"),
            ("\u{1F468}\u{200D}\u{1F469}", "\u{1F468}\u{1F469}"),
        ] {
            assert!(is_same(sent, shown), "{sent:?} {shown:?}");
        }
        for (a, b) in [("Rye", "rye"), ("1 & 2", "1 2"), ("a; b", "a b"), ("&#0;&x;&;", ""), ("a?", "a")] {
            assert!(!is_same(a, b), "{a:?} {b:?}");
        }
    }

    /// Applies one of the changes that platforms make to texts.
    fn changed(text: &str, step: u8) -> String {
        match step % 9 {
            0 => text.trim().to_owned(),
            1 => text.split_whitespace().collect::<Vec<_>>().join(" "),
            2 => text.replace("\r\n", "\n").replace('\r', "\n"),
            3 => text.replace('\n', "\r\n"),
            4 => text.nfc().collect(),
            5 => text.nfd().collect(),
            6 => text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;"),
            7 => text.chars().filter(|c| !c.is_control() || *c == '\n').collect(),
            _ => text.replace("\n\n\n", "\n\n").replace('\'', "&#39;"),
        }
    }

    proptest! {
        #[test]
        fn a_text_is_the_same_whatever_platforms_do_to_it(
            text in "([ -~\\t\\r\\n\u{A0}éÄﬁ가א漢❤]|e\u{301}|\u{200B}|&amp;|&#39;|\r\n|\n\n\n){0,40}",
            steps in prop::collection::vec(any::<u8>(), 0..5),
        ) {
            let shown = steps.iter().fold(text.clone(), |text, step| changed(&text, *step));
            prop_assert_eq!(comparable(&text), comparable(&shown));
        }

        #[test]
        fn other_letters_are_another_text(text in "[a-z ]{0,20}", letter in "[A-Z0-9]", at in 0usize..20) {
            let mut other: Vec<char> = text.chars().collect();
            other.insert(at.min(other.len()), letter.chars().next().unwrap_or('X'));
            prop_assert!(!is_same(&text, &other.into_iter().collect::<String>()));
        }
    }
}
