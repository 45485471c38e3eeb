//! Link cards: the title, the description and the image of a page, for platforms where the client makes the card
//! instead of the platform (Bluesky).
//!
//! A [`CardRequest`] has the link, and the fields that the option `link_card` sets. [`CardReader`] reads the rest from
//! the page.
//!
//! The page is hostile: it is read with the guarded client, within limits of time, size and concurrency, and its texts
//! are cut and contain no control characters. The caller must check the image.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use crier_domain::platform::Platform;
use crier_domain::untrusted;
use crier_html::PageMetadata;
use crier_http::{DownloadError, Guard, HttpClient};
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::bluesky::facets;
use super::text::cut::at_word;

/// The name of the option.
pub const OPTION: &str = "link_card";
/// The maximum length of a title and of a description, in characters.
pub const MAX_TITLE: usize = 300;
pub const MAX_DESCRIPTION: usize = 1_000;

/// The maximum time for a page, and again for its image. It includes waiting for other reads.
pub const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of bytes of a page that are read, after decompression. The rest is ignored.
const MAX_PAGE_BYTES: usize = 1 << 20;
const MAX_IMAGE_BYTES: u64 = 5 << 20;
/// The maximum number of concurrent reads, which bounds their memory.
const MAX_READS: usize = 32;
/// The maximum number of concurrent reads of a workspace, so that its slow pages leave room for those of others.
const MAX_READS_OF_WORKSPACE: usize = 8;

/// The card to make for a post. Fields that are `None` are read from the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardRequest {
    pub url: String,
    pub title: Option<String>,
    pub description: Option<String>,
    /// The asset of the image.
    pub media_id: Option<i64>,
}

/// A card.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkCard {
    pub url: String,
    pub title: String,
    pub description: String,
    /// The platform's reference to the uploaded image.
    pub image: Option<Value>,
}

impl CardRequest {
    /// Returns the card of a post. `None` if the platform makes its cards itself or has none, if the post has images
    /// or no link, or if the option is off.
    pub fn of(platform: Platform, text: &str, has_images: bool, options: &Map<String, Value>) -> Option<Self> {
        let option = options.get(OPTION);
        if platform != Platform::Bluesky || has_images || option == Some(&Value::Bool(false)) {
            return None;
        }
        let field = |name: &str| option.and_then(|card| card.get(name));
        let line = |name: &str, max: usize| field(name).and_then(Value::as_str).map(|text| clean(text, max));
        Some(Self {
            url: field("url")
                .and_then(Value::as_str)
                .map_or_else(|| facets::first_link(text), |url| Some(url.into()))?,
            title: line("title", MAX_TITLE),
            description: line("description", MAX_DESCRIPTION),
            media_id: field("media_id").and_then(Value::as_i64),
        })
    }

    /// Returns whether something must be read from the page.
    pub fn needs_page(&self) -> bool {
        self.title.is_none() || self.description.is_none() || self.media_id.is_none()
    }

    /// Returns the card without an image. `page` is `None` if it could not be read. A card must have a title, unless
    /// the option sets an empty one.
    pub fn card(&self, page: Option<&PageMetadata>) -> Option<LinkCard> {
        let read = |text: Option<&String>, max| text.map(|text| clean(text, max)).filter(|text| !text.is_empty());
        let title = self.title.clone().or_else(|| read(page?.title.as_ref(), MAX_TITLE))?;
        let description =
            self.description.clone().or_else(|| read(page?.description.as_ref(), MAX_DESCRIPTION)).unwrap_or_default();
        Some(LinkCard { url: self.url.clone(), title, description, image: None })
    }
}

/// Returns a text on one line, cut at a word, without control characters and characters that change the direction of
/// other text.
fn clean(text: &str, max: usize) -> String {
    let visible: String = text.chars().filter(|c| !is_invisible(*c)).collect();
    // One more than the maximum, so that the text is cut at a word.
    at_word(&untrusted::line(&visible, max + 1), max).into_owned()
}

fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{AD}' | '\u{61C}' | '\u{200B}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{FEFF}'
    )
}

/// The bytes of an image, which count as a read until they are dropped.
#[derive(Debug)]
pub struct PageImage {
    pub bytes: Bytes,
    _permits: ReadPermits,
}

/// Why nothing was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// Other reads took all the time.
    Busy,
    /// The server did not respond in time, or with something else.
    Failed,
}

/// The permits of a read: one of the workspace, and one of all workspaces.
type ReadPermits = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// Reads pages and their images for a workspace. Cheap to clone; clones share the limits of concurrent reads.
#[derive(Clone, Debug)]
pub struct CardReader {
    client: HttpClient,
    permits: Arc<Semaphore>,
    workspace_permits: Arc<Semaphore>,
    /// The permits of the workspaces that are reading.
    by_workspace: Arc<Mutex<HashMap<i64, Weak<Semaphore>>>>,
    timeout: Duration,
}

impl CardReader {
    pub fn new(guard: Guard) -> Self {
        Self::with_timeout(guard, READ_TIMEOUT)
    }

    /// Creates a reader with another maximum time for a page, and for its image.
    pub fn with_timeout(guard: Guard, timeout: Duration) -> Self {
        let client = HttpClient::guarded(guard, timeout, MAX_PAGE_BYTES);
        Self {
            client,
            permits: Arc::new(Semaphore::new(MAX_READS)),
            workspace_permits: Arc::new(Semaphore::new(MAX_READS_OF_WORKSPACE)),
            by_workspace: Arc::default(),
            timeout,
        }
    }

    /// Returns a reader for a workspace.
    pub fn of_workspace(&self, workspace_id: i64) -> Self {
        let mut by_workspace = self.by_workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let found = by_workspace.get(&workspace_id).and_then(Weak::upgrade);
        let workspace_permits = found.unwrap_or_else(|| {
            by_workspace.retain(|_, permits| permits.strong_count() > 0);
            let permits = Arc::new(Semaphore::new(MAX_READS_OF_WORKSPACE));
            by_workspace.insert(workspace_id, Arc::downgrade(&permits));
            permits
        });
        Self { workspace_permits, ..self.clone() }
    }

    /// Returns the metadata of a page. `None` if it cannot be read or is not HTML.
    pub async fn page(&self, url: &str) -> Option<PageMetadata> {
        self.limited(self.read_page(url)).await.ok().map(|(page, _)| page)
    }

    /// Returns an image, which is not checked.
    pub async fn image(&self, url: &str) -> Result<PageImage, ReadError> {
        let (bytes, permits) = self.limited(self.read_image(url)).await?;
        Ok(PageImage { bytes, _permits: permits })
    }

    /// Returns what was read, and the permits of the read.
    async fn limited<T>(
        &self,
        read: impl Future<Output = Result<Option<T>, DownloadError>>,
    ) -> Result<(T, ReadPermits), ReadError> {
        let deadline = Instant::now() + self.timeout;
        let permits = async {
            // The semaphores are never closed.
            let of_workspace = self.workspace_permits.clone().acquire_owned().await.ok()?;
            Some((of_workspace, self.permits.clone().acquire_owned().await.ok()?))
        };
        let permits = timeout_at(deadline, permits).await.ok().flatten().ok_or(ReadError::Busy)?;
        match timeout_at(deadline, read).await {
            Ok(Ok(Some(found))) => Ok((found, permits)),
            Ok(Ok(None)) | Err(_) => Err(ReadError::Failed),
            Ok(Err(error)) => {
                tracing::debug!(%error, "failed to read a page or an image");
                Err(ReadError::Failed)
            }
        }
    }

    async fn read_page(&self, url: &str) -> Result<Option<PageMetadata>, DownloadError> {
        let mut download = self.client.download(url, "text/html, application/xhtml+xml", u64::MAX).await?;
        let content_type = download.header(CONTENT_TYPE).unwrap_or_default().to_owned();
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !matches!(kind.as_str(), "text/html" | "application/xhtml+xml") {
            return Ok(None);
        }
        let mut body = Vec::new();
        while body.len() < MAX_PAGE_BYTES {
            let Some(chunk) = download.chunk().await? else { break };
            body.extend_from_slice(&chunk);
        }
        body.truncate(MAX_PAGE_BYTES);
        let url = download.url().clone();
        // Parsing a page of this size takes tens of milliseconds.
        let parse = move || PageMetadata::of(&crier_html::decode(&body, Some(&content_type)), &url);
        Ok(tokio::task::spawn_blocking(parse).await.ok())
    }

    async fn read_image(&self, url: &str) -> Result<Option<Bytes>, DownloadError> {
        let mut download = self.client.download(url, "image/*", MAX_IMAGE_BYTES).await?;
        let mut body = Vec::new();
        while let Some(chunk) = download.chunk().await? {
            body.extend_from_slice(&chunk);
        }
        Ok(Some(body.into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(text: &str, option: Value) -> Option<CardRequest> {
        CardRequest::of(Platform::Bluesky, text, false, &Map::from_iter([(OPTION.to_owned(), option)]))
    }

    fn page(title: &str, description: &str) -> PageMetadata {
        PageMetadata { title: Some(title.to_owned()), description: Some(description.to_owned()), image: None }
    }

    #[test]
    fn the_first_link_becomes_a_card_unless_the_option_is_off() {
        let text = "Bread #news at example.com/a, https://b.example";
        let url = |option| request(text, option).map(|card| card.url);
        for option in [Value::Null, json!(true), json!({}), json!({ "url": null })] {
            assert_eq!(url(option).as_deref(), Some("https://example.com/a"));
        }
        assert_eq!(url(json!({ "url": "https://c.example/x" })).as_deref(), Some("https://c.example/x"));
        assert_eq!(url(json!(false)), None);
        assert_eq!(request("No link", Value::Null), None);
        assert_eq!(CardRequest::of(Platform::Bluesky, text, true, &Map::new()), None, "a post has images or a card");
        assert_eq!(CardRequest::of(Platform::Mastodon, text, false, &Map::new()), None);
    }

    #[test]
    fn the_option_comes_before_the_page() {
        let text = "https://a.example";
        let read = page("Page", "About");
        let card = |option, page: Option<&PageMetadata>| {
            request(text, option).unwrap().card(page).map(|card| (card.title, card.description))
        };
        let pair = |title: &str, description: &str| Some((title.to_owned(), description.to_owned()));
        assert_eq!(card(Value::Null, Some(&read)), pair("Page", "About"));
        assert_eq!(card(json!({ "title": "Mine" }), Some(&read)), pair("Mine", "About"));
        assert_eq!(card(json!({ "title": "Mine" }), None), pair("Mine", ""));
        assert_eq!(card(json!({ "title": "", "description": "" }), Some(&read)), pair("", ""));
        assert_eq!(card(json!({ "description": "Mine" }), None), None, "it has no title");
        assert_eq!(card(Value::Null, Some(&page("\u{202E} \0", "About"))), None);
        let whole = request(text, json!({ "title": "a", "description": "b", "media_id": 3 })).unwrap();
        assert!(!whole.needs_page() && request(text, json!({ "title": "a" })).unwrap().needs_page());
    }

    #[test]
    fn texts_of_a_page_are_cut_and_cannot_reorder_others() {
        assert_eq!(clean(" Free\u{202E}\u{2066} \n\tbread\0\u{200B}! ", 20), "Free bread!");
        assert_eq!(clean("\u{202E}", 20), "");
        assert_eq!(clean("ن\u{200C}ن 👩\u{200D}👧", 20), "ن\u{200C}ن 👩\u{200D}👧");
        let long = clean(&"lorem ".repeat(1_000), MAX_TITLE);
        assert!(long.chars().count() <= MAX_TITLE && long.ends_with("lorem…"), "{long}");
        assert!(clean(&"x".repeat(10_000_000), MAX_TITLE).len() <= MAX_TITLE + 3);
    }
}
