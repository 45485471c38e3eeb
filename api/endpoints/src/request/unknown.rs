//! Finds the fields and query parameters of a request that its endpoint does not know. A name near a known one is
//! treated as a typo and rejected with the other problems of the request, so that a typo never changes what is
//! published. The others are ignored, and listed in the response header `Crier-Ignored-Fields`. An idempotent replay
//! also has the header, because it depends only on the request.

use http::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::error::FieldProblems;
use crate::fields::{MAX_PROBLEMS, steps};

mod names;
mod near;

pub use names::KnownNames;
use names::{KnownFields, KnownValue};

pub const HEADER: HeaderName = HeaderName::from_static("crier-ignored-fields");
/// The maximum number of names in the header, and their maximum size. `...` follows if there are more.
const MAX_NAMES: usize = 20;
const MAX_BYTES: usize = 1_000;
const ELLIPSIS: &str = "...";
/// Represents an empty name.
const EMPTY_NAME: &str = "\"\"";
/// The maximum number of elements of a list that are checked. A longer list is rejected because of its length.
const MAX_ELEMENTS: usize = 1_000;
/// The ASCII characters that are percent-encoded in a name. Non-ASCII characters are always percent-encoded.
const ESCAPED_CHARS: &AsciiSet = &CONTROLS.add(b' ').add(b',').add(b'%').add(b'"');

/// The unknown names of a request.
#[derive(Debug, Default)]
pub struct UnknownNames {
    /// The problems of names that are near a known one.
    pub typos: FieldProblems,
    ignored: Vec<String>,
    bytes: usize,
    has_more: bool,
}

impl UnknownNames {
    /// Adds the unknown parameters of a query.
    pub fn check_query<'q>(&mut self, known: &KnownNames, names: impl Iterator<Item = &'q str>) {
        for name in names {
            if !known.query.iter().any(|k| k.name == name) {
                self.add("", name, "parameter", near::nearest(name, known.query.iter()));
            }
        }
    }

    /// Adds the unknown fields of a JSON body.
    pub fn check_body(&mut self, known: &KnownNames, body: &Map<String, Value>) {
        if let Some(fields) = &known.body {
            self.check_object(known, fields, body, "");
        }
    }

    /// Adds the unknown parts of a form: texts, and files other than the expected one.
    pub fn check_form(&mut self, known: &KnownNames, texts: &Map<String, Value>, other_files: &[String]) {
        let Some(fields) = &known.body else { return };
        let unknown_texts = texts.keys().filter(|name| fields.get(name).is_none());
        for name in unknown_texts.chain(other_files) {
            // A file in place of a text is ignored like an unknown part.
            let near = fields.nearest(name).filter(|near| near != name);
            self.add("", name, "part", near);
        }
    }

    fn check_object(&mut self, all: &KnownNames, known: &KnownFields, object: &Map<String, Value>, path: &str) {
        for (name, value) in object {
            steps::count_step();
            if self.typos.len() == MAX_PROBLEMS {
                return;
            }
            match (known.get(name), value) {
                (None, _) => match known.nearest(name) {
                    None => self.add(path, name, "field", all.option(known, name).as_deref()),
                    near => self.add(path, name, "field", near),
                },
                (Some(KnownValue::Object(known)), Value::Object(object)) => {
                    self.check_object(all, known, object, &format!("{path}{name}."));
                }
                (Some(KnownValue::List(known)), Value::Array(list)) => {
                    self.check_list(all, known, list, &format!("{path}{name}."))
                }
                _ => {}
            }
        }
    }

    fn check_list(&mut self, all: &KnownNames, known: &KnownValue, list: &[Value], path: &str) {
        let KnownValue::Object(known) = known else { return };
        let objects = list.iter().take(MAX_ELEMENTS).enumerate().filter_map(|(i, value)| Some((i, value.as_object()?)));
        for (i, object) in objects {
            if self.typos.len() == MAX_PROBLEMS {
                return;
            }
            self.check_object(all, known, object, &format!("{path}{i}."));
        }
    }

    /// `path`: the path of the object, with a trailing dot.
    fn add(&mut self, path: &str, name: &str, what: &str, near: Option<&str>) {
        match near {
            Some(near) if self.typos.len() < MAX_PROBLEMS => {
                let problem = format!("Unknown {what}; did you mean `{near}`?");
                self.typos.insert(format!("{path}{name}"), vec![problem]);
            }
            Some(_) => {}
            None => self.ignore(path, name),
        }
    }

    /// Adds a name to those that the header lists.
    pub fn ignore(&mut self, path: &str, name: &str) {
        if self.has_more {
            return;
        }
        let start: String = path.chars().chain(name.chars()).take(MAX_BYTES + 1).collect();
        let escaped = match start.as_str() {
            "" => EMPTY_NAME.to_owned(),
            start => utf8_percent_encode(start, ESCAPED_CHARS).to_string(),
        };
        if self.ignored.contains(&escaped) {
            return;
        }
        if self.ignored.len() == MAX_NAMES || self.bytes + escaped.len() > MAX_BYTES {
            self.has_more = true;
            return;
        }
        self.bytes += escaped.len();
        self.ignored.push(escaped);
    }

    /// Returns the header's value; `None` if nothing was ignored.
    pub fn header(&self) -> Option<HeaderValue> {
        let names: Vec<&str> =
            self.ignored.iter().map(String::as_str).chain(self.has_more.then_some(ELLIPSIS)).collect();
        HeaderValue::from_str(&names.join(", ")).ok().filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests;
