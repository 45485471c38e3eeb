//! When a delivery is retried: with growing delays over a day, or at the time in the receiver's `Retry-After`.
//!
//! Eight attempts: immediately, then 5 s, 5 min, 30 min, 2 h, 5 h, 10 h and 10 h after the previous one, each ± 20 % so
//! that the deliveries to a receiver that was down are not all retried in the same second. These times are documented
//! for receivers, so they are a table rather than a formula.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::backoff;

/// The maximum number of attempts of a delivery, unless a user requests more.
pub const MAX_ATTEMPTS: u32 = 8;

const DELAYS: [Duration; 7] = [
    Duration::from_secs(5),
    Duration::from_mins(5),
    Duration::from_mins(30),
    Duration::from_hours(2),
    Duration::from_hours(5),
    Duration::from_hours(10),
    Duration::from_hours(10),
];

/// The upper limit of a receiver's `Retry-After`.
const MAX_RETRY_AFTER: TimeDelta = TimeDelta::hours(24);

/// The lower limit: `Retry-After: 0` would use up all attempts immediately.
const MIN_RETRY_AFTER: TimeDelta = TimeDelta::seconds(1);

/// Returns when the next attempt is due after `attempts_made`, the last of which ended at `now`; `None` if no attempts
/// are left. `retry_after` is the time from the `Retry-After` of a 429 or 503. Without it, `random` in `[0, 1)` sets
/// the jitter.
pub fn next_attempt(
    attempts_made: u32,
    max_attempts: u32,
    retry_after: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
    random: f64,
) -> Option<DateTime<Utc>> {
    if attempts_made >= max_attempts {
        return None;
    }
    if let Some(at) = retry_after {
        return Some(at.clamp(now + MIN_RETRY_AFTER, now + MAX_RETRY_AFTER));
    }
    if attempts_made == 0 {
        return Some(now);
    }
    // Attempts beyond the eight, which a user requested, keep the longest delay.
    let delay = backoff::pause_after(attempts_made, backoff::table(&DELAYS));
    Some(now + backoff::jitter(delay, 0.2, random))
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone;
    use proptest::prelude::*;

    use super::*;

    fn now() -> DateTime<Utc> {
        Utc.with_ymd_and_hms(2026, 5, 1, 12, 0, 0).single().unwrap_or_default()
    }

    fn wait(attempts_made: u32, random: f64) -> Option<i64> {
        next_attempt(attempts_made, MAX_ATTEMPTS, None, now(), random).map(|at| (at - now()).num_seconds())
    }

    #[test]
    fn retry_delays_match_the_documentation() {
        let middle: Vec<_> = (0..=9).map(|made| wait(made, 0.5)).collect();
        let promised = [0, 5, 300, 1800, 7200, 18_000, 36_000, 36_000];
        assert_eq!(middle[..8], promised.map(Some));
        assert_eq!(middle[8..], [None, None]);
        assert_eq!(next_attempt(11, 12, None, now(), 0.5), Some(now() + TimeDelta::hours(10)));
    }

    #[test]
    fn retry_after_is_kept_within_its_limits() {
        let after = |seconds| {
            next_attempt(1, 8, Some(now() + TimeDelta::seconds(seconds)), now(), 0.9)
                .map(|at| (at - now()).num_seconds())
        };
        assert_eq!(
            [after(600), after(0), after(-5), after(86_400), after(1_000_000)],
            [600, 1, 1, 86_400, 86_400].map(Some)
        );
        assert_eq!(next_attempt(8, 8, Some(now()), now(), 0.0), None);
    }

    proptest! {
        #[test]
        fn jitter_stays_within_a_fifth_of_the_delay(made in 1_u32..20, random in 0.0_f64..1.0) {
            let delay = DELAYS[(made as usize - 1).min(6)].as_millis() as f64;
            let at = next_attempt(made, 20, None, now(), random).map(|at| (at - now()).num_milliseconds() as f64);
            prop_assert!(at.is_some_and(|ms| ms >= delay * 0.8 - 1.0 && ms <= delay * 1.2), "{at:?}");
        }

        #[test]
        fn retry_times_are_in_the_future_and_within_a_day(made: u32, max: u32, after in prop::option::of(-1_i64 << 40..1 << 40), random: f64) {
            let after = after.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
            match next_attempt(made, max, after, now(), random) {
                Some(at) => prop_assert!(made < max && at >= now() && at <= now() + TimeDelta::hours(24)),
                None => prop_assert!(made >= max),
            }
        }
    }
}
