//! Pauses before retries. backon computes them; only this module uses the crate.
//!
//! A pause that is stored (the next attempt of a job) is computed from the number of failures with [`pause_after`]. A
//! pause in which a task sleeps comes from [`Pauses`], or from [`Retryable`], which repeats a whole operation.
//!
//! backon's own jitter is not used: it only lengthens a pause, by up to 100 %, and cannot be reproduced. The documented
//! retry times of jobs vary by ± 20 %, and a result that is written twice must contain the same time, so [`jitter`]
//! takes the random number from its caller.

use std::iter;
use std::time::Duration;

use backon::{Backoff, BackoffBuilder};
pub use backon::{ExponentialBuilder, Retryable};
use chrono::TimeDelta;

/// The number of failures after which every schedule has reached its longest pause.
const MAX_STEPS: usize = 64;

/// Returns pauses that double from `first` up to `longest`.
pub const fn exponential(first: Duration, longest: Duration) -> ExponentialBuilder {
    ExponentialBuilder::new().with_min_delay(first).with_max_delay(longest).without_max_times()
}

/// Returns pauses that grow by `step` up to `longest`.
pub fn linear(step: Duration, longest: Duration) -> impl Backoff {
    iter::successors(Some(step), move |pause| Some((*pause + step).min(longest)))
}

/// Returns the pauses of a table; the last one is repeated.
pub fn table(pauses: &'static [Duration]) -> impl Backoff {
    let last = pauses.last().copied().unwrap_or_default();
    pauses.iter().copied().chain(iter::repeat(last))
}

/// Returns the pause after a number of consecutive failures; fewer than one count as one.
pub fn pause_after(failures: impl Into<i64>, schedule: impl BackoffBuilder) -> TimeDelta {
    let step = usize::try_from(failures.into() - 1).unwrap_or(0).min(MAX_STEPS - 1);
    let pause = schedule.build().nth(step).unwrap_or_default();
    TimeDelta::from_std(pause).unwrap_or(TimeDelta::MAX)
}

/// Returns a pause that is up to `share` shorter or longer, depending on `random`, which is in `[0, 1)`.
pub fn jitter(pause: TimeDelta, share: f64, random: f64) -> TimeDelta {
    let millis = pause.num_milliseconds() as f64 * (1.0 - share + 2.0 * share * random.clamp(0.0, 1.0));
    TimeDelta::milliseconds(millis as i64)
}

/// The pauses of a loop that repeats a failing operation.
pub struct Pauses {
    schedule: ExponentialBuilder,
    running: <ExponentialBuilder as BackoffBuilder>::Backoff,
}

impl Pauses {
    pub fn new(schedule: ExponentialBuilder) -> Self {
        Self { schedule, running: schedule.build() }
    }

    /// Returns the pause after one more failure.
    pub fn next_pause(&mut self) -> Duration {
        self.running.next().unwrap_or_default()
    }

    /// Starts again with the first pause. Call it after a success.
    pub fn reset(&mut self) {
        self.running = self.schedule.build();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn first_ten(schedule: impl BackoffBuilder) -> Vec<u128> {
        schedule.build().take(10).map(|pause| pause.as_millis()).collect()
    }

    #[test]
    fn schedules_grow_up_to_their_longest_pause() {
        let doubled = [50, 100, 200, 400, 800, 1_600, 2_000, 2_000, 2_000, 2_000];
        assert_eq!(first_ten(exponential(ms(50), ms(2_000))), doubled);
        assert_eq!(first_ten(linear(ms(10), ms(75))), [10, 20, 30, 40, 50, 60, 70, 75, 75, 75]);
        assert_eq!(first_ten(table(const { &[ms(5), ms(300), ms(7)] })), [5, 300, 7, 7, 7, 7, 7, 7, 7, 7]);
    }

    #[test]
    fn pauses_begin_again_after_a_success() {
        let mut pauses = Pauses::new(exponential(ms(250), ms(1_000)));
        let first: Vec<_> = (0..4).map(|_| pauses.next_pause()).collect();
        assert_eq!(first, [250, 500, 1_000, 1_000].map(ms));
        pauses.reset();
        assert_eq!(pauses.next_pause(), ms(250));
    }

    proptest! {
        #[test]
        fn a_pause_exists_after_any_number_of_failures(failures: i32) {
            let millis = |pause: TimeDelta| pause.num_milliseconds();
            prop_assert!((1..=60_000).contains(&millis(pause_after(failures, exponential(ms(1), ms(60_000))))));
            prop_assert_eq!(millis(pause_after(failures, table(const { &[ms(9)] }))), 9);
            prop_assert_eq!(millis(pause_after(failures, linear(ms(1), ms(60)))), i64::from(failures.clamp(1, 60)));
        }

        #[test]
        fn jitter_stays_within_its_share(seconds in 1_i64..100_000, random in 0.0_f64..1.0) {
            let pause = TimeDelta::seconds(seconds);
            let jittered = jitter(pause, 0.2, random);
            prop_assert!(pause * 4 / 5 - TimeDelta::milliseconds(1) <= jittered && jittered <= pause * 6 / 5);
        }
    }
}
