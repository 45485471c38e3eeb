//! State in the process, for the embedded form and while Redis is unavailable.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use crier_base::clock::Clock;

use super::{Decision, Limiter, RateLimitSubject, take};

/// Maximum number of tracked subjects; about 64 bytes each.
const MAX_SUBJECTS: usize = 100_000;
/// Minimum interval between sweeps of full allowances, in microseconds.
const SWEEP_INTERVAL: i64 = 1_000_000;

#[derive(Debug)]
pub struct MemoryLimiter {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    full_at: HashMap<RateLimitSubject, i64>,
    swept_at: i64,
}

impl MemoryLimiter {
    pub fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    pub fn take_now(&self, subject: RateLimitSubject, limit: u32) -> Decision {
        let now = self.clock.now().timestamp_micros();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.make_room(now);
        let before = state.full_at.get(&subject).copied();
        let (next, decision) = take(before.unwrap_or(0), now, limit);
        // If the sweep frees no room, new subjects are not counted. This is better than rejecting known ones.
        if before.is_some() || state.full_at.len() < MAX_SUBJECTS {
            state.full_at.insert(subject, next);
        }
        decision
    }

    #[cfg(test)]
    fn subject_count(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).full_at.len()
    }
}

impl State {
    /// Removes subjects with full allowances, once there are many subjects.
    fn make_room(&mut self, now: i64) {
        if self.full_at.len() >= MAX_SUBJECTS / 10 && now - self.swept_at >= SWEEP_INTERVAL {
            self.swept_at = now;
            self.full_at.retain(|_, full_at| *full_at > now);
        }
    }
}

#[async_trait]
impl Limiter for MemoryLimiter {
    async fn take(&self, subject: RateLimitSubject, limit: u32) -> Decision {
        self.take_now(subject, limit)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use chrono::{DateTime, TimeDelta};

    use super::*;

    #[test]
    fn memory_is_bounded_and_known_subjects_stay_limited() {
        let clock = Clock::manual(DateTime::UNIX_EPOCH + TimeDelta::days(20_000));
        let limiter = MemoryLimiter::new(clock.clone());
        let address = |n: u32| RateLimitSubject::address(Ipv4Addr::from(n).into());
        for n in 0..u32::try_from(MAX_SUBJECTS + 500).unwrap() {
            limiter.take_now(address(n), 1);
        }
        assert_eq!(limiter.subject_count(), MAX_SUBJECTS);
        assert!(!limiter.take_now(address(7), 1).allowed);
        assert!(limiter.take_now(RateLimitSubject::Key(1), 1).allowed);
        clock.advance(TimeDelta::minutes(1));
        limiter.take_now(address(7), 1);
        assert_eq!(limiter.subject_count(), 1);
    }
}
