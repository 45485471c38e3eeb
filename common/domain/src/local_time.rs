//! Local times of a time zone, across its daylight-saving changes.

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::Tz;

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
