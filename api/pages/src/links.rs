//! URLs in user texts, which are shown as links.

use linkify::{LinkFinder, LinkKind};

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub struct TextPart {
    pub text: String,
    /// Whether the text is an http or https URL.
    pub is_link: bool,
}

/// Splits a text into URLs and the text between them.
pub fn text_parts(text: &str) -> Vec<TextPart> {
    let mut finder = LinkFinder::new();
    finder.kinds(&[LinkKind::Url]);
    let part = |span: linkify::Span<'_>| {
        let text = span.as_str();
        // Other schemes, such as `javascript:`, remain text.
        let is_link = span.kind().is_some() && (text.starts_with("http://") || text.starts_with("https://"));
        TextPart { text: text.to_owned(), is_link }
    };
    finder.spans(text).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_addresses_are_links() {
        let parts = text_parts("See https://a.example/x?y=1, javascript://b%0Aalert(1) and (http://c.example).");
        let links: Vec<&str> = parts.iter().filter(|part| part.is_link).map(|part| part.text.as_str()).collect();
        assert_eq!(links, ["https://a.example/x?y=1", "http://c.example"]);
        let whole: String = parts.iter().map(|part| part.text.as_str()).collect();
        assert_eq!(whole, "See https://a.example/x?y=1, javascript://b%0Aalert(1) and (http://c.example).");
    }
}
