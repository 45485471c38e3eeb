//! A request is a struct. From it come its reader, its schema, its example, and the names that the endpoint knows, so
//! they cannot disagree.
//!
//! ```ignore
//! /// The brand to create.
//! #[derive(Clone, Debug, Request)]
//! #[request(name = "NewBrand", check = check)]
//! pub struct CreateBrandRequest {
//!     #[field(text(1..=120), example = "Acme Bakery")]
//!     pub name: String,
//!     /// An http or https URL.
//!     #[field(url())]
//!     pub website: Option<String>,
//!     #[field(timezone(), default = "UTC")]
//!     pub timezone: String,
//! }
//! ```
//!
//! The first part of `#[field(…)]` is the format, a function of [`formats`] or of the request's own file. The type says
//! whether a client may omit the field:
//!
//! | Type | Omitted or null |
//! |---|---|
//! | `T` | a problem |
//! | `T` with `default = …` | the default |
//! | `Option<T>` | `None`; with `required`, a problem; with `default = …`, which only documents what `None` means, `None` |
//! | [`PatchField<T>`] | `Omitted` or `Null` |
//!
//! `example = …` is part of the endpoint's example; `example` alone takes that of the format. `extension` marks a field
//! that is not in the specification. `#[field(flatten)]` adds the fields of another request. `check` is a function
//! `fn(&Self, &Fields<'_>)` that compares fields with each other. A doc comment is the description.
//!
//! The same derive serves bodies, forms and queries: in a form or a query, all values are texts, and the formats of
//! numbers, IDs and flags parse them.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::error::{ApiError, Result};
use crate::fields::{Fields, PatchField, ProblemSet, Problems, ReadContext};

pub mod formats;
mod pages;
pub mod unknown;

pub use crier_api_derive::Request;
pub use pages::Pages;

/// The fields of a request.
pub trait Request: JsonSchema + Send + Sync + Sized + 'static {
    const HAS_FIELDS: bool = true;

    /// Reads the fields, and reports their problems. `None` if a required field is missing or invalid.
    fn read(reader: &Fields<'_>) -> Option<Self>;

    /// Describes the fields.
    fn fields(generator: &mut SchemaGenerator) -> Vec<FieldSpec>;

    /// Returns an example, which may contain `{day+7}` for a date ([`crate::openapi::example`]).
    fn example() -> Map<String, Value>;
}

/// A request without fields.
impl Request for () {
    const HAS_FIELDS: bool = false;

    fn read(_: &Fields<'_>) -> Option<Self> {
        Some(())
    }

    fn fields(_: &mut SchemaGenerator) -> Vec<FieldSpec> {
        Vec::new()
    }

    fn example() -> Map<String, Value> {
        Map::new()
    }
}

/// The description of a field.
#[derive(Clone, Debug)]
pub struct FieldSpec {
    pub name: &'static str,
    pub description: &'static str,
    /// The schema of its value.
    pub schema: Schema,
    pub is_required: bool,
    pub accepts_null: bool,
    pub is_extension: bool,
    pub default: Option<Value>,
}

impl FieldSpec {
    /// Returns its schema in a body, where a field that is not required can be null.
    fn in_object(self) -> Schema {
        let mut schema = self.schema;
        if !self.is_required && self.accepts_null {
            schema = nullable(schema);
        }
        if !self.description.is_empty() {
            schema.insert("description".to_owned(), self.description.into());
        }
        if let Some(default) = self.default {
            schema.insert("default".to_owned(), default);
        }
        if self.is_extension {
            schema.insert("x-extension".to_owned(), true.into());
        }
        schema
    }
}

/// Returns a schema that also accepts null.
fn nullable(mut schema: Schema) -> Schema {
    match schema.get_mut("type") {
        Some(Value::String(kind)) => {
            let kinds = json!([kind, "null"]);
            schema.insert("type".to_owned(), kinds);
            schema
        }
        _ => schemars::json_schema!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

/// Returns the schema of an object with these fields.
pub fn object_schema(fields: Vec<FieldSpec>, description: &str) -> Schema {
    let required: Vec<&str> = fields.iter().filter(|field| field.is_required).map(|field| field.name).collect();
    let mut schema = schemars::json_schema!({ "type": "object" });
    let properties: Map<String, Value> =
        fields.into_iter().map(|field| (field.name.to_owned(), field.in_object().to_value())).collect();
    schema.insert("properties".to_owned(), properties.into());
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    if !description.is_empty() {
        schema.insert("description".to_owned(), description.into());
    }
    schema
}

/// How a field is written: how its value is read, and its schema.
///
/// **To add one:** write a type, a function that makes it, and a line in the tests of [`formats`]. A format of a single
/// request stays in the request's file.
pub trait Format {
    type Value;

    /// Reads the field with this name. Reports a problem under its path, and then returns `Omitted`.
    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<Self::Value>;

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema;

    /// Returns whether a field that is not required can be null.
    fn accepts_null(&self) -> bool {
        true
    }

    fn example(&self) -> Value {
        Value::Null
    }
}

/// A request that was read, and its problems. They are reported later, in the order of the contract's checks.
#[derive(Debug)]
pub struct Parsed<T> {
    value: Option<T>,
    found: ProblemSet,
}

/// A request that a caller in this process makes of values that need no check of their form.
impl<T> From<T> for Parsed<T> {
    fn from(value: T) -> Self {
        Self { value: Some(value), found: ProblemSet::default() }
    }
}

impl<T: Request> Parsed<T> {
    /// Reads an object. `problems` has those that were already found.
    pub fn read(problems: Problems, object: &Map<String, Value>, context: ReadContext<'_>) -> Self {
        let value = T::read(&Fields::new(object, &problems, context));
        Self { value, found: problems.into_set() }
    }
}

impl<T> Parsed<T> {
    /// Returns a copy of the problems, to which more can be added.
    pub fn problems(&self) -> Problems {
        Problems::from_set(self.found.clone())
    }

    /// Returns the request; fails if it has problems.
    pub fn valid(&self) -> Result<&T> {
        self.problems().into_result()?;
        self.value.as_ref().ok_or_else(|| ApiError::bug("a field was rejected without a reason"))
    }

    /// Returns the request even if it has problems, so that more of them can be found: a field with a problem has its
    /// default, or is `None` or omitted. Fails if a required field has a problem.
    pub fn partial(&self) -> Result<&T> {
        match &self.value {
            Some(value) => Ok(value),
            None => self.valid(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fields::{Problems, ReadContext};
    use crate::openapi::schema::Schemas;

    use super::*;

    /// The request of the tests.
    #[derive(Clone, Debug, PartialEq, Request)]
    #[request(name = "Sample", check = check)]
    struct SampleRequest {
        #[field(text(1..=3), example = "abc")]
        name: String,
        /// Whether it is
        /// shown.
        #[field(flag(), default = true, extension)]
        shown: bool,
        #[field(id(), required)]
        owner: Option<i64>,
        #[field(id())]
        parent: PatchField<i64>,
    }

    fn check(request: &SampleRequest, fields: &Fields<'_>) {
        if request.owner.is_some() && request.owner == request.parent.clone().value() {
            fields.problem("parent", "Must not be the owner.");
        }
    }

    fn read(body: &Value) -> Parsed<SampleRequest> {
        let context = ReadContext::new("UTC", chrono::DateTime::UNIX_EPOCH);
        Parsed::read(Problems::default(), body.as_object().unwrap(), context)
    }

    #[test]
    fn a_type_says_what_may_be_omitted() {
        let parsed = read(&json!({ "name": "abc", "owner": 1, "parent": null }));
        let expected = SampleRequest { name: "abc".into(), shown: true, owner: Some(1), parent: PatchField::Null };
        assert_eq!(parsed.valid().unwrap(), &expected);
        for (body, paths) in [
            (json!({}), &["name", "owner"][..]),
            (json!({ "name": "abcd", "owner": 0, "shown": 1, "parent": "x" }), &["name", "owner", "parent", "shown"]),
            (json!({ "name": "a", "owner": 1, "parent": 1 }), &["parent"]),
            // A field that is required, but an `Option`, leaves the request for further checks.
            (json!({ "name": "a", "parent": null }), &["owner"]),
        ] {
            let parsed = read(&body);
            assert_eq!(parsed.problems().paths(), paths, "{body}");
            assert!(parsed.valid().is_err());
            assert_eq!(parsed.partial().is_ok(), body["name"] == "a", "{body}");
        }
    }

    #[test]
    fn the_schema_and_the_example_are_those_of_the_fields() {
        let mut schemas = Schemas::default();
        assert_eq!(schemas.request::<SampleRequest>(), json!({ "$ref": "#/components/schemas/Sample" }));
        let expected = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "minLength": 1, "maxLength": 3 },
                "shown": {
                    "type": ["boolean", "null"], "description": "Whether it is shown.", "default": true, "x-extension": true
                },
                "owner": { "type": "integer", "format": "int64" },
                "parent": { "type": ["integer", "null"], "format": "int64" },
            },
            "required": ["name", "owner"],
            "description": "The request of the tests.",
        });
        assert_eq!(schemas.named["Sample"], expected);
        assert_eq!(Value::from(SampleRequest::example()), json!({ "name": "abc" }));
    }
}
