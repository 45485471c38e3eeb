//! Times, dates and time zones.

use chrono::{DateTime, Datelike, NaiveDate, Utc};
use crier_domain::recurrence::parse_time;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::fields::{Fields, PatchField, time as times};
use crate::request::Format;

/// The maximum length of a text that is parsed as a time, in bytes.
const MAX_TIME_LENGTH: usize = 100;

/// The name of an IANA time zone.
pub fn timezone() -> Timezone {
    Timezone
}

pub struct Timezone;

impl Format for Timezone {
    type Value = String;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<String> {
        fields.read(name, |value| {
            let zone = value.as_str().and_then(|text| text.parse::<chrono_tz::Tz>().ok());
            zone.map(|zone| zone.name().to_owned())
                .ok_or_else(|| "Must be a time zone name such as Europe/Berlin.".to_owned())
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A time. Without an offset, it is in the time zone of the brand.
pub fn time() -> Time {
    Time
}

pub struct Time;

impl Format for Time {
    type Value = DateTime<Utc>;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<DateTime<Utc>> {
        fields.read(name, |value| {
            let zone = fields.context().zone.parse().unwrap_or(chrono_tz::UTC);
            let text = value.as_str().filter(|text| text.len() <= MAX_TIME_LENGTH);
            let found = text.and_then(|text| times::parse(text, zone));
            found.ok_or_else(|| "Must be a time such as 2026-05-01T09:30:00Z or 2026-05-01T09:30:00+02:00.".to_owned())
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// A date.
pub fn date() -> Date {
    Date
}

pub struct Date;

impl Format for Date {
    type Value = NaiveDate;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<NaiveDate> {
        fields.read(name, |value| {
            let text = value.as_str().filter(|text| text.len() == 10);
            let date = text.and_then(|text| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok());
            // Years that ISO 8601 writes with four digits.
            let fits = date.filter(|date| (1..=9999).contains(&date.year()));
            fits.ok_or_else(|| "Must be a date such as 2026-05-01.".to_owned())
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date" })
    }
}

/// A local time, as `HH:MM`.
pub fn local_time() -> LocalTime {
    LocalTime
}

pub struct LocalTime;

impl Format for LocalTime {
    type Value = String;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<String> {
        fields.read(name, |value| {
            let time = value.as_str().filter(|text| parse_time(text).is_some());
            time.map(str::to_owned).ok_or_else(|| "Must be a time such as 09:30.".to_owned())
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$" })
    }
}
