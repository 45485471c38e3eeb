//! JSON schemas without references to the OpenAPI document: the named schemas that a tool needs are its `$defs`.

use std::collections::BTreeSet;

use crier_endpoints::openapi::schema::Schemas;
use serde_json::{Map, Value};

const COMPONENTS: &str = "#/components/schemas/";
const DEFINITIONS: &str = "#/$defs/";
/// Keywords that are of no use to a model.
const DROPPED: [&str; 2] = ["x-extension", "examples"];

/// Returns the object that a schema is or refers to.
pub fn resolve(schema: Value, schemas: &Schemas) -> Map<String, Value> {
    let name = schema["$ref"].as_str().and_then(|path| path.strip_prefix(COMPONENTS));
    match (name.and_then(|name| schemas.named.get(name)), schema) {
        (Some(Value::Object(named)), _) => named.clone(),
        (_, Value::Object(own)) => own,
        _ => Map::new(),
    }
}

/// Adds the definitions to which a schema refers.
pub fn with_definitions(schema: Map<String, Value>, schemas: &Schemas) -> Map<String, Value> {
    let mut root = Value::Object(schema);
    let mut names = BTreeSet::new();
    refer_to_definitions(&mut root, &mut names);
    let mut definitions = Map::new();
    while let Some(name) = names.pop_first() {
        if definitions.contains_key(&name) {
            continue;
        }
        let mut definition = schemas.named.get(&name).cloned().unwrap_or_default();
        refer_to_definitions(&mut definition, &mut names);
        definitions.insert(name, definition);
    }
    let Value::Object(mut schema) = root else { return Map::new() };
    if !definitions.is_empty() {
        schema.insert("$defs".to_owned(), definitions.into());
    }
    schema
}

/// Rewrites the references, and collects their names. The depth is that of our own types.
fn refer_to_definitions(schema: &mut Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            object.retain(|keyword, _| !DROPPED.contains(&keyword.as_str()));
            if let Some(Value::String(path)) = object.get_mut("$ref")
                && let Some(name) = path.strip_prefix(COMPONENTS).map(str::to_owned)
            {
                *path = format!("{DEFINITIONS}{name}");
                names.insert(name);
            }
            object.values_mut().for_each(|value| refer_to_definitions(value, names));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| refer_to_definitions(value, names)),
        _ => {}
    }
}

/// Removes descriptions and formats. A model sees the values themselves, and all schemas together are part of its input.
pub fn without_texts(schema: Map<String, Value>) -> Map<String, Value> {
    let keeps = |(keyword, value): (String, Value)| match (keyword.as_str(), value) {
        ("description" | "format", Value::String(_)) => None,
        (_, value) => Some((keyword, strip(value))),
    };
    schema.into_iter().filter_map(keeps).collect()
}

fn strip(value: Value) -> Value {
    match value {
        Value::Object(object) => without_texts(object).into(),
        Value::Array(list) => list.into_iter().map(strip).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_become_definitions() {
        let mut schemas = Schemas::default();
        let named = json!({ "type": "object", "properties": { "b": { "$ref": "#/components/schemas/B" } } });
        schemas.named.insert("A".to_owned(), named);
        schemas.named.insert("B".to_owned(), json!({ "type": "string", "examples": ["x"], "x-extension": true }));
        let Value::Object(root) = json!({ "items": { "$ref": "#/components/schemas/A" } }) else { return };
        let found = Value::Object(with_definitions(root, &schemas));
        assert_eq!(found["items"]["$ref"], "#/$defs/A");
        assert_eq!(found["$defs"]["A"]["properties"]["b"]["$ref"], "#/$defs/B");
        assert_eq!(found["$defs"]["B"], json!({ "type": "string" }));
    }

    #[test]
    fn properties_named_description_stay() {
        let Value::Object(schema) = json!({
            "properties": { "description": { "type": "string", "description": "A text." }, "format": {} },
        }) else {
            return;
        };
        let found = Value::Object(without_texts(schema));
        assert_eq!(found, json!({ "properties": { "description": { "type": "string" }, "format": {} } }));
    }
}
