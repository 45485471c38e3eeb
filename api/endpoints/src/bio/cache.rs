//! A cache of rendered pages in memory, by slug, and of unknown slugs.
//!
//! An entry is fresh for [`CACHE_TTL`]. After that, the first request looks it up again, and other requests get the
//! stale page in the meantime. A change to a page removes its entry, and a lookup that began before the change is not
//! cached ([`Cache::generation`]). If the cache exceeds its size limit, it evicts the least recently used pages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use crier_store::bio_pages::Version;
use http::HeaderValue;

use crate::page_body::PageBody;

/// The time for which an entry is fresh.
pub const CACHE_TTL: TimeDelta = TimeDelta::seconds(2);
/// The maximum size of all pages with the URLs of their links, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// The maximum number of unknown slugs. They are stored separately, so that guessing slugs evicts no pages.
const MAX_MISSING: usize = 4_096;

/// A rendered page.
#[derive(Debug)]
pub struct RenderedPage {
    pub version: Version,
    pub html: PageBody,
    /// The URL of each link, by link ID.
    pub links: HashMap<i64, HeaderValue>,
}

impl RenderedPage {
    /// Returns the approximate size in memory, in bytes.
    fn size(&self) -> usize {
        const ENTRY: usize = 64;
        let links: usize = self.links.values().map(|to| to.len() + ENTRY).sum();
        self.html.size() + links + 2 * ENTRY
    }
}

/// The result of a cache lookup.
#[derive(Debug)]
pub enum CacheLookup {
    /// The page, or `None` if the slug is unknown.
    Fresh(Option<Arc<RenderedPage>>),
    /// A stale page. This caller must check it in the database.
    Stale(Arc<RenderedPage>),
    Unknown,
}

#[derive(Debug)]
struct Entry {
    page: Arc<RenderedPage>,
    /// The time of the last lookup, or of the start of a lookup that is in progress.
    checked: DateTime<Utc>,
    /// The value of [`State::seen`] at the last visit.
    seen: u64,
}

#[derive(Debug, Default)]
struct State {
    pages: HashMap<String, Entry>,
    missing: HashMap<String, DateTime<Utc>>,
    bytes: usize,
    seen: u64,
    /// The number of invalidations of any entry.
    generation: u64,
}

#[derive(Debug, Default)]
pub struct Cache(Mutex<State>);

/// If the clock was set back, all entries are stale, so that none stays fresh for too long.
fn is_fresh(checked: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    (TimeDelta::zero()..CACHE_TTL).contains(&(now - checked))
}

impl Cache {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, slug: &str, now: DateTime<Utc>) -> CacheLookup {
        let mut state = self.state();
        state.seen += 1;
        let seen = state.seen;
        if let Some(entry) = state.pages.get_mut(slug) {
            entry.seen = seen;
            if is_fresh(entry.checked, now) {
                return CacheLookup::Fresh(Some(entry.page.clone()));
            }
            // Only this caller looks the entry up.
            entry.checked = now;
            return CacheLookup::Stale(entry.page.clone());
        }
        match state.missing.get(slug) {
            Some(checked) if is_fresh(*checked, now) => CacheLookup::Fresh(None),
            _ => CacheLookup::Unknown,
        }
    }

    /// Returns the number of invalidations. Read it before the database, and pass it to [`Cache::put`].
    pub fn generation(&self) -> u64 {
        self.state().generation
    }

    /// Caches the result of a lookup that began at `now`, unless any entry was invalidated since then.
    pub fn put(&self, slug: &str, found: Option<Arc<RenderedPage>>, generation: u64, now: DateTime<Utc>) {
        let mut state = self.state();
        state.remove(slug);
        if state.generation != generation {
            return;
        }
        match found {
            Some(page) => state.insert(slug, page, now),
            None => {
                if state.missing.len() >= MAX_MISSING {
                    state.missing.clear();
                }
                state.missing.insert(slug.to_owned(), now);
            }
        }
    }

    /// Removes a page that this process created, changed or deleted.
    pub fn invalidate(&self, slug: &str) {
        let mut state = self.state();
        state.generation += 1;
        state.remove(slug);
    }
}

impl State {
    fn remove(&mut self, slug: &str) {
        self.missing.remove(slug);
        if let Some(entry) = self.pages.remove(slug) {
            self.bytes -= entry.page.size() + slug.len();
        }
    }

    fn insert(&mut self, slug: &str, page: Arc<RenderedPage>, now: DateTime<Utc>) {
        self.bytes += page.size() + slug.len();
        self.seen += 1;
        self.pages.insert(slug.to_owned(), Entry { page, checked: now, seen: self.seen });
        if self.bytes > MAX_BYTES {
            self.evict();
        }
    }

    /// Evicts the least recently used pages until a quarter is free, so that sorting is rare.
    fn evict(&mut self) {
        let mut oldest: Vec<(u64, String)> =
            self.pages.iter().map(|(slug, entry)| (entry.seen, slug.clone())).collect();
        oldest.sort_unstable();
        for (_, slug) in oldest {
            if self.bytes <= MAX_BYTES / 4 * 3 {
                break;
            }
            self.remove(&slug);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_781_000_000 + seconds, 0).unwrap()
    }

    fn page(page_id: i64, size: usize) -> Option<Arc<RenderedPage>> {
        let version = Version { page_id, version: 1, alt_text: None };
        Some(Arc::new(RenderedPage { version, html: PageBody::new(vec![b'x'; size]), links: HashMap::new() }))
    }

    fn look_up(cache: &Cache, slug: &str, now: i64) -> String {
        match cache.get(slug, at(now)) {
            CacheLookup::Fresh(Some(page)) => format!("fresh {}", page.version.page_id),
            CacheLookup::Fresh(None) => "missing".to_owned(),
            CacheLookup::Stale(page) => format!("stale {}", page.version.page_id),
            CacheLookup::Unknown => "unknown".to_owned(),
        }
    }

    #[test]
    fn a_stale_page_is_revalidated_by_one_request() {
        let cache = Cache::default();
        assert_eq!(look_up(&cache, "a", 0), "unknown");
        cache.put("a", page(1, 10), cache.generation(), at(0));
        assert_eq!(look_up(&cache, "a", 1), "fresh 1");
        assert_eq!(look_up(&cache, "a", 2), "stale 1");
        assert_eq!(look_up(&cache, "a", 2), "fresh 1", "another request is revalidating it");
        assert_eq!(look_up(&cache, "a", 4), "stale 1");
        assert_eq!(look_up(&cache, "a", -9), "stale 1", "the clock was set back");
        cache.put("b", None, cache.generation(), at(0));
        assert_eq!(look_up(&cache, "b", 1), "missing");
        assert_eq!(look_up(&cache, "b", 2), "unknown");
    }

    #[test]
    fn an_invalidated_page_is_not_restored_by_an_earlier_lookup() {
        let cache = Cache::default();
        let generation = cache.generation();
        cache.put("a", page(1, 10), generation, at(0));
        cache.invalidate("a");
        assert_eq!(look_up(&cache, "a", 0), "unknown");
        cache.put("a", page(1, 10), generation, at(0));
        assert_eq!(look_up(&cache, "a", 0), "unknown");
        cache.put("a", page(2, 10), cache.generation(), at(0));
        assert_eq!(look_up(&cache, "a", 0), "fresh 2");
        cache.put("a", None, cache.generation(), at(0));
        assert_eq!(look_up(&cache, "a", 0), "missing", "the page was deleted");
        cache.invalidate("a");
        assert_eq!(look_up(&cache, "a", 0), "unknown", "and made again");
        assert_eq!(cache.state().bytes, 0);
    }

    #[test]
    fn size_is_bounded_with_lru_eviction() {
        let cache = Cache::default();
        let size = MAX_BYTES / 100;
        for n in 0..99 {
            cache.put(&format!("p{n}"), page(n, size), cache.generation(), at(0));
        }
        assert_eq!(look_up(&cache, "p0", 1), "fresh 0");
        for n in 99..200 {
            cache.put(&format!("p{n}"), page(n, size), cache.generation(), at(0));
            assert!(cache.state().bytes <= MAX_BYTES);
            look_up(&cache, "p0", 1);
        }
        assert_eq!(look_up(&cache, "p0", 1), "fresh 0");
        assert_eq!(look_up(&cache, "p199", 1), "fresh 199");
        assert_eq!(look_up(&cache, "p1", 1), "unknown");
        for n in 0..3 * MAX_MISSING {
            cache.put(&format!("m{n}"), None, cache.generation(), at(0));
        }
        assert!(cache.state().missing.len() <= MAX_MISSING);
        assert_eq!(look_up(&cache, "p0", 1), "fresh 0");
    }
}
