//! The fields of an object that a client sent, and their problems, which are reported together.
//!
//! A field is a [`PatchField`]: omitted, null, or a value, so that a PUT can distinguish "keep" from "clear". A value
//! that breaks its rules is reported under its path (`accounts.0`) and read as omitted; [`Problems::into_result`] then
//! fails the request. The rules are the formats of [`crate::request`].

use std::cell::RefCell;
use std::ops::Bound;

use chrono::{DateTime, Utc};
use crier_base::UnknownWord;
use serde_json::{Map, Value};

use crate::error::{ApiError, FieldProblems, Result};

pub mod steps;
pub mod time;

/// The maximum number of problems in a response. Validation stops at this number.
pub const MAX_PROBLEMS: usize = 100;

/// A field that a client may omit or set to null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PatchField<T> {
    #[default]
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
pub struct ProblemSet {
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

    pub fn from_set(found: ProblemSet) -> Self {
        Self(RefCell::new(found))
    }

    pub fn into_set(self) -> ProblemSet {
        self.0.into_inner()
    }

    /// Returns the paths of the fields with problems.
    #[cfg(test)]
    pub fn paths(&self) -> Vec<String> {
        self.0.borrow().fields.keys().cloned().collect()
    }

    /// Fails if there are problems.
    pub fn into_result(self) -> Result<()> {
        let found = self.0.into_inner();
        if found.fields.is_empty() { Ok(()) } else { Err(ApiError::validation_of(found.fields, found.has_more)) }
    }
}

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
    pub fn read<T>(&self, name: &str, read: impl FnOnce(&'a Value) -> std::result::Result<T, String>) -> PatchField<T> {
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
