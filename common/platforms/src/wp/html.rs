//! Converts a post's text to a title and HTML paragraphs, for WordPress and WooCommerce.

/// The maximum length of a title taken from a text, in characters.
const MAX_TITLE: usize = 120;

/// A text split into title and body, both unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    pub title: String,
    pub body: String,
}

/// Splits a text. The first line is the title, and the rest the body. A text of one line is both. A first line that is
/// too long for a title stays in the body, and the title is its beginning.
pub fn split(text: &str) -> Parts {
    let text = text.trim();
    let (first, rest) = text.split_once('\n').map_or((text, ""), |(first, rest)| (first.trim(), rest.trim()));
    if first.chars().count() > MAX_TITLE {
        return Parts { title: shorten(first), body: text.to_owned() };
    }
    let body = if rest.is_empty() { first } else { rest };
    Parts { title: first.to_owned(), body: body.to_owned() }
}

/// Returns the beginning of `line`, cut between words if there is a space in its second half.
fn shorten(line: &str) -> String {
    let cut: String = line.chars().take(MAX_TITLE - 1).collect();
    let end = cut.rfind(char::is_whitespace).filter(|&at| at > cut.len() / 2).unwrap_or(cut.len());
    format!("{}…", cut[..end].trim_end())
}

/// Converts a text to paragraphs. An empty line ends a paragraph; a single line break is kept.
pub fn paragraphs(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + 16);
    let mut open = false;
    for line in text.lines().map(str::trim_end) {
        match (line.trim().is_empty(), open) {
            (true, true) => {
                html.push_str("</p>\n");
                open = false;
            }
            (true, false) => {}
            (false, true) => {
                html.push_str("<br />\n");
                html.push_str(&escape(line));
            }
            (false, false) => {
                html.push_str("<p>");
                html.push_str(&escape(line));
                open = true;
            }
        }
    }
    if open {
        html.push_str("</p>");
    }
    html.truncate(html.trim_end().len());
    html
}

/// Escapes text for HTML, including attributes, with the character references that WordPress itself uses. (The crates
/// in use write others: `&#38;`, `&apos;`.)
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#039;")
}

#[cfg(test)]
mod tests {
    use crier_domain::snippet::parts_with;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_line_is_the_title() {
        assert_eq!(split("Title\n\nBody\nmore"), Parts { title: "Title".into(), body: "Body\nmore".into() });
        assert_eq!(split("One line"), Parts { title: "One line".into(), body: "One line".into() });
        assert_eq!(split(""), Parts { title: String::new(), body: String::new() });
    }

    #[test]
    fn a_signature_is_the_body_of_a_text_of_one_line() {
        let text = parts_with(Some("— Ann"), "Fresh bread").concat();
        assert_eq!(split(&text), Parts { title: "Fresh bread".into(), body: "— Ann".into() });
        let signature = parts_with(Some("— Ann"), "").concat();
        assert_eq!(split(&signature), Parts { title: "— Ann".into(), body: "— Ann".into() });
    }

    #[test]
    fn a_long_first_line_is_shortened_only_in_the_title() {
        let line = "word ".repeat(40).trim().to_owned();
        let parts = split(&line);
        assert!(parts.title.chars().count() <= 120 && parts.title.ends_with("word…"), "{}", parts.title);
        assert_eq!(parts.body, line);
        assert_eq!(split(&"x".repeat(120)).title, "x".repeat(120));
        assert_eq!(split(&"ß".repeat(121)).title, format!("{}…", "ß".repeat(119)));
    }

    #[test]
    fn paragraphs_and_line_breaks_are_converted() {
        assert_eq!(paragraphs("a\nb\n\n\nc < d\r\n"), "<p>a<br />\nb</p>\n<p>c &lt; d</p>");
        assert_eq!(paragraphs(" \n"), "");
    }

    proptest! {
        #[test]
        fn markup_in_the_text_is_escaped(text in r#"[a-z<>&"'/ \n]{0,60}"#) {
            let html = paragraphs(&text).replace("<p>", "").replace("</p>", "").replace("<br />", "");
            prop_assert!(!html.contains(['<', '>', '"', '\'']), "{}", html);
        }

        #[test]
        fn titles_are_bounded_and_no_text_is_lost(text in r"\PC{0,300}(\n\PC{0,50}){0,3}") {
            let parts = split(&text);
            prop_assert!(parts.title.chars().count() <= 120);
            let kept = format!("{}{}", parts.title, parts.body);
            prop_assert!(text.split_whitespace().all(|word| kept.contains(word)));
        }
    }
}
