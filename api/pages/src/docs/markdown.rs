//! Renders the Markdown of `docs/` as HTML. The texts are trusted, so nothing is sanitized. HTML in them (comments) is
//! omitted.

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// A rendered text.
#[derive(Debug)]
pub struct Rendered {
    /// The heading of level 1. It is not part of `html`.
    pub title: String,
    /// The headings of level 2.
    pub sections: Vec<Section>,
    pub html: String,
}

/// A heading with an anchor.
#[derive(Debug)]
pub struct Section {
    pub id: String,
    pub title: String,
}

/// Renders a text. Links to files that are not served here become plain text.
pub fn render(text: &str) -> Rendered {
    let mut rendered = Rendered { title: String::new(), sections: Vec::new(), html: String::new() };
    let mut events = Vec::new();
    let mut parser = Parser::new_ext(text, Options::ENABLE_TABLES);
    let mut links = Vec::new();
    while let Some(event) = parser.next() {
        match event {
            Event::Start(Tag::Heading { level, .. }) => heading(level, &mut parser, &mut rendered, &mut events),
            Event::Html(_) | Event::InlineHtml(_) => {}
            Event::Start(Tag::Link { ref dest_url, .. }) => {
                links.push(is_served(dest_url));
                if is_served(dest_url) {
                    events.push(event);
                }
            }
            Event::End(TagEnd::Link) => {
                if links.pop() == Some(true) {
                    events.push(event);
                }
            }
            Event::Start(Tag::Table(_)) => events.extend([raw(r#"<div class="table">"#), event]),
            Event::End(TagEnd::Table) => events.extend([event, raw("</div>")]),
            event => events.push(event),
        }
    }
    html::push_html(&mut rendered.html, events.into_iter());
    rendered
}

fn raw(html: impl Into<CowStr<'static>>) -> Event<'static> {
    Event::Html(html.into())
}

/// Returns whether a link works on this server.
fn is_served(to: &str) -> bool {
    to.starts_with('#') || to.starts_with("/docs/") || to.starts_with("https://") || to.starts_with("http://")
}

/// Adds a heading with an ID and a link to itself.
fn heading<'t>(level: HeadingLevel, parser: &mut Parser<'t>, rendered: &mut Rendered, events: &mut Vec<Event<'t>>) {
    let inner = parser.by_ref().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
    let inner: Vec<Event<'t>> = inner.collect();
    let words = inner.iter().filter_map(|event| match event {
        Event::Text(text) | Event::Code(text) => Some(text.as_ref()),
        _ => None,
    });
    let title: String = words.collect();
    let id = slug(&title);
    match level {
        HeadingLevel::H1 => rendered.title = title,
        level => {
            events.push(raw(format!(r#"<{level} id="{id}">"#)));
            events.extend(inner);
            let link = format!(r##"<a class="anchor" href="#{id}" aria-label="Link to this section">#</a></{level}>"##);
            events.push(raw(link));
            if level == HeadingLevel::H2 {
                rendered.sections.push(Section { id, title });
            }
        }
    }
}

/// Returns the ID of a heading, as GitHub creates it: lower case, hyphens for spaces, no other punctuation.
fn slug(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_ids_and_links() {
        let rendered = render("# All\n\n## Verify the signature\n\n### `invalid_json`\n\n## What's new?\n");
        assert_eq!(rendered.title, "All");
        let ids: Vec<&str> = rendered.sections.iter().map(|section| section.id.as_str()).collect();
        assert_eq!(ids, ["verify-the-signature", "whats-new"]);
        assert!(
            rendered.html.contains(r#"<h3 id="invalid_json"><code>invalid_json</code><a class="anchor""#),
            "{}",
            rendered.html
        );
        assert!(!rendered.html.contains("<h1"));
    }

    #[test]
    fn links_to_files_become_text() {
        let rendered = render("[here](#a) [there](/docs/errors) [a file](media.md) [out](https://example.com)");
        let expected = r##"<p><a href="#a">here</a> <a href="/docs/errors">there</a> a file <a href="https://example.com">out</a></p>"##;
        assert_eq!(rendered.html.trim(), expected);
    }

    #[test]
    fn comments_are_left_out_and_code_is_escaped() {
        let rendered = render("<!-- made by a test -->\n\n`<b>` <i>x</i>\n\n| a |\n|---|\n| b |\n");
        assert!(!rendered.html.contains("<!--") && !rendered.html.contains("<i>"), "{}", rendered.html);
        assert!(rendered.html.contains("<code>&lt;b&gt;</code>"), "{}", rendered.html);
        assert!(rendered.html.contains("<div class=\"table\"><table>"), "{}", rendered.html);
    }
}
