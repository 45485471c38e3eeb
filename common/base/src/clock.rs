//! The only source of wall-clock time. All code that depends on the time takes a [`Clock`], so that tests can move it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

/// Smaller differences are not steps: time synchronization slews the clock, and two readings in a busy process differ.
const STEP_TOLERANCE: TimeDelta = TimeDelta::seconds(5);
/// A longer step is a jump.
const MAX_STEP: TimeDelta = TimeDelta::minutes(1);
/// How long a jump ahead must last before its time is used.
const JUMP_CONFIRMED_AFTER: TimeDelta = TimeDelta::minutes(1);
/// If the system clock differs more from the database's, the time of the database is used.
const MAX_SKEW: TimeDelta = TimeDelta::seconds(1);
/// A query for the time of the database that took longer is ignored: the time could be wrong by half of it.
const MAX_QUERY_TIME: TimeDelta = TimeDelta::milliseconds(500);
/// Smaller changes of the database's clock are ignored, because a query is no more precise.
const QUERY_ERROR: TimeDelta = TimeDelta::milliseconds(250);

/// A clock with a precision of microseconds, that of both databases.
///
/// Several processes compare the times that one of them wrote, such as the end of a lease, with their own clocks. So
/// all of them use the time of their database server if the clock of their machine differs from it ([`Clock::follow`]).
///
/// The effects of a wrong time cannot be undone: a post that was published early, a job whose lease ends in a month. So
/// the clock is compared with the monotonic clock. A jump ahead by more than a minute is held back, and the time
/// continues without it, until the jump has lasted for a minute. A step back is used immediately, because it only
/// delays due work. Time during which the machine was suspended is not a jump.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    source: TimeSource,
    steps: Arc<Mutex<Steps>>,
}

#[derive(Clone, Debug, Default)]
enum TimeSource {
    #[default]
    System,
    Manual(Arc<ManualTime>),
}

/// The time of a test, in microseconds.
#[derive(Debug)]
struct ManualTime {
    elapsed: AtomicI64,
    /// The wall-clock time minus the elapsed time.
    offset: AtomicI64,
}

/// A reading of both clocks, in microseconds.
#[derive(Clone, Copy)]
struct Reading {
    elapsed: i64,
    /// The wall-clock time minus the elapsed time: it changes only if the clock is set.
    offset: i64,
}

/// The clock steps seen so far, in microseconds.
#[derive(Debug, Default)]
struct Steps {
    /// The offset in use.
    offset: Option<i64>,
    /// The elapsed time at which the last step was used.
    found: Option<i64>,
    held_back: Option<HeldBack>,
    jumps: u64,
    /// The offset of the database's clock, as last measured.
    database: Option<i64>,
    /// Whether the system clock differs from it.
    differs: bool,
}

/// A jump ahead that has not lasted long enough.
#[derive(Clone, Copy, Debug)]
struct HeldBack {
    offset: i64,
    since: i64,
}

impl Clock {
    /// Returns the system clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// Returns a clock that stays at `now` until [`Clock::advance`] moves it. Clones share the time.
    pub fn manual(now: DateTime<Utc>) -> Self {
        let time = ManualTime { elapsed: AtomicI64::new(0), offset: AtomicI64::new(now.timestamp_micros()) };
        Self { source: TimeSource::Manual(Arc::new(time)), steps: Arc::default() }
    }

    /// Returns the current time, truncated to microseconds.
    pub fn now(&self) -> DateTime<Utc> {
        let reading = self.source.read();
        let offset = self.steps().update(reading);
        time_of(reading.elapsed + offset)
    }

    /// Returns whether the clock was set within the last `time`. Only steps between two readings are noticed.
    pub fn stepped_within(&self, time: TimeDelta) -> bool {
        let reading = self.source.read();
        let mut steps = self.steps();
        steps.update(reading);
        steps.found.is_some_and(|found| TimeDelta::microseconds(reading.elapsed - found) <= time)
    }

    /// Returns the time on the monotonic clock, for [`Clock::follow`].
    pub fn elapsed(&self) -> TimeDelta {
        TimeDelta::microseconds(self.source.read().elapsed)
    }

    /// Compares the system clock with the time of the database, which is used while they differ. `began` is the elapsed
    /// time at which the query for `at` began. The first comparison takes effect immediately, so call it before any
    /// write, and then regularly.
    pub fn follow(&self, at: DateTime<Utc>, began: TimeDelta) {
        let reading = self.source.read();
        let took = TimeDelta::microseconds(reading.elapsed) - began;
        let middle = began + took / 2;
        let offset = at.timestamp_micros() - middle.num_microseconds().unwrap_or(reading.elapsed);
        let mut steps = self.steps();
        let last = steps.database;
        match last {
            // What was read before is not the time of this process.
            None => *steps = Steps { database: Some(offset), ..Steps::default() },
            Some(last) if took <= MAX_QUERY_TIME && TimeDelta::microseconds(offset - last).abs() > QUERY_ERROR => {
                steps.database = Some(offset);
            }
            Some(_) => {}
        }
        steps.update(reading);
    }

    /// Returns the number of jumps by more than a minute, in both directions.
    pub fn jumps(&self) -> u64 {
        self.steps().jumps
    }

    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances a manual clock; does nothing on the system clock.
    pub fn advance(&self, by: TimeDelta) {
        if let TimeSource::Manual(time) = &self.source {
            time.elapsed.fetch_add(by.num_microseconds().unwrap_or(0), Ordering::SeqCst);
        }
    }

    /// Sets a manual clock ahead by `by`, as an operator or a time server does: no time elapses.
    pub fn set(&self, by: TimeDelta) {
        if let TimeSource::Manual(time) = &self.source {
            // Only a step between two readings is noticed.
            self.now();
            time.offset.fetch_add(by.num_microseconds().unwrap_or(0), Ordering::SeqCst);
        }
    }

    /// Forgets earlier readings, as a restart of the process does.
    pub fn restart(&self) {
        *self.steps() = Steps::default();
    }
}

impl TimeSource {
    fn read(&self) -> Reading {
        match self {
            Self::System => {
                let elapsed = elapsed_micros();
                #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
                let wall = Utc::now().timestamp_micros();
                Reading { elapsed, offset: wall - elapsed }
            }
            Self::Manual(time) => {
                Reading { elapsed: time.elapsed.load(Ordering::SeqCst), offset: time.offset.load(Ordering::SeqCst) }
            }
        }
    }
}

impl Steps {
    /// Evaluates a reading of the system clock; returns the offset to use.
    fn update(&mut self, reading: Reading) -> i64 {
        let reading = Reading { offset: self.shared_offset(reading.offset), ..reading };
        let used = *self.offset.get_or_insert(reading.offset);
        let by = TimeDelta::microseconds(reading.offset - used);
        if by > MAX_STEP && !self.has_lasted(reading, by) {
            return used;
        }
        if self.held_back.take().is_some() && by <= MAX_STEP {
            tracing::info!("the clock jumped ahead and then back; the jump ahead had no effect");
        }
        if by.abs() > STEP_TOLERANCE {
            tracing::warn!(seconds = by.num_seconds(), "the clock was set");
            self.found = Some(reading.elapsed);
            self.jumps += u64::from(by < -MAX_STEP);
        }
        self.offset = Some(reading.offset);
        reading.offset
    }

    /// Returns the offset of the database's clock if the system clock, with the offset `system`, differs from it.
    fn shared_offset(&mut self, system: i64) -> i64 {
        let Some(database) = self.database else { return system };
        let ahead = TimeDelta::microseconds(system - database);
        let differed = std::mem::replace(&mut self.differs, ahead.abs() > MAX_SKEW);
        if self.differs && !differed {
            tracing::warn!(
                milliseconds_ahead = ahead.num_milliseconds(),
                "the clock of this machine differs from the database's, whose time is used; synchronize the clocks of \
                 all machines"
            );
            self.jumps += u64::from(ahead.abs() > MAX_STEP);
        } else if differed && !self.differs {
            tracing::info!("the clock of this machine agrees with the database's again");
        }
        if self.differs { database } else { system }
    }

    /// Returns whether a jump ahead has lasted for a minute since its first reading.
    fn has_lasted(&mut self, reading: Reading, by: TimeDelta) -> bool {
        match &mut self.held_back {
            Some(jump) if TimeDelta::microseconds(reading.offset - jump.offset).abs() <= STEP_TOLERANCE => {
                jump.offset = reading.offset;
                TimeDelta::microseconds(reading.elapsed - jump.since) >= JUMP_CONFIRMED_AFTER
            }
            _ => {
                tracing::warn!(seconds = by.num_seconds(), "the clock jumped ahead; its time is used if it lasts");
                self.held_back = Some(HeldBack { offset: reading.offset, since: reading.elapsed });
                self.jumps += 1;
                false
            }
        }
    }
}

fn time_of(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or_default()
}

/// Returns the microseconds since boot, on a monotonic clock that continues while the machine is suspended.
#[cfg(target_os = "linux")]
fn elapsed_micros() -> i64 {
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    since_boot.tv_sec * 1_000_000 + since_boot.tv_nsec / 1_000
}

#[cfg(not(target_os = "linux"))]
fn elapsed_micros() -> i64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static FIRST_CALL: LazyLock<Instant> = LazyLock::new(Instant::now);
    i64::try_from(FIRST_CALL.elapsed().as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: DateTime<Utc> = DateTime::from_timestamp_nanos(1_700_000_000_000_000_000);
    const HOUR: TimeDelta = TimeDelta::hours(1);
    const SECOND: TimeDelta = TimeDelta::seconds(1);

    fn clock() -> Clock {
        let clock = Clock::manual(START);
        assert_eq!(clock.now(), START);
        clock
    }

    #[test]
    fn a_jump_ahead_is_used_after_a_minute() {
        let clock = clock();
        clock.set(HOUR);
        for second in 0..60 {
            assert_eq!(clock.now(), START + SECOND * second);
            assert!(!clock.stepped_within(HOUR));
            clock.advance(SECOND);
        }
        assert_eq!(clock.now(), START + HOUR + SECOND * 60);
        assert!(clock.stepped_within(SECOND));
        assert_eq!(clock.jumps(), 1);
    }

    #[test]
    fn a_jump_ahead_that_ends_sooner_has_no_effect() {
        let clock = clock();
        clock.set(TimeDelta::days(40));
        assert_eq!((clock.now(), clock.jumps()), (START, 1));
        clock.advance(SECOND * 59);
        assert_eq!(clock.now(), START + SECOND * 59);
        // Another jump begins another minute.
        clock.set(HOUR);
        assert_eq!(clock.now(), START + SECOND * 59);
        clock.advance(SECOND * 59);
        assert_eq!(clock.now(), START + SECOND * 118);
        clock.set(-HOUR - TimeDelta::days(40));
        assert_eq!(clock.now(), START + SECOND * 118);
        assert!(!clock.stepped_within(HOUR));
        assert_eq!(clock.jumps(), 2);
    }

    /// Compares with a database whose clock is ahead of the start by `ahead`.
    fn follow(clock: &Clock, ahead: TimeDelta) {
        clock.follow(START + ahead + clock.elapsed(), clock.elapsed());
    }

    #[test]
    fn a_clock_that_differs_from_the_database_s_uses_its_time() {
        for ahead in [SECOND * 2, SECOND * 25, HOUR, TimeDelta::days(40)] {
            for ahead in [ahead, -ahead] {
                let clock = Clock::manual(START + ahead);
                assert_eq!(clock.now(), START + ahead);
                follow(&clock, TimeDelta::zero());
                assert_eq!(clock.now(), START);
                assert!(!clock.stepped_within(HOUR), "nothing was written before");
                assert_eq!(clock.jumps(), u64::from(ahead.abs() >= HOUR));
                // The clock is corrected.
                clock.set(-ahead);
                clock.advance(SECOND);
                assert_eq!(clock.now(), START + SECOND);
                assert!(!clock.stepped_within(HOUR));
            }
        }
    }

    #[test]
    fn a_clock_that_agrees_with_the_database_s_keeps_its_time() {
        let clock = Clock::manual(START + TimeDelta::milliseconds(900));
        follow(&clock, TimeDelta::zero());
        assert_eq!(clock.now(), START + TimeDelta::milliseconds(900));
    }

    #[test]
    fn steps_of_a_clock_that_the_database_does_not_share_have_no_effect() {
        let clock = clock();
        follow(&clock, TimeDelta::zero());
        for (count, step) in (1..).zip([HOUR, -HOUR, SECOND * 25, -SECOND * 90]) {
            clock.set(step);
            for _ in 0..100 {
                follow(&clock, TimeDelta::zero());
                clock.advance(SECOND);
            }
            assert_eq!(clock.now(), START + SECOND * 100 * count);
        }
        assert!(!clock.stepped_within(HOUR));
    }

    #[test]
    fn a_jump_of_the_database_s_clock_is_used_after_a_minute() {
        let clock = clock();
        follow(&clock, TimeDelta::zero());
        for second in 0..60 {
            follow(&clock, HOUR);
            assert_eq!(clock.now(), START + SECOND * second);
            clock.advance(SECOND);
        }
        assert_eq!(clock.now(), START + HOUR + SECOND * 60);
        assert!(clock.stepped_within(SECOND));
    }

    #[test]
    fn a_slow_query_says_nothing_about_the_time() {
        let clock = clock();
        let began = clock.elapsed();
        clock.advance(SECOND * 4);
        clock.follow(START + SECOND * 2, began);
        assert_eq!(clock.now(), START + SECOND * 4, "the first query counts, in its middle");
        let began = clock.elapsed();
        clock.advance(SECOND * 4);
        clock.follow(START + SECOND * 30, began);
        assert_eq!(clock.now(), START + SECOND * 8);
    }

    #[test]
    fn small_steps_and_steps_back_are_used_immediately() {
        let clock = clock();
        for (by, stepped, jumps) in [(1, false, 0), (-5, false, 0), (60, true, 0), (-60, true, 0), (-3_600, true, 1)] {
            clock.restart();
            let before = clock.now();
            clock.set(SECOND * by);
            assert_eq!(clock.now(), before + SECOND * by);
            assert_eq!((clock.stepped_within(SECOND), clock.jumps()), (stepped, jumps), "{by}");
        }
    }

    #[test]
    fn the_system_clock_is_read() {
        let (clock, other) = (Clock::system(), Clock::system());
        let first = clock.now();
        assert!((other.now() - first).abs() < TimeDelta::minutes(1));
        assert!(clock.now() >= first - SECOND && !clock.stepped_within(HOUR));
    }
}
