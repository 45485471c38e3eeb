//! Reads the fields of a JSON body by type and rules, and reports all problems together.
//!
//! A reader returns a [`PatchField`]: omitted, null, or a value, so that a PUT can distinguish "keep" from "clear". A
//! value that breaks its rules is reported under its path (`accounts.0`) and read as omitted; [`Problems::into_result`]
//! then fails the request.
//!
//! **To add a kind of field:** add a method to [`Fields`] that returns `PatchField<T>`, and a line to the tests.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::{Bound, RangeInclusive};
use std::str::FromStr;

use chrono::{DateTime, Datelike, NaiveDate, Utc};
use crier_base::UnknownWord;
use crier_mail::is_address;
use schemars::JsonSchema;
use serde_json::{Map, Value};
use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::error::{ApiError, FieldProblems, Result};

pub mod steps;
pub mod time;

const MAX_URL_LENGTH: usize = 2048;
/// The maximum number of problems in a response. Validation stops at this number.
pub const MAX_PROBLEMS: usize = 100;
/// The maximum number of enum values in a list, including duplicates.
const MAX_ENUM_VALUES: usize = 100;
/// The maximum number of characters in the canonical decomposition of a character: a text with more than this many
/// times the allowed characters is too long after any normalization.
const MAX_DECOMPOSITION: usize = 4;
/// The maximum length of a text that is parsed as a time, in bytes.
const MAX_TIME_LENGTH: usize = 100;

// A field of a body. In the document it is an `Option`.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "Option<T>")]
pub enum PatchField<T> {
    Omitted,
    Null,
    Value(T),
}

impl<T> PatchField<T> {
    /// Returns the value. Null is treated as omitted.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Omitted | Self::Null => None,
        }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> PatchField<U> {
        match self {
            Self::Omitted => PatchField::Omitted,
            Self::Null => PatchField::Null,
            Self::Value(value) => PatchField::Value(f(value)),
        }
    }

    /// Returns the value after a PUT: omitted keeps `current`, null sets `cleared`.
    pub fn apply_to(self, current: T, cleared: T) -> T {
        match self {
            Self::Omitted => current,
            Self::Null => cleared,
            Self::Value(value) => value,
        }
    }
}

/// The problems of a request.
#[derive(Clone, Debug, Default)]
struct ProblemSet {
    fields: FieldProblems,
    /// The number of messages.
    count: usize,
    /// Whether there were more problems than [`MAX_PROBLEMS`].
    has_more: bool,
}

/// Collects the problems of a request, at most [`MAX_PROBLEMS`].
#[derive(Debug, Default)]
pub struct Problems(RefCell<ProblemSet>);

impl From<FieldProblems> for Problems {
    fn from(fields: FieldProblems) -> Self {
        let count = fields.values().map(Vec::len).sum();
        Self(RefCell::new(ProblemSet { fields, count, has_more: false }))
    }
}

impl Problems {
    pub fn add(&self, path: impl Into<String>, message: impl Into<String>) {
        steps::count_step();
        let mut found = self.0.borrow_mut();
        if found.count == MAX_PROBLEMS {
            found.has_more = true;
            return;
        }
        found.count += 1;
        found.fields.entry(path.into()).or_default().push(message.into());
    }

    /// Returns whether the maximum is reached, so that further validation can be skipped.
    pub fn is_full(&self) -> bool {
        self.0.borrow().count == MAX_PROBLEMS
    }

    /// Returns whether the field or a nested one has a problem, or the maximum is reached.
    pub fn has(&self, path: &str) -> bool {
        steps::count_step();
        let found = self.0.borrow();
        if found.count == MAX_PROBLEMS || found.fields.contains_key(path) {
            return true;
        }
        let within = format!("{path}.");
        let mut nested = found.fields.range::<str, _>((Bound::Included(within.as_str()), Bound::Unbounded));
        nested.next().is_some_and(|(first, _)| first.starts_with(&within))
    }

    /// Adds the problems of `other`, with paths renamed by `rename`, except for fields that already have a problem.
    pub fn merge(&self, other: Self, rename: impl Fn(&str) -> String) {
        for (path, messages) in other.0.into_inner().fields {
            let path = rename(&path);
            if !self.has(path.split('.').next().unwrap_or_default()) {
                messages.into_iter().for_each(|message| self.add(path.clone(), message));
            }
        }
    }

    /// Fails if there are problems.
    pub fn into_result(self) -> Result<()> {
        let found = self.0.into_inner();
        if found.fields.is_empty() { Ok(()) } else { Err(ApiError::validation_of(found.fields, found.has_more)) }
    }
}

/// A parsed body and its problems: read before a transaction begins, reported inside it, in the order of the checks.
#[derive(Debug)]
pub struct ParsedBody<T> {
    pub value: T,
    found: ProblemSet,
}

impl<T> ParsedBody<T> {
    /// Reads `object`, and adds its problems to `problems`.
    pub fn read(problems: Problems, object: &Map<String, Value>, read: impl FnOnce(&Fields<'_>) -> T) -> Self {
        let value = read(&Fields::new(object, &problems));
        Self { value, found: problems.0.into_inner() }
    }

    /// Returns a copy of the problems, to which more can be added.
    pub fn problems(&self) -> Problems {
        Problems(RefCell::new(self.found.clone()))
    }
}

impl<T> ParsedBody<Option<T>> {
    pub fn into_valid(self) -> Result<T> {
        self.valid()?;
        self.value.ok_or_else(|| ApiError::bug("a field was rejected without a reason"))
    }

    /// Returns the value; fails if there are problems.
    pub fn valid(&self) -> Result<&T> {
        self.problems().into_result()?;
        self.value.as_ref().ok_or_else(|| ApiError::bug("a field was rejected without a reason"))
    }
}

/// The fields of a JSON object.
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// The path of the object, with a trailing dot; empty for the body itself.
    prefix: String,
    pub problems: &'a Problems,
}

impl<'a> Fields<'a> {
    pub fn new(object: &'a Map<String, Value>, problems: &'a Problems) -> Self {
        Self { object, prefix: String::new(), problems }
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub fn problem(&self, name: &str, message: impl Into<String>) {
        self.problems.add(self.path(name), message);
    }

    /// Adds a problem if the value is omitted or null, unless the field already has one.
    pub fn required<T>(&self, name: &str, field: PatchField<T>) -> Option<T> {
        let value = field.value();
        if value.is_none() && !self.problems.has(&self.path(name)) {
            self.problem(name, "This field is required.");
        }
        value
    }

    fn read<T>(&self, name: &str, read: impl FnOnce(&'a Value) -> std::result::Result<T, String>) -> PatchField<T> {
        steps::count_step();
        match self.object.get(name) {
            None => PatchField::Omitted,
            Some(Value::Null) => PatchField::Null,
            Some(value) => read(value).map_or_else(
                |message| {
                    self.problem(name, message);
                    PatchField::Omitted
                },
                PatchField::Value,
            ),
        }
    }

    /// Reads a text and normalizes it to NFC. `length` is in characters.
    pub fn text(&self, name: &str, length: RangeInclusive<usize>) -> PatchField<String> {
        self.read(name, |value| text(value, &length))
    }

    /// Reads an enum value.
    pub fn enum_value<T: FromStr<Err = UnknownWord>>(&self, name: &str) -> PatchField<T> {
        self.read(name, |value| parse_enum_value(value))
    }

    pub fn flag(&self, name: &str) -> PatchField<bool> {
        self.read(name, |value| value.as_bool().ok_or_else(|| "Must be true or false.".to_owned()))
    }

    /// Reads an integer in the range.
    pub fn number(&self, name: &str, range: RangeInclusive<i64>) -> PatchField<i64> {
        self.read(name, |value| {
            let (min, max) = (range.start(), range.end());
            let found = value.as_i64().filter(|n| range.contains(n));
            found.ok_or_else(|| format!("Must be an integer from {min} to {max}."))
        })
    }

    /// Reads an http or https URL, unchanged.
    pub fn url(&self, name: &str) -> PatchField<String> {
        self.read(name, |value| {
            let url = text(value, &(1..=MAX_URL_LENGTH))?;
            let parsed = url::Url::parse(&url).ok();
            let fits = parsed.is_some_and(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
            if fits { Ok(url) } else { Err("Must be an http:// or https:// URL.".to_owned()) }
        })
    }

    /// Reads the name of an IANA time zone.
    pub fn timezone(&self, name: &str) -> PatchField<String> {
        self.read(name, |value| {
            let zone = value.as_str().and_then(|text| text.parse::<chrono_tz::Tz>().ok());
            zone.map(|zone| zone.name().to_owned())
                .ok_or_else(|| "Must be a time zone name such as Europe/Berlin.".to_owned())
        })
    }

    /// Reads a time. Without an offset, it is in `zone`.
    pub fn time(&self, name: &str, zone: &str) -> PatchField<DateTime<Utc>> {
        self.read(name, |value| {
            let zone = zone.parse().unwrap_or(chrono_tz::UTC);
            let text = value.as_str().filter(|text| text.len() <= MAX_TIME_LENGTH);
            let found = text.and_then(|text| time::parse(text, zone));
            found.ok_or_else(|| "Must be a time such as 2026-05-01T09:30:00Z or 2026-05-01T09:30:00+02:00.".to_owned())
        })
    }

    /// Reads a date.
    pub fn date(&self, name: &str) -> PatchField<NaiveDate> {
        self.read(name, |value| {
            let text = value.as_str().filter(|text| text.len() == 10);
            let date = text.and_then(|text| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok());
            // Years that ISO 8601 writes with four digits.
            let fits = date.filter(|date| (1..=9999).contains(&date.year()));
            fits.ok_or_else(|| "Must be a date such as 2026-05-01.".to_owned())
        })
    }

    /// Reads an ID: a positive integer.
    pub fn id(&self, name: &str) -> PatchField<i64> {
        self.read(name, |value| {
            value.as_i64().filter(|id| *id > 0).ok_or_else(|| "Must be an ID: a positive integer.".to_owned())
        })
    }

    /// Reads a list. Its length is checked before its elements.
    fn list(&self, name: &str, max: usize, what: &str) -> PatchField<&'a Vec<Value>> {
        self.read(name, |value| match value.as_array() {
            Some(list) if list.len() > max => {
                Err(format!("Must have at most {max} elements; this has {}.", list.len()))
            }
            Some(list) => Ok(list),
            None => Err(format!("Must be an array of {what}.")),
        })
    }

    /// Iterates over a list with indexes, until the maximum of problems is reached.
    fn each(&self, list: &'a [Value]) -> impl Iterator<Item = (usize, &'a Value)> {
        let problems = self.problems;
        list.iter().enumerate().take_while(move |_| {
            steps::count_step();
            !problems.is_full()
        })
    }

    /// Reads at most `max` ids, without duplicates.
    pub fn ids(&self, name: &str, max: usize) -> PatchField<Vec<i64>> {
        self.list(name, max, "integers").map(|list| {
            let (mut ids, mut seen) = (Vec::with_capacity(list.len()), HashSet::with_capacity(list.len()));
            for (i, value) in self.each(list) {
                match value.as_i64().filter(|id| *id > 0) {
                    None => self.problem(&format!("{name}.{i}"), "Must be an ID: a positive integer."),
                    Some(id) if !seen.insert(id) => {
                        self.problem(&format!("{name}.{i}"), format!("{id} is a duplicate. List each ID only once."));
                    }
                    Some(id) => ids.push(id),
                }
            }
            ids
        })
    }

    /// Reads at most `max` texts and trims them. `length` is in characters. Duplicates are dropped.
    pub fn texts(&self, name: &str, max: usize, length: RangeInclusive<usize>) -> PatchField<Vec<String>> {
        self.list(name, max, "strings").map(|list| {
            let mut texts = Vec::with_capacity(list.len());
            for (i, value) in self.each(list) {
                let trimmed = value.as_str().map_or_else(|| value.clone(), |text| Value::from(text.trim()));
                match text(&trimmed, &length) {
                    Ok(text) if texts.contains(&text) => {}
                    Ok(text) => texts.push(text),
                    Err(message) => self.problem(&format!("{name}.{i}"), message),
                }
            }
            texts
        })
    }

    /// Reads at most `max` email addresses. Duplicates are dropped.
    pub fn email_addresses(&self, name: &str, max: usize) -> PatchField<Vec<String>> {
        self.list(name, max, "email addresses").map(|list| {
            let mut addresses: Vec<String> = Vec::with_capacity(list.len());
            for (i, value) in self.each(list) {
                match value.as_str().map(str::trim).filter(|text| is_address(text)) {
                    Some(address) if addresses.iter().any(|known| known.eq_ignore_ascii_case(address)) => {}
                    Some(address) => addresses.push(address.to_owned()),
                    None => {
                        self.problem(&format!("{name}.{i}"), "Must be an email address such as ann@example.com.");
                    }
                }
            }
            addresses
        })
    }

    /// Reads at least one enum value. Duplicates are dropped.
    pub fn enum_values<T: FromStr<Err = UnknownWord> + PartialEq>(&self, name: &str) -> PatchField<Vec<T>> {
        let list = match self.list(name, MAX_ENUM_VALUES, "names") {
            PatchField::Value(list) if list.is_empty() => {
                self.problem(name, "Choose at least one event.");
                PatchField::Omitted
            }
            list => list,
        };
        list.map(|list| {
            let mut values = Vec::new();
            for (i, value) in self.each(list) {
                match parse_enum_value(value) {
                    Ok(value) if values.contains(&value) => {}
                    Ok(value) => values.push(value),
                    Err(message) => self.problem(&format!("{name}.{i}"), message),
                }
            }
            values
        })
    }

    /// Reads an object, unparsed.
    pub fn object(&self, name: &str) -> PatchField<&'a Map<String, Value>> {
        self.read(name, |value| value.as_object().ok_or_else(|| "Must be an object.".to_owned()))
    }

    /// Returns the fields of a nested object.
    pub fn within(&self, name: &str, object: &'a Map<String, Value>) -> Fields<'a> {
        Fields { object, prefix: format!("{}.", self.path(name)), problems: self.problems }
    }

    /// Reads at most `max` objects with `read`, in order.
    pub fn objects<T>(&self, name: &str, max: usize, read: impl Fn(&Fields<'a>) -> Option<T>) -> PatchField<Vec<T>> {
        self.list(name, max, "objects").map(|list| {
            let each = self.each(list).filter_map(|(i, value)| match value.as_object() {
                Some(object) => read(&self.within(&format!("{name}.{i}"), object)),
                None => {
                    self.problem(&format!("{name}.{i}"), "Must be an object.");
                    None
                }
            });
            each.collect()
        })
    }
}

fn text(value: &Value, length: &RangeInclusive<usize>) -> std::result::Result<String, String> {
    let text = value.as_str().ok_or("Must be a string.")?;
    if text.contains('\0') {
        return Err("Must not contain the NUL character.".to_owned());
    }
    let (sent, max) = (text.chars().count(), *length.end());
    if sent > max.saturating_mul(MAX_DECOMPOSITION) {
        return Err(format!("Must have at most {max} characters; this has {sent}."));
    }
    let text = if is_nfc(text) { text.to_owned() } else { text.nfc().collect() };
    match text.chars().count() {
        n if n > max => Err(format!("Must have at most {max} characters; this has {n}.")),
        0 if *length.start() > 0 => Err("Must not be empty.".to_owned()),
        n if n < *length.start() => Err(format!("Must have at least {} characters; this has {n}.", length.start())),
        _ => Ok(text),
    }
}

fn parse_enum_value<T: FromStr<Err = UnknownWord>>(value: &Value) -> std::result::Result<T, String> {
    let text = value.as_str().ok_or("Must be a string.")?;
    text.parse().map_err(|unknown| unknown_word(&unknown))
}

/// Returns the message about a word that is not a value of an enum.
pub fn unknown_word(unknown: &UnknownWord) -> String {
    let hint = unknown.nearest().map(|near| format!(" Did you mean `{near}`?")).unwrap_or_default();
    format!("Must be one of: {}.{hint}", unknown.known)
}

#[cfg(test)]
mod tests;
