//! The formats of fields that several requests use. [`Format`] explains how to add one.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crier_base::UnknownWord;
use crier_mail::is_address;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;
use unicode_normalization::{UnicodeNormalization, is_nfc};

use super::Format;
use crate::fields::{Fields, PatchField, unknown_word};
use crate::openapi::schema::TextEnum;

mod objects;
mod times;

pub use objects::{Object, ObjectMap, Objects, map, object, objects};
pub use times::{Date, LocalTime, Time, Timezone, date, local_time, time, timezone};

pub const MAX_URL_CHARS: usize = 2048;
/// The maximum number of enum values in a list, including duplicates.
const MAX_ENUM_VALUES: usize = 100;
/// The maximum number of characters in the canonical decomposition of a character: a text with more than this many
/// times the allowed characters is too long after any normalization.
const MAX_DECOMPOSITION: usize = 4;
const INVALID_ID: &str = "Must be an ID: a positive integer.";

/// A text, normalized to NFC. `length` is in characters.
pub fn text(length: RangeInclusive<usize>) -> Text {
    Text(length)
}

pub struct Text(RangeInclusive<usize>);

impl Format for Text {
    type Value = String;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<String> {
        fields.read(name, |value| parse_text(value, &self.0))
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        text_schema(&self.0)
    }
}

fn text_schema(length: &RangeInclusive<usize>) -> Schema {
    match length.start() {
        0 => json_schema!({ "type": "string", "maxLength": length.end() }),
        min => json_schema!({ "type": "string", "minLength": min, "maxLength": length.end() }),
    }
}

fn parse_text(value: &Value, length: &RangeInclusive<usize>) -> Result<String, String> {
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

/// A value of a `text_enum!`.
pub fn enum_value<T>() -> EnumValue<T> {
    EnumValue(PhantomData)
}

pub struct EnumValue<T>(PhantomData<T>);

impl<T: FromStr<Err = UnknownWord>> Format for EnumValue<T>
where
    TextEnum<T>: JsonSchema,
{
    type Value = T;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<T> {
        fields.read(name, parse_enum_value)
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<TextEnum<T>>()
    }
}

fn parse_enum_value<T: FromStr<Err = UnknownWord>>(value: &Value) -> Result<T, String> {
    let text = value.as_str().ok_or("Must be a string.")?;
    text.parse().map_err(|unknown| unknown_word(&unknown))
}

/// At least one value of a `text_enum!`. Duplicates are dropped.
pub fn enum_values<T>() -> EnumValues<T> {
    EnumValues(PhantomData)
}

pub struct EnumValues<T>(PhantomData<T>);

impl<T: FromStr<Err = UnknownWord> + PartialEq> Format for EnumValues<T>
where
    TextEnum<T>: JsonSchema,
{
    type Value = Vec<T>;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<Vec<T>> {
        let list = match fields.list(name, MAX_ENUM_VALUES, "names") {
            PatchField::Value(list) if list.is_empty() => {
                fields.problem(name, "Choose at least one event.");
                PatchField::Omitted
            }
            list => list,
        };
        list.map(|list| {
            let mut values = Vec::new();
            for (i, value) in fields.each(list) {
                match parse_enum_value(value) {
                    Ok(value) if values.contains(&value) => {}
                    Ok(value) => values.push(value),
                    Err(message) => fields.problem(&format!("{name}.{i}"), message),
                }
            }
            values
        })
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<TextEnum<T>>();
        json_schema!({ "type": "array", "items": items, "minItems": 1 })
    }
}

/// True or false.
pub fn flag() -> Flag {
    Flag
}

pub struct Flag;

impl Format for Flag {
    type Value = bool;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<bool> {
        fields.read(name, |value| {
            let parsed = match value.as_str() {
                Some(text) if fields.are_texts() => text.parse().ok(),
                _ => value.as_bool(),
            };
            parsed.ok_or_else(|| "Must be true or false.".to_owned())
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "boolean" })
    }
}

/// An integer in the range.
pub fn number(range: RangeInclusive<i64>) -> Number {
    Number(range)
}

pub struct Number(RangeInclusive<i64>);

impl Format for Number {
    type Value = i64;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<i64> {
        fields.read(name, |value| {
            let (min, max) = (self.0.start(), self.0.end());
            let found = integer(fields, value).filter(|n| self.0.contains(n));
            found.ok_or_else(|| format!("Must be an integer from {min} to {max}."))
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "integer", "format": "int64", "minimum": self.0.start(), "maximum": self.0.end()
        })
    }
}

fn integer(fields: &Fields<'_>, value: &Value) -> Option<i64> {
    match value.as_str() {
        Some(text) if fields.are_texts() => text.parse().ok(),
        _ => value.as_i64(),
    }
}

/// An ID: a positive integer.
pub fn id() -> Id {
    Id
}

pub struct Id;

impl Format for Id {
    type Value = i64;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<i64> {
        fields.read(name, |value| integer(fields, value).filter(|id| *id > 0).ok_or_else(|| INVALID_ID.to_owned()))
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "format": "int64" })
    }
}

/// At most `max` IDs, without duplicates.
pub fn ids(max: usize) -> Ids {
    Ids(max)
}

pub struct Ids(usize);

impl Format for Ids {
    type Value = Vec<i64>;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<Vec<i64>> {
        fields.list(name, self.0, "integers").map(|list| {
            let (mut ids, mut seen) = (Vec::with_capacity(list.len()), HashSet::with_capacity(list.len()));
            for (i, value) in fields.each(list) {
                let path = || format!("{name}.{i}");
                match value.as_i64().filter(|id| *id > 0) {
                    None => fields.problem(&path(), INVALID_ID),
                    Some(id) if !seen.insert(id) => {
                        fields.problem(&path(), format!("{id} is a duplicate. List each ID only once."));
                    }
                    Some(id) => ids.push(id),
                }
            }
            ids
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "array", "items": { "type": "integer", "format": "int64" }, "maxItems": self.0, "uniqueItems": true
        })
    }
}

/// An http or https URL, unchanged.
pub fn url() -> Url {
    Url
}

pub struct Url;

impl Format for Url {
    type Value = String;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<String> {
        fields.read(name, |value| {
            let url = parse_text(value, &(1..=MAX_URL_CHARS))?;
            let parsed = url::Url::parse(&url).ok();
            let fits = parsed.is_some_and(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
            if fits { Ok(url) } else { Err("Must be an http:// or https:// URL.".to_owned()) }
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "maxLength": MAX_URL_CHARS, "format": "uri" })
    }
}

/// A URL that the endpoint checks itself, with the guard. An empty one passes here, so that it is rejected as a
/// non-public address.
pub fn unchecked_url() -> UncheckedUrl {
    UncheckedUrl
}

pub struct UncheckedUrl;

impl Format for UncheckedUrl {
    type Value = String;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<String> {
        text(0..=MAX_URL_CHARS).read(fields, name)
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        url().schema(generator)
    }
}

/// At most `max` texts, trimmed. `length` is in characters. Duplicates are dropped.
pub fn texts(max: usize, length: RangeInclusive<usize>) -> Texts {
    Texts { max, length }
}

pub struct Texts {
    max: usize,
    length: RangeInclusive<usize>,
}

impl Format for Texts {
    type Value = Vec<String>;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<Vec<String>> {
        fields.list(name, self.max, "strings").map(|list| {
            let mut texts = Vec::with_capacity(list.len());
            for (i, value) in fields.each(list) {
                let trimmed = value.as_str().map_or_else(|| value.clone(), |text| Value::from(text.trim()));
                match parse_text(&trimmed, &self.length) {
                    Ok(text) if texts.contains(&text) => {}
                    Ok(text) => texts.push(text),
                    Err(message) => fields.problem(&format!("{name}.{i}"), message),
                }
            }
            texts
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": text_schema(&self.length), "maxItems": self.max })
    }
}

/// At most `max` email addresses. Duplicates are dropped.
pub fn email_addresses(max: usize) -> EmailAddresses {
    EmailAddresses(max)
}

pub struct EmailAddresses(usize);

impl Format for EmailAddresses {
    type Value = Vec<String>;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<Vec<String>> {
        fields.list(name, self.0, "email addresses").map(|list| {
            let mut addresses: Vec<String> = Vec::with_capacity(list.len());
            for (i, value) in fields.each(list) {
                match value.as_str().map(str::trim).filter(|text| is_address(text)) {
                    Some(address) if addresses.iter().any(|known| known.eq_ignore_ascii_case(address)) => {}
                    Some(address) => addresses.push(address.to_owned()),
                    None => {
                        fields.problem(&format!("{name}.{i}"), "Must be an email address such as ann@example.com.");
                    }
                }
            }
            addresses
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": { "type": "string", "format": "email" }, "maxItems": self.0 })
    }
}

/// The file of a form, which the form's reader stores ([`crate::context::Context::file`]).
pub fn file() -> FilePart {
    FilePart
}

#[derive(Clone, Copy, Debug)]
pub struct FilePart;

impl Format for FilePart {
    type Value = FilePart;

    fn read(&self, _: &Fields<'_>, _: &str) -> PatchField<FilePart> {
        PatchField::Value(FilePart)
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "binary" })
    }
}

#[cfg(test)]
mod tests;
