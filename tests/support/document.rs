//! Reads the OpenAPI document.

use serde_json::Value;

/// Returns the part of the document to which a reference leads, or the part itself if it is not a reference.
pub fn resolve<'d>(document: &'d Value, part: &'d Value) -> &'d Value {
    let Some(path) = part["$ref"].as_str() else { return part };
    document.pointer(path.trim_start_matches('#')).unwrap_or_else(|| panic!("{path} leads nowhere"))
}

/// Asserts that a value matches a schema of the document: it has every property and no other, with the right types.
pub fn assert_conforms(document: &Value, schema: &Value, value: &Value, path: &str) {
    let schema = resolve(document, schema);
    if let Some(choices) = schema["anyOf"].as_array() {
        let choice = choices.iter().find(|choice| (choice["type"] == "null") == value.is_null());
        return assert_conforms(document, choice.expect("a choice"), value, path);
    }
    let allowed = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => vec![one.as_str().expect("a type")],
    };
    let actual = match value {
        Value::Null => "null",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Bool(_) => "boolean",
    };
    assert!(allowed.contains(&actual), "{path} is {value}, not {allowed:?}");
    if let Some(word) = schema.get("const") {
        assert_eq!(value, word, "{path}");
    }
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{path} is {value}, not one of {words:?}");
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        values.iter().for_each(|value| assert_conforms(document, items, value, &format!("{path}[]")));
    }
    if let (Some(properties), Some(object)) = (schema["properties"].as_object(), value.as_object()) {
        assert_eq!(object.keys().collect::<Vec<_>>(), properties.keys().collect::<Vec<_>>(), "{path}");
        for (name, schema) in properties {
            assert_conforms(document, schema, &object[name], &format!("{path}.{name}"));
        }
    }
}
