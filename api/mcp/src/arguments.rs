//! Reads the arguments of a call: ids of the path, fields of the request, and what only tools have.

use std::collections::BTreeMap;

use crier_endpoints::admission;
use crier_endpoints::error::{ApiError, FieldProblems, Result};
use crier_store::PageRequest;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::pages;
use crate::tool::{CONFIRM, IDEMPOTENCY_KEY, Tool, ToolEndpoint, argument_of};

pub struct CallArguments<'a> {
    /// The endpoint to call.
    pub endpoint: &'a ToolEndpoint,
    pub ids: Vec<(&'static str, i64)>,
    /// The fields of the request.
    pub fields: Map<String, Value>,
    pub page: PageRequest,
    /// The code of the question to which the user agreed.
    pub confirm: Option<String>,
    idempotency_key: Option<String>,
}

impl<'a> CallArguments<'a> {
    /// `input`: the schema of the arguments. All problems are reported together, as the API does.
    pub fn read(tool: &'a Tool, input: &Map<String, Value>, arguments: Map<String, Value>) -> Result<Self> {
        let mut reader = Reader { arguments, problems: FieldProblems::new() };
        reader.reject_unknown(input);
        let mut ids: Vec<_> = tool.main.spec().ids().filter_map(|id| reader.id(id, true)).collect();
        let mut endpoint = &tool.main;
        if let Some((id, other)) = &tool.with_id
            && let Some(found) = reader.id(id, false)
        {
            ids.push(found);
            endpoint = other;
        }
        let confirm = reader.text(CONFIRM);
        let idempotency_key = reader.key();
        let mut page = PageRequest { page: 1, per_page: pages::DEFAULT_LIMIT };
        if tool.has_pages() {
            match pages::read(&mut reader.arguments) {
                Ok(found) => page = found,
                Err(name) => {
                    reader.problem(name, "Must be the `next_cursor` of the previous result, with a valid `limit`.")
                }
            }
        }
        if let Some((name, value)) = tool.fixed {
            let value = value(&reader.arguments);
            reader.arguments.insert(name.to_owned(), value.into());
        }
        let Reader { arguments: fields, problems } = reader;
        match problems.is_empty() {
            true => Ok(Self { endpoint, ids, fields, page, confirm, idempotency_key }),
            false => Err(ApiError::validation(problems)),
        }
    }

    /// Returns the caller's `Idempotency-Key`, or a new one.
    pub fn key(&self) -> Result<String> {
        let new = || crier_base::random::text(24).map(|text| format!("mcp_{text}"));
        let key = self.idempotency_key.clone().map_or_else(new, Ok);
        key.map_err(|_| ApiError::bug("the system's random source failed"))
    }

    /// Returns the caller's `Idempotency-Key`.
    pub fn own_key(&self) -> Option<&str> {
        self.idempotency_key.as_deref()
    }

    /// Returns what identifies the request under its key, and its size in bytes. The order of the arguments does not
    /// matter.
    pub fn fingerprint(&self) -> (Vec<u8>, usize) {
        let text = serde_json::to_vec(&(self.endpoint.spec().id, &self.ids, self.sorted_fields())).unwrap_or_default();
        (Sha256::digest(&text).to_vec(), text.len())
    }

    pub fn sorted_fields(&self) -> BTreeMap<&String, &Value> {
        self.fields.iter().collect()
    }

    pub fn id(&self, name: &str) -> Option<i64> {
        self.ids.iter().find(|(n, _)| *n == name).map(|(_, id)| *id)
    }
}

struct Reader {
    arguments: Map<String, Value>,
    problems: FieldProblems,
}

impl Reader {
    fn problem(&mut self, name: &str, problem: &str) {
        self.problems.insert(name.to_owned(), vec![problem.to_owned()]);
    }

    /// Unlike a client of the API, a model has no header that tells it what was ignored.
    fn reject_unknown(&mut self, input: &Map<String, Value>) {
        let Some(known) = input.get("properties").and_then(Value::as_object) else { return };
        let Some(unknown) = self.arguments.keys().find(|name| !known.contains_key(*name)).cloned() else { return };
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        let name: String = unknown.chars().take(100).collect();
        self.problem(&name, &format!("Unknown argument. The tool has: {}.", names.join(", ")));
    }

    fn id(&mut self, name: &'static str, is_required: bool) -> Option<(&'static str, i64)> {
        let argument = argument_of(name);
        let value = self.arguments.remove(&argument).unwrap_or_default();
        if value.is_null() && !is_required {
            return None;
        }
        let id = value.as_i64().filter(|id| *id > 0);
        if id.is_none() {
            self.problem(
                &argument,
                if value.is_null() { "This field is required." } else { "Must be a positive integer." },
            );
        }
        id.map(|id| (name, id))
    }

    fn text(&mut self, name: &str) -> Option<String> {
        match self.arguments.remove(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(_) => {
                self.problem(name, "Must be a string.");
                None
            }
        }
    }

    fn key(&mut self) -> Option<String> {
        match self.arguments.remove(IDEMPOTENCY_KEY) {
            None | Some(Value::Null) => None,
            Some(Value::String(key)) if admission::is_idempotency_key(&key) => Some(key),
            Some(_) => {
                self.problem(IDEMPOTENCY_KEY, "Must be 1 to 255 ASCII characters without spaces.");
                None
            }
        }
    }
}

/// Returns the fields as those of a query, whose values are texts. Null is the same as an omitted parameter.
pub fn to_query(fields: &Map<String, Value>) -> Map<String, Value> {
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => Some(list.iter().map(plain).collect::<Vec<_>>().join(",")),
        other => Some(plain(other)),
    };
    fields.iter().filter_map(|(name, value)| Some((name.clone(), text(value)?.into()))).collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
