//! What clients read about the tools.

use std::collections::BTreeSet;

use crier_mcp::tools;
use serde_json::{Value, json};

use super::client::request;
use crate::support::app::{Tenant, on_sqlite_app};

on_sqlite_app!("pro" => each_tool_is_described_completely, the_list_is_small);

async fn listed(t: &Tenant<'_>) -> Vec<Value> {
    request(t.app, &t.key, "tools/list", json!({})).await["tools"].as_array().unwrap().clone()
}

async fn each_tool_is_described_completely(t: Tenant<'_>) {
    for tool in listed(&t).await {
        let name = tool["name"].as_str().unwrap();
        assert!(name.len() <= 64 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        assert!(tool["title"].is_string() && tool["description"].as_str().is_some_and(|d| d.ends_with('.')), "{tool}");
        for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
            assert!(tool["annotations"][hint].is_boolean(), "{name}: {hint}");
        }
        for schema in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[schema]["type"], "object", "{name}");
            let text = tool[schema].to_string();
            assert!(!text.contains("#/components"), "{name}: {text}");
            let defined: BTreeSet<&str> = tool[schema]["$defs"]
                .as_object()
                .into_iter()
                .flat_map(|defs| defs.keys().map(String::as_str))
                .collect();
            let referred: BTreeSet<&str> =
                text.split("#/$defs/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
            assert_eq!(defined, referred, "{name}: {schema}");
        }
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{name}");
        let arguments = tool["inputSchema"]["properties"].as_object().unwrap();
        let changes = tool["annotations"]["readOnlyHint"] == false;
        assert_eq!(arguments.contains_key("idempotency_key"), changes, "{name}");
        assert!(tool["outputSchema"]["properties"]["data"].is_object(), "{name}");
        let publishes = tool["annotations"]["destructiveHint"] == true && tool["annotations"]["openWorldHint"] == true;
        assert_eq!(arguments.contains_key("confirm"), publishes, "{name}");
    }
}

/// All of it is part of a model's input, in each conversation.
async fn the_list_is_small(t: Tenant<'_>) {
    let tools = listed(&t).await;
    let sizes: Vec<(String, usize, usize)> = tools
        .iter()
        .map(|tool| {
            (tool["name"].to_string(), tool["inputSchema"].to_string().len(), tool["outputSchema"].to_string().len())
        })
        .collect();
    let (inputs, outputs): (usize, usize) =
        (sizes.iter().map(|(_, n, _)| n).sum(), sizes.iter().map(|(_, _, n)| n).sum());
    assert!(inputs < 30_000 && outputs < 65_000, "{inputs} and {outputs} bytes: {sizes:#?}");
}

/// The paths of texts that others wrote are those of fields in the results.
#[test]
fn untrusted_fields_exist() {
    for listed in tools::all() {
        let schema = Value::Object((*listed.output).clone());
        for path in listed.tool.untrusted {
            let mut at = &schema;
            for step in path.split('.') {
                let (name, is_list) = step.strip_suffix("[]").map_or((step, false), |name| (name, true));
                at = &resolve(&schema, at)["properties"][name];
                assert!(!at.is_null(), "{}: {path}", listed.tool.name);
                at = if is_list { &resolve(&schema, at)["items"] } else { at };
            }
        }
    }
}

/// Returns the schema that another one refers to.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let schema = schema["anyOf"].as_array().map_or(schema, |any| &any[0]);
    match schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        Some(name) => &root["$defs"][name],
        None => schema,
    }
}
