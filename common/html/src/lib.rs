//! Converts untrusted HTML to short, safe HTML or to text, and finds its first image and the metadata of a page.
//!
//! A summary is created in two steps. The first step walks the tokens, keeps the allowed tags, resolves URLs and stops
//! at the maximum length. Its result is small and flat, and so is the tree that the second step builds. (HTML reopens
//! unclosed inline elements in each following paragraph, so the first step closes them.) The second step is ammonia,
//! which makes the result safe and well-formed.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::LazyLock;

use ammonia::{Builder, UrlRelative};
use url::Url;

mod decode;
mod metadata;
mod stray;
mod tokens;

pub use decode::decode;
pub use metadata::PageMetadata;
pub use stray::{end_of_tag, escape_stray_tags};
pub use tokens::{Attributes, HtmlToken, walk};

/// Maximum length of a stored URL.
pub const MAX_URL: usize = 2_048;

/// The maximum number of bytes of a text that are read.
const MAX_SCANNED_BYTES: usize = 32 << 10;
/// Maximum length of a summary, in characters of its text.
const MAX_SUMMARY: usize = 2_000;
/// Maximum number of tags in a summary.
const MAX_TAGS: usize = 400;
/// Maximum total length of the URLs in a summary; further links become plain text. (A short href can become long when
/// it is joined to its base.)
const MAX_URL_BYTES: usize = 16 << 10;

/// Elements that are allowed in a summary.
const TAGS: &[&str] = &["a", "b", "blockquote", "br", "code", "em", "i", "li", "ol", "p", "pre", "strong", "ul"];
/// The inline elements among them.
const INLINE: &[&str] = &["a", "b", "code", "em", "i", "strong"];
/// Block elements; those that are not allowed in a summary are replaced by a space.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "dd",
    "div",
    "dl",
    "dt",
    "figcaption",
    "figure",
    "footer",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "td",
    "th",
    "tr",
    "ul",
];

static SAFE: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut safe = Builder::empty();
    safe.tags(TAGS.iter().copied().collect())
        .tag_attributes(HashMap::from([("a", HashSet::from(["href"]))]))
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .url_relative(UrlRelative::Deny)
        .link_rel(Some("nofollow noopener"));
    safe
});

/// Returns safe HTML of at most about 2,000 characters; `None` if it contains no text. `base` resolves relative URLs.
pub fn summary(html: &str, base: &Url) -> Option<String> {
    let mut out = SummaryBuilder::default();
    walk(html, MAX_SCANNED_BYTES, |token| out.push(token, base));
    let safe = SAFE.clean(out.html.trim()).to_string();
    let safe = safe.trim();
    (!plain_text(safe).is_empty()).then(|| safe.to_owned())
}

/// Like [`summary`], for plain text.
pub fn summary_of_text(text: &str) -> Option<String> {
    let mut out = SummaryBuilder::default();
    out.push_text(text.trim());
    (!out.html.is_empty()).then(|| out.html.replace("\r\n", "\n").replace('\n', "<br>"))
}

#[derive(Default)]
struct SummaryBuilder {
    html: String,
    /// The characters of text, tags and bytes of URLs so far.
    text: usize,
    tags: usize,
    url_bytes: usize,
    /// The open inline elements.
    open: Vec<String>,
    is_full: bool,
}

impl SummaryBuilder {
    fn push(&mut self, token: HtmlToken<'_>, base: &Url) -> ControlFlow<()> {
        match token {
            HtmlToken::Text(text) => self.push_text(text),
            HtmlToken::Open(name, attributes) if self.count_if_allowed(name) => {
                if name == "a" || BLOCKS.contains(&name) {
                    self.close(|open| name != "a" || open == "a");
                }
                let href = attributes.get("href").filter(|_| name == "a").and_then(|href| self.link(href, base));
                match href {
                    Some(href) => self.html.extend(["<a href=\"", &escape(&href), "\">"]),
                    None => self.html.extend(["<", name, ">"]),
                }
                if INLINE.contains(&name) {
                    self.open.push(name.to_owned());
                }
            }
            HtmlToken::Close(name) if INLINE.contains(&name) => self.close(|open| open == name),
            HtmlToken::Close(name) if BLOCKS.contains(&name) && self.count_if_allowed(name) => {
                self.close(|_| true);
                self.html.extend(["</", name, ">"]);
            }
            HtmlToken::Open(name, _) | HtmlToken::Close(name) if BLOCKS.contains(&name) => self.html.push(' '),
            _ => {}
        }
        if self.is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Closes the outermost open element that matches, and all elements in it.
    fn close(&mut self, matches: impl Fn(&str) -> bool) {
        let from = self.open.iter().position(|open| matches(open)).unwrap_or(self.open.len());
        for name in self.open.drain(from..).rev() {
            self.html.extend(["</", &name, ">"]);
        }
    }

    fn link(&mut self, href: &str, base: &Url) -> Option<String> {
        let mail = href.trim().to_ascii_lowercase().starts_with("mailto:").then(|| href.trim().to_owned());
        let url = mail.or_else(|| web_address(href, base)).filter(|url| self.url_bytes + url.len() <= MAX_URL_BYTES)?;
        self.url_bytes += url.len();
        Some(url)
    }

    /// Returns whether a tag is allowed, and counts it if so.
    fn count_if_allowed(&mut self, name: &str) -> bool {
        let is_allowed = TAGS.contains(&name) && self.tags < MAX_TAGS;
        self.tags += usize::from(is_allowed);
        is_allowed
    }

    /// Appends text. At the limit it is cut, between two words if one ends within the last 100 bytes.
    fn push_text(&mut self, text: &str) {
        match text.char_indices().nth(MAX_SUMMARY - self.text) {
            None => {
                self.text += text.chars().count();
                self.html.push_str(&escape(text));
            }
            Some((end, _)) => {
                let whole = text[..end].rfind(char::is_whitespace).filter(|at| end - at < 100).unwrap_or(end);
                self.html.push_str(&escape(text[..whole].trim_end()));
                self.html.push('…');
                self.is_full = true;
            }
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the text of HTML: one line per block, an empty line between paragraphs, and collapsed white space.
pub fn plain_text(html: &str) -> String {
    let mut out = String::new();
    // The number of line breaks to insert before the next text, and whether to insert a space.
    let (mut breaks, mut space) = (0, false);
    walk(html, MAX_SCANNED_BYTES, |token| {
        match token {
            HtmlToken::Text(text) => {
                for (n, word) in text.split(char::is_whitespace).enumerate() {
                    space |= n > 0;
                    if word.is_empty() {
                        continue;
                    }
                    if !out.is_empty() {
                        match breaks {
                            0 if space => out.push(' '),
                            n => out.extend(std::iter::repeat_n('\n', n)),
                        }
                    }
                    out.push_str(word);
                    (breaks, space) = (0, false);
                }
            }
            HtmlToken::Open("br", _) => breaks = (breaks + 1).min(2),
            HtmlToken::Open("p" | "blockquote", _) | HtmlToken::Close("p" | "blockquote") => breaks = 2,
            HtmlToken::Open(name, _) | HtmlToken::Close(name) if BLOCKS.contains(&name) => breaks = breaks.max(1),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    out
}

/// Returns the text of HTML on one line of at most `max` characters.
pub fn line(html: &str, max: usize) -> Option<String> {
    one_line(&plain_text(html), max)
}

/// Returns the text of a title on one line of at most `max` characters. Only formatting counts as markup
/// ([`escape_stray_tags`]): other text in angle brackets is kept.
pub fn title(html: &str, max: usize) -> Option<String> {
    line(&escape_stray_tags(html), max)
}

/// Returns text on one line of at most `max` characters; `None` if it is empty.
pub fn one_line(text: &str, max: usize) -> Option<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = match text.char_indices().nth(max) {
        Some(_) => text.chars().take(max - 1).collect::<String>() + "…",
        None => text,
    };
    (!text.is_empty()).then_some(text)
}

/// Returns an absolute http or https URL of at most [`MAX_URL`] bytes; `None` for anything else.
pub fn web_address(text: &str, base: &Url) -> Option<String> {
    let text = text.trim();
    // A document may contain thousands of long texts, so they are not parsed.
    if text.is_empty() || text.len() > 2 * MAX_URL {
        return None;
    }
    let url = base.join(text).ok()?;
    let url = (matches!(url.scheme(), "http" | "https") && url.has_host()).then(|| String::from(url))?;
    (url.len() <= MAX_URL).then_some(url)
}

/// Returns the URL of the first visible image. Images of one or two pixels are ignored: they are tracking pixels.
pub fn first_image(html: &str, base: &Url) -> Option<String> {
    let mut found = None;
    walk(html, MAX_SCANNED_BYTES, |token| {
        if let HtmlToken::Open("img", attributes) = token {
            let tiny = |name| attributes.get(name).and_then(|n| n.trim().parse::<u32>().ok()).is_some_and(|n| n < 3);
            if !tiny("width") && !tiny("height") {
                // Lazily loaded images have their URL in `data-src`.
                let names = ["src", "data-src"];
                found = names.iter().find_map(|name| web_address(attributes.get(name)?, base));
            }
        }
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

/// Returns whether text that is declared as plain looks like HTML.
pub fn looks_like_html(text: &str) -> bool {
    ["</", "<br", "<p>", "<img "].iter().any(|tag| text.contains(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Url {
        Url::parse("https://example.com/blog/post").unwrap()
    }

    fn short(html: &str) -> String {
        summary(html, &base()).unwrap_or_default()
    }

    #[test]
    fn summaries_contain_only_allowed_tags_and_safe_links() {
        for (html, safe) in [
            ("<p>Hello <b>you</b></p>", "<p>Hello <b>you</b></p>"),
            ("<p onclick=x style='y' class=z>a</p>", "<p>a</p>"),
            ("a<script>alert(1)</script><style>p{}</style>b", "ab"),
            ("<a href=../x>y</a>", "<a href=\"https://example.com/x\" rel=\"nofollow noopener\">y</a>"),
            ("<a href=' JavaScript:alert(1)'>y</a>", "<a rel=\"nofollow noopener\">y</a>"),
            ("<a href='java&#10;script:alert(1)'>y</a>", "<a rel=\"nofollow noopener\">y</a>"),
            ("<a href='data:text/html,x'>y</a>", "<a rel=\"nofollow noopener\">y</a>"),
            ("<svg onload=alert(1)><circle/></svg>z<math><mi>q", "zq"),
            ("<div>a</div><div>b</div>", "a  b"),
            ("<h2>Title</h2><p>x", "Title <p>x</p>"),
            ("<ul><li>a<li>b</ul>", "<ul><li>a</li><li>b</li></ul>"),
            ("<img src=x onerror=alert(1)>t", "t"),
            ("1 < 2 & 3 &amp;lt;b&amp;gt;", "1 &lt; 2 &amp; 3 &amp;lt;b&amp;gt;"),
            ("<b><i>open", "<b><i>open</i></b>"),
            ("  <p> </p><br>&nbsp;", ""),
            ("<!-- <b>", ""),
        ] {
            assert_eq!(short(html), safe, "{html}");
        }
    }

    #[test]
    fn long_summaries_are_cut_between_words_and_stay_balanced() {
        let html = format!("<ul><li><b>{}</b></li></ul>", "lorem ".repeat(1_000));
        let cut = short(&html);
        assert!(cut.starts_with("<ul><li><b>lorem ") && cut.ends_with("lorem…</b></li></ul>"), "{cut}");
        assert!((1_990..=2_001).contains(&plain_text(&cut).chars().count()));
        assert!(short(&"<b>x".repeat(9_000)).len() < 100_000);
        assert!(short(&"é".repeat(5_000)).ends_with("é…"));
    }

    /// The input would otherwise become a tree of gigabytes or a summary of megabytes.
    #[test]
    fn malicious_html_does_not_blow_up_output() {
        let open: String = (0..3_000).map(|n| format!("<b a={n}>")).collect();
        let deep = "<b><i><em><code><strong>".repeat(3);
        for html in [
            format!("<p>{open}{}", "<p>x".repeat(7_000)),
            format!("<p>{deep}{}", "<p>x".repeat(3_000)),
            "<a href=x>y".repeat(2_000),
            "<blockquote><ul><li>x".repeat(1_000),
            "<pre>&quot;".repeat(3_000),
        ] {
            let long = Url::parse(&format!("https://example.com/{}/", "p".repeat(2_000))).unwrap();
            let made = summary(&html, &long).unwrap();
            assert!(made.len() < 40_000, "{} bytes of {}", made.len(), &html[..40]);
        }
        let links = short(&"<a href=https://example.com/page>y</a> ".repeat(300));
        assert_eq!(links.matches("href").count(), 300, "as many as a digest has");
        assert_eq!(short("<b>one<p>two</b>three</p>four"), "<b>one</b><p>twothree</p>four");
        assert_eq!(short("<p><i>a <b>b</i> c</b> d</p>"), "<p><i>a <b>b</b></i> c d</p>");
    }

    #[test]
    fn html_is_converted_to_plain_text() {
        for (html, text) in [
            ("<p>a  b\nc</p><p>d<br>e</p>", "a b c\n\nd\ne"),
            ("<ul><li>x</li><li>y</li></ul>z", "x\ny\nz"),
            ("Fish &amp; Chips &lt;3", "Fish & Chips <3"),
            ("<title>no</title>", ""),
        ] {
            assert_eq!(plain_text(html), text, "{html}");
        }
        assert_eq!(line("  <b>a</b>\n b ", 10).as_deref(), Some("a b"));
        assert_eq!(one_line("abcdef", 4).as_deref(), Some("abc…"));
        assert_eq!(one_line(" \n", 4), None);
    }

    #[test]
    fn the_first_image_is_found() {
        let image = |html| first_image(html, &base());
        let html = "<img width=1 height=1 src=/count.gif><p><img src='../a.jpg?x=1&amp;y=2'><img src=b.png>";
        assert_eq!(image(html).as_deref(), Some("https://example.com/a.jpg?x=1&y=2"));
        assert_eq!(
            image("<img src='data:image/png;base64,AA'><img src=c.png>").as_deref(),
            Some("https://example.com/blog/c.png")
        );
        assert_eq!(image("<script>'<img src=x>'</script>"), None);
    }

    proptest::proptest! {
        #[test]
        fn scripts_and_unsafe_attributes_are_removed(html in "(<|>|/|script|a href=|javascript:|'|\"|&lt;|img \
             |onerror=x| |p|b|svg|<!--|-->|é){0,40}") {
            let safe = short(&html);
            walk(&safe, safe.len(), |token| {
                if let HtmlToken::Open(name, attributes) = token {
                    assert!(TAGS.contains(&name), "{html}: {safe}");
                    assert!(attributes.get("onerror").is_none() && attributes.get("src").is_none(), "{html}: {safe}");
                    let href = attributes.get("href").unwrap_or("https:");
                    assert!(href.starts_with("http") || href.starts_with("mailto:"), "{html}: {safe}");
                }
                ControlFlow::Continue(())
            });
        }
    }
}
