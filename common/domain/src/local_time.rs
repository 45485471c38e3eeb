//! Local times of a time zone, across its daylight-saving changes, and times of clients and files: RFC 3339 with an
//! offset, or without one in the zone.

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::Tz;

/// Formats without an offset. Seconds and their fractions are optional.
const LOCAL_FORMATS: [&str; 4] = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"];

/// Parses a time, in whole microseconds; returns `None` if it is not valid.
pub fn parse(text: &str, zone: Tz) -> Option<DateTime<Utc>> {
    let with_offset = DateTime::parse_from_rfc3339(text).map(|at| at.with_timezone(&Utc));
    let at = with_offset.ok().or_else(|| {
        let local = LOCAL_FORMATS.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())?;
        in_zone(local, zone)
    })?;
    // Neither RFC 3339 nor the databases can represent other years.
    let fits = (1..=9999).contains(&chrono::Datelike::year(&at));
    DateTime::from_timestamp_micros(at.timestamp_micros()).filter(|_| fits)
}

/// The maximum length of a gap, in minutes. The longest gap of any zone was a day (Samoa skipped 30 December 2011).
const MAX_GAP_MINUTES: i64 = 25 * 60;

/// Converts a local time to UTC. A time skipped by daylight saving becomes the next existing time. A repeated time
/// becomes the first of the two.
pub fn in_zone(local: NaiveDateTime, zone: Tz) -> Option<DateTime<Utc>> {
    let at = |local: &NaiveDateTime| match zone.from_local_datetime(local) {
        MappedLocalTime::Single(at) | MappedLocalTime::Ambiguous(at, _) => Some(at.with_timezone(&Utc)),
        MappedLocalTime::None => None,
    };
    at(&local).or_else(|| {
        let minute = local.with_second(0)?.with_nanosecond(0)?;
        let after = |n: i64| at(&minute.checked_add_signed(TimeDelta::minutes(n))?);
        // A binary search, because a gap may have more than a thousand minutes, and a request a thousand times.
        let (mut skipped, mut existing) = (0, MAX_GAP_MINUTES);
        while existing - skipped > 1 {
            let middle = i64::midpoint(skipped, existing);
            if after(middle).is_some() { existing = middle } else { skipped = middle }
        }
        after(existing)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, zone: &str) -> Option<String> {
        parse(text, zone.parse().unwrap()).map(|at| at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
    }

    #[test]
    fn an_explicit_offset_overrides_the_zone() {
        for text in ["2026-05-01T12:00:00+05:30", "2026-05-01T06:30:00Z", "2026-05-01t06:30:00z"] {
            assert_eq!(read(text, "Asia/Tokyo").as_deref(), Some("2026-05-01T06:30:00Z"), "{text}");
        }
        assert_eq!(read("2026-05-01T06:30:00.1234567Z", "UTC").as_deref(), Some("2026-05-01T06:30:00.123456Z"));
    }

    #[test]
    fn times_without_offset_use_the_zone() {
        for text in ["2026-05-01T12:00:00", "2026-05-01T12:00", "2026-05-01 12:00:00.0"] {
            assert_eq!(read(text, "Asia/Tokyo").as_deref(), Some("2026-05-01T03:00:00Z"), "{text}");
        }
    }

    #[test]
    fn dst_gaps_and_overlaps_are_resolved() {
        assert_eq!(read("2026-03-29T02:30:15", "Europe/Berlin").as_deref(), Some("2026-03-29T01:00:00Z"));
        assert_eq!(read("2026-10-25T02:30:00", "Europe/Berlin").as_deref(), Some("2026-10-25T00:30:00Z"));
        assert_eq!(read("2011-12-30T12:00:00", "Pacific/Apia").as_deref(), Some("2011-12-30T10:00:00Z"));
        assert_eq!(read("2026-10-04T02:10:00", "Australia/Lord_Howe").as_deref(), Some("2026-10-03T15:30:00Z"));
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in [
            "",
            "tomorrow",
            "2026-02-30T00:00:00Z",
            "2026-05-01",
            "12:00",
            "2026-05-01T25:00:00Z",
            "-0001-01-01T00:00:00Z",
        ] {
            assert_eq!(read(text, "UTC"), None, "{text}");
        }
    }
}
