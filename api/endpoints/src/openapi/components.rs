//! The parts of the document that are defined once, in `components`. Operations refer to them with `$ref`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::errors;
use super::schema::Schemas;

pub(super) const IGNORED_FIELDS: &str = "Crier-Ignored-Fields";

/// Collects the components while the document is built.
#[derive(Debug, Default)]
pub(super) struct Components {
    pub schemas: Schemas,
    responses: BTreeMap<String, Value>,
    parameters: BTreeMap<String, Value>,
}

impl Components {
    /// Returns a reference to a response. A name must always stand for the same response.
    pub fn response(&mut self, name: &str, response: Value) -> Value {
        self.responses.entry(name.to_owned()).or_insert(response);
        reference("responses", name)
    }

    /// Returns a reference to a parameter. A name must always stand for the same parameter.
    pub fn parameter(&mut self, name: &str, parameter: Value) -> Value {
        self.parameters.entry(name.to_owned()).or_insert(parameter);
        reference("parameters", name)
    }

    /// Returns the section of the document.
    pub fn into_section(self) -> Value {
        json!({
            "securitySchemes": {
                "bearer": {
                    "type": "http", "scheme": "bearer",
                    "description": "An API key: svc_live_…, or svc_test_… for reads only.",
                },
            },
            "headers": headers(),
            "parameters": self.parameters,
            "responses": self.responses,
            "examples": errors::examples(),
            "schemas": self.schemas.named,
        })
    }
}

/// Returns a reference to a component.
pub(super) fn reference(section: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{section}/{name}") })
}

/// Returns a reference to a header.
pub(super) fn header(name: &str) -> Value {
    reference("headers", name)
}

/// Returns the headers of every response.
pub(super) fn common_headers() -> Map<String, Value> {
    let headers = [
        ("X-RateLimit-Limit", "RateLimitLimit"),
        ("X-RateLimit-Remaining", "RateLimitRemaining"),
        ("X-RateLimit-Reset", "RateLimitReset"),
        ("X-Request-Id", "RequestId"),
    ];
    headers.into_iter().map(|(name, component)| (name.to_owned(), header(component))).collect()
}

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

/// Returns a name without separators in which each word begins with a capital letter: `NotFound` for `not_found`.
pub(super) fn pascal_case(name: &str) -> String {
    let capitalize = |word: &str| match word.split_at_checked(1) {
        Some((first, rest)) => format!("{}{rest}", first.to_ascii_uppercase()),
        None => word.to_owned(),
    };
    name.split(['_', '-', '.']).map(capitalize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_components_are_in_pascal_case() {
        for (name, expected) in
            [("not_found", "NotFound"), ("linkInBio", "LinkInBio"), ("Idempotency-Key", "IdempotencyKey"), ("", "")]
        {
            assert_eq!(pascal_case(name), expected);
        }
    }
}
