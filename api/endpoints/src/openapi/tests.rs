use crier_domain::event::EventName;

use super::schema::Schemas;
use super::*;
use crate::routes;
use crate::routes::webhooks::payloads;

/// The width of the snapshot, in bytes, except for examples.
const WIDTH: usize = 140;

/// Follows a reference.
fn resolve<'d>(document: &'d Value, part: &'d Value) -> &'d Value {
    let Some(path) = part["$ref"].as_str() else { return part };
    document.pointer(path.trim_start_matches('#')).unwrap_or_else(|| panic!("{path} leads nowhere"))
}

/// Writes a value with one line for each part that fits, and for each example, so that the snapshot stays small.
fn write_lines(value: &Value, depth: usize, column: usize, out: &mut String) {
    let line = value.to_string();
    let parts: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, member)| (format!("{}: ", json!(name)), member)).collect(),
        Value::Array(items) => items.iter().map(|item| (String::new(), item)).collect(),
        _ => Vec::new(),
    };
    if parts.is_empty() || column + line.len() <= WIDTH {
        return out.push_str(&line);
    }
    let (open, close) = if value.is_object() { ('{', '}') } else { ('[', ']') };
    out.push(open);
    for (index, (name, part)) in parts.iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        out.push_str(&format!("{separator}\n{}{name}", " ".repeat(depth + 1)));
        if name == "\"example\": " {
            out.push_str(&part.to_string());
        } else {
            write_lines(part, depth + 1, depth + 1 + name.len(), out);
        }
    }
    out.push_str(&format!("\n{}{close}", " ".repeat(depth)));
}

fn specs(endpoints: &[AnyEndpoint]) -> impl Iterator<Item = &EndpointSpec> {
    endpoints.iter().map(|endpoint| &*endpoint.spec)
}

#[test]
fn the_document_is_what_was_promised() {
    let mut document = document(&routes::all());
    document["info"]["version"] = "that of the program".into();
    let mut text = String::new();
    write_lines(&document, 0, 0, &mut text);
    insta::assert_snapshot!(text);
}

#[test]
fn the_document_can_have_a_url() {
    let text = at_base_url(&document(&routes::all()).to_string(), "https://crier.example");
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["servers"], json!([{ "url": "https://crier.example/api/public/v1" }]));
}

#[test]
fn the_document_is_small() {
    let size = document(&routes::all()).to_string().len();
    assert!(size < 500_000, "{size} bytes");
}

#[test]
fn error_responses_list_exactly_their_codes() {
    let endpoints = routes::all();
    let document = document(&endpoints);
    for endpoint in specs(&endpoints) {
        let operation = &document["paths"][endpoint.path][endpoint.method.as_str().to_ascii_lowercase()];
        let declared = operation["responses"].as_object().unwrap().keys().filter(|status| status.as_str() >= "4");
        let codes = errors::error_codes(endpoint);
        assert!(declared.eq(codes.keys().map(u16::to_string).collect::<Vec<_>>().iter()), "{}", endpoint.id);
        for (status, codes) in codes {
            let response = resolve(&document, &operation["responses"][status.to_string()]);
            let name = format!("{} {status}", endpoint.id);
            assert_eq!(response["description"], errors::list(&codes), "{name}");
            let examples = response["content"]["application/json"]["examples"].as_object().unwrap();
            assert!(examples.keys().map(String::as_str).eq(codes.iter().map(|code| code.as_str())), "{name}");
            for (code, example) in examples {
                assert_eq!(resolve(&document, example)["value"]["error"]["code"], *code, "{name}");
            }
        }
    }
}

#[test]
fn shared_parameters_keep_their_names() {
    let endpoints = routes::all();
    let document = document(&endpoints);
    for endpoint in specs(&endpoints) {
        let operation = &document["paths"][endpoint.path][endpoint.method.as_str().to_ascii_lowercase()];
        let parameters = operation["parameters"].as_array().unwrap().iter();
        let names = parameters.map(|parameter| resolve(&document, parameter)["name"].as_str().unwrap());
        let key = endpoint.is_write().then_some("Idempotency-Key");
        let query = endpoint.query.map(|query| query(&mut Schemas::default())).unwrap_or_default();
        let headers = endpoint.request_headers.iter().map(|header| header.name);
        let expected = endpoint.ids().chain(query.iter().map(|parameter| parameter.name)).chain(key).chain(headers);
        assert!(names.eq(expected), "{}", endpoint.id);
    }
}

#[test]
fn only_json_files_have_a_schema() {
    let endpoints = routes::all();
    let document = document(&endpoints);
    let mut files = 0;
    for endpoint in specs(&endpoints).filter(|endpoint| endpoint.shape == ResponseShape::File) {
        let operation = &document["paths"][endpoint.path][endpoint.method.as_str().to_ascii_lowercase()];
        for (media_type, content) in operation["responses"]["200"]["content"].as_object().unwrap() {
            let is_json = media_type == "application/json";
            assert_eq!(content.get("schema").is_some(), is_json, "{}: {media_type}", endpoint.id);
            files += 1;
        }
    }
    assert!(files > 2, "{files}");
}

#[test]
fn every_endpoint_is_fully_documented() {
    let endpoints = routes::all();
    let document = document(&endpoints);
    let mut ids = Vec::new();
    for endpoint in specs(&endpoints) {
        let operation = &document["paths"][endpoint.path][endpoint.method.as_str().to_ascii_lowercase()];
        let name = format!("{} {}", endpoint.method, endpoint.path);
        assert!(!endpoint.summary.is_empty() && !endpoint.tag.is_empty(), "{name} has no summary or tag");
        assert!(!ids.contains(&endpoint.id), "{name}: {} is an operation already", endpoint.id);
        ids.push(endpoint.id);
        let content = &operation["responses"][endpoint.status.to_string()]["content"]["application/json"];
        let has_example = match endpoint.shape {
            ResponseShape::Nothing => true,
            // A file that is only CSV has no schema.
            ResponseShape::File => content.is_null() || content["example"].is_object(),
            _ => !content["example"]["data"].is_null(),
        };
        assert!(has_example, "{name} has no example");
        for status in ["401", "403", "404", "405", "429", "500", "503"] {
            assert!(operation["responses"][status].is_object(), "{name} does not declare {status}");
        }
    }
}

/// The specification has 61 endpoints and these events. A client may ignore everything else.
#[test]
fn extensions_are_marked() {
    let document = document(&routes::all());
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|path| path.as_object().unwrap().values());
    assert_eq!(operations.filter(|operation| operation["x-extension"] != true).count(), 61);
    let webhooks = document["webhooks"].as_object().unwrap().iter();
    let specified = webhooks.filter(|(_, webhook)| webhook["post"]["x-extension"] != true);
    let names: Vec<&str> = specified.map(|(name, _)| name.as_str()).collect();
    let expected = [
        "post.published",
        "post.failed",
        "account.connected",
        "account.disconnected",
        "brand.created",
        "media.completed",
        "media.failed",
        "report.sent",
        "report.failed",
        "message.sent",
        "message.failed",
        "message.received",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_name_stands_for_one_type() {
    let (mut requests, mut responses) = (Schemas::default(), Schemas::default());
    for endpoint in routes::all() {
        let endpoint = endpoint.spec;
        endpoint.query.map(|query| query(&mut requests));
        endpoint.body.map(|body| (body.schema)(&mut requests));
        let response_schemas = endpoint.file_types.iter().filter_map(|(_, schema)| *schema);
        response_schemas.chain(endpoint.schema).for_each(|schema| drop(schema(&mut responses)));
    }
    EventName::ALL.iter().for_each(|event| drop(payloads::schema(*event)(&mut responses)));
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
