//! Builds the OpenAPI 3.1 document from the endpoints themselves: the runner's checks for an endpoint determine the
//! errors that the document lists for it. Served at `/api/public/v1/openapi.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::endpoint::{BodyFormat, Endpoint, ResponseShape};
use crate::error::{ErrorCode, ErrorType};
use crate::response::PREFIX;

mod errors;
pub mod example;
pub mod schema;
pub mod serve;

use schema::{Schemas, TextEnum};

/// An error response.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ErrorEnvelope {
    pub error: Error,
}

/// The error.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Error {
    #[schemars(with = "TextEnum<ErrorType>")]
    pub r#type: ErrorType,
    #[schemars(with = "TextEnum<ErrorCode>")]
    pub code: ErrorCode,
    /// An explanation of the error and how to fix it.
    pub message: String,
    /// The value of the `X-Request-Id` header.
    #[schemars(extend("x-extension" = true))]
    pub request_id: String,
    /// The URL of the entry for this code in the error reference.
    #[schemars(url, extend("x-extension" = true))]
    pub doc_url: String,
    /// The problems of each field, by field path. Only for `validation_failed`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-extension" = true))]
    pub fields: BTreeMap<String, Vec<String>>,
}

/// The URLs of the pages of a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PageLinks {
    #[schemars(url, extend("examples" = ["https://crier.example/api/public/v1/…?page=1"]))]
    pub first: String,
    #[schemars(url, extend("examples" = ["https://crier.example/api/public/v1/…?page=1"]))]
    pub last: String,
    #[schemars(extend("examples" = [null]))]
    pub prev: Option<String>,
    #[schemars(extend("examples" = [null]))]
    pub next: Option<String>,
}

/// A pagination link.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PagerLink {
    #[schemars(extend("examples" = ["https://crier.example/api/public/v1/…?page=1"]))]
    pub url: Option<String>,
    #[schemars(extend("examples" = ["1"]))]
    pub label: String,
    pub active: bool,
}

/// The position of this page in the list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PageMeta {
    pub current_page: i64,
    pub from: Option<i64>,
    pub last_page: i64,
    pub links: Vec<PagerLink>,
    #[schemars(url, extend("examples" = ["https://crier.example/api/public/v1/…"]))]
    pub path: String,
    #[schemars(extend("examples" = [20]))]
    pub per_page: i64,
    pub to: Option<i64>,
    pub total: i64,
}

/// Builds the whole document.
pub fn document(endpoints: &[Endpoint]) -> Value {
    let mut s = Schemas::default();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints {
        let method = endpoint.method.as_str().to_ascii_lowercase();
        paths.entry(endpoint.path).or_default().insert(method, operation(endpoint, &mut s));
    }
    let mut tags: Vec<&str> = Vec::new();
    endpoints.iter().for_each(|e| {
        if !tags.contains(&e.tag) {
            tags.push(e.tag)
        }
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Crier",
            "version": env!("CARGO_PKG_VERSION"),
            "description": INTRODUCTION,
            "license": { "name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE") },
        },
        "servers": [{ "url": PREFIX }],
        "security": [{ "bearer": [] }],
        "tags": tags.iter().map(|tag| json!({ "name": tag })).collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http", "scheme": "bearer",
                    "description": "An API key: svc_live_…, or svc_test_… for reads only.",
                },
            },
            "headers": headers(),
            "examples": errors::examples(),
            "schemas": s.named,
        },
    })
}

const IGNORED_FIELDS: &str = "Crier-Ignored-Fields";

const INTRODUCTION: &str = "Publishes posts to social platforms. Requests and responses are JSON. Every request needs an \
    API key. Every write needs an `Idempotency-Key`: if you send the same request again with the same key, you get the \
    response to the first one. (A response of more than 64 KiB is not stored. It is built again from the current state of \
    its records, and is 404 if they were deleted.) Unknown fields and query parameters are ignored and listed in the \
    `Crier-Ignored-Fields` response header. A name that looks like a typo of a known name returns 422, so that a typo \
    never publishes a post. `x-extension` marks extensions to the specification that this service implements. A client \
    that knows only the specification never needs them.";

fn headers() -> Value {
    let integer = |text: &str| json!({ "description": text, "schema": { "type": "integer" } });
    let text = |text: &str| json!({ "description": text, "schema": { "type": "string" } });
    json!({
        "RateLimitLimit": integer("The maximum number of requests per minute."),
        "RateLimitRemaining": integer("The number of requests that are left."),
        "RateLimitReset": integer("The Unix time, in seconds, when the full allowance is available again."),
        "RequestId": text("The request ID. Include it when you report a problem."),
        "RetryAfter": integer("The number of seconds to wait before you retry."),
        "IgnoredFields": {
            "description": "The unknown fields and query parameters of the request, which were ignored. At most 20 names, \
                then `...`.",
            "schema": { "type": "string" }, "x-extension": true,
        },
        "Location": text("The path of the created record, or of the record that shows the status of the operation."),
        "IdempotentReplayed": { "description": "Present if an earlier request with the same key stored the response.",
            "schema": { "type": "string", "enum": ["true"] } },
        "Allow": text("The methods that this path supports."),
        "Authenticate": text("The authentication scheme, `Bearer`."),
    })
}

fn operation(endpoint: &Endpoint, s: &mut Schemas) -> Value {
    let mut operation = json!({
        "operationId": endpoint.id,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "description": description(endpoint),
        "parameters": parameters(endpoint, s),
        "responses": responses(endpoint, s),
    });
    if let Some(body) = &endpoint.body {
        operation["requestBody"] = json!({
            "required": body.format != BodyFormat::OptionalJson,
            "content": { media_type(body.format): { "schema": (body.schema)(s), "example": body.example } },
        });
    }
    if endpoint.extension {
        operation["x-extension"] = true.into();
    }
    operation
}

const fn media_type(format: BodyFormat) -> &'static str {
    match format {
        BodyFormat::Json | BodyFormat::OptionalJson => "application/json",
        BodyFormat::Multipart => "multipart/form-data",
    }
}

fn description(endpoint: &Endpoint) -> String {
    let mut text = endpoint.description.to_owned();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(&format!("Scope: `{}`.", endpoint.scope));
    if endpoint.for_publishers {
        text.push_str(" Not available to contributors.");
    }
    if !endpoint.features.is_empty() {
        let names: Vec<String> = endpoint.features.iter().map(|f| format!("`{f}`")).collect();
        text.push_str(&format!(" Plan feature: {}.", names.join(" or ")));
        if endpoint.serves_leftovers {
            text.push_str(" Records from an earlier plan that included the feature remain available.");
        }
    }
    text
}

fn parameters(endpoint: &Endpoint, s: &mut Schemas) -> Vec<Value> {
    let mut out: Vec<Value> = endpoint
        .ids()
        .map(|id| {
            let schema = json!({ "type": "integer", "format": "int64", "minimum": 1 });
            json!({ "name": id, "in": "path", "required": true, "schema": schema, "example": 1 })
        })
        .collect();
    for parameter in &endpoint.query {
        let mut value = json!({
            "name": parameter.name, "in": "query", "required": false,
            "description": parameter.description, "schema": (parameter.schema)(s),
        });
        if parameter.extension {
            value["x-extension"] = true.into();
        }
        out.push(value);
    }
    if endpoint.is_write() {
        out.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": true,
            "description": "A unique value for each request. Use the same value to retry a request. Kept for 24 hours.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" },
            "example": example::IDEMPOTENCY_KEY,
        }));
    }
    out
}

fn responses(endpoint: &Endpoint, s: &mut Schemas) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert(endpoint.status.to_string(), success(endpoint, s));
    for (status, codes) in errors::error_codes(endpoint) {
        out.insert(status.to_string(), errors::error_response(status, &codes, s));
    }
    out
}

fn common_headers() -> Map<String, Value> {
    let mut out = Map::new();
    for (name, header) in [
        ("X-RateLimit-Limit", "RateLimitLimit"),
        ("X-RateLimit-Remaining", "RateLimitRemaining"),
        ("X-RateLimit-Reset", "RateLimitReset"),
        ("X-Request-Id", "RequestId"),
    ] {
        out.insert(name.to_owned(), reference(header));
    }
    out
}

fn reference(header: &str) -> Value {
    json!({ "$ref": format!("#/components/headers/{header}") })
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

fn success(endpoint: &Endpoint, s: &mut Schemas) -> Value {
    let mut headers = common_headers();
    if matches!(endpoint.status, 201 | 202) {
        headers.insert("Location".to_owned(), reference("Location"));
    }
    headers.insert(IGNORED_FIELDS.to_owned(), reference("IgnoredFields"));
    if endpoint.is_write() {
        headers.insert("Idempotent-Replayed".to_owned(), reference("IdempotentReplayed"));
    }
    let record = endpoint.schema.map(|schema| schema(s)).unwrap_or_default();
    let list = |record: Value| json!({ "type": "array", "items": record });
    let (text, schema) = match endpoint.shape {
        ResponseShape::Nothing => ("Success. The response has no body.", None),
        ResponseShape::File => ("The file.", None),
        ResponseShape::One => ("The record.", Some(object(json!({ "data": record }), &["data"]))),
        ResponseShape::Many => ("The records.", Some(object(json!({ "data": list(record) }), &["data"]))),
        ResponseShape::Pages => {
            let properties =
                json!({ "data": list(record), "links": s.response::<PageLinks>(), "meta": s.response::<PageMeta>() });
            ("A page of records.", Some(object(properties, &["data", "links", "meta"])))
        }
    };
    let mut response = json!({ "description": text, "headers": headers });
    if let Some(schema) = schema {
        let example = example::build_example(&schema, &s.named);
        response["content"] = json!({ "application/json": { "schema": schema, "example": example } });
    }
    for (media_type, schema) in &endpoint.file_types {
        response["content"][media_type] = match schema.map(|schema| schema(s)) {
            Some(schema) => {
                let example = example::build_example(&schema, &s.named);
                json!({ "schema": schema, "example": example })
            }
            None => json!({ "schema": { "type": "string", "format": "binary" } }),
        };
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes;

    #[test]
    fn the_document_is_what_was_promised() {
        let mut document = document(&routes::all());
        document["info"]["version"] = "that of the program".into();
        insta::assert_json_snapshot!(document);
    }

    #[test]
    fn every_endpoint_is_fully_documented() {
        let endpoints = routes::all();
        let document = document(&endpoints);
        let mut ids = Vec::new();
        for endpoint in &endpoints {
            let operation = &document["paths"][endpoint.path][endpoint.method.as_str().to_ascii_lowercase()];
            let name = format!("{} {}", endpoint.method, endpoint.path);
            assert!(!endpoint.summary.is_empty() && !endpoint.tag.is_empty(), "{name} has no summary or tag");
            assert!(!ids.contains(&endpoint.id), "{name}: {} is an operation already", endpoint.id);
            ids.push(endpoint.id);
            let content = &operation["responses"][endpoint.status.to_string()]["content"]["application/json"];
            let has_example = match endpoint.shape {
                ResponseShape::Nothing => true,
                ResponseShape::File => content["example"].is_object(),
                _ => !content["example"]["data"].is_null(),
            };
            assert!(has_example, "{name} has no example");
            for status in ["401", "403", "404", "405", "429", "500", "503"] {
                assert!(operation["responses"][status].is_object(), "{name} does not declare {status}");
            }
            for code in endpoint.codes {
                let response = &operation["responses"][code.status().as_str()];
                let is_declared = response["description"].as_str().is_some_and(|text| text.contains(code.as_str()));
                assert!(is_declared, "{name} does not declare {code}");
            }
        }
    }

    #[test]
    fn a_name_stands_for_one_type() {
        let (mut requests, mut responses) = (Schemas::default(), Schemas::default());
        for endpoint in routes::all() {
            let request_schemas = endpoint.query.iter().map(|parameter| parameter.schema);
            request_schemas.chain(endpoint.body.map(|body| body.schema)).for_each(|schema| drop(schema(&mut requests)));
            let response_schemas = endpoint.file_types.iter().filter_map(|(_, schema)| *schema);
            response_schemas.chain(endpoint.schema).for_each(|schema| drop(schema(&mut responses)));
        }
        for (name, schema) in requests.named.iter().chain(&responses.named) {
            // schemars appends a number to the name of a second type.
            assert!(!name.ends_with(|c: char| c.is_ascii_digit()), "two types are named as {name}");
            let (in_requests, in_responses) = (requests.named.get(name), responses.named.get(name));
            assert!(
                in_requests.is_none_or(|found| found == schema) && in_responses.is_none_or(|found| found == schema),
                "{name}"
            );
        }
    }

    #[test]
    fn every_reference_resolves() {
        fn check(value: &Value, document: &Value) {
            match value {
                Value::Object(object) => {
                    if let Some(path) = object.get("$ref").and_then(Value::as_str) {
                        let found = document.pointer(path.trim_start_matches('#'));
                        assert!(found.is_some_and(|v| !v.is_null()), "{path} leads nowhere");
                    }
                    object.values().for_each(|v| check(v, document));
                }
                Value::Array(list) => list.iter().for_each(|v| check(v, document)),
                _ => {}
            }
        }
        let document = document(&routes::all());
        check(&document, &document);
    }
}
