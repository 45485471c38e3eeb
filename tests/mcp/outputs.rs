//! Results have the form that the output schema of their tool describes.

use crier_mcp::tools;
use serde_json::{Value, json};

use super::client::{call, confirmed, done};
use crate::api::conversations::inbox;
use crate::support::app::{Tenant, on_one_app};

on_one_app!("pro" => results_have_the_form_of_their_schemas);

async fn results_have_the_form_of_their_schemas(t: Tenant<'_>) {
    let account = inbox(t.app, &t, &["When do you open?"]).await;
    let conversation = t.app.newest_id(format!("conversations WHERE brand_id = {}", t.brand)).await;
    let report = json!({ "name": "Monthly", "widgets": [{ "type": "summary" }] });
    let report = t.post(&t.path("/reports"), report).await.data(201)["id"].clone();
    let draft = json!({
        "brand_id": t.brand, "content": "Fresh bread", "accounts": [account], "labels": ["spring"],
        "thread": [{ "content": "The second part" }], "first_comment": { "content": "Order here" },
        "overrides": [{ "account_id": account, "content": "Only here" }],
    });
    check("save_draft", &done(call(&t, "save_draft", draft).await));
    let id = t.app.newest_id(format!("posts WHERE brand_id = {}", t.brand)).await;
    for (tool, mut arguments) in [
        ("list_brands", json!({})),
        ("list_accounts", json!({})),
        ("next_slots", json!({ "accounts": [account] })),
        ("validate_post", json!({ "content": "Fresh bread", "accounts": [account] })),
        ("list_posts", json!({ "status": "draft", "from": "2020-01-01T00:00:00Z", "account_id": account })),
        ("get_post", json!({ "post_id": id })),
        ("get_analytics", json!({ "account_id": account })),
        ("list_conversations", json!({ "unread": true, "account_id": account })),
        ("get_conversation", json!({ "conversation_id": conversation })),
        ("get_reports", json!({})),
        ("get_reports", json!({ "report_id": report })),
        ("export_report", json!({ "report_id": report, "format": "csv" })),
    ] {
        if tool != "list_brands" {
            arguments["brand_id"] = t.brand.into();
        }
        check(tool, &done(call(&t, tool, arguments).await));
    }
    let arguments = json!({ "brand_id": t.brand, "conversation_id": conversation, "body": "At seven." });
    check("reply_to_conversation", &done(confirmed(&t, "reply_to_conversation", arguments).await));
    let arguments = json!({ "brand_id": t.brand, "post_id": id, "scheduled_at": "2030-01-01T10:00:00Z" });
    check("schedule_post", &done(confirmed(&t, "schedule_post", arguments).await));
    check("publish_post", &done(confirmed(&t, "publish_post", json!({ "brand_id": t.brand, "post_id": id })).await));
}

#[track_caller]
fn check(tool: &str, result: &Value) {
    let listed = tools::all().iter().find(|listed| listed.tool.name == tool).expect("a tool");
    let root = Value::Object((*listed.output).clone());
    if let Err(problem) = fits(&root, &root, result, "") {
        panic!("{tool}: {problem}\n{result}");
    }
}

/// Checks types, names, enums and required properties, as far as our schemas use them.
fn fits(root: &Value, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#/$defs/").ok_or_else(|| format!("{path}: an unknown reference {name}"))?;
        fits(root, &root["$defs"][name], value, path)?;
    }
    for choice in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[choice].as_array() {
            let problems: Vec<_> = choices.iter().filter_map(|one| fits(root, one, value, path).err()).collect();
            if problems.len() == choices.len() {
                return Err(problems.join(" / "));
            }
        }
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|name| has_type(value, name)) {
        return Err(format!("{path} must be {types:?}: {value}"));
    }
    if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
        return Err(format!("{path} is not in the enum: {value}"));
    }
    for (index, element) in value.as_array().into_iter().flatten().enumerate() {
        fits(root, &schema["items"], element, &format!("{path}[{index}]"))?;
    }
    let (Some(object), Some(properties)) = (value.as_object(), schema["properties"].as_object()) else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !object.contains_key(name) {
            return Err(format!("{path}.{name} is missing"));
        }
    }
    for (name, value) in object {
        match properties.get(name) {
            Some(schema) => fits(root, schema, value, &format!("{path}.{name}"))?,
            None if schema["additionalProperties"] == true || schema["additionalProperties"].is_object() => {}
            None => return Err(format!("{path}.{name} is not in the schema")),
        }
    }
    Ok(())
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}
