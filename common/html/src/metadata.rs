//! Reads the metadata of a web page: its Open Graph properties, or else those for X, or else its title and description.
//!
//! Sources: ogp.me; developer.x.com, "Cards markup". Both are read from `property` and from `name`, because many pages
//! confuse the two, and anywhere in the page, because some frameworks write them into its body.

use std::ops::ControlFlow;

use url::Url;

use super::{HtmlToken, walk, web_address};

/// The maximum length of a text, in bytes. The rest is dropped.
const MAX_TEXT: usize = 8 << 10;

const TITLES: &[&str] = &["og:title", "twitter:title"];
const DESCRIPTIONS: &[&str] = &["og:description", "twitter:description", "description"];
const IMAGES: &[&str] = &["og:image", "og:image:secure_url", "og:image:url", "twitter:image", "twitter:image:src"];

/// How a page describes itself. Its texts are untrusted, may contain line breaks, and have at most 8 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageMetadata {
    pub title: Option<String>,
    pub description: Option<String>,
    /// The absolute URL of the image.
    pub image: Option<String>,
}

impl PageMetadata {
    /// Reads the metadata of a page. `url` is its URL, which resolves that of the image.
    pub fn of(html: &str, url: &Url) -> Self {
        let mut found = Found::default();
        walk(html, html.len(), |token| {
            found.push(token);
            ControlFlow::Continue(())
        });
        let title = Some(found.element_title).filter(|title| !title.trim().is_empty());
        Self {
            title: found.title.take().or(title),
            description: found.description.take(),
            image: found.image.take().and_then(|image| web_address(&image, url)),
        }
    }
}

#[derive(Default)]
struct Found {
    title: Best,
    description: Best,
    image: Best,
    /// The text of the first `<title>` with text.
    element_title: String,
    has_element_title: bool,
}

/// The best value so far, with its rank: the lower, the better. Of two with the same rank, the first counts.
#[derive(Default)]
struct Best(Option<(usize, String)>);

impl Best {
    fn offer(&mut self, ranks: &[&str], name: &str, value: &str) {
        let Some(rank) = ranks.iter().position(|known| *known == name) else { return };
        if self.0.as_ref().is_none_or(|(best, _)| rank < *best) {
            self.0 = Some((rank, cut(value).to_owned()));
        }
    }

    fn take(&mut self) -> Option<String> {
        self.0.take().map(|(_, value)| value)
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

impl Found {
    fn push(&mut self, token: HtmlToken<'_>) {
        match token {
            HtmlToken::Title(text) if !self.has_element_title => {
                let free = MAX_TEXT.saturating_sub(self.element_title.len());
                self.element_title.push_str(&text[..text.floor_char_boundary(free)]);
            }
            HtmlToken::Title(_) => {}
            HtmlToken::Open("meta", attributes) => {
                self.end_element_title();
                let Some(content) = attributes.get("content").filter(|content| !content.trim().is_empty()) else {
                    return;
                };
                for attribute in ["property", "name"] {
                    let name = attributes.get(attribute).unwrap_or_default().trim().to_ascii_lowercase();
                    self.title.offer(TITLES, &name, content);
                    self.description.offer(DESCRIPTIONS, &name, content);
                    self.image.offer(IMAGES, &name, content);
                }
            }
            _ => self.end_element_title(),
        }
    }

    fn end_element_title(&mut self) {
        self.has_element_title |= !self.element_title.trim().is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(html: &str) -> [Option<String>; 3] {
        let url = Url::parse("https://example.com/blog/post").unwrap();
        let PageMetadata { title, description, image } = PageMetadata::of(html, &url);
        [title, description, image]
    }

    fn some(texts: [&str; 3]) -> [Option<String>; 3] {
        texts.map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()))
    }

    #[test]
    fn open_graph_comes_before_other_metadata() {
        for (html, wanted) in [
            (
                "<head><title>Page</title><meta name=description content=Plain><meta name='twitter:title' content=X>\
                 <meta property='og:title' content='Fish &amp; Chips'><meta property=og:description content='D'>\
                 <meta property='og:image' content='../cat.png?a=1&amp;b=2'>",
                ["Fish & Chips", "D", "https://example.com/cat.png?a=1&b=2"],
            ),
            ("<title>Fish &amp;\n Chips</title><svg><title>Icon</title></svg>", ["Fish &\n Chips", "", ""]),
            ("<title> </title><meta name=x><title>Second</title>", [" Second", "", ""]),
            ("<META NAME='OG:Title' CONTENT=A><meta property=og:title content=B>", ["A", "", ""]),
            ("<meta property=og:title content=' '><title>T</title>", ["T", "", ""]),
            ("<body><meta property=og:title content=Late>", ["Late", "", ""]),
            ("<script>'<meta property=og:title content=x>'</script>", ["", "", ""]),
            ("<meta property=og:image content='javascript:alert(1)'>", ["", "", ""]),
            ("<meta property=og:image content=http:///><meta property=og:image content=b.png>", ["", "", ""]),
            ("", ["", "", ""]),
        ] {
            assert_eq!(metadata(html), some(wanted), "{html}");
        }
    }

    #[test]
    fn texts_are_bounded() {
        let long = "é".repeat(200_000);
        for html in [format!("<title>{long}"), format!("<meta property=og:title content='{long}'>")] {
            let [title, ..] = metadata(&html);
            assert!(title.unwrap().len() <= MAX_TEXT);
        }
    }
}
