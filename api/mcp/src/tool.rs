//! A tool: an endpoint, what its caller may set of the request, and what the protocol says about it. Its schemas are made
//! from those of the endpoint's types.

use crier_domain::access::{KeyMode, Scope};
use crier_endpoints::endpoint::{AnyEndpoint, Endpoint, EndpointSpec, ResponseShape};
use crier_endpoints::openapi::schema::Schemas;
use crier_endpoints::request::unknown::KnownNames;
use crier_endpoints::request::{Request, object_schema};
use crier_endpoints::response::Output;
use crier_store::keys::Caller;
use serde_json::{Map, Value, json};

use crate::pages::{CURSOR, DEFAULT_LIMIT, LIMIT, MAX_LIMIT, PAGE_PARAMETERS};
use crate::schema;

/// The argument with the `Idempotency-Key` of a write.
pub const IDEMPOTENCY_KEY: &str = "idempotency_key";
/// The argument with which a call is repeated after the user confirmed it.
pub const CONFIRM: &str = "confirm";
/// The field of a result that says which of its texts others wrote.
pub const UNTRUSTED: &str = "untrusted";
/// The field of a result that lists the parts that are too large for it.
pub const OMITTED: &str = "omitted";

/// What a call does. Clients decide by it whether to ask the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing.
    Read,
    /// Adds something to Crier.
    Add,
    /// Adds something to Crier, and calls other services for it.
    Fetch,
    /// Overwrites something in Crier.
    Change,
    /// Has an effect that others see, now or later.
    Publish,
}

/// The hints about a tool in the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Hints {
    pub is_read_only: bool,
    pub is_destructive: bool,
    pub is_idempotent: bool,
    pub is_open_world: bool,
}

impl Effect {
    pub const fn hints(self) -> Hints {
        Hints {
            is_read_only: matches!(self, Self::Read),
            is_destructive: matches!(self, Self::Change | Self::Publish),
            is_idempotent: matches!(self, Self::Read),
            is_open_world: matches!(self, Self::Fetch | Self::Publish),
        }
    }
}

/// Which fields of the request are arguments of the tool.
#[derive(Clone, Copy, Debug)]
pub enum Arguments {
    All,
    Without(&'static [&'static str]),
    Only(&'static [&'static str]),
}

impl Arguments {
    fn has(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Without(names) => !names.contains(&name),
            Self::Only(names) => names.contains(&name),
        }
    }
}

/// An endpoint with the names that it knows.
pub struct ToolEndpoint {
    pub endpoint: AnyEndpoint,
    pub known: KnownNames,
}

impl ToolEndpoint {
    fn new<Q: Request, R: Output>(endpoint: Endpoint<Q, R>) -> Self {
        let endpoint = endpoint.erase();
        Self { known: KnownNames::of(&endpoint.spec), endpoint }
    }

    pub fn spec(&self) -> &EndpointSpec {
        &self.endpoint.spec
    }
}

/// Further records in a result.
pub struct Part {
    /// The field of the result.
    pub name: &'static str,
    pub endpoint: ToolEndpoint,
    /// Returns whether a record is of use beside the records of the tool's endpoint.
    pub keeps: fn(data: &Value, record: &Value) -> bool,
}

/// The function that returns the value of a fixed field, from the arguments.
type Fixed = fn(&Map<String, Value>) -> &'static str;

pub struct Tool {
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub effect: Effect,
    pub main: ToolEndpoint,
    /// An ID, and the endpoint that is called if the ID is given.
    pub with_id: Option<(&'static str, ToolEndpoint)>,
    pub parts: Vec<Part>,
    arguments: Arguments,
    /// A field of the request that the tool sets.
    pub fixed: Option<(&'static str, Fixed)>,
    /// A field that is omitted if the post cannot be changed with it, once its publishing has ended.
    pub optional_field: Option<&'static str>,
    /// What the user is asked to confirm, as a verb.
    pub asks: Option<&'static str>,
    /// The list in `data` of which a result has a part, the newest last. Otherwise it is `data` itself.
    pub list: Option<&'static str>,
    /// The paths of the fields that others wrote.
    pub untrusted: &'static [&'static str],
}

impl Tool {
    pub fn new<Q: Request, R: Output>(
        name: &'static str,
        title: &'static str,
        effect: Effect,
        endpoint: Endpoint<Q, R>,
    ) -> Self {
        Self {
            name,
            title,
            description: "",
            effect,
            main: ToolEndpoint::new(endpoint),
            with_id: None,
            parts: Vec::new(),
            arguments: Arguments::All,
            fixed: None,
            optional_field: None,
            asks: None,
            list: None,
            untrusted: &[],
        }
    }

    pub fn description(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    /// Calls this endpoint instead if the ID `id` of its path is given.
    pub fn with_id<Q: Request, R: Output>(self, id: &'static str, endpoint: Endpoint<Q, R>) -> Self {
        Self { with_id: Some((id, ToolEndpoint::new(endpoint))), ..self }
    }

    /// Adds the records of an endpoint to the result, if the ids of its path are given. It gets those arguments that
    /// its query has.
    pub fn and<Q: Request, R: Output>(self, name: &'static str, endpoint: Endpoint<Q, R>) -> Self {
        self.and_those(name, endpoint, |_, _| true)
    }

    /// Like [`Tool::and`], with those records for which `keeps` returns true.
    pub fn and_those<Q: Request, R: Output>(
        mut self,
        name: &'static str,
        endpoint: Endpoint<Q, R>,
        keeps: fn(&Value, &Value) -> bool,
    ) -> Self {
        self.parts.push(Part { name, endpoint: ToolEndpoint::new(endpoint), keeps });
        self
    }

    pub fn takes(self, arguments: Arguments) -> Self {
        Self { arguments, ..self }
    }

    pub fn sets(self, name: &'static str, value: Fixed) -> Self {
        Self { fixed: Some((name, value)), ..self }
    }

    /// Omits the field if the post cannot be changed with it, once its publishing has ended.
    pub fn or_omits(self, name: &'static str) -> Self {
        Self { optional_field: Some(name), ..self }
    }

    /// Asks the user before the call, with this verb.
    pub fn asks(self, verb: &'static str) -> Self {
        Self { asks: Some(verb), ..self }
    }

    /// A result has a part of this list of the record.
    pub fn list(self, field: &'static str) -> Self {
        Self { list: Some(field), ..self }
    }

    pub fn untrusted(self, paths: &'static [&'static str]) -> Self {
        Self { untrusted: paths, ..self }
    }

    /// Returns the scopes that the tool needs: that of its endpoint, and that with which its question shows the post or
    /// the conversation.
    pub fn scopes(&self) -> impl Iterator<Item = Scope> {
        let shown = |id: &str| match id {
            "post" => Some(Scope::PostsRead),
            "conversation" => Some(Scope::InboxRead),
            _ => None,
        };
        let shown = self.asks.and_then(|_| self.main.spec().ids().find_map(shown));
        [self.main.spec().scope].into_iter().chain(shown)
    }

    pub fn is_write(&self) -> bool {
        self.main.spec().is_write()
    }

    /// Returns whether the caller's key allows the tool. Only such tools are listed.
    pub fn is_for(&self, caller: &Caller) -> bool {
        self.scopes().all(|scope| caller.scopes.has(scope)) && (caller.mode == KeyMode::Live || !self.is_write())
    }

    /// Returns whether a result has a part of a list.
    pub fn has_pages(&self) -> bool {
        self.list.is_some() || matches!(self.main.spec().shape, ResponseShape::Many | ResponseShape::Pages)
    }

    /// Returns the schema of the arguments.
    pub fn input_schema(&self) -> Map<String, Value> {
        let mut schemas = Schemas::default();
        let mut schema = schema::resolve(request_schema(self.main.spec(), &mut schemas), &schemas);
        let mut properties = Map::new();
        let mut required: Vec<Value> = Vec::new();
        for id in self.main.spec().ids() {
            properties.insert(argument_of(id), id_schema());
            required.push(argument_of(id).into());
        }
        if let Some((id, _)) = &self.with_id {
            properties.insert(argument_of(id), id_schema());
        }
        let is_argument = |name: &str| self.arguments.has(name) && !(self.has_pages() && is_page_parameter(name));
        if let Some(Value::Array(names)) = schema.remove("required") {
            required.extend(names.into_iter().filter(|name| name.as_str().is_some_and(is_argument)));
        }
        if let Some(Value::Object(fields)) = schema.remove("properties") {
            properties.extend(fields.into_iter().filter(|(name, _)| is_argument(name)));
        }
        if self.has_pages() {
            properties.extend(page_arguments());
        }
        if self.is_write() {
            properties.insert(IDEMPOTENCY_KEY.to_owned(), idempotency_schema());
        }
        if self.asks.is_some() {
            properties.insert(CONFIRM.to_owned(), confirm_schema());
        }
        let mut input = object(properties, required);
        input.insert("additionalProperties".to_owned(), false.into());
        schema::with_definitions(input, &schemas)
    }

    /// Returns the schema of a result.
    pub fn output_schema(&self) -> Map<String, Value> {
        let mut schemas = Schemas::default();
        let mut data = data_schema(self.main.spec(), &mut schemas);
        if let Some((_, other)) = &self.with_id {
            let other = data_schema(other.spec(), &mut schemas);
            if other != data {
                data = json!({ "anyOf": [data, other] });
            }
        }
        // Some clients compare errors with the schema too, so nothing is required.
        let mut properties =
            Map::from_iter([("data".to_owned(), data), ("error".to_owned(), json!({ "type": "object" }))]);
        for part in &self.parts {
            properties.insert(part.name.to_owned(), data_schema(part.endpoint.spec(), &mut schemas));
        }
        if !self.parts.is_empty() {
            properties.insert(OMITTED.to_owned(), json!({ "type": "array", "items": { "type": "string" } }));
        }
        if self.has_pages() {
            properties.insert("next_cursor".to_owned(), json!({ "type": "string" }));
        }
        if self.is_write() {
            properties.insert(IDEMPOTENCY_KEY.to_owned(), json!({ "type": "string" }));
        }
        if !self.untrusted.is_empty() {
            properties.insert(UNTRUSTED.to_owned(), json!({ "type": "object" }));
        }
        let output = schema::with_definitions(object(properties, Vec::new()), &schemas);
        schema::without_texts(output)
    }
}

/// Returns the argument with an ID of a path.
pub fn argument_of(id: &str) -> String {
    format!("{id}_id")
}

fn is_page_parameter(name: &str) -> bool {
    PAGE_PARAMETERS.contains(&name)
}

fn object(properties: Map<String, Value>, required: Vec<Value>) -> Map<String, Value> {
    let mut schema =
        Map::from_iter([("type".to_owned(), "object".into()), ("properties".to_owned(), properties.into())]);
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    schema
}

fn request_schema(spec: &EndpointSpec, schemas: &mut Schemas) -> Value {
    match (&spec.body, &spec.query) {
        (Some(body), _) => (body.schema)(schemas),
        (None, Some(query)) => object_schema(query(schemas), "").to_value(),
        (None, None) => json!({}),
    }
}

/// Returns the schema of the records in a response.
fn data_schema(spec: &EndpointSpec, schemas: &mut Schemas) -> Value {
    let record = spec.schema.map_or_else(|| json!({}), |schema| schema(schemas));
    match spec.shape {
        ResponseShape::Many | ResponseShape::Pages => json!({ "type": "array", "items": record }),
        ResponseShape::One | ResponseShape::Nothing | ResponseShape::File => record,
    }
}

fn id_schema() -> Value {
    json!({ "type": "integer", "minimum": 1 })
}

fn page_arguments() -> [(String, Value); 2] {
    let cursor = json!({
        "type": "string",
        "description": "The `next_cursor` of the previous result, for the records after it.",
    });
    let limit = json!({
        "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT,
        "description": "The maximum number of records. A result with long records has fewer.",
    });
    [(CURSOR.to_owned(), cursor), (LIMIT.to_owned(), limit)]
}

fn idempotency_schema() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": 255,
        "description": "To repeat a call whose result you did not get, send the same key and arguments: the effect \
                        happens once. If omitted, Crier creates a key, which the result contains.",
    })
}

fn confirm_schema() -> Value {
    json!({
        "type": "string",
        "description": "`confirm` of the error `confirmation_required`, after the user has seen its message and has \
                        agreed. Not needed if the client asks the user itself.",
    })
}
