//! The names that an endpoint knows, from the schemas of the OpenAPI document.

use serde_json::{Map, Value};

use super::near::{self, KnownName};
use crate::endpoint::spec::EndpointSpec;
use crate::openapi::schema::Schemas;

/// The maximum depth, which bounds recursive schemas.
const MAX_DEPTH: u32 = 8;
/// The object whose fields only some platforms or kinds have.
const OPTIONS: &str = "options";

/// The names that an endpoint knows.
#[derive(Debug, Default)]
pub struct KnownNames {
    /// `None` if the endpoint takes no body.
    pub(super) body: Option<KnownFields>,
    /// The fields of the record that it returns, which a client may send back.
    pub(super) record: Option<KnownFields>,
    pub(super) query: Vec<KnownName>,
}

impl KnownNames {
    pub fn of(endpoint: &EndpointSpec) -> Self {
        let mut s = Schemas::default();
        let body = endpoint.body.as_ref().map(|body| (body.schema)(&mut s));
        let record = endpoint.schema.map(|schema| schema(&mut s));
        let parameters = endpoint.query.map(|query| query(&mut s)).unwrap_or_default();
        let fields = |schema: Option<Value>| match KnownValue::of(&schema?, &s, MAX_DEPTH) {
            KnownValue::Object(fields) => Some(fields),
            KnownValue::Any | KnownValue::List(_) => None,
        };
        let query = parameters.iter().map(|parameter| KnownName::new(parameter.name)).collect();
        Self { body: fields(body), record: fields(record), query }
    }
}

/// The fields of an object.
#[derive(Debug)]
pub(super) struct KnownFields(Vec<(KnownName, KnownValue)>);

impl KnownNames {
    /// Like [`KnownFields::option`], but returns `None` for the name of a field of the record.
    pub(super) fn option(&self, fields: &KnownFields, unknown: &str) -> Option<String> {
        let is_of_record = self.record.as_ref().is_some_and(|record| record.get(unknown).is_some());
        if is_of_record { None } else { fields.option(unknown) }
    }
}

impl KnownFields {
    pub fn get(&self, name: &str) -> Option<&KnownValue> {
        self.0.iter().find(|(known, _)| known.name == name).map(|(_, value)| value)
    }

    pub fn nearest(&self, unknown: &str) -> Option<&str> {
        near::nearest(unknown, self.0.iter().map(|(known, _)| known))
    }

    /// Returns the path from here to a nested option of this name, such as `overrides[].options.title`. Many clients
    /// send it as a field of the post.
    pub fn option(&self, unknown: &str) -> Option<String> {
        self.0.iter().find_map(|(known, value)| {
            let (fields, separator) = match value {
                KnownValue::Object(fields) => (fields, "."),
                KnownValue::List(of) => match &**of {
                    KnownValue::Object(fields) => (fields, "[]."),
                    KnownValue::Any | KnownValue::List(_) => return None,
                },
                KnownValue::Any => return None,
            };
            let found = match known.name.as_str() {
                OPTIONS => near::synonym(unknown, fields.0.iter().map(|(known, _)| known)).map(str::to_owned),
                _ => fields.option(unknown),
            };
            found.map(|path| format!("{}{separator}{path}", known.name))
        })
    }
}

/// The known structure of a value.
#[derive(Debug)]
pub(super) enum KnownValue {
    /// A value without known names.
    Any,
    Object(KnownFields),
    List(Box<Self>),
}

impl KnownValue {
    fn of(schema: &Value, s: &Schemas, depth: u32) -> Self {
        if depth == 0 {
            return Self::Any;
        }
        let deeper = |schema: &Value| Self::of(schema, s, depth - 1);
        if let Some(named) = schema["$ref"].as_str().and_then(|path| s.named.get(path.rsplit('/').next()?)) {
            return deeper(named);
        }
        if let Some(any) = schema["anyOf"].as_array() {
            let mut known = any.iter().map(deeper);
            return known.find(|known| !matches!(known, Self::Any)).unwrap_or(Self::Any);
        }
        if let Some(properties) = schema["properties"].as_object() {
            return Self::Object(fields(properties, deeper));
        }
        match deeper(&schema["items"]) {
            Self::Any => Self::Any,
            known => Self::List(Box::new(known)),
        }
    }
}

fn fields(properties: &Map<String, Value>, value: impl Fn(&Value) -> KnownValue) -> KnownFields {
    KnownFields(properties.iter().map(|(name, schema)| (KnownName::new(name), value(schema))).collect())
}
