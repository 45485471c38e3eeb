//! Sanitizes untrusted text for storage, display and forwarding: responses of platforms, messages of servers.
//!
//! A server may return anything. Postgres accepts no NUL in a text, an index limits the length of a text, and stored
//! texts are sent to clients and their endpoints.

use url::Url;

/// Maximum length of an account's name, in characters.
pub const MAX_NAME: usize = 255;
/// Maximum length of a platform's id, in characters.
pub const MAX_ID: usize = 512;
/// Maximum length of a failure's message, in characters.
pub const MAX_MESSAGE: usize = 1_000;
/// Maximum length of a failure's code, in characters.
pub const MAX_CODE: usize = 100;
/// Maximum length of a URL, in bytes.
pub const MAX_URL: usize = 2_048;

/// Returns one line of at most `max` characters, without control characters. Each run of white space becomes one space.
pub fn line(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    let (mut length, mut blank) = (0, false);
    for c in text.chars() {
        if c.is_whitespace() {
            blank = length > 0;
            continue;
        }
        if c.is_control() {
            continue;
        }
        if length + usize::from(blank) >= max {
            break;
        }
        if std::mem::take(&mut blank) {
            out.push(' ');
            length += 1;
        }
        out.push(c);
        length += 1;
    }
    out
}

/// Returns text of at most `max` characters, without control characters other than line breaks and tabs.
pub fn text(text: &str, max: usize) -> String {
    let kept = text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control());
    let mut out: String = kept.take(max + 1).collect();
    if let Some((at, _)) = out.char_indices().nth(max) {
        out.truncate(at);
    }
    out.truncate(out.trim_end().len());
    out
}

/// Like [`line`]; `None` if the result is empty.
pub fn some_line(text: &str, max: usize) -> Option<String> {
    Some(line(text, max)).filter(|line| !line.is_empty())
}

/// Returns an absolute `http` or `https` URL, normalized as by a browser; `None` for anything else, and for URLs of
/// more than [`MAX_URL`] bytes.
pub fn http_url(text: &str) -> Option<String> {
    if text.len() > MAX_URL {
        return None;
    }
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())?;
    Some(String::from(url)).filter(|url| url.len() <= MAX_URL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_have_no_control_characters() {
        for (text, wanted) in [
            ("Ann's b", "Ann's b"),
            ("  a\tb\r\n c ", "a b c"),
            ("a\0b\u{7f}c\u{9b}d", "abcd"),
            ("\0 \u{1b}", ""),
            ("0123456789", "01234567"),
            ("0123456 89", "0123456"),
            ("👩‍👩‍👧 ünï", "👩‍👩‍👧 ün"),
        ] {
            assert_eq!(line(text, 8), wanted, "{text:?}");
        }
        assert_eq!(line(&"x".repeat(4_000_000), MAX_NAME).len(), MAX_NAME);
        assert_eq!((some_line("\0", 9), some_line("a", 9)), (None, Some("a".to_owned())));
    }

    #[test]
    fn texts_keep_their_lines() {
        assert_eq!(text("a\r\n\tb\0c\u{1b} \n", 20), "a\n\tbc");
        assert_eq!((text("0123", 4), text("01234", 4)), ("0123".to_owned(), "0123".to_owned()));
        assert_eq!(text(&"ü".repeat(4_000_000), 10).len(), 20);
    }

    #[test]
    fn only_http_urls_are_accepted() {
        for (text, wanted) in [
            ("https://a.example/p?q=1#f", Some("https://a.example/p?q=1#f")),
            ("HTTP://A.example", Some("http://a.example/")),
            (" https://a.example/\u{0}b\n ", Some("https://a.example/%00b")),
            ("https://a.example/\0", Some("https://a.example/")),
            ("java\nscript:alert(1)", None),
            ("javascript:alert(1)", None),
            ("data:text/html,x", None),
            ("//a.example/p", None),
            ("/p", None),
            ("https://", None),
            ("", None),
        ] {
            assert_eq!(http_url(text).as_deref(), wanted, "{text:?}");
        }
        assert_eq!(http_url(&format!("https://a.example/{}", "x".repeat(MAX_URL))), None);
        assert_eq!(http_url(&format!("https://a.example/{}", "ü".repeat(500))), None, "as long as it is sent");
    }
}
