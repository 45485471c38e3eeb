//! Fields of pages in request bodies.

use std::ops::RangeInclusive;

use crier_domain::bio_page::{self, LinkIcon, MAX_LINKS_TEXT, MAX_SLUG_LENGTH};
use crier_domain::media::Asset;
use crier_store::bio_pages::LinkEntry;
use schemars::{Schema, SchemaGenerator, json_schema};
use url::Url;

use crate::fields::{Fields, PatchField, Problems};
use crate::request::formats::text;
use crate::request::{Format, Request};

pub const TITLE_LENGTH: RangeInclusive<usize> = 1..=120;
pub const BIO_LENGTH: RangeInclusive<usize> = 0..=500;
const MAX_URL_CHARS: usize = 2048;
pub const SLUG_TAKEN: &str = "Another page already uses this URL. Choose a different one.";

/// A link to show on the page.
#[derive(Clone, Debug, Request)]
pub struct NewBioLink {
    #[field(text(TITLE_LENGTH))]
    pub title: String,
    /// An http, https, mailto or tel URL.
    #[field(link_url())]
    pub url: String,
    #[field(enum_value(), extension)]
    pub icon: Option<LinkIcon>,
    /// Whether this is the primary link, which stands out. A page can have at most one primary link.
    #[field(flag(), default = false, extension)]
    pub is_primary: bool,
}

impl From<NewBioLink> for LinkEntry {
    fn from(new: NewBioLink) -> Self {
        Self { id: None, title: new.title, url: new.url, icon: new.icon, is_primary: new.is_primary }
    }
}

/// The part of a page's URL after the `@`.
pub fn slug() -> Slug {
    Slug
}

pub struct Slug;

impl Format for Slug {
    type Value = String;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<String> {
        match text(2..=MAX_SLUG_LENGTH).read(fields, name) {
            PatchField::Value(slug) if !bio_page::is_slug(&slug) => {
                let message =
                    "Must contain only the letters a-z, digits and hyphens, and start with a letter or a digit.";
                fields.problem(name, message);
                PatchField::Omitted
            }
            other => other,
        }
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[a-z0-9][a-z0-9-]{1,62}$" })
    }
}

/// A URL that a page may link to, unchanged.
pub fn link_url() -> LinkUrl {
    LinkUrl
}

pub struct LinkUrl;

impl Format for LinkUrl {
    type Value = String;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<String> {
        match text(1..=MAX_URL_CHARS).read(fields, name) {
            PatchField::Value(url) if !is_link(&url) => {
                let message = "Must be a URL without spaces that starts with http://, https://, mailto: or tel:.";
                fields.problem(name, message);
                PatchField::Omitted
            }
            other => other,
        }
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "maxLength": MAX_URL_CHARS, "format": "uri" })
    }
}

/// Rejects links whose titles and URLs are too large together, unless they were at least as large before.
pub fn check_size<'t>(problems: &Problems, before: usize, links: impl Iterator<Item = (&'t str, &'t str)>) {
    let size = size_of(links);
    if size > MAX_LINKS_TEXT && size > before {
        let message = format!(
            "The titles and URLs of a page's links can have at most {MAX_LINKS_TEXT} bytes in total; these have {size}."
        );
        problems.add("links", message);
    }
}

/// Rejects all primary links but the first one.
pub fn check_primary(problems: &Problems, links: impl Iterator<Item = bool>) {
    for (i, _) in links.enumerate().filter(|(_, is_primary)| *is_primary).skip(1) {
        problems.add(format!("links.{i}.is_primary"), "A page can have only one primary link.");
    }
}

/// Returns the total size of the titles and URLs, in bytes.
pub fn size_of<'t>(links: impl Iterator<Item = (&'t str, &'t str)>) -> usize {
    links.map(|(title, url)| title.len() + url.len()).sum()
}

/// Returns whether the URL is safe to link to unchanged. Browsers repair URLs (they drop line ends, change `\` to `/`,
/// add slashes), so a malformed URL could lead to a different address than the one shown.
fn is_link(url: &str) -> bool {
    let is_forbidden = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '\\' | '"' | '<' | '>');
    if url.chars().any(is_forbidden) {
        return false;
    }
    let Ok(parsed) = Url::parse(url) else { return false };
    let rest = url.get(parsed.scheme().len() + 1..).unwrap_or_default();
    match parsed.scheme() {
        "http" | "https" => rest.strip_prefix("//").is_some_and(|rest| !rest.starts_with('/')) && parsed.has_host(),
        "mailto" => !rest.trim_start_matches('/').is_empty(),
        "tel" => rest.bytes().any(|b| b.is_ascii_digit()) && !rest.starts_with('/'),
        _ => false,
    }
}

/// The stored data that the checks of a request need.
pub struct ReferencedRows {
    pub slug_is_taken: bool,
    /// The requested avatar, if the brand has it.
    pub avatar: Option<Asset>,
}

impl ReferencedRows {
    /// Adds a problem for a taken slug and for an unknown avatar.
    pub fn check(&self, slug: Option<&str>, avatar: Option<i64>, problems: &Problems) {
        if self.slug_is_taken && slug.is_some() {
            problems.add("slug", SLUG_TAKEN);
        }
        let Some(id) = avatar else { return };
        match self.avatar.as_ref().filter(|asset| asset.id == id) {
            None => problems.add("avatar", format!("Media asset {id} does not exist in this brand.")),
            Some(asset) if asset.mime_type.image().is_none() => {
                problems.add("avatar", format!("Media asset {id} is a video. Choose an image."));
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_urls_are_accepted_as_links() {
        for good in [
            "https://example.com",
            "HTTP://example.com:8080/a?x=1&y=2#z",
            "https://münchen.example/straße",
            "https://[2001:db8::1]/",
            "mailto:a@example.com?subject=Hi%20there",
            "tel:+4930123456",
            "tel:112;ext=5",
            "tel:+1-(201)-555-0123",
            "tel:*%2306%23",
            "mailto:?to=a@example.com&cc=b@example.com",
            "mailto:%22not%40me%22@example.com,ann@münchen.example",
            "https://user:word@example.com/'(a);b,c|d^e`{f}",
            "https://example.com/?q=%3Cscript%3E#:~:text=a",
        ] {
            assert!(is_link(good), "{good}");
        }
        for bad in [
            "",
            "example.com",
            "//example.com",
            "/path",
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            "java\tscript:alert(1)",
            "data:text/html,x",
            "DATA:text/html;base64,PHNjcmlwdD4=",
            "javascript://example.com/%0aalert(1)",
            "\u{1}javascript:alert(1)",
            "https://example.com/\"onclick=x",
            "https://example.com/<script>",
            "sms:+4930123456",
            "intent://x#Intent;scheme=http;end",
            "vbscript:x",
            "file:///etc/passwd",
            "ftp://example.com/",
            "http:example.com",
            "http:/example.com",
            "https:///example.com",
            "https:\\\\example.com",
            "https://exam\nple.com",
            " https://example.com",
            "https://example.com ",
            "https://example.com/a b",
            "https://example.com/\u{2028}",
            "https://",
            "mailto:",
            "tel:",
            "tel:abc",
            "blob:https://example.com/x",
        ] {
            assert!(!is_link(bad), "{bad:?}");
        }
    }
}
