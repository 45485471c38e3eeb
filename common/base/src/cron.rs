//! Cron expressions: `minute hour day month weekday`, optionally with seconds in front.
//!
//! croner parses them, because its five fields are those of POSIX (weekdays 0 and 7 are both Sunday), and because it
//! handles daylight saving: a skipped local time is moved to the next one that exists, and a repeated one occurs once.
//! The parser of apalis-cron does neither.

use std::str::FromStr;

use chrono::{DateTime, SubsecRound, TimeZone};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

/// The maximum length of an expression, in bytes.
pub const MAX_LENGTH: usize = 120;

#[derive(Debug, thiserror::Error)]
pub enum CronError {
    #[error("a cron expression has at most {MAX_LENGTH} bytes")]
    TooLong,
    #[error("not a cron expression (minute hour day month weekday): {0}")]
    Invalid(#[from] croner::errors::CronError),
}

/// A parsed cron expression.
#[derive(Clone, Debug)]
pub struct CronSchedule(Cron);

impl FromStr for CronSchedule {
    type Err = CronError;

    fn from_str(expression: &str) -> Result<Self, CronError> {
        if expression.len() > MAX_LENGTH {
            return Err(CronError::TooLong);
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        Ok(Self(parser.parse(expression)?))
    }
}

impl CronSchedule {
    /// Returns the first time after `at`, in the time zone of `at`; `None` if the expression matches no existing day.
    pub fn next_after<Tz: TimeZone>(&self, at: &DateTime<Tz>) -> Option<DateTime<Tz>> {
        let mut found = at.clone().trunc_subsecs(0);
        loop {
            found = self.0.find_next_occurrence(&found, false).ok()?;
            // During the second pass of a repeated hour, croner returns the time of the first one, which has passed. It is
            // later on the clock, so the search continues from there.
            if found > *at {
                return Some(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono_tz::Europe::Berlin;
    use proptest::prelude::*;

    use super::*;

    fn next(expression: &str, at: &str) -> Option<String> {
        let at = DateTime::parse_from_rfc3339(at).unwrap().with_timezone(&Berlin);
        expression.parse::<CronSchedule>().unwrap().next_after(&at).map(|at| at.to_rfc3339())
    }

    #[test]
    fn the_next_time_is_after_the_given_one() {
        for (expression, at, expected) in [
            ("* * * * * *", "2026-01-01T12:00:00.25+01:00", "2026-01-01T12:00:01+01:00"),
            ("* * * * * *", "2026-01-01T12:00:01+01:00", "2026-01-01T12:00:02+01:00"),
            ("4/10 * * * * *", "2026-01-01T12:00:14+01:00", "2026-01-01T12:00:24+01:00"),
            ("0 9 * * 7", "2026-01-01T12:00:00+01:00", "2026-01-04T09:00:00+01:00"),
            ("0 9 * * 0", "2026-01-01T12:00:00+01:00", "2026-01-04T09:00:00+01:00"),
        ] {
            assert_eq!(next(expression, at).as_deref(), Some(expected), "{expression}");
        }
        assert_eq!(next("0 0 30 2 *", "2026-01-01T12:00:00+01:00"), None);
    }

    #[test]
    fn a_skipped_local_time_happens_later_and_a_repeated_one_once() {
        let daily = "30 2 * * *";
        assert_eq!(next(daily, "2026-03-28T12:00:00+01:00").as_deref(), Some("2026-03-29T03:00:00+02:00"));
        assert_eq!(next(daily, "2026-10-24T12:00:00+02:00").as_deref(), Some("2026-10-25T02:30:00+02:00"));
        assert_eq!(next(daily, "2026-10-25T02:30:00+02:00").as_deref(), Some("2026-10-26T02:30:00+01:00"));
        // During the second pass of the hour, its times have already been used.
        assert_eq!(next(daily, "2026-10-25T02:10:00+01:00").as_deref(), Some("2026-10-26T02:30:00+01:00"));
        let quarters = "*/15 * * * *";
        assert_eq!(next(quarters, "2026-10-25T02:10:00+01:00").as_deref(), Some("2026-10-25T03:00:00+01:00"));
    }

    #[test]
    fn an_invalid_expression_is_explained() {
        let error = |expression: &str| expression.parse::<CronSchedule>().unwrap_err().to_string();
        assert!(error("61 * * * *").starts_with("not a cron expression (minute hour day month weekday): "));
        assert!(error(&"* ".repeat(MAX_LENGTH)).contains("at most 120 bytes"));
        for invalid in ["", "*", "* * * *", "* * * * * * 2030", "*/0 * * * *", "a b c d e"] {
            error(invalid);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_expressions_do_not_panic(text in "[0-9*/,#?LWa-z@ -]{0,30}|\\PC{0,30}") {
            drop(text.parse::<CronSchedule>());
        }
    }
}
