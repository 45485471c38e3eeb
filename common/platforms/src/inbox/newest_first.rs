//! Reads a list that a platform gives newest first.
//!
//! A pass goes from the newest entry back to what the pass before has seen, with an overlap for entries that become
//! visible late. The overlap is measured from the start of the pass before, or from the newest entry that it saw, so a
//! platform's clock that is behind ours loses nothing. The first pass of all ends some weeks ago.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};

/// How far the first pass goes back.
const HISTORY: TimeDelta = TimeDelta::days(30);
const OVERLAP: TimeDelta = TimeDelta::minutes(10);
/// How many pages of a pass are read without a pause, so that a server that never ends its list does not keep a worker
/// busy. The next look goes on there.
const PAGES_AT_ONCE: u64 = 20;
/// The longest name of a page, in bytes.
const MAX_PAGE_NAME: usize = 2_048;

/// A pass over the pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// The platform's name of the next page; `None`: the first one.
    pub page: Option<String>,
    /// The pass ends at what is older.
    pub until: DateTime<Utc>,
    began: DateTime<Utc>,
    newest: Option<DateTime<Utc>>,
    pages: u64,
}

impl Pass {
    /// Goes on with a pass, or begins one.
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
    /// platform's name of the next page.
    pub fn after(mut self, times: &[DateTime<Utc>], next: Option<String>) -> (Value, bool) {
        self.newest = times.iter().copied().max().max(self.newest);
        // A page may be empty because the platform hides what is on it.
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
                (cursor, !pages.is_multiple_of(PAGES_AT_ONCE))
            }
            None => {
                let seen = self.newest.map(|newest| newest.min(self.began) - OVERLAP);
                (json!({ "until": text(seen.map_or(self.until, |seen| seen.max(self.until))) }), false)
            }
        }
    }

    /// Returns the cursor to begin the pass again: the platform does not know its page any more.
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
        for n in 1..=PAGES_AT_ONCE {
            let (next, more) = Pass::read(cursor.as_ref(), at(0)).after(&[at(0)], Some(format!("p{n}")));
            assert_eq!(more, n < PAGES_AT_ONCE);
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
