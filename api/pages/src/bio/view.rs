//! Renders a page: its template, its colors and its preview text.

use std::collections::HashMap;
use std::sync::LazyLock;

use askama::Template;
use crier_base::hexadecimal;
use crier_domain::bio_page::{BioLink, BioPage};
use crier_domain::media::Asset;
use crier_endpoints::bio::cache::RenderedPage;
use crier_endpoints::page_body::PageBody;
use crier_store::bio_pages::Version;
use http::HeaderValue;
use url::Url;

pub const STYLES: &str = include_str!("../../templates/bio.css");

/// A hash of the styles for their URL, so that browsers may cache them forever.
static VERSION: LazyLock<String> = LazyLock::new(|| hexadecimal::sha256(STYLES, 6));

/// The maximum length of the preview text, in characters.
const MAX_PREVIEW: usize = 200;

#[derive(Template)]
#[template(path = "bio.html")]
struct Page<'a> {
    page: &'a BioPage,
    links: &'a [BioLink],
    avatar: Option<&'a Asset>,
    /// The absolute URL of the avatar.
    image_url: String,
    /// Shown if there is no avatar.
    initial: String,
    description: String,
    url: String,
    /// The color of the browser's interface.
    theme_color: &'static str,
    version: &'static str,
}

/// Renders and compresses the page.
pub fn render(
    public_url: &str,
    page: &BioPage,
    links: &[BioLink],
    avatar: Option<&Asset>,
) -> askama::Result<RenderedPage> {
    let view = Page {
        page,
        links,
        avatar,
        image_url: avatar.map(|asset| format!("{public_url}/media/{}", asset.key)).unwrap_or_default(),
        initial: initial(&page.title),
        description: description(page),
        url: format!("{public_url}/@{}", page.slug),
        theme_color: theme_color(page.theme.as_str()).unwrap_or("#ffffff"),
        version: &VERSION,
    };
    let html = PageBody::new(view.render()?);
    let locations = links.iter().filter_map(|link| Some((link.id, location(&link.url)?)));
    let links: HashMap<i64, HeaderValue> = locations.collect();
    Ok(RenderedPage { version: Version::of(page, avatar), html, links })
}

/// Converts a URL to a header value: unchanged if it is ASCII, otherwise encoded as browsers encode it.
fn location(url: &str) -> Option<HeaderValue> {
    if url.is_ascii() {
        return HeaderValue::from_str(url).ok();
    }
    HeaderValue::from_str(Url::parse(url).ok()?.as_str()).ok()
}

/// Returns the first letter or digit of the title, or its first character if it has neither.
fn initial(title: &str) -> String {
    let first = title.chars().find(|c| c.is_alphanumeric()).or_else(|| title.chars().next());
    first.map(|c| c.to_uppercase().collect()).unwrap_or_default()
}

/// Returns the preview text of the page, on one line.
fn description(page: &BioPage) -> String {
    let bio = page.bio.as_deref().unwrap_or_default();
    let line = bio.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_PREVIEW) {
        _ if line.is_empty() => format!("Links of {}", page.title),
        Some((cut, _)) => format!("{}…", line.get(..cut).unwrap_or_default().trim_end()),
        None => line,
    }
}

/// Returns the top color of a theme, from the styles.
fn theme_color(theme: &str) -> Option<&'static str> {
    let block = STYLES.split_once(&format!("[data-theme={theme}]"))?.1.split_once('}')?.0;
    let value = block.split_once("--top:")?.1.split_once(';')?.0;
    Some(value.trim())
}

#[cfg(test)]
mod tests;
