//! The one source of the time of day. Everything that decides by time asks a [`Clock`], so that a test can move it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Instant;

use chrono::{DateTime, TimeDelta, Utc};

/// A clock that is off by less was not set: it is being kept right, or was asked twice in a busy process.
const SLACK: TimeDelta = TimeDelta::seconds(5);

/// Tells the time, in whole microseconds (what both databases keep).
#[derive(Clone, Debug, Default)]
pub struct Clock {
    source: Source,
    steps: Arc<Mutex<Steps>>,
}

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    /// Microseconds since the epoch, and those that passed; they move only when told to.
    Manual(Arc<AtomicI64>, Arc<AtomicI64>),
}

/// What is known of how the clock was set, in microseconds.
#[derive(Debug, Default)]
struct Steps {
    /// The time less what had passed, when it was last looked at.
    offset: Option<i64>,
    /// How much had passed when it was last found to have been set.
    found: Option<i64>,
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands at `now` until [`Clock::advance`] moves it. Clones share the time.
    pub fn manual(now: DateTime<Utc>) -> Self {
        let at = Arc::new(AtomicI64::new(now.timestamp_micros()));
        Self { source: Source::Manual(at, Arc::default()), steps: Arc::default() }
    }

    /// The time now, truncated to microseconds.
    pub fn now(&self) -> DateTime<Utc> {
        let micros = match &self.source {
            #[expect(clippy::disallowed_methods, reason = "the one place that asks the system")]
            Source::System => Utc::now().timestamp_micros(),
            Source::Manual(at, _) => at.load(Ordering::SeqCst),
        };
        DateTime::from_timestamp_micros(micros).unwrap_or_default()
    }

    /// Whether the clock was set within that time, as far as those who asked this before can tell: whoever compares a stored
    /// time with this clock's asks again and again.
    pub fn was_set_within(&self, time: TimeDelta) -> bool {
        let passed = self.passed();
        let offset = self.now().timestamp_micros() - passed;
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let by = TimeDelta::microseconds(offset - steps.offset.replace(offset).unwrap_or(offset));
        if by.abs() > SLACK {
            tracing::warn!(seconds = by.num_seconds(), "the clock was set");
            steps.found = Some(passed);
        }
        steps.found.is_some_and(|found| TimeDelta::microseconds(passed - found) <= time)
    }

    /// Microseconds that have passed since some moment, however the clock was set.
    fn passed(&self) -> i64 {
        static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
        match &self.source {
            Source::System => i64::try_from(BEGUN.elapsed().as_micros()).unwrap_or(i64::MAX),
            Source::Manual(_, passed) => passed.load(Ordering::SeqCst),
        }
    }

    /// Lets time pass on a manual clock; the system's clock cannot be moved and is left alone.
    pub fn advance(&self, by: TimeDelta) {
        if let Source::Manual(_, passed) = &self.source {
            passed.fetch_add(by.num_microseconds().unwrap_or(0), Ordering::SeqCst);
            self.set(by);
        }
    }

    /// Sets a manual clock by so much, as a person does or a time server: no time passes.
    pub fn set(&self, by: TimeDelta) {
        if let Source::Manual(at, _) = &self.source {
            at.fetch_add(by.num_microseconds().unwrap_or(0), Ordering::SeqCst);
        }
    }
}
