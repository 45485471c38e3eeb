//! Parses JSON Feed 1.0 and 1.1 (<https://www.jsonfeed.org/version/1.1/>) leniently: a field of the wrong type is
//! ignored. (feed-rs rejects the whole feed for it, and does not read images.)

use chrono::{DateTime, Utc};
use crier_domain::feed::{FoundArticle, MAX_FEED_NAME};
use crier_html::web_address;
use serde_json::Value;
use url::Url;

use super::xml::{MAX_AUTHOR, MAX_TITLE, is_image};
use super::{Deadline, FeedError, Format, MAX_ITEMS, Parsed, date, dates, guid, newest};

/// The maximum number of values in a document. A value of a few bytes takes hundreds of bytes in memory.
const MAX_VALUES: usize = 300_000;

/// Parses the text of a document.
pub fn parse(text: &str, base: &Url, deadline: &Deadline<'_>) -> Result<Parsed, FeedError> {
    if values(text) > MAX_VALUES {
        return Err(FeedError::Broken(format!("it has more than {MAX_VALUES} values")));
    }
    deadline.check_now()?;
    // serde_json limits nesting to 128 levels.
    let feed: Value =
        serde_json::from_str(text).map_err(|error| FeedError::Broken(format!("it is not valid JSON ({error})")))?;
    let version = feed["version"].as_str().unwrap_or_default();
    let items: Vec<&Value> = feed["items"].as_array().into_iter().flatten().take(MAX_ITEMS).collect();
    // One of them is enough: some feeds have no version, and a feed without articles may have no items.
    if !version.contains("jsonfeed.org/version/") && !items.iter().any(|item| is_article(item)) {
        return Err(FeedError::Unknown);
    }
    let author = author(&feed);
    let items: Vec<&Value> = items.into_iter().filter(|item| item.is_object()).collect();
    let indexes = newest(items.iter().map(|item| published(item)));
    let mut articles = Vec::with_capacity(indexes.len());
    for index in indexes {
        deadline.check_now()?;
        articles.push(article(items[index], author.as_deref(), base));
    }
    let title = feed["title"].as_str().and_then(|title| crier_html::one_line(title, MAX_FEED_NAME));
    Ok(Parsed { format: Format::Json, title, articles })
}

/// Returns whether a value has a field that feed readers show.
fn is_article(item: &Value) -> bool {
    ["url", "external_url", "title", "summary", "content_html", "content_text"]
        .iter()
        .any(|name| item[name].is_string())
}

/// Estimates the number of values from the brackets and commas outside of strings.
fn values(text: &str) -> usize {
    let (mut count, mut quoted, mut escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b'{' | b'[' | b',' if !quoted => count += 1,
            _ => {}
        }
    }
    count
}

fn article(item: &Value, author_of_feed: Option<&str>, base: &Url) -> FoundArticle {
    let text = |name: &str| item[name].as_str().filter(|text| !text.trim().is_empty());
    let address = |name: &str| text(name).and_then(|url| web_address(url, base));
    let url = address("url").or_else(|| address("external_url"));
    let article_base = url.as_deref().and_then(|url| Url::parse(url).ok()).unwrap_or_else(|| base.clone());
    let summary = text("summary")
        .and_then(|text| crier_html::summary(&crier_html::escape_stray_tags(text), &article_base))
        .or_else(|| text("content_html").and_then(|html| crier_html::summary(html, &article_base)))
        .or_else(|| text("content_text").and_then(crier_html::summary_of_text));
    let attached = || {
        let all = item["attachments"].as_array().into_iter().flatten();
        let images = all.filter(|a| is_image(a["mime_type"].as_str(), a["url"].as_str().unwrap_or_default()));
        images.filter_map(|a| web_address(a["url"].as_str()?, base)).next()
    };
    let image_url = address("image")
        .or_else(|| address("banner_image"))
        .or_else(attached)
        .or_else(|| text("content_html").and_then(|html| crier_html::first_image(html, &article_base)));
    let found = FoundArticle {
        title: text("title").and_then(|title| crier_html::one_line(title, MAX_TITLE)),
        url,
        summary,
        author: author(item).or_else(|| author_of_feed.map(str::to_owned)),
        image_url,
        published_at: published(item),
        guid: String::new(),
    };
    // A numeric id is used in decimal form.
    let id = match &item["id"] {
        Value::String(id) => id.clone(),
        Value::Number(id) => id.to_string(),
        _ => String::new(),
    };
    FoundArticle { guid: guid(&id, &found), ..found }
}

fn author(of: &Value) -> Option<String> {
    let all = of["authors"].as_array().into_iter().flatten().chain([&of["author"]]);
    let name = |author: &Value| author["name"].as_str().and_then(|name| crier_html::one_line(name, MAX_AUTHOR));
    all.filter_map(name).next()
}

fn published(item: &Value) -> Option<DateTime<Utc>> {
    let time = |name: &str| dates::parse(item[name].as_str()?);
    date(time("date_published")).or_else(|| date(time("date_modified")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_strings() {
        assert_eq!(values(r#"{"a,\"{[":[1,2,{}],"b\\":","}"#), 6);
        let base = Url::parse("https://example.com/").unwrap();
        let feed = |items: String| {
            parse(
                &format!(r#"{{"version":"https://jsonfeed.org/version/1.1","items":[{items}]}}"#),
                &base,
                &Deadline::none(),
            )
        };
        assert!(matches!(feed("{},".repeat(200_000)), Err(FeedError::Broken(why)) if why.contains("values")));
        let long = "{[,".repeat(200_000);
        assert_eq!(feed(format!(r#"{{"id":"1","content_text":"{long}"}}"#)).unwrap().articles.len(), 1);
    }
}
