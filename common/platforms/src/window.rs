//! Finds the post or the reply of a call whose response was lost, for platforms without idempotency keys: by its text,
//! among what the account published since the call began.
//!
//! Times are compared by the platform's clock, which its responses state (`Date`). Connectors return all matches
//! ([`ReconcileResult::Matches`]); the worker decides whether one of them belongs to another post or reply.

use std::cell::Cell;

use chrono::{DateTime, TimeDelta, Utc};
use crier_http::parse_date;
use http::HeaderMap;
use http::header::DATE;

use super::{Published, ReconcileResult};

/// The maximum by which a time from a platform may be too early. Such times have whole seconds and come from several
/// machines.
const RESOLUTION: TimeDelta = TimeDelta::seconds(3);
/// The maximum by which a platform's clock may be behind Crier's, if its responses do not state the time.
const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(2);
/// The maximum plausible difference between the clocks. A larger one is ignored.
const MAX_OFFSET: TimeDelta = TimeDelta::hours(24);

tokio::task_local! {
    /// The difference of the platform's clock to Crier's, from its last response. Positive if the platform's clock is
    /// ahead.
    static OFFSET: Cell<Option<TimeDelta>>;
}

/// Runs a lookup, during which the platform's clock is learned from its responses.
pub(super) async fn with_platform_clock<T>(lookup: impl Future<Output = T>) -> T {
    OFFSET.scope(Cell::new(None), lookup).await
}

/// Records the platform's clock from a response that arrived at `now`.
pub(super) fn record_platform_clock(headers: &HeaderMap, now: DateTime<Utc>) {
    let date = headers.get(DATE).and_then(|value| parse_date(value.to_str().ok()?));
    let offset = date.map(|date| date - now).filter(|offset| offset.abs() <= MAX_OFFSET);
    // Outside a lookup, the clock is not needed.
    let _ = OFFSET.try_with(|known| known.set(offset.or(known.get())));
}

/// The period since a call began, by the platform's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallWindow {
    /// `None` if the start of the call is unknown.
    since: Option<DateTime<Utc>>,
    /// Whether the platform has a page after the list.
    has_next_page: bool,
}

impl CallWindow {
    /// Creates the window of a call that began at `called_at` by Crier's clock (`None` if unknown). Call this after the
    /// list was read, because its response states the platform's clock.
    pub(super) fn of(called_at: Option<DateTime<Utc>>) -> Self {
        let offset = OFFSET.try_with(Cell::get).ok().flatten();
        let since = |at| offset.map_or(at - CLOCK_SKEW, |offset| at + offset - RESOLUTION);
        Self { since: called_at.map(since), has_next_page: false }
    }

    /// Sets whether the platform has a page after the list. A page may be shorter than requested, because platforms
    /// first read as many entries as requested, and then remove those that they hide or that a filter excludes.
    pub(super) fn with_next_page(self, has_next_page: bool) -> Self {
        Self { has_next_page, ..self }
    }

    /// Returns whether a time is in the window.
    pub(super) fn contains(self, at: Option<DateTime<Utc>>) -> bool {
        self.since.is_none_or(|since| at.is_some_and(|at| at >= since))
    }

    /// Returns whether a list of the newest entries, with at most `limit`, contains everything published in the window.
    pub(super) fn is_covered(self, times: &[Option<DateTime<Utc>>], limit: usize) -> bool {
        let is_whole = times.len() < limit && !self.has_next_page;
        // Not the oldest one: a post that is pinned comes first, however old it is.
        let last = times.iter().flatten().next_back();
        is_whole || last.is_some_and(|at| !self.contains(Some(*at)))
    }

    /// Returns the result of a lookup that found these matches in the window.
    pub(super) fn result(self, found: Vec<Published>, is_covered: bool) -> ReconcileResult {
        match found.is_empty() {
            true if is_covered => ReconcileResult::Absent,
            false if is_covered && self.since.is_some() => ReconcileResult::Matches(found),
            _ => ReconcileResult::Unsupported,
        }
    }
}

/// A post or a reply that the account published.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) published: Published,
    pub(super) at: Option<DateTime<Utc>>,
    /// Whether its text, and whatever else is compared, equals that of the post or the reply.
    pub(super) is_same: bool,
}

/// Returns the result of a lookup in a list of the newest entries, with at most `limit`.
pub(super) fn find(window: CallWindow, listed: Vec<Listed>, limit: usize) -> ReconcileResult {
    let times: Vec<_> = listed.iter().map(|one| one.at).collect();
    let found = listed.into_iter().filter(|one| one.is_same && window.contains(one.at));
    window.result(found.map(|one| one.published).collect(), window.is_covered(&times, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::seconds(seconds)
    }

    fn listed(id: &str, at: i64, is_same: bool) -> Listed {
        Listed { published: Published::new(id, None), at: Some(time(at)), is_same }
    }

    fn ids(found: ReconcileResult) -> Vec<String> {
        match found {
            ReconcileResult::Matches(found) => found.into_iter().map(|one| one.external_id).collect(),
            other => panic!("{other:?}"),
        }
    }

    async fn with_date(offset: Option<i64>, listed: Vec<Listed>, limit: usize) -> ReconcileResult {
        with_platform_clock(async {
            let mut headers = HeaderMap::new();
            if let Some(offset) = offset {
                let date = time(100 + offset).format("%a, %d %b %Y %H:%M:%S GMT").to_string();
                headers.insert(DATE, date.parse().unwrap());
            }
            record_platform_clock(&headers, time(100));
            find(CallWindow::of(Some(time(0))), listed, limit)
        })
        .await
    }

    #[tokio::test]
    async fn the_window_begins_at_the_call_by_the_platforms_clock() {
        let all = || vec![listed("after", 10, true), listed("before", -10, true), listed("other", 10, false)];
        assert_eq!(ids(with_date(Some(0), all(), 20).await), ["after"]);
        assert_eq!(ids(with_date(Some(-60), all(), 20).await), ["after", "before"], "its clock is behind");
        assert_eq!(with_date(Some(60), all(), 20).await, ReconcileResult::Absent, "its clock is ahead");
        assert_eq!(ids(with_date(None, all(), 20).await), ["after", "before"], "it does not tell its clock");
        assert_eq!(ids(with_date(Some(864_000), all(), 20).await), ["after", "before"], "it is not believed");
    }

    #[tokio::test]
    async fn a_list_that_does_not_reach_back_proves_nothing() {
        let newer = || vec![listed("1", 10, false), listed("2", 5, false)];
        assert_eq!(with_date(Some(0), newer(), 2).await, ReconcileResult::Unsupported);
        assert_eq!(with_date(Some(0), newer(), 3).await, ReconcileResult::Absent);
        let reaching = vec![listed("1", 10, false), listed("2", -50, false)];
        assert_eq!(with_date(Some(0), reaching, 2).await, ReconcileResult::Absent);
        let pinned = vec![listed("pinned", -50, false), listed("1", 10, false)];
        assert_eq!(with_date(Some(0), pinned, 2).await, ReconcileResult::Unsupported);
    }

    #[test]
    fn a_short_page_proves_nothing_if_another_one_follows() {
        let window = CallWindow::of(Some(time(0))).with_next_page(true);
        assert_eq!(find(window, vec![listed("1", 10, false)], 20), ReconcileResult::Unsupported);
        assert_eq!(find(window, Vec::new(), 20), ReconcileResult::Unsupported);
        assert_eq!(find(window, vec![listed("1", 10, true)], 20), ReconcileResult::Unsupported, "it may have a twin");
        let reaching = vec![listed("1", 10, false), listed("2", -500, false)];
        assert_eq!(find(window, reaching, 20), ReconcileResult::Absent);
    }

    #[test]
    fn equal_text_proves_nothing_if_the_time_of_the_call_is_not_known() {
        let window = CallWindow::of(None);
        assert_eq!(find(window, vec![listed("1", 10, true)], 20), ReconcileResult::Unsupported);
        assert_eq!(find(window, vec![listed("1", 10, false)], 20), ReconcileResult::Absent);
    }
}
