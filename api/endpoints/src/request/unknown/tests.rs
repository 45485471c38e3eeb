use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::context::Query;
use crate::endpoint::spec::EndpointSpec;
use crate::openapi::example::build_example;
use crate::openapi::schema::Schemas;
use crate::routes;

fn endpoint(id: &str) -> Arc<EndpointSpec> {
    routes::all().into_iter().map(|endpoint| endpoint.spec).find(|spec| spec.id == id).unwrap()
}

fn check(id: &str, body: &Value) -> UnknownNames {
    let mut found = UnknownNames::default();
    found.check_body(&KnownNames::of(&endpoint(id)), body.as_object().unwrap());
    found
}

fn typos(id: &str, body: Value) -> Vec<(String, String)> {
    check(id, &body).typos.into_iter().map(|(path, problems)| (path, problems.concat())).collect()
}

fn header(found: &UnknownNames) -> String {
    found.header().map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
}

#[test]
fn examples_have_only_known_fields() {
    let mut bodies = 0;
    for endpoint in routes::all().into_iter().map(|endpoint| endpoint.spec) {
        let Some(body) = &endpoint.body else { continue };
        let known = KnownNames::of(&endpoint);
        assert!(known.body.is_some(), "{}: its body has no known fields", endpoint.id);
        let found = check(endpoint.id, &(body.example)().into());
        assert!(found.typos.is_empty() && header(&found).is_empty(), "{}: {found:?}", endpoint.id);
        bodies += 1;
    }
    assert!(bodies > 20, "{bodies}");
}

/// A client may change a record that it received and send it back.
#[test]
fn a_record_that_is_sent_back_has_no_typos() {
    for endpoint in routes::all().into_iter().map(|e| e.spec).filter(|endpoint| endpoint.method == http::Method::PUT) {
        let (Some(_), Some(schema)) = (&endpoint.body, endpoint.schema) else { continue };
        let mut s = Schemas::default();
        let record = build_example(&schema(&mut s), &s.named);
        let found = check(endpoint.id, &record);
        assert!(found.typos.is_empty(), "{}: {:?}", endpoint.id, found.typos);
    }
}

#[test]
fn typos_are_found_at_any_depth() {
    let body = json!({
        "contnet": "x", "account_ids": [1], "nope": {"content": 1},
        "overrides": [{ "account_id": 1 }, { "acount_id": 1, "options": { "visibilty": "private", "sound": true } }, 5],
    });
    let found = typos("createPost", body.clone());
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["account_ids", "contnet", "overrides.1.acount_id", "overrides.1.options.visibilty"]);
    assert_eq!(found[0].1, "Unknown field; did you mean `accounts`?");
    assert_eq!(header(&check("createPost", &body)), "nope, overrides.1.options.sound");
    let options =
        json!({ "title": "Bread", "hashtags": ["bread"], "overrides": [{ "account_id": 1, "Title": "Bread" }] });
    let found = typos("createPost", options);
    assert_eq!(found[0], ("hashtags".into(), "Unknown field; did you mean `overrides[].options.tags`?".into()));
    assert_eq!(found[1], ("overrides.0.Title".into(), "Unknown field; did you mean `options.title`?".into()));
    assert_eq!(found[2], ("title".into(), "Unknown field; did you mean `overrides[].options.title`?".into()));
    let credentials = json!({ "platform": "bluesky", "credentials": { "servce": "https://pds.example" } });
    assert_eq!(typos("connectSocialAccount", credentials)[0].0, "credentials.servce");
    assert_eq!(typos("createReport", json!({ "widgets": [{ "type": "note", "options": { "texts": "" } }] })).len(), 1);
}

#[test]
fn query_parameters_are_checked() {
    let mut found = UnknownNames::default();
    let query = Query::parse("staus=draft&per-page=5&limit=5&page=1&utm_source=x&_=1&%20=");
    found.check_query(&KnownNames::of(&endpoint("listPosts")), query.names());
    assert_eq!(found.typos.keys().collect::<Vec<_>>(), ["limit", "per-page", "staus"]);
    assert_eq!(found.typos["staus"], ["Unknown parameter; did you mean `status`?"]);
    assert_eq!(header(&found), "utm_source, _, %20");
}

#[test]
fn parts_of_a_form_are_checked() {
    let (mut found, known) = (UnknownNames::default(), KnownNames::of(&endpoint("uploadMedia")));
    let texts = json!({ "alt_text": "Bread", "alttxt": "Bread", "nope": "" });
    let files = ["image".to_owned(), "alt_text".to_owned(), "extra".to_owned()];
    found.check_form(&known, texts.as_object().unwrap(), &files);
    assert_eq!(found.typos.keys().collect::<Vec<_>>(), ["alttxt", "image"]);
    assert_eq!(found.typos["image"], ["Unknown part; did you mean `file`?"]);
    assert_eq!(header(&found), "nope, alt_text, extra");
}

#[test]
fn the_header_is_escaped_and_limited() {
    let ignored = |names: &[String]| {
        let mut found = UnknownNames::default();
        names.iter().for_each(|name| found.ignore("", name));
        header(&found)
    };
    let hostile = ["a,b", "x\r\nSet-Cookie: y", "ä", "", "100%", "a,b"].map(str::to_owned);
    assert_eq!(ignored(&hostile), "a%2Cb, x%0D%0ASet-Cookie:%20y, %C3%A4, \"\", 100%25");
    let many: Vec<String> = (0..30).map(|n| format!("nope{n}")).collect();
    let value = ignored(&many);
    assert!(value.ends_with("nope19, ...") && value.split(", ").count() == 21, "{value}");
    assert_eq!(ignored(&["x".repeat(1 << 20)]), "...");
    assert!(ignored(&["x".to_owned(), "日".repeat(400)]).len() < 1_100);
    assert_eq!(ignored(&[]), "");
}

#[test]
fn at_most_a_hundred_typos_are_reported() {
    let body: Map<String, Value> = (0..5_000).map(|n| (format!("content{}", n % 90), json!(n))).collect();
    let list: Vec<Value> = (0..5_000).map(|_| json!({ "account": 1 })).collect();
    let mut body = Value::Object(body);
    body["overrides"] = list.into();
    let (found, steps) = steps::count_steps(|| check("createPost", &body));
    assert_eq!(found.typos.len(), MAX_PROBLEMS);
    assert!(steps < 1_000, "{steps}");
}

proptest! {
    /// The work is linear in the number of fields, whatever their names are.
    #[test]
    fn the_work_is_linear(names in prop::collection::vec("[contesdhul_]{5,12}", 0..400)) {
        let body: Map<String, Value> = names.into_iter().map(|name| (name, Value::Null)).collect();
        let fields = body.len() as u64;
        let (_, steps) = steps::count_steps(|| check("createPost", &Value::Object(body)));
        prop_assert!(steps <= 8 * fields, "{steps} steps for {fields} fields");
    }
}
