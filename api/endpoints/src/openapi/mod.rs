//! Builds the OpenAPI 3.1 document from the endpoints themselves: the runner's checks for an endpoint determine the
//! errors that the document lists for it. Served at `/api/public/v1/openapi.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::PREFIX;
use crate::endpoint::AnyEndpoint;
use crate::endpoint::spec::{BodyFormat, EndpointSpec, ResponseShape};
use crate::error::{ErrorCode, ErrorType};
use crate::request::Pages;

mod components;
mod errors;
pub mod example;
pub mod schema;
#[cfg(test)]
mod tests;
mod webhooks;

use components::{Components, IGNORED_FIELDS, common_headers, header, pascal_case};
use schema::TextEnum;

/// An error response.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ErrorEnvelope {
    pub error: Error,
}

/// The error.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
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
pub fn document(endpoints: &[AnyEndpoint]) -> Value {
    let mut components = Components::default();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    let endpoints: Vec<&EndpointSpec> = endpoints.iter().map(|endpoint| &*endpoint.spec).collect();
    for endpoint in &endpoints {
        let method = endpoint.method.as_str().to_ascii_lowercase();
        paths.entry(endpoint.path).or_default().insert(method, operation(endpoint, &mut components));
    }
    let mut tags: Vec<&str> = Vec::new();
    endpoints.iter().for_each(|e| {
        if !tags.contains(&e.tag) {
            tags.push(e.tag)
        }
    });
    let webhooks = webhooks::section(&mut components);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Crier",
            "version": env!("CARGO_PKG_VERSION"),
            "description": INTRODUCTION,
            "license": { "name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE") },
        },
        "servers": servers(""),
        "security": [{ "bearer": [] }],
        "tags": tags.iter().map(|tag| json!({ "name": tag })).collect::<Vec<_>>(),
        "paths": paths,
        "webhooks": webhooks,
        "components": components.into_section(),
    })
}

fn servers(base_url: &str) -> Value {
    json!([{ "url": format!("{base_url}{PREFIX}") }])
}

/// Returns the text of the document with the URL of the API instead of its path.
pub fn at_base_url(document: &str, base_url: &str) -> String {
    let member = |base_url: &str| format!("\"servers\":{}", servers(base_url));
    document.replacen(&member(""), &member(base_url), 1)
}

const INTRODUCTION: &str = "Publishes posts to social platforms. Requests and responses are JSON. Every request needs an \
    API key. Every write needs an `Idempotency-Key`: if you send the same request again with the same key, you get the \
    response to the first one. (A response of more than 64 KiB is not stored. Crier builds it again from the current state \
    of its records, and returns 404 if they were deleted.) Unknown fields and query parameters are ignored and listed in the \
    `Crier-Ignored-Fields` response header. A name that looks like a typo of a known name returns 422, so that a typo \
    never publishes a post. `x-extension` marks extensions to the specification that this service implements. A client \
    that knows only the specification never needs them. `webhooks` lists the requests that Crier sends to webhook \
    endpoints; the guide at `/docs/webhooks` explains how to verify them.";

fn operation(endpoint: &EndpointSpec, components: &mut Components) -> Value {
    let mut operation = json!({
        "operationId": endpoint.id,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "description": description(endpoint),
        "parameters": parameters(endpoint, components),
        "responses": responses(endpoint, components),
    });
    if let Some(body) = &endpoint.body {
        operation["requestBody"] = json!({
            "required": body.format != BodyFormat::OptionalJson,
            "content": { media_type(body.format): { "schema": (body.schema)(&mut components.schemas), "example": (body.example)() } },
        });
    }
    if let Some(media_type) = endpoint.bytes_type {
        // OpenAPI 3.1 needs no schema for bytes, but without this one, generated clients send them as JSON.
        let schema = json!({ "type": "string", "format": "binary" });
        operation["requestBody"] = json!({ "required": true, "content": { media_type: { "schema": schema } } });
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

fn description(endpoint: &EndpointSpec) -> String {
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

fn parameters(endpoint: &EndpointSpec, components: &mut Components) -> Vec<Value> {
    let mut out = Vec::new();
    for id in endpoint.ids() {
        let schema = json!({ "type": "integer", "format": "int64", "minimum": 1 });
        let parameter = json!({ "name": id, "in": "path", "required": true, "schema": schema, "example": 1 });
        out.push(components.parameter(&format!("{}Id", pascal_case(id)), parameter));
    }
    for parameter in endpoint.query.map(|query| query(&mut components.schemas)).unwrap_or_default() {
        let mut schema = parameter.schema.to_value();
        if let Some(default) = parameter.default {
            schema["default"] = default;
        }
        let mut value = json!({
            "name": parameter.name, "in": "query", "required": parameter.is_required,
            "description": parameter.description, "schema": schema,
        });
        if parameter.is_extension {
            value["x-extension"] = true.into();
        }
        let is_shared = Pages::NAMES.contains(&parameter.name);
        out.push(if is_shared { components.parameter(&pascal_case(parameter.name), value) } else { value });
    }
    if endpoint.is_write() {
        let key = json!({
            "name": "Idempotency-Key", "in": "header", "required": true,
            "description": "A unique value for each request. Use the same value to retry a request. Kept for 24 hours.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" },
            "example": example::IDEMPOTENCY_KEY,
        });
        out.push(components.parameter("IdempotencyKey", key));
    }
    for header in endpoint.request_headers {
        out.push(json!({
            "name": header.name, "in": "header", "required": header.is_required, "description": header.description,
            "schema": { "type": "string" }, "example": header.example,
        }));
    }
    out
}

fn responses(endpoint: &EndpointSpec, components: &mut Components) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert(endpoint.status.to_string(), success(endpoint, components));
    for (status, codes) in errors::error_codes(endpoint) {
        out.insert(status.to_string(), errors::error_response(status, &codes, components));
    }
    out
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

fn success(endpoint: &EndpointSpec, components: &mut Components) -> Value {
    let mut headers = common_headers();
    if matches!(endpoint.status, 201 | 202) {
        headers.insert("Location".to_owned(), header("Location"));
    }
    headers.insert(IGNORED_FIELDS.to_owned(), header("IgnoredFields"));
    if endpoint.is_write() {
        headers.insert("Idempotent-Replayed".to_owned(), header("IdempotentReplayed"));
    }
    for of_endpoint in endpoint.response_headers {
        let value = json!({
            "description": of_endpoint.description, "required": of_endpoint.is_required, "schema": { "type": "string" },
            "example": of_endpoint.example,
        });
        headers.insert(of_endpoint.name.to_owned(), value);
    }
    let s = &mut components.schemas;
    let record = endpoint.schema.map(|schema| schema(s)).unwrap_or_default();
    let list = |record: Value| json!({ "type": "array", "items": record });
    let one = if endpoint.id == "validatePost" { "The result of the validation." } else { "The record." };
    let (text, schema) = match endpoint.shape {
        ResponseShape::Nothing => ("Success. The response has no body.", None),
        ResponseShape::File => ("The file.", None),
        ResponseShape::One => (one, Some(object(json!({ "data": record }), &["data"]))),
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
            // A body of bytes has no schema.
            None => json!({}),
        };
    }
    if endpoint.status == 204 && endpoint.is_write() { components.response("NoContent", response) } else { response }
}
