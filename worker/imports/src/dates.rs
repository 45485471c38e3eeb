//! Times as people type them. ISO 8601 is always accepted; otherwise the chosen order of day, month and year applies.

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use chrono_tz::Tz;
use crier_domain::local_time;
use crier_domain::post_import::DateFormat;

/// The maximum length of a date with its time, in bytes.
const MAX_LENGTH: usize = 64;

const YEAR_DIGITS: usize = 4;

/// Parses a date with its time, or a date and a time of two cells. The error is a sentence.
pub fn parse(date: &str, time: &str, format: DateFormat, zone: Tz) -> Result<DateTime<Utc>, &'static str> {
    let (date, time) = (date.trim(), time.trim());
    if date.len() > MAX_LENGTH || time.len() > MAX_LENGTH {
        return Err(INVALID_DATE);
    }
    // ISO 8601 has a year of four digits. Without this check, 02-03-26 would be a day of the year 2.
    if time.is_empty()
        && date.bytes().take_while(u8::is_ascii_digit).count() == YEAR_DIGITS
        && let Some(at) = local_time::parse(date, zone)
    {
        return Ok(at);
    }
    let (day, rest) = date.split_once([' ', 'T', ',']).map_or((date, ""), |(day, rest)| (day, rest.trim()));
    let day = parse_date(day, format)?;
    let time = match (rest, time) {
        ("", "") => return Err("Add a time, such as 09:00."),
        ("", time) | (time, "") => parse_time(time),
        // A cell that a spreadsheet program shows as a date may have the time 00:00.
        (rest, time) if parse_time(rest) == Some(NaiveTime::MIN) => parse_time(time),
        _ => return Err("The date already has a time. Clear one of them."),
    };
    let time = time.ok_or("Enter a time such as 09:00 or 9:00 AM.")?;
    let at = local_time::in_zone(day.and_time(time), zone);
    at.filter(|at| (1..=9_999).contains(&chrono::Datelike::year(at))).ok_or(INVALID_DATE)
}

const INVALID_DATE: &str = "Enter a date such as 2026-05-01 09:00, or choose the order of day and month.";

fn parse_date(text: &str, format: DateFormat) -> Result<NaiveDate, &'static str> {
    let parts: Vec<&str> = text.trim_end_matches('.').split(['/', '.', '-']).collect();
    let [first, second, third] = parts[..] else { return Err(INVALID_DATE) };
    let is_number = |part: &str| (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    if !parts.iter().all(|part| is_number(part)) {
        return Err(INVALID_DATE);
    }
    let (year, month, day) = match format {
        // A number of four digits can only be the year.
        _ if first.len() == 4 => (first, second, third),
        DateFormat::YearFirst => (first, second, third),
        DateFormat::DayFirst => (third, second, first),
        DateFormat::MonthFirst => (third, first, second),
        DateFormat::Iso => return Err(INVALID_DATE),
    };
    let century = match year.len() {
        2 => 2_000,
        4 => 0,
        _ => return Err(INVALID_DATE),
    };
    let number = |part: &str| part.parse::<u32>().ok();
    let date = || NaiveDate::from_ymd_opt(year.parse::<i32>().ok()? + century, number(month)?, number(day)?);
    date().ok_or("This date does not exist. Check the order of day and month.")
}

/// Parses `9:00`, `09:00:30` or `9:00 PM`.
fn parse_time(text: &str) -> Option<NaiveTime> {
    let text = text.to_ascii_uppercase();
    let (clock, half) = match (text.strip_suffix("AM"), text.strip_suffix("PM")) {
        (Some(clock), _) => (clock, Some(0)),
        (_, Some(clock)) => (clock, Some(12)),
        (None, None) => (text.as_str(), None),
    };
    let is_number = |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let number = |part: &str| is_number(part).then(|| part.parse::<u32>().ok())?;
    let parts: Vec<&str> = clock.trim().split(':').collect();
    let (hour, minute, second) = match parts[..] {
        [hour, minute] => (number(hour)?, number(minute)?, 0),
        [hour, minute, second] => (number(hour)?, number(minute)?, number(second)?),
        _ => return None,
    };
    let hour = match half {
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some(half) => hour % 12 + half,
        None => hour,
    };
    NaiveTime::from_hms_opt(hour, minute, second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(date: &str, time: &str, format: DateFormat, zone: &str) -> Option<String> {
        let at = parse(date, time, format, zone.parse().unwrap()).ok()?;
        Some(at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
    }

    #[test]
    fn the_chosen_order_applies() {
        use DateFormat::{DayFirst, Iso, MonthFirst, YearFirst};
        for (date, time, format) in [
            ("2026-03-02T09:00:00Z", "", DayFirst),
            ("2026-03-02T10:00:00+01:00", "", DayFirst),
            ("2026-03-02 09:00", "", Iso),
            ("2026-03-02", "9:00 AM", Iso),
            ("2026/03/02 09:00", "", Iso),
            ("02/03/2026 9:00", "", DayFirst),
            ("2.3.26", "09:00:00", DayFirst),
            ("03/02/2026 09:00 am", "", MonthFirst),
            ("3-2-2026", "9:00AM", MonthFirst),
            ("26/3/2, 9:00", "", YearFirst),
            ("26-03-02 09:00", "", YearFirst),
            ("02-03-26 09:00", "", DayFirst),
            ("2026-03-02 00:00:00", "09:00", Iso),
        ] {
            assert_eq!(read(date, time, format, "UTC").as_deref(), Some("2026-03-02T09:00:00Z"), "{date} {time}");
        }
    }

    #[test]
    fn the_zone_and_daylight_saving_apply() {
        use DateFormat::DayFirst;
        assert_eq!(read("01/05/2026 09:00", "", DayFirst, "Asia/Tokyo").as_deref(), Some("2026-05-01T00:00:00Z"));
        assert_eq!(read("29/03/2026 02:30", "", DayFirst, "Europe/Berlin").as_deref(), Some("2026-03-29T01:00:00Z"));
        assert_eq!(read("25/10/2026 02:30", "", DayFirst, "Europe/Berlin").as_deref(), Some("2026-10-25T00:30:00Z"));
        assert_eq!(read("01/05/2026 12:00 AM", "", DayFirst, "UTC").as_deref(), Some("2026-05-01T00:00:00Z"));
        assert_eq!(read("01/05/2026 12:00 PM", "", DayFirst, "UTC").as_deref(), Some("2026-05-01T12:00:00Z"));
    }

    #[test]
    fn invalid_dates_are_rejected() {
        for (date, time) in [
            ("", ""),
            ("tomorrow", ""),
            ("2026-05-01", ""),
            ("02/03/2026 09:00", ""),
            ("2026-02-30", "09:00"),
            ("2026-05-01 09:00", "10:00"),
            ("2026-05-01", "25:00"),
            ("2026-05-01", "13:00 PM"),
            ("2026-05-01", "9"),
            ("+026-05-01", "09:00"),
            ("2026-05-01-02", "09:00"),
        ] {
            assert_eq!(read(date, time, DateFormat::Iso, "UTC"), None, "{date} {time}");
        }
    }
}
