//! Distinguishes markup from text in angle brackets. The same field is HTML in one feed and text in another, and feeds
//! do not say which: `<b>Bold</b> news`, `Using <video> & <T> in C++ if a<b`.

use super::MAX_SCANNED_BYTES;

/// Elements that format a short text, and elements whose content is never shown. They are markup if they are closed.
const FORMATTING: &[&str] = &[
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "center", "cite", "code", "del", "dfn", "div", "em", "font",
    "h1", "h2", "h3", "h4", "h5", "h6", "i", "ins", "kbd", "li", "mark", "ol", "p", "pre", "q", "s", "samp", "script",
    "small", "span", "strike", "strong", "style", "sub", "sup", "tt", "u", "ul", "var",
];
/// Elements that have no content.
const VOID: &[&str] = &["br", "hr", "img", "wbr"];
/// Maximum length of a tag, in bytes. It limits the time of the search for the end of a tag.
const MAX_TAG: usize = 4 << 10;

/// The tag of a void or a formatting element.
enum FormattingTag {
    Void,
    /// Contains the index in [`FORMATTING`], like `Close`.
    Open(usize),
    Close(usize),
}

/// Returns HTML in which each `<` that does not begin markup is escaped. Markup is a comment, or the tag of a
/// formatting element that is void or has both its tags.
pub fn escape_stray_tags(html: &str) -> String {
    let html = &html[..html.floor_char_boundary(MAX_SCANNED_BYTES)];
    let is_markup = markup(html);
    let mut out = String::with_capacity(html.len());
    let mut pieces = html.split('<');
    out.push_str(pieces.next().unwrap_or_default());
    for (piece, is_markup) in pieces.zip(is_markup) {
        out.push_str(if is_markup { "<" } else { "&lt;" });
        out.push_str(piece);
    }
    out
}

/// Returns for each `<` whether it begins markup.
fn markup(html: &str) -> Vec<bool> {
    let last_comment_end = html.rfind("-->").unwrap_or(0);
    let mut open: Vec<Vec<usize>> = vec![Vec::new(); FORMATTING.len()];
    let mut is_markup: Vec<bool> = Vec::new();
    // The index and the end of the last comment or tag, and each `<` inside of one with that index: both are markup or
    // both are text.
    let (mut outer, mut outer_end, mut nested) = (0, 0, Vec::new());
    for (n, (at, _)) in html.match_indices('<').enumerate() {
        is_markup.push(false);
        if at < outer_end {
            nested.push((n, outer));
            continue;
        }
        let rest = &html[at + 1..];
        if rest.starts_with("!--") && at < last_comment_end {
            (outer, outer_end) = (n, at + rest.find("-->").unwrap_or(0));
            is_markup[n] = true;
            continue;
        }
        let Some((tag, length)) = formatting_tag(rest) else { continue };
        (outer, outer_end) = (n, at + length);
        match tag {
            FormattingTag::Void => is_markup[n] = true,
            FormattingTag::Open(name) => open[name].push(n),
            FormattingTag::Close(name) => {
                if let Some(opened) = open[name].pop() {
                    (is_markup[opened], is_markup[n]) = (true, true);
                }
            }
        }
    }
    for (n, outer) in nested {
        is_markup[n] = is_markup[outer];
    }
    is_markup
}

/// Parses a tag after its `<`; also returns its length.
fn formatting_tag(rest: &str) -> Option<(FormattingTag, usize)> {
    let (is_end, inside) = rest.strip_prefix('/').map_or((false, rest), |inside| (true, inside));
    let name = &inside[..inside.bytes().take_while(u8::is_ascii_alphanumeric).count()];
    let after = &inside[name.len()..];
    if !after.starts_with(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>')) {
        return None;
    }
    let place = |names: &[&str]| names.iter().position(|known| known.eq_ignore_ascii_case(name));
    let tag = match (place(FORMATTING), place(VOID)) {
        (Some(name), _) if is_end => FormattingTag::Close(name),
        (Some(name), _) => FormattingTag::Open(name),
        (None, Some(_)) if !is_end => FormattingTag::Void,
        _ => return None,
    };
    Some((tag, rest.len() - after.len() + end_of_tag(after, MAX_TAG)?))
}

/// Returns the length of the rest of a tag, including its `>`. `None` if it is longer than `max` bytes, or if the `<`
/// before it is text, as in `a<b</title>`.
pub fn end_of_tag(rest: &str, max: usize) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in rest.bytes().enumerate().take(max) {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'<') => return None,
            // A quote that does not follow an equals sign is an apostrophe: `<b and c's>`.
            (None, b'"' | b'\'') if rest[..at].trim_end().ends_with('=') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{one_line, title};

    #[test]
    fn only_formatting_that_is_void_or_closed_is_markup() {
        for (html, text) in [
            ("Using <video> & <T> in C++ if a<b", "Using <video> & <T> in C++ if a<b"),
            ("<b>Bold</b> &amp; <I class='x>y'>italic</i>", "Bold & italic"),
            ("a<br>b<br/>c <img src=x onerror=alert(1)>d", "a b c d"),
            ("Map<String, List<T>>", "Map<String, List<T>>"),
            ("The <b> element", "The <b> element"),
            ("The <b> element is <i>bold</i>", "The <b> element is bold"),
            ("x </b> y", "x </b> y"),
            ("<p>One</p>", "One"),
            ("1 < 2 <3 <", "1 < 2 <3 <"),
            ("if a<b and c>d</b>", "if ad"),
            ("<video>x</video>", "<video>x</video>"),
            ("<script>alert(1)</script>x", "x"),
            ("A <script> without an end", "A <script> without an end"),
            ("a<!-- <b> -->b", "ab"),
            ("a<!-- b", "a<!-- b"),
            ("&lt;b&gt; and &amp;lt;", "<b> and &lt;"),
            ("<a href='/<x>'>link</a>", "link"),
            ("I <3 it's <b>it</b>", "I <3 it's it"),
            ("The <b x='<video>'> element", "The <b x='<video>'> element"),
            ("<>", "<>"),
        ] {
            assert_eq!(title(html, 500).as_deref(), Some(text), "{html}");
        }
    }

    /// Quadratic time would take minutes.
    #[test]
    fn escaping_is_linear() {
        for piece in ["<b>", "</b>", "<b ", "<b a='", "<!--", "<b a=\"<i b='", "<", "<i></b>", "<b ="] {
            let text = piece.repeat(200_000);
            assert!(escape_stray_tags(&text).len() <= 5 * MAX_SCANNED_BYTES, "{piece}");
        }
    }

    proptest! {
        /// No text is lost from a title that has no formatting.
        #[test]
        fn text_in_angle_brackets_is_kept(text in "([a-z<> ]|<video>|<T>|List<U>|a<b|</div>|<!|=|\"|é){0,30}") {
            // Only a `div` can be closed.
            prop_assume!(VOID.iter().chain(&["div"]).all(|name| !text.contains(&format!("<{name}"))));
            prop_assert_eq!(title(&text, 500), one_line(&text, 500));
        }

        /// Formatted text is unchanged apart from its tags, scripts and styles.
        #[test]
        fn formatting_is_removed(
            pieces in proptest::collection::vec(("[a-zé<>&;]{0,6}", proptest::sample::select(FORMATTING)), 0..8)
        ) {
            let words = |text: &str| text.replace(['<', '>', '&'], "");
            let html: String = pieces.iter().map(|(text, name)| format!("<{name} x='1'>{}</{name}>", words(text))).collect();
            let shown = pieces.iter().filter(|(_, name)| !matches!(*name, "script" | "style"));
            let plain: String = shown.map(|(text, _)| words(text)).collect();
            prop_assert_eq!(title(&html, 500).unwrap_or_default().replace(' ', ""), plain);
        }

        #[test]
        fn a_tag_ends_after_its_attributes(
            attributes in "(b( [a-z]{1,3}( ?= ?(\"[<>'=é]{0,3}\"|'[<>\"=é]{0,3}'))?){0,4})", after in "[<>a='\"]{0,4}"
        ) {
            let (tag, length) = (format!("{attributes}>{after}"), attributes.len() + 1);
            prop_assert_eq!(end_of_tag(&tag, length), Some(length));
            prop_assert_eq!(end_of_tag(&tag, length - 1), None);
        }

        #[test]
        fn a_tag_ends_with_the_sign_that_closes_it(text in "[a<>='\"é ]{0,20}", max in 0..25_usize) {
            if let Some(length) = end_of_tag(&text, max) {
                prop_assert!(length <= max && text[..length].ends_with('>'));
            }
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "(<|>|/|b|p| |!--|-->|'|\"|=|é|&lt;|img|T){0,60}") {
            let _ = title(&text, 50);
        }
    }
}
