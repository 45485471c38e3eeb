//! The one source of the time of day. Everything that decides by time asks a [`Clock`], so that a test can move it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, TimeDelta, Utc};

/// Tells the time, in whole microseconds (what both databases keep).
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    /// Microseconds since the epoch; moves only when told to.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands at `now` until [`Clock::advance`] moves it. Clones share the time.
    pub fn manual(now: DateTime<Utc>) -> Self {
        Self(Source::Manual(Arc::new(AtomicI64::new(now.timestamp_micros()))))
    }

    /// The time now, truncated to microseconds.
    pub fn now(&self) -> DateTime<Utc> {
        let micros = match &self.0 {
            #[expect(clippy::disallowed_methods, reason = "the one place that asks the system")]
            Source::System => Utc::now().timestamp_micros(),
            Source::Manual(at) => at.load(Ordering::SeqCst),
        };
        DateTime::from_timestamp_micros(micros).unwrap_or_default()
    }

    /// Moves a manual clock on; the system's clock cannot be moved and is left alone.
    pub fn advance(&self, by: TimeDelta) {
        if let Source::Manual(at) = &self.0 {
            at.fetch_add(by.num_microseconds().unwrap_or(0), Ordering::SeqCst);
        }
    }
}
