//! Parses dates in feeds: RFC 3339, RFC 822 and common variants of both. The time defaults to midnight, the zone to
//! UTC.
//!
//! The parser of feed-rs does not serve here. It reads a fifth of the dates in the tests: RFC 3339, RFC 822 with few
//! variants, and `2026-05-04`. It rejects:
//! - a time without a zone, and the zones `CEST`, `GMT+2` and `+02`
//! - `20260504T100000Z`, `2026/05/04`, `2026-5-4`, `04.05.2026`
//! - `04-May-26`, `May 4, 2026 10:00 PM`, `Mon May  4 10:00:00 2026`, `4 May 2026`
//! - the names of months in other languages
//!
//! It reads 24:00 as the start of the same day, and accepts the year 20260. It is not exported, and
//! `Builder::timestamp_parser` replaces it, so the two cannot be combined. chrono and httpdate accept only the standard
//! forms.

use chrono::{DateTime, NaiveDate, NaiveDateTime, TimeDelta, Utc};

/// The maximum length of a date, in bytes.
const MAX_DATE_BYTES: usize = 80;
/// Prefixes of month names, in common languages.
const MONTHS: [&[&str]; 12] = [
    &["jan", "ene", "gen"],
    &["feb", "fév", "fev"],
    &["mar", "mär", "mrt", "maa"],
    &["apr", "avr", "abr"],
    &["may", "mai", "mag", "mei", "maj"],
    &["jun", "juin", "giu"],
    &["jul", "juil", "lug"],
    &["aug", "aoû", "aou", "ago"],
    &["sep", "set"],
    &["oct", "okt", "ott", "out"],
    &["nov"],
    &["dec", "dez", "déc", "dic"],
];
/// Names of time zones, with the offset from UTC in minutes. Unknown names are treated as UTC.
const ZONES: &[(&str, i64)] = &[
    ("est", -300),
    ("edt", -240),
    ("cst", -360),
    ("cdt", -300),
    ("mst", -420),
    ("mdt", -360),
    ("pst", -480),
    ("pdt", -420),
    ("bst", 60),
    ("west", 60),
    ("cet", 60),
    ("mez", 60),
    ("cest", 120),
    ("mesz", 120),
    ("eet", 120),
    ("eest", 180),
    ("msk", 180),
    ("ist", 330),
    ("hkt", 480),
    ("jst", 540),
    ("kst", 540),
    ("aest", 600),
    ("aedt", 660),
];

/// Parses a date.
pub fn parse(text: &str) -> Option<DateTime<Utc>> {
    let text = text.trim();
    if text.len() > MAX_DATE_BYTES {
        return None;
    }
    // The weekday is redundant, and may be a month's name in another language.
    let text =
        text.split_once(',').filter(|(day, _)| !day.contains(|c: char| c.is_ascii_digit())).map_or(text, |t| t.1);
    let (at, minutes_ahead) = numeric(text.trim_start()).or_else(|| worded(text))?;
    at.checked_sub_signed(TimeDelta::minutes(minutes_ahead)).map(|at| at.and_utc())
}

/// Parses `2026-05-04T10:00:00Z`, `20260504T100000Z`, `04.05.2026 10:00` and shorter or longer variants.
fn numeric(text: &str) -> Option<(NaiveDateTime, i64)> {
    let (first, rest) = digits(text);
    let (day, rest) = match (first.len(), rest.chars().next()) {
        (8, _) => (date(&first[..4], &first[4..6], &first[6..])?, rest),
        (4, Some(separator @ ('-' | '/'))) => {
            let (month, day, rest) = two_more(rest, separator)?;
            (date(first, month, day)?, rest)
        }
        // Only dots: with slashes, the month may come first.
        (1 | 2, Some('.')) => {
            let (month, year, rest) = two_more(rest, '.')?;
            (date(year, month, first)?, rest)
        }
        _ => return None,
    };
    let rest = rest.trim_start_matches(['T', 't', ' ', ',']);
    let end = rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, ':' | '.'))).unwrap_or(rest.len());
    Some((at(day, &rest[..end], None)?, zone(rest[end..].trim())))
}

/// Splits off the digits at the start.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Returns the next two numbers, each after a separator, and the rest.
fn two_more(text: &str, separator: char) -> Option<(&str, &str, &str)> {
    let (second, rest) = digits(text.strip_prefix(separator)?);
    let (third, rest) = digits(rest.strip_prefix(separator)?);
    Some((second, third, rest))
}

/// Parses a date whose year has four digits and whose month and day have one or two.
fn date(year: &str, month: &str, day: &str) -> Option<NaiveDate> {
    if year.len() != 4 || month.len() > 2 || day.len() > 2 {
        return None;
    }
    NaiveDate::from_ymd_opt(i32::try_from(number(year)?).ok()?, number(month)?, number(day)?)
}

/// Parses `Mon, 04 May 2026 10:00:00 +0200`, in any order.
fn worded(text: &str) -> Option<(NaiveDateTime, i64)> {
    let (mut day, mut month, mut year, mut time, mut half, mut ahead) = (None, None, None, "", None, 0);
    for word in text.split([' ', '\t', '\n', ',']).filter(|word| !word.is_empty()) {
        if word.contains(':') && word.starts_with(|c: char| c.is_ascii_digit()) {
            let end = word.find(|c: char| !(c.is_ascii_digit() || matches!(c, ':' | '.'))).unwrap_or(word.len());
            (time, ahead) = (&word[..end], zone(&word[end..]));
        } else if word.starts_with(['+', '-']) || ["GMT", "UTC"].iter().any(|utc| word.starts_with(utc)) {
            ahead = zone(word);
        } else {
            for part in word.split('-') {
                match (number(part.trim_end_matches(['s', 't', 'n', 'd', 'r', 'h', '.'])), month_of(part)) {
                    (Some(n), _) if day.is_none() && n <= 31 => day = Some(n),
                    (Some(n), _) => year = year.or_else(|| full_year(n, part.len())),
                    (None, Some(found)) => month = month.or(Some(found)),
                    _ if part.eq_ignore_ascii_case("am") => half = Some(false),
                    _ if part.eq_ignore_ascii_case("pm") => half = Some(true),
                    _ if ahead == 0 => ahead = zone(part),
                    _ => {}
                }
            }
        }
    }
    let day = NaiveDate::from_ymd_opt(year?, month?, day?)?;
    Some((at(day, time, half)?, ahead))
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
}

fn month_of(word: &str) -> Option<u32> {
    let word = word.to_lowercase();
    let index = MONTHS.iter().position(|names| names.iter().any(|name| word.starts_with(name)))?;
    u32::try_from(index + 1).ok()
}

/// Returns the year; two digits mean 1950 to 2049.
fn full_year(n: u32, digits: usize) -> Option<i32> {
    let year = match (n, digits) {
        (n, 4) => n,
        (n, 2) if n < 50 => 2000 + n,
        (n, 2) => 1900 + n,
        _ => return None,
    };
    i32::try_from(year).ok()
}

/// Parses a time. `second_half` is whether a time on a 12-hour clock is PM.
fn at(day: NaiveDate, time: &str, second_half: Option<bool>) -> Option<NaiveDateTime> {
    if time.is_empty() {
        return day.and_hms_opt(0, 0, 0);
    }
    // Without colons: `1000`, `100000` and `100000.123`.
    let (compact, rest) = digits(time);
    let spread = match compact.len() {
        4 => format!("{}:{}{rest}", &compact[..2], &compact[2..]),
        6 => format!("{}:{}:{}{rest}", &compact[..2], &compact[2..4], &compact[4..]),
        _ => time.to_owned(),
    };
    let mut parts = spread.split([':', '.']);
    let (hour, minute) = (number(parts.next()?)?, number(parts.next()?)?);
    let second = parts.next().map_or(Some(0), number)?;
    let micros = parts.next().map_or(Some(0), |digits| number(&format!("{digits:0<6}")[..6]))?;
    let hour = match second_half {
        Some(second_half) => hour % 12 + if second_half { 12 } else { 0 },
        None => hour,
    };
    // The midnight at the end of the day.
    let (day, hour) = if hour == 24 { (day.succ_opt()?, 0) } else { (day, hour) };
    day.and_hms_micro_opt(hour, minute, second.min(59), micros)
}

/// Returns a zone's offset from UTC in minutes: `+02:00`, `-0500`, `+2`, `GMT+2`, or a name.
fn zone(text: &str) -> i64 {
    let name = text.to_ascii_lowercase();
    let Some(sign) = name.find(['+', '-']) else {
        return ZONES.iter().find(|(known, _)| *known == name).map_or(0, |(_, minutes)| *minutes);
    };
    let digits: String = name[sign + 1..].chars().filter(char::is_ascii_digit).collect();
    let (hours, minutes) = digits.split_at(if digits.len() > 2 { digits.len() - 2 } else { digits.len() });
    let minutes = i64::from(number(hours).unwrap_or(0).min(24) * 60 + number(minutes).unwrap_or(0).min(59));
    if name[sign..].starts_with('-') { -minutes } else { minutes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(text: &str) -> String {
        parse(text).map_or_else(|| "none".to_owned(), |at| at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
    }

    #[test]
    fn common_date_formats_are_parsed() {
        for (at, texts) in [
            (
                "2026-05-04T10:00:00Z",
                &[
                    "Mon, 04 May 2026 10:00:00 GMT",
                    " Mon, 4 May 26 10:00 UT\n",
                    "Thurs, 04 May 2026 10:00:00 -0000",
                    "Mon, 04 May 2026 10:00:00",
                    "Mon, 04 May 2026 12:00:00 +02:00",
                    "Mon, 04 May 2026 12:00:00 GMT+2",
                    "Mon, 04 May 2026 12:00:00 GMT+0200",
                    "Mon, 04 May 2026 12:00:00 CEST",
                    "Mon, 04 May 2026 06:00:00 EDT",
                    "Mon, 04 May 2026 06:00:00 UTC-4",
                    "Mon, 04 May 2026 15:30:00+0530",
                    "Monday, 04-May-26 10:00:00 GMT",
                    "Monday, May 4th, 2026 10:00:00 AM",
                    "Mon May  4 10:00:00 2026",
                    "Mon May  4 12:00:00 CEST 2026",
                    "Lun., 04 mai 2026 12:00:00 +0200",
                    "mar., 04 mai 2026 10:00:00 +0000",
                    "2026-05-04T10:00:00Z",
                    "2026-05-04T10:00",
                    "2026-05-04 10:00:00",
                    "2026-05-04 10:00:00 UTC",
                    "2026-05-04T12:00:00+02",
                    "2026-05-04T12:00:00 +0200",
                    "2026/05/04 10:00:00",
                    "20260504T100000Z",
                    "20260504T1000",
                    "20260504T120000+0200",
                    "20260504 100000.0",
                    "2026-5-4 10:00",
                    "04.05.2026 10:00",
                    "4.5.2026, 10:00:00",
                    "Mo, 04.05.2026 12:00 CEST",
                    "Mon, 2026-05-04T10:00:00Z",
                ][..],
            ),
            (
                "2026-05-04T00:00:00Z",
                &["2026-05-04", "2026-5-4", "20260504", "04.05.2026", "4 May 2026", "May 4, 2026"],
            ),
            ("2026-05-05T00:00:00Z", &["2026-05-04T24:00:00Z", "Mon, 04 May 2026 24:00:00 GMT", "20260504T240000Z"]),
            ("2027-01-01T00:00:00Z", &["2026-12-31T24:00:00Z"]),
            ("2026-05-04T22:00:00Z", &["May 4, 2026 10:00 PM", "4. Mai 2026 22:00"]),
            ("2026-05-04T00:30:00Z", &["May 4, 2026 12:30 am"]),
            ("2026-05-04T23:59:59Z", &["Mon, 04 May 2026 23:59:60 GMT"]),
            ("2026-05-04T10:00:00.123Z", &["2026-05-04T10:00:00.123", "2026-05-04T10:00:00.1230004567Z"]),
            ("1998-05-04T10:00:00Z", &["Mon, 04 May 98 10:00:00 GMT"]),
            (
                "none",
                &[
                    "",
                    "yesterday",
                    "04/05/2026 10:00",
                    "1777888800",
                    "2026-05",
                    "2026-13-01",
                    "31 Feb 2026",
                    "Mon, 04 May 2026 25:61:00 GMT",
                    "Mon, 04 May 20260 10:00:00 GMT",
                    "Mon, 04 2026",
                    "é2026-05-04",
                    "é.5.2026",
                    "04.05.26",
                    "4.13.2026",
                    "2026-05-040",
                    "2026-05/04",
                    "202605041",
                    "20261304",
                    "20260504T10é",
                    "99999999999-01-01",
                ],
            ),
        ] {
            for text in texts {
                assert_eq!(formatted(text), at, "{text}");
            }
        }
        assert_eq!(parse(&"4 May 2026 ".repeat(10)), None, "too long");
    }

    proptest::proptest! {
        /// Every time is read back from each common format, to the second.
        #[test]
        fn formatted_dates_are_parsed(seconds in 0..4_000_000_000_i64, hours in -12..=14_i32) {
            let at = DateTime::from_timestamp(seconds, 0).unwrap();
            let local = at.with_timezone(&chrono::FixedOffset::east_opt(hours * 3_600).unwrap());
            for format in [
                "%Y-%m-%dT%H:%M:%S%:z",
                "%Y-%-m-%-dT%-H:%M:%S%z",
                "%Y/%m/%d %H:%M:%S %z",
                "%Y%m%dT%H%M%S%z",
                "%d.%m.%Y %H:%M:%S %:z",
                "%-d.%-m.%Y %H:%M:%S UTC%:z",
                "%a, %d %b %Y %H:%M:%S %z",
                "%A, %d-%b-%Y %H:%M:%S GMT%z",
                "%b %-d, %Y %I:%M:%S %p %z",
            ] {
                let text = local.format(format).to_string();
                proptest::prop_assert_eq!(parse(&text), Some(at), "{}", text);
            }
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "([0-9]{1,8}|[-+:./ ,TZé]|May|juin|PM|GMT|EST|st){0,16}") {
            let _ = parse(&text);
        }
    }
}
