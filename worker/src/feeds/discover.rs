//! Finds a web page's feeds: `<link rel="alternate" type="application/rss+xml" href="…">`.

use std::ops::ControlFlow;

use crier_html::{HtmlToken, MAX_URL, walk, web_address};
use url::Url;

/// The number of bytes of a page that are searched. The links are in its head.
const MAX_SCANNED_BYTES: usize = 256 << 10;
/// The maximum number of a page's feeds that are tried.
const MAX_FEEDS_PER_PAGE: usize = 3;
const TYPES: &[&str] = &["application/rss+xml", "application/atom+xml", "application/feed+json"];

/// Returns whether the beginning of a document is that of a web page.
pub fn is_page(text: &str) -> bool {
    let mut text = text.trim_start();
    // Skips processing instructions and comments before the root element.
    for _ in 0..20 {
        let end = if text.starts_with("<?") {
            "?>"
        } else if text.starts_with("<!--") {
            "-->"
        } else {
            break;
        };
        text = text.split_once(end).map_or("", |(_, rest)| rest).trim_start();
    }
    let begins = |word: &str| text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    ["<!doctype html", "<html", "<head", "<body"].iter().any(|word| begins(word))
}

/// Returns the URLs of the feeds that a page links to, in its order; comment feeds come last.
pub fn feeds(html: &str, page: &Url) -> Vec<String> {
    let (mut base, mut found) = (None::<Url>, Vec::new());
    walk(html, MAX_SCANNED_BYTES, |piece| {
        match piece {
            HtmlToken::Open("base", attributes) if base.is_none() => {
                base = attributes.get("href").and_then(|href| page.join(href.trim()).ok());
                // Bounds memory, because every link is joined to the base.
                base = base.take().filter(|base| base.as_str().len() <= MAX_URL);
            }
            HtmlToken::Open("link", attributes) => {
                let get = |name| attributes.get(name).unwrap_or_default().trim().to_ascii_lowercase();
                let kind = get("type");
                let kind = kind.split(';').next().unwrap_or_default().trim().to_owned();
                if TYPES.contains(&kind.as_str()) && get("rel").split_ascii_whitespace().any(|rel| rel == "alternate") {
                    let href = attributes.get("href").filter(|href| !href.trim().is_empty());
                    let comments = get("title").contains("comment") || get("href").contains("/comments/");
                    found.extend(
                        href.and_then(|href| web_address(href, base.as_ref().unwrap_or(page)))
                            .map(|url| (comments, url)),
                    );
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    found.sort_by_key(|(comments, _)| *comments);
    let mut urls: Vec<String> = Vec::new();
    for (_, url) in found {
        if !urls.contains(&url) && urls.len() < MAX_FEEDS_PER_PAGE {
            urls.push(url);
        }
    }
    urls
}

/// Returns the default feed URLs of a WordPress site whose page links to no feed: with and without permalinks.
pub fn of_wordpress(site: &Url) -> Vec<String> {
    let mut pretty = site.clone();
    pretty.set_query(None);
    pretty.set_fragment(None);
    let mut plain = pretty.clone();
    let path = format!("{}/feed/", pretty.path().trim_end_matches('/'));
    pretty.set_path(&path);
    plain.set_query(Some("feed=rss2"));
    vec![pretty.into(), plain.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_links_are_discovered_in_a_page() {
        let page = Url::parse("https://example.com/blog/").unwrap();
        let html = r#"<!doctype html><title><link rel=alternate type=application/rss+xml href=/no></title>
            <link rel="stylesheet" href="x.css"><link rel=alternate hreflang=de href=/de>
            <link rel="alternate" type="application/rss+xml" title="Blog » Comments Feed" href="/comments/feed/">
            <LINK REL="Alternate Home" TYPE="application/atom+xml; charset=utf-8" HREF=" atom.xml?a=1&amp;b=2 ">
            <link rel=alternate type=application/feed+json href=//cdn.example.com/feed.json>
            <link rel=alternate type=application/rss+xml href="javascript:x"><link rel=alternate type=application/rss+xml>"#;
        let found = feeds(html, &page);
        assert_eq!(
            found,
            [
                "https://example.com/blog/atom.xml?a=1&b=2",
                "https://cdn.example.com/feed.json",
                "https://example.com/comments/feed/",
            ]
        );
        let based = "<base href='/other/'><link rel=alternate type=application/rss+xml href=feed>";
        assert_eq!(feeds(based, &page), ["https://example.com/other/feed"]);
        assert!(feeds("<p>nothing", &page).is_empty());
    }

    #[test]
    fn html_is_detected_by_its_first_bytes() {
        for text in ["<!DOCTYPE HTML>", " \n<html lang=x>", "<?xml version='1.0'?><!-- x --><html>", "<HEAD>"] {
            assert!(is_page(text), "{text}");
        }
        for text in ["<rss>", "<?xml?><feed>", "", "<!-- <html>", "<é"] {
            assert!(!is_page(text), "{text}");
        }
    }

    #[test]
    fn wordpress_feed_urls_are_guessed() {
        let of = |site| of_wordpress(&Url::parse(site).unwrap());
        assert_eq!(of("https://a.b"), ["https://a.b/feed/", "https://a.b/?feed=rss2"]);
        assert_eq!(of("https://a.b/blog/?x=1#y"), ["https://a.b/blog/feed/", "https://a.b/blog/?feed=rss2"]);
    }
}
