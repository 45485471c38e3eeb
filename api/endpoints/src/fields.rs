//! The fields of an object that a client sent, and their problems, which are reported together.
//!
//! A field is a [`PatchField`]: omitted, null, or a value, so that a PUT can distinguish "keep" from "clear". A value
//! that breaks its rules is reported under its path (`accounts.0`) and read as omitted; [`Problems::into_result`] then
//! fails the request. The rules are the formats of [`crate::request`].

use chrono::{DateTime, Utc};
use crier_base::UnknownWord;
pub use crier_base::patch_field::PatchField;
pub use crier_base::problems::{MAX_PROBLEMS, ProblemSet, Problems};
pub use crier_base::steps;
use serde_json::{Map, Value};

pub use crier_domain::local_time as time;

/// What the values of fields depend on.
#[derive(Clone, Copy, Debug)]
pub struct ReadContext<'a> {
    /// The time zone of times without an offset.
    pub zone: &'a str,
    pub now: DateTime<Utc>,
    /// Whether all values are texts, because they come from a form or a query.
    are_texts: bool,
}

impl<'a> ReadContext<'a> {
    pub const fn new(zone: &'a str, now: DateTime<Utc>) -> Self {
        Self { zone, now, are_texts: false }
    }

    /// For the values of a form or a query.
    pub const fn texts(self) -> Self {
        Self { are_texts: true, ..self }
    }
}

/// The fields of an object.
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// The path of the object, with a trailing dot; empty for the request itself.
    prefix: String,
    pub problems: &'a Problems,
    context: ReadContext<'a>,
}

impl<'a> Fields<'a> {
    pub fn new(object: &'a Map<String, Value>, problems: &'a Problems, context: ReadContext<'a>) -> Self {
        Self { object, prefix: String::new(), problems, context }
    }

    pub const fn context(&self) -> ReadContext<'a> {
        self.context
    }

    /// Returns whether all values are texts, because they come from a form or a query.
    pub const fn are_texts(&self) -> bool {
        self.context.are_texts
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

    /// Reads a value that is neither omitted nor null. The error of `read` is a problem of the field.
    pub fn read<T>(&self, name: &str, read: impl FnOnce(&'a Value) -> Result<T, String>) -> PatchField<T> {
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

    /// Reads a list. Its length is checked before its elements.
    pub fn list(&self, name: &str, max: usize, what: &str) -> PatchField<&'a Vec<Value>> {
        self.read(name, |value| match value.as_array() {
            Some(list) if list.len() > max => {
                Err(format!("Must have at most {max} elements; this has {}.", list.len()))
            }
            Some(list) => Ok(list),
            None => Err(format!("Must be an array of {what}.")),
        })
    }

    /// Iterates over a list with indexes, until the maximum of problems is reached.
    pub fn each(&self, list: &'a [Value]) -> impl Iterator<Item = (usize, &'a Value)> {
        let problems = self.problems;
        list.iter().enumerate().take_while(move |_| {
            steps::count_step();
            !problems.is_full()
        })
    }

    /// Reads an object, unparsed.
    pub fn object(&self, name: &str) -> PatchField<&'a Map<String, Value>> {
        self.read(name, |value| value.as_object().ok_or_else(|| "Must be an object.".to_owned()))
    }

    /// Returns the fields of a nested object.
    pub fn within(&self, name: &str, object: &'a Map<String, Value>) -> Fields<'a> {
        Fields { object, prefix: format!("{}.", self.path(name)), problems: self.problems, context: self.context }
    }
}

/// Returns the message about a word that is not a value of an enum.
pub fn unknown_word(unknown: &UnknownWord) -> String {
    let hint = unknown.nearest().map(|near| format!(" Did you mean `{near}`?")).unwrap_or_default();
    format!("Must be one of: {}.{hint}", unknown.known)
}

#[cfg(test)]
mod tests;
