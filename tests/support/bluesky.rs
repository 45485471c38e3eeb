//! A fake personal data server with the repository of one account, which writes records like the reference server.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use wiremock::{Request, Respond, ResponseTemplate};

use super::oauth::bearer;

/// The account.
pub const DID: &str = "did:plc:alice";
/// The access token of the account.
pub const ACCESS: &str = "access-of-alice";

type Records = BTreeMap<String, Value>;

/// The records of the account, by key; clones share them.
#[derive(Clone, Default)]
pub struct BlueskyRepo(Arc<Mutex<Records>>);

impl BlueskyRepo {
    /// Returns the records, by key.
    pub fn records(&self) -> Records {
        self.0.lock().unwrap().clone()
    }
}

/// Returns the URI of the post with this key.
pub fn post_uri(key: &str) -> String {
    format!("at://{DID}/app.bsky.feed.post/{key}")
}

fn error(status: u16, name: &str, message: &str) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(json!({ "error": name, "message": message }))
}

fn shown(key: &str, record: &Value) -> ResponseTemplate {
    let body = json!({ "uri": post_uri(key), "cid": format!("cid of {key}"), "value": record });
    ResponseTemplate::new(200).set_body_json(body)
}

/// Writes a record unless another one exists under its key.
fn put(records: &mut Records, body: &Value) -> ResponseTemplate {
    assert_eq!(body.get("swapRecord"), Some(&Value::Null), "without it the record would be replaced");
    let (key, record) = (body["rkey"].as_str().unwrap(), &body["record"]);
    match records.get(key) {
        Some(old) if old != record => return error(400, "InvalidSwap", "Record was at bafy"),
        Some(_) => {}
        None => drop(records.insert(key.to_owned(), record.clone())),
    }
    shown(key, record)
}

/// Writes all records or none.
fn apply_writes(records: &mut Records, body: &Value) -> ResponseTemplate {
    let writes = body["writes"].as_array().unwrap();
    let key = |write: &Value| write["rkey"].as_str().unwrap().to_owned();
    assert!(writes.iter().all(|write| write["$type"] == "com.atproto.repo.applyWrites#create"));
    if writes.iter().any(|write| records.contains_key(&key(write))) {
        return error(500, "InternalServerError", "Internal Server Error");
    }
    records.extend(writes.iter().map(|write| (key(write), write["value"].clone())));
    ResponseTemplate::new(200).set_body_json(json!({ "results": [] }))
}

fn upload(request: &Request) -> ResponseTemplate {
    let link = json!({ "$link": "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity" });
    let mime_type = request.headers["content-type"].to_str().unwrap();
    let blob = json!({ "$type": "blob", "ref": link, "mimeType": mime_type, "size": request.body.len() });
    ResponseTemplate::new(200).set_body_json(json!({ "blob": blob }))
}

impl Respond for BlueskyRepo {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        if bearer(request) != ACCESS {
            return error(401, "AuthMissing", "Authentication Required");
        }
        let body: Value = request.body_json().unwrap_or_default();
        let mut records = self.0.lock().unwrap();
        match request.url.path().rsplit('.').next().unwrap() {
            "uploadBlob" => upload(request),
            "putRecord" => put(&mut records, &body),
            "applyWrites" => apply_writes(&mut records, &body),
            "getRecord" => {
                let key = request.url.query_pairs().find(|(name, _)| name == "rkey").unwrap().1.into_owned();
                let missing = || error(400, "RecordNotFound", "Could not locate record");
                records.get(&key).map_or_else(missing, |record| shown(&key, record))
            }
            _ => error(501, "MethodNotImplemented", "Method Not Implemented"),
        }
    }
}
