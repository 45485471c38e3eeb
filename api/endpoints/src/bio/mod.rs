//! What this process keeps of link-in-bio pages between requests. `pages/bio` serves the pages.

pub mod cache;
pub mod counts;

use cache::Cache;
use counts::Counts;

/// The page cache and the counters of this process.
#[derive(Debug, Default)]
pub struct Bio {
    pub cache: Cache,
    pub counts: Counts,
}
