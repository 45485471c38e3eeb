//! Reads comments and reviews from oldest to newest, page by page.
//!
//! A comment keeps its time when it is approved, which may be days later. So each sync begins ten minutes before the
//! newest entry read, and once per hour two weeks before it.
//!
//! Source: REST API handbook, "Comments": `after`, `order`, `orderby`, `date_gmt` (UTC, without a zone).

use chrono::{DateTime, NaiveDateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};

/// The number of entries per page.
pub const PAGE: usize = 50;
const HISTORY: TimeDelta = TimeDelta::days(30);
const OVERLAP: TimeDelta = TimeDelta::minutes(10);
const LONG_OVERLAP: TimeDelta = TimeDelta::days(14);
const LONG_INTERVAL: TimeDelta = TimeDelta::hours(1);
/// The maximum number of pages per sync.
const PAGES_PER_SYNC: u64 = 20;

/// A pass over the pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// The page has entries after this time.
    pub after: DateTime<Utc>,
    /// Whether it is the first page of a pass with the long overlap.
    pub is_long_start: bool,
    /// The time of the newest entry read so far.
    seen: Option<DateTime<Utc>>,
    /// The start of this pass, and of the last one with the long overlap.
    began: DateTime<Utc>,
    long: DateTime<Utc>,
    pages: u64,
}

impl Pass {
    /// Continues the pass of a cursor, or begins one.
    pub fn read(cursor: Option<&Value>, now: DateTime<Utc>) -> Self {
        let time = |name: &str| cursor.and_then(|c| c[name].as_str()).and_then(|text| text.parse().ok());
        let (seen, long): (Option<DateTime<Utc>>, Option<DateTime<Utc>>) = (time("seen"), time("long"));
        let pages = cursor.and_then(|c| c["pages"].as_u64()).unwrap_or(0);
        if let (Some(after), Some(began), Some(long)) = (time("after"), time("began"), long) {
            return Self { after, is_long_start: false, seen, began, long, pages };
        }
        let is_long = long.is_none_or(|long| now - long >= LONG_INTERVAL);
        let overlap = if is_long { LONG_OVERLAP } else { OVERLAP };
        let after = seen.map_or(now - HISTORY, |seen| seen.min(now) - overlap);
        let long = if is_long { now } else { long.unwrap_or(now) };
        Self { after, is_long_start: is_long, seen, began: now, long, pages: 0 }
    }

    /// Returns the query parameters of the page.
    pub fn query(&self) -> [(&'static str, String); 4] {
        [
            ("after", self.after.to_rfc3339_opts(SecondsFormat::Secs, true)),
            ("order", "asc".to_owned()),
            ("orderby", "date_gmt".to_owned()),
            ("per_page", PAGE.to_string()),
        ]
    }

    /// Returns the cursor after a page with entries of these times, and whether another page follows now.
    pub fn next(self, times: &[DateTime<Utc>]) -> (Value, bool) {
        let newest = times.iter().copied().max();
        // An entry with a time in the future would hide all others until then.
        let seen = newest.map(|newest| newest.min(self.began)).max(self.seen);
        let text = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
        let mut cursor = json!({ "seen": seen.map(text), "long": text(self.long) });
        match newest.filter(|newest| times.len() >= PAGE && *newest > self.after) {
            Some(newest) => {
                // Entries of the same second may be on the next page.
                let before = newest - TimeDelta::seconds(1);
                let after = if before > self.after { before } else { newest };
                let pages = self.pages + 1;
                cursor["after"] = Value::from(text(after));
                cursor["began"] = Value::from(text(self.began));
                cursor["pages"] = Value::from(pages);
                (cursor, !pages.is_multiple_of(PAGES_PER_SYNC))
            }
            None => (cursor, false),
        }
    }
}

/// Parses a time of the API (`2026-06-09T07:00:00`).
pub fn parse_gmt(text: &str) -> Option<DateTime<Utc>> {
    NaiveDateTime::parse_from_str(text.trim_end_matches('Z'), "%Y-%m-%dT%H:%M:%S").ok().map(|time| time.and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(100) + TimeDelta::minutes(minutes)
    }

    #[test]
    fn a_sync_overlaps_a_little_and_once_per_hour_a_lot() {
        let first = Pass::read(None, at(0));
        assert_eq!((first.after, first.is_long_start), (at(0) - HISTORY, true));
        let (cursor, more) = first.next(&[at(-20), at(-5)]);
        assert!(!more);
        let next = Pass::read(Some(&cursor), at(1));
        assert_eq!((next.after, next.is_long_start), (at(-5) - OVERLAP, false));
        let (quiet, _) = next.next(&[]);
        assert_eq!(quiet, cursor, "nothing new, nothing to be written");
        let long = Pass::read(Some(&cursor), at(60));
        assert_eq!((long.after, long.is_long_start), (at(-5) - LONG_OVERLAP, true));
        let (cursor, _) = long.next(&[at(9_999)]);
        assert_eq!(Pass::read(Some(&cursor), at(61)).after, at(60) - OVERLAP, "not what a site claims");
    }

    #[test]
    fn a_full_page_is_followed_by_the_next_one() {
        let page: Vec<_> = (0..50).map(at).collect();
        let (cursor, more) = Pass::read(None, at(0)).next(&page);
        let next = Pass::read(Some(&cursor), at(1));
        assert!(more);
        assert_eq!((next.after, next.is_long_start), (at(49) - TimeDelta::seconds(1), false));
        // A second with more entries than a page is skipped, not read forever.
        let (cursor, more) = next.next(&[at(49); 50]);
        assert!(more);
        let next = Pass::read(Some(&cursor), at(1));
        assert_eq!(next.after, at(49));
        assert!(!next.next(&[at(49); 50]).1);
    }

    #[test]
    fn times_of_the_api_are_utc() {
        assert_eq!(parse_gmt("1970-04-11T00:01:00"), Some(at(1)));
        assert_eq!(parse_gmt("yesterday"), None);
    }
}
