//! The circuit breaker of a webhook endpoint, which limits its concurrent attempts.
//!
//! ```text
//!           ten consecutive strikes
//!   closed ───────────────────────> open    at most four attempts together; after a failure none for 1 s, 2 s, … 30 s
//!      ▲                              │
//!      └────── a quick success ───────┘
//! ```
//! A strike is an attempt that failed or succeeded slowly: both occupy a connection that other endpoints could use.
//! Deliveries that wait for an open circuit use no attempts. The few attempts that are made show when the endpoint has
//! recovered.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::backoff::{self, ExponentialBuilder};

/// The number of consecutive strikes that opens the circuit. It is more than the attempts of one delivery, so that a
/// single failing delivery keeps its retry times.
pub const OPENS_AT: i32 = 10;
/// Maximum number of concurrent attempts while the circuit is open.
pub const MAX_OPEN_ATTEMPTS: i64 = 4;
/// A success that takes longer is a strike.
pub const SLOW: Duration = Duration::from_secs(5);

/// The pauses of an open circuit.
const PAUSES: ExponentialBuilder = backoff::exponential(Duration::from_secs(1), Duration::from_secs(30));

/// The result of an attempt, as far as the circuit depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitVerdict {
    Quick,
    Slow,
    Failed,
}

impl CircuitVerdict {
    pub fn of(success: bool, took: Duration) -> Self {
        match success {
            true if took <= SLOW => Self::Quick,
            true => Self::Slow,
            false => Self::Failed,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circuit {
    Closed,
    Open,
}

/// The health of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Health {
    /// The time of the first failure since the last success.
    pub failing_since: Option<DateTime<Utc>>,
    /// Consecutive strikes.
    pub strikes: i32,
}

impl Health {
    /// Returns the health after one more attempt, which ended at `at`.
    pub fn after(self, verdict: CircuitVerdict, at: DateTime<Utc>) -> Self {
        let strikes = self.strikes.saturating_add(1);
        match verdict {
            CircuitVerdict::Quick => Self::default(),
            CircuitVerdict::Slow => Self { failing_since: None, strikes },
            CircuitVerdict::Failed => Self { failing_since: self.failing_since.or(Some(at)), strikes },
        }
    }

    pub fn circuit(self) -> Circuit {
        if self.strikes < OPENS_AT { Circuit::Closed } else { Circuit::Open }
    }

    /// Returns the pause after a failure while the circuit is open; `None` if there is none.
    pub fn pause(self) -> Option<TimeDelta> {
        let failed = self.circuit() == Circuit::Open && self.failing_since.is_some();
        failed.then(|| backoff::pause_after(self.strikes - OPENS_AT + 1, PAUSES))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: usize) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(i64::try_from(second).unwrap_or_default())
    }

    fn after(verdicts: &[CircuitVerdict]) -> Health {
        let attempts = verdicts.iter().enumerate();
        attempts.fold(Health::default(), |health, (n, verdict)| health.after(*verdict, at(n)))
    }

    #[test]
    fn ten_strikes_open_the_circuit_and_a_quick_success_closes_it() {
        let mut verdicts = vec![CircuitVerdict::Failed; 9];
        assert_eq!((after(&verdicts).circuit(), after(&verdicts).pause()), (Circuit::Closed, None));
        let pauses: Vec<_> = (0..7)
            .map_while(|_| {
                verdicts.push(CircuitVerdict::Failed);
                after(&verdicts).pause().map(|pause| pause.num_seconds())
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        verdicts.push(CircuitVerdict::Slow);
        // The endpoint works, but slowly: no pause, but still few connections.
        assert_eq!((after(&verdicts).circuit(), after(&verdicts).pause()), (Circuit::Open, None));
        verdicts.push(CircuitVerdict::Quick);
        assert_eq!(after(&verdicts), Health::default());
    }

    #[test]
    fn a_verdict_depends_on_success_and_duration() {
        let of = |success, seconds| CircuitVerdict::of(success, Duration::from_secs(seconds));
        assert_eq!(
            [of(true, 5), of(true, 6), of(false, 0)],
            [CircuitVerdict::Quick, CircuitVerdict::Slow, CircuitVerdict::Failed]
        );
    }

    fn verdict() -> impl Strategy<Value = CircuitVerdict> {
        prop::sample::select(vec![CircuitVerdict::Quick, CircuitVerdict::Slow, CircuitVerdict::Failed])
    }

    proptest! {
        /// Law: `strikes` counts since the last quick success, `failing_since` is the first failure since the last
        /// success.
        #[test]
        fn health_depends_on_the_latest_verdicts(verdicts in prop::collection::vec(verdict(), 0..40)) {
            let health = after(&verdicts);
            let strikes = verdicts.iter().rev().take_while(|v| **v != CircuitVerdict::Quick).count();
            let failures = verdicts.iter().rev().take_while(|v| **v == CircuitVerdict::Failed).count();
            prop_assert_eq!(usize::try_from(health.strikes).ok(), Some(strikes));
            prop_assert_eq!(health.failing_since, (failures > 0).then(|| at(verdicts.len() - failures)));
            prop_assert_eq!(health.circuit() == Circuit::Open, strikes >= 10);
            prop_assert_eq!(health.pause().is_some(), strikes >= 10 && failures > 0);
        }
    }
}
