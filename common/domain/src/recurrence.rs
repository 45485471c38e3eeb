//! Times that repeat: those of report schedules and of recurring posts.
//!
//! Every frequency is a cron expression in the brand's time zone, so that all of them handle daylight saving in the
//! same way (`crier_base::cron`): a local time that is skipped moves to the next one that exists, and a repeated one is
//! used once.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Utc};
use chrono_tz::Tz;
use crier_base::cron::{CronError, CronSchedule, MAX_LENGTH};

use super::analytics::day_start;

crier_base::text_enum! {
    pub enum Frequency { Daily = "daily", Weekly = "weekly", Monthly = "monthly", Cron = "cron" }
}

impl Frequency {
    /// Returns the cron expression for a time of day. For `cron`, it is the client's own expression.
    pub fn expression(self, time: NaiveTime, cron: &str) -> String {
        let at = time.format("%-M %-H");
        match self {
            Self::Daily => format!("{at} * * *"),
            Self::Weekly => format!("{at} * * 1"),
            Self::Monthly => format!("{at} 1 * *"),
            Self::Cron => cron.to_owned(),
        }
    }
}

const CRON_FIELDS: usize = 5;
/// The last day of the shortest month. A later day of a month is searched among the days from here on.
const SHORTEST_MONTH: u32 = 28;

/// Parses `HH:MM`.
pub fn parse_time(text: &str) -> Option<NaiveTime> {
    let digits = text.bytes().enumerate().all(|(n, b)| if n == 2 { b == b':' } else { b.is_ascii_digit() });
    if text.len() != 5 || !digits {
        return None;
    }
    NaiveTime::parse_from_str(text, "%H:%M").ok()
}

/// Parses a cron expression with five fields. The error is a message for the user.
pub fn parse_cron(expression: &str) -> Result<CronSchedule, String> {
    if expression.split_whitespace().count() != CRON_FIELDS {
        return Err("Must have five fields: minute, hour, day, month and weekday, such as 0 9 * * 1.".to_owned());
    }
    expression.parse::<CronSchedule>().map_err(|error| {
        let text = match error {
            CronError::Invalid(error) => error.to_string(),
            CronError::TooLong => return format!("Must have at most {MAX_LENGTH} bytes."),
        };
        // The parser names its own parts, and some of its messages end with a period.
        let text = text.trim_start_matches("Component error: ").trim_start_matches("Invalid pattern: ");
        format!("Invalid cron expression: {}.", text.trim_end_matches('.'))
    })
}

/// The days and times of a rule, in the time zone of its brand.
#[derive(Clone, Debug)]
pub struct Recurrence {
    schedule: CronSchedule,
    zone: Tz,
    /// The day of each month. In a shorter month, it is the last day. `None` if the expression has the days.
    day_of_month: Option<u32>,
}

/// The fields of a rule that determine its times.
#[derive(Clone, Copy, Debug)]
pub struct RecurrenceFields<'a> {
    pub frequency: Frequency,
    /// From 1 (Monday) to 7. Used by `weekly`.
    pub weekdays: &'a [i64],
    /// From 1 to 31. Used by `monthly`.
    pub day: Option<i64>,
    pub cron: Option<&'a str>,
    /// `HH:MM`. Not used by `cron`.
    pub time: Option<&'a str>,
}

impl Recurrence {
    /// Reads the fields of a rule. The error is a message for the user about the cron expression.
    pub fn new(fields: &RecurrenceFields<'_>, zone: Tz) -> Result<Self, String> {
        let time = fields.time.and_then(parse_time).unwrap_or_default();
        let at = time.format("%-M %-H");
        let day = fields.day.and_then(|day| u32::try_from(day).ok()).unwrap_or(1).clamp(1, 31);
        let is_monthly = fields.frequency == Frequency::Monthly;
        let expression = match fields.frequency {
            Frequency::Weekly if !fields.weekdays.is_empty() => {
                let days: Vec<String> = fields.weekdays.iter().map(i64::to_string).collect();
                format!("{at} * * {}", days.join(","))
            }
            Frequency::Monthly if day > SHORTEST_MONTH => format!("{at} {SHORTEST_MONTH}-31 * *"),
            Frequency::Monthly => format!("{at} {day} * *"),
            other => other.expression(time, fields.cron.unwrap_or_default()),
        };
        Ok(Self { schedule: parse_cron(&expression)?, zone, day_of_month: is_monthly.then_some(day) })
    }

    /// Returns the first time after `at`. `None` if there is none.
    pub fn next_after(&self, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut local = at.with_timezone(&self.zone);
        // At most three days of a month precede its last one.
        for _ in 0..=(31 - SHORTEST_MONTH) {
            local = self.schedule.next_after(&local)?;
            if self.is_day_of_month(local.date_naive()) {
                return Some(local.to_utc());
            }
        }
        None
    }

    /// Returns the times from a day on and after `after`, up to a day and until `until`, in order.
    pub fn times(&self, after: DateTime<Utc>, until: DateTime<Utc>, days: &DayRange) -> Vec<DateTime<Utc>> {
        self.all_after(after, days).take_while(|at| *at <= until).take(MAX_TIMES).collect()
    }

    /// Returns the next times, at most `count`.
    pub fn next_times(&self, after: DateTime<Utc>, days: &DayRange, count: usize) -> Vec<DateTime<Utc>> {
        self.all_after(after, days).take(count).collect()
    }

    fn all_after(&self, after: DateTime<Utc>, days: &DayRange) -> impl Iterator<Item = DateTime<Utc>> {
        let (first, last_day) = (self.begin(after, days), days.last);
        let next = move |last: DateTime<Utc>| self.next_after(last).filter(|at| *at > last);
        let times = std::iter::successors(next(first), move |at| next(*at));
        times.take_while(move |at| last_day.is_none_or(|last| self.local(*at).date() <= last))
    }

    /// Returns the local time.
    pub fn local(&self, at: DateTime<Utc>) -> NaiveDateTime {
        at.with_timezone(&self.zone).naive_local()
    }

    /// Returns the time after which the first one is searched.
    fn begin(&self, after: DateTime<Utc>, days: &DayRange) -> DateTime<Utc> {
        after.max(day_start(days.first, self.zone) - TimeDelta::seconds(1))
    }

    fn is_day_of_month(&self, date: NaiveDate) -> bool {
        self.day_of_month.is_none_or(|day| date.day() == day.min(u32::from(date.num_days_in_month())))
    }
}

/// The maximum number of times that [`Recurrence::times`] returns.
pub const MAX_TIMES: usize = 1_000;

/// The local days of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayRange {
    pub first: NaiveDate,
    /// `None`: no end.
    pub last: Option<NaiveDate>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn fields(frequency: Frequency, time: &str) -> RecurrenceFields<'_> {
        RecurrenceFields { frequency, weekdays: &[], day: None, cron: None, time: Some(time) }
    }

    /// Returns the next times as local times with their offsets.
    fn local(fields: &RecurrenceFields<'_>, zone: &str, after: &str, count: usize) -> Vec<String> {
        let zone: Tz = zone.parse().unwrap();
        let days = DayRange { first: "2000-01-01".parse().unwrap(), last: None };
        let times = Recurrence::new(fields, zone).unwrap().next_times(at(after), &days, count);
        times.iter().map(|time| time.with_timezone(&zone).format("%Y-%m-%dT%H:%M%:z").to_string()).collect()
    }

    #[test]
    fn a_time_has_hours_and_minutes() {
        assert_eq!(parse_time("07:05"), NaiveTime::from_hms_opt(7, 5, 0));
        for wrong in ["7:05", "24:00", "07:60", "07:5", "0705", "+7:05", "07:05:00", "", "٠٧:٠٥"] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
        let at = parse_time("07:05").unwrap();
        let expressions = Frequency::ALL.iter().map(|frequency| frequency.expression(at, "1 2 3 4 5"));
        assert_eq!(expressions.collect::<Vec<_>>(), ["5 7 * * *", "5 7 * * 1", "5 7 1 * *", "1 2 3 4 5"]);
    }

    #[test]
    fn a_skipped_time_moves_and_a_repeated_one_is_used_once() {
        for (zone, time, after, expected) in [
            ("Europe/Berlin", "02:30", "2027-03-27T12:00:00Z", ["2027-03-28T03:00+02:00", "2027-03-29T02:30+02:00"]),
            ("Europe/Berlin", "02:30", "2026-10-24T12:00:00Z", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
            ("America/New_York", "02:30", "2027-03-13T12:00:00Z", ["2027-03-14T03:00-04:00", "2027-03-15T02:30-04:00"]),
            ("America/New_York", "01:30", "2026-10-31T12:00:00Z", ["2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"]),
            // 30 minutes.
            (
                "Australia/Lord_Howe",
                "02:15",
                "2026-10-02T20:00:00Z",
                ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"],
            ),
            (
                "Australia/Lord_Howe",
                "01:45",
                "2027-04-02T20:00:00Z",
                ["2027-04-04T01:45+11:00", "2027-04-05T01:45+10:30"],
            ),
            // The hour is skipped at the end of Ramadan, and repeated at its beginning.
            (
                "Africa/Casablanca",
                "02:30",
                "2027-03-13T12:00:00Z",
                ["2027-03-14T03:00+01:00", "2027-03-15T02:30+01:00"],
            ),
            (
                "Africa/Casablanca",
                "02:30",
                "2027-02-06T12:00:00Z",
                ["2027-02-07T02:30+01:00", "2027-02-08T02:30+00:00"],
            ),
        ] {
            // The first time of some zones is the day before the change.
            let found = local(&fields(Frequency::Daily, time), zone, after, 3);
            assert!(found.windows(2).any(|two| two == expected), "{zone} {after}: {found:?}");
        }
    }

    #[test]
    fn a_day_that_a_month_does_not_have_is_its_last_one() {
        let monthly = |day| RecurrenceFields { day: Some(day), ..fields(Frequency::Monthly, "09:00") };
        let days = |day, after: &str, count| -> Vec<String> {
            local(&monthly(day), "UTC", after, count).iter().map(|time| time[5..10].to_owned()).collect()
        };
        assert_eq!(days(31, "2027-01-01T00:00:00Z", 4), ["01-31", "02-28", "03-31", "04-30"]);
        assert_eq!(days(30, "2028-01-01T00:00:00Z", 3), ["01-30", "02-29", "03-30"]);
        assert_eq!(days(28, "2028-01-01T00:00:00Z", 3), ["01-28", "02-28", "03-28"]);
        assert_eq!(days(29, "2027-02-28T09:00:00Z", 1), ["03-29"]);
    }

    #[test]
    fn weekdays_are_those_of_iso_8601() {
        let weekly = RecurrenceFields { weekdays: &[1, 7], ..fields(Frequency::Weekly, "09:00") };
        let found = local(&weekly, "UTC", "2026-11-28T12:00:00Z", 3);
        assert_eq!(found, ["2026-11-29T09:00+00:00", "2026-11-30T09:00+00:00", "2026-12-06T09:00+00:00"]);
    }

    #[test]
    fn times_are_within_the_days() {
        let daily = Recurrence::new(&fields(Frequency::Daily, "00:00"), chrono_tz::Europe::Berlin).unwrap();
        let days = DayRange { first: "2026-12-01".parse().unwrap(), last: "2026-12-03".parse().ok() };
        let times = daily.times(at("2026-11-28T12:00:00Z"), at("2027-01-01T00:00:00Z"), &days);
        let expected = ["2026-11-30T23:00:00Z", "2026-12-01T23:00:00Z", "2026-12-02T23:00:00Z"];
        assert_eq!(times, expected.map(at));
        assert_eq!(daily.times(at("2026-11-28T12:00:00Z"), at("2026-12-01T23:00:00Z"), &days), expected.map(at)[..2]);
        assert_eq!(daily.next_times(expected.map(at)[1], &days, 5), expected.map(at)[2..]);
    }

    #[test]
    fn an_expression_has_five_fields() {
        assert!(parse_cron("0 0 9 * * 1").unwrap_err().starts_with("Must have five fields"));
        assert!(parse_cron("61 * * * *").unwrap_err().starts_with("Invalid cron expression: "));
        assert!(parse_cron("0 9 * * 1").is_ok());
    }
}
