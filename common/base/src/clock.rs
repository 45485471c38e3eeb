//! The only source of wall-clock time. All code that depends on the time takes a [`Clock`], so that tests can move it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Instant;

use chrono::{DateTime, TimeDelta, Utc};

/// Differences below this are not steps: time synchronisation slews the clock, and two readings in a busy process
/// differ.
const STEP_TOLERANCE: TimeDelta = TimeDelta::seconds(5);

/// A clock with a precision of microseconds, that of both databases.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    source: TimeSource,
    steps: Arc<Mutex<Steps>>,
}

#[derive(Clone, Debug, Default)]
enum TimeSource {
    #[default]
    System,
    /// Microseconds since the epoch, and elapsed microseconds; both change only through `advance` and `set`.
    Manual(Arc<AtomicI64>, Arc<AtomicI64>),
}

/// The clock steps seen so far, in microseconds.
#[derive(Debug, Default)]
struct Steps {
    /// The wall-clock time minus the elapsed time, at the last reading.
    offset: Option<i64>,
    /// The elapsed time at which the last step was found.
    found: Option<i64>,
}

impl Clock {
    /// Returns the system clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// Returns a clock that stays at `now` until [`Clock::advance`] moves it. Clones share the time.
    pub fn manual(now: DateTime<Utc>) -> Self {
        let at = Arc::new(AtomicI64::new(now.timestamp_micros()));
        Self { source: TimeSource::Manual(at, Arc::default()), steps: Arc::default() }
    }

    /// Returns the current time, truncated to microseconds.
    pub fn now(&self) -> DateTime<Utc> {
        let micros = match &self.source {
            #[expect(clippy::disallowed_methods, reason = "the one place that asks the system")]
            TimeSource::System => Utc::now().timestamp_micros(),
            TimeSource::Manual(at, _) => at.load(Ordering::SeqCst),
        };
        DateTime::from_timestamp_micros(micros).unwrap_or_default()
    }

    /// Returns whether the clock was set within the last `time`. Only steps between two calls are noticed, so code that
    /// compares stored times with this clock calls this regularly.
    pub fn stepped_within(&self, time: TimeDelta) -> bool {
        let passed = self.monotonic_micros();
        let offset = self.now().timestamp_micros() - passed;
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let by = TimeDelta::microseconds(offset - steps.offset.replace(offset).unwrap_or(offset));
        if by.abs() > STEP_TOLERANCE {
            tracing::warn!(seconds = by.num_seconds(), "the clock was set");
            steps.found = Some(passed);
        }
        steps.found.is_some_and(|found| TimeDelta::microseconds(passed - found) <= time)
    }

    /// Returns the microseconds elapsed since some moment, on a monotonic clock.
    fn monotonic_micros(&self) -> i64 {
        static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
        match &self.source {
            TimeSource::System => i64::try_from(BEGUN.elapsed().as_micros()).unwrap_or(i64::MAX),
            TimeSource::Manual(_, passed) => passed.load(Ordering::SeqCst),
        }
    }

    /// Advances a manual clock; does nothing on the system clock.
    pub fn advance(&self, by: TimeDelta) {
        if let TimeSource::Manual(_, passed) = &self.source {
            passed.fetch_add(by.num_microseconds().unwrap_or(0), Ordering::SeqCst);
            self.set(by);
        }
    }

    /// Steps a manual clock by `by`, as an operator or a time server does: no time elapses.
    pub fn set(&self, by: TimeDelta) {
        if let TimeSource::Manual(at, _) = &self.source {
            at.fetch_add(by.num_microseconds().unwrap_or(0), Ordering::SeqCst);
        }
    }
}
