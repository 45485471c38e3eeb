//! Generates example responses from schemas: the first of a field's `examples`, or a value of its type.

use std::collections::BTreeMap;

use chrono::{NaiveDate, TimeDelta};
use serde_json::{Map, Value, json};

/// The API reference replaces values that begin with `example-` with a new key for each request.
pub const IDEMPOTENCY_KEY: &str = "example-1";

/// The maximum depth, which bounds recursive schemas. References count too. Deeper values are null, which most schemas do
/// not allow, so no schema of the document may be deeper.
const MAX_DEPTH: u32 = 16;

/// Replaces `{day+7}` and `{day-7}` with the date that many days from today, so that examples with future times stay
/// valid.
pub fn fill_days(text: &str, today: NaiveDate) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut parts = text.split("{day");
    filled.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let day = part.split_once('}').and_then(|(days, rest)| {
            let days = TimeDelta::try_days(days.parse().ok()?)?;
            Some((today.checked_add_signed(days)?, rest))
        });
        match day {
            Some((day, rest)) => filled.push_str(&format!("{day}{rest}")),
            None => filled.push_str(&format!("{{day{part}")),
        }
    }
    filled
}

/// Returns an example of a schema. References are resolved in `named`.
pub fn build_example(schema: &Value, named: &BTreeMap<String, Value>) -> Value {
    build_nested_example(schema, named, MAX_DEPTH)
}

fn build_nested_example(schema: &Value, named: &BTreeMap<String, Value>, depth: u32) -> Value {
    let deeper = |schema: &Value| build_nested_example(schema, named, depth.saturating_sub(1));
    if let Some(first) = schema.pointer("/examples/0").or(schema.pointer("/enum/0")) {
        return first.clone();
    }
    if depth == 0 {
        return Value::Null;
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return named.get(name).map(deeper).unwrap_or_default();
    }
    if let Some(first) = schema.pointer("/anyOf/0") {
        return deeper(first);
    }
    // If the type is nullable, use the other type.
    let kind = schema["type"].as_str().or_else(|| schema.pointer("/type/0").and_then(Value::as_str));
    match kind {
        Some("object") => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields.map(|(name, schema)| (name.clone(), deeper(schema))).collect::<Map<_, _>>().into()
        }
        Some("array") => json!([deeper(&schema["items"])]),
        Some("integer") => json!(1),
        Some("boolean") => json!(true),
        Some("string") => match schema["format"].as_str() {
            Some("date-time") => json!("2026-11-21T09:30:00Z"),
            Some("date") => json!("2026-11-21"),
            Some("uri") => json!("https://example.com/"),
            Some("email") => json!("ann@example.com"),
            _ => json!("text"),
        },
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_filled_in() {
        let today = "2026-12-30".parse().unwrap();
        let text = r#"{"a":"{day+7}T07:00:00","b":"{day-1}","c":"{day}","d":{"day":1}}"#;
        let filled = r#"{"a":"2027-01-06T07:00:00","b":"2026-12-29","c":"{day}","d":{"day":1}}"#;
        assert_eq!(fill_days(text, today), filled);
    }

    #[test]
    fn examples_match_their_schema() {
        let named = BTreeMap::from([
            ("Word".to_owned(), json!({ "type": "string", "enum": ["one", "two"] })),
            (
                "Itself".to_owned(),
                json!({ "type": "object", "properties": { "inner": { "$ref": "#/components/schemas/Itself" } } }),
            ),
        ]);
        for (schema, example) in [
            (json!({ "type": ["string", "null"], "format": "date" }), json!("2026-11-21")),
            (json!({ "type": "string", "format": "email" }), json!("ann@example.com")),
            (json!({ "type": "string", "examples": ["bread", "cake"] }), json!("bread")),
            (json!({ "anyOf": [{ "$ref": "#/components/schemas/Word" }, { "type": "null" }] }), json!("one")),
            (json!({ "$ref": "#/components/schemas/Word", "examples": [null] }), json!(null)),
            (json!({ "type": "array", "items": { "type": "integer" } }), json!([1])),
            (
                json!({ "type": "object", "properties": { "a": { "type": "boolean" }, "b": {} } }),
                json!({ "a": true, "b": null }),
            ),
        ] {
            assert_eq!(build_example(&schema, &named), example, "{schema}");
        }
        assert!(build_example(&json!({ "$ref": "#/components/schemas/Itself" }), &named).is_object(), "it ends");
    }
}
