//! Reads a list that a platform returns newest first.
//!
//! A pass reads from the newest entry back to the previous pass, with an overlap for entries that become visible late.
//! The overlap is measured from the start of the previous pass, or from the newest entry that it read if that is older,
//! so that a platform's slow clock loses nothing. The first pass covers 30 days.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};

/// The period that the first pass covers.
const HISTORY: TimeDelta = TimeDelta::days(30);
const OVERLAP: TimeDelta = TimeDelta::minutes(10);
/// The maximum number of pages per sync, so that an endless list does not keep a worker busy. The next sync continues
/// there.
const PAGES_PER_SYNC: u64 = 20;
/// The maximum length of a page token, in bytes.
const MAX_PAGE_NAME: usize = 2_048;

/// A pass over the pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// The platform's token of the next page. `None` for the first page.
    pub page: Option<String>,
    /// The pass ends at the first older entry.
    pub until: DateTime<Utc>,
    began: DateTime<Utc>,
    newest: Option<DateTime<Utc>>,
    pages: u64,
}

impl Pass {
    /// Continues the pass of a cursor, or begins one.
    pub fn read(cursor: Option<&Value>, now: DateTime<Utc>) -> Self {
        let time = |name: &str| cursor.and_then(|c| c[name].as_str()).and_then(|text| text.parse().ok());
        Self {
            page: cursor.and_then(|c| c["page"].as_str()).map(str::to_owned),
            until: time("until").unwrap_or(now - HISTORY),
            began: time("began").unwrap_or(now),
            newest: time("newest"),
            pages: cursor.and_then(|c| c["pages"].as_u64()).unwrap_or(0),
        }
    }

    /// Returns the cursor after a page with entries of these times, and whether another page follows now. `next` is the
    /// token of the next page.
    pub fn after(mut self, times: &[DateTime<Utc>], next: Option<String>) -> (Value, bool) {
        self.newest = times.iter().copied().max().max(self.newest);
        // The platform may hide every entry of a page, so an empty page does not end the pass.
        let is_over = times.iter().any(|at| *at < self.until);
        let next = next.filter(|next| !is_over && next.len() <= MAX_PAGE_NAME && self.page.as_ref() != Some(next));
        let text = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Micros, true);
        match next {
            Some(page) => {
                let pages = self.pages + 1;
                let cursor = json!({
                    "page": page,
                    "until": text(self.until),
                    "began": text(self.began),
                    "newest": self.newest.map(text),
                    "pages": pages,
                });
                (cursor, !pages.is_multiple_of(PAGES_PER_SYNC))
            }
            None => {
                let seen = self.newest.map(|newest| newest.min(self.began) - OVERLAP);
                (json!({ "until": text(seen.map_or(self.until, |seen| seen.max(self.until))) }), false)
            }
        }
    }

    /// Returns the cursor that restarts the pass, for a page token that is no longer valid.
    pub fn restart(&self) -> Value {
        json!({ "until": self.until.to_rfc3339_opts(SecondsFormat::Micros, true) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(100) + TimeDelta::minutes(minutes)
    }

    #[test]
    fn a_pass_goes_back_to_what_was_seen_before() {
        let first = Pass::read(None, at(0));
        assert_eq!((first.page.as_ref(), first.until), (None, at(0) - HISTORY));
        let (cursor, more) = first.after(&[at(-1), at(-60)], Some("b".to_owned()));
        assert!(more);
        let second = Pass::read(Some(&cursor), at(1));
        assert_eq!((second.page.as_deref(), second.until, second.began), (Some("b"), at(0) - HISTORY, at(0)));
        let (cursor, more) = second.after(&[at(-90)], None);
        assert!(!more);
        let next = Pass::read(Some(&cursor), at(2));
        assert_eq!((next.page.as_ref(), next.until, next.began), (None, at(-1) - OVERLAP, at(2)));
        let (restart, more) = next.clone().after(&[at(1), at(-20)], Some("b".to_owned()));
        assert!(!more, "it has reached what it knows");
        assert_eq!(Pass::read(Some(&restart), at(3)).until, at(1) - OVERLAP);
        let (quiet, _) = next.clone().after(&[], None);
        assert_eq!(quiet, cursor, "nothing new, nothing to be written");
    }

    #[test]
    fn what_a_later_clock_shows_does_not_move_the_end_beyond_the_start() {
        let (cursor, _) = Pass::read(None, at(0)).after(&[at(500)], None);
        assert_eq!(Pass::read(Some(&cursor), at(1)).until, at(0) - OVERLAP);
    }

    #[test]
    fn an_endless_list_pauses_and_a_page_that_names_itself_ends() {
        let mut cursor = None;
        for n in 1..=PAGES_PER_SYNC {
            let (next, more) = Pass::read(cursor.as_ref(), at(0)).after(&[at(0)], Some(format!("p{n}")));
            assert_eq!(more, n < PAGES_PER_SYNC);
            cursor = Some(next);
        }
        let pass = Pass::read(cursor.as_ref(), at(0));
        for next in [pass.page.clone(), Some("x".repeat(MAX_PAGE_NAME + 1))] {
            let (ended, more) = pass.clone().after(&[at(0)], next);
            assert!(!more && ended["page"].is_null());
        }
        assert!(Pass::read(Some(&pass.restart()), at(0)).page.is_none());
    }
}
