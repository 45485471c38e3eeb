//! Threads, first comments and unpublishing on Bluesky, against a repository that behaves like that of the reference
//! server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{
    CallError, Connector, LinkCard, Marker, MarkerSeed, OutgoingPost, Published, ReconcileResult, ReplyKind,
    UploadedImage,
};
use serde_json::{Value, json};
use unicode_segmentation::UnicodeSegmentation;
use wiremock::matchers::{any, bearer_token, path};
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::bluesky::{ACCESS, DID, bluesky_account, error};
use super::support::{comment_on, connector, image, now, part_of, post, published_part, unpublish_post};

/// The keys of a thread of the target 7 that was first tried at [`now`].
const KEYS: [&str; 3] = ["3mfyouuy6222b", "3mfyouuy6zc2b", "3mfyouuy7yk2b"];
/// The CIDs of the records in [`thread`], from an independent encoder.
const CIDS: [&str; 2] = [
    "bafyreihg3yqf4dxa33mavuw5tnun7nszo6odsjibgntjsz2gajhj6etyjq",
    "bafyreihfbilk7srqmvzkbex7kbz3vq4u3bdl7k7wx3zwrne2wzfeqmzi5u",
];

#[derive(Default)]
struct State {
    /// The records, by key.
    records: BTreeMap<String, Value>,
    /// The names of the calls.
    calls: Vec<String>,
    /// Responses instead of the usual ones, by the name of the call.
    failing: BTreeMap<&'static str, ResponseTemplate>,
    /// Whether the response of `applyWrites` is lost after the records are written.
    loses_response: bool,
    /// Whether uploads still exist.
    has_blobs: bool,
}

#[derive(Clone, Default)]
struct Repo(Arc<Mutex<State>>);

impl Repo {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    fn calls(&self, name: &str) -> usize {
        self.with(|state| state.calls.iter().filter(|call| *call == name).count())
    }

    fn keys(&self) -> Vec<String> {
        self.with(|state| state.records.keys().cloned().collect())
    }
}

impl State {
    fn put(&mut self, body: &Value) -> ResponseTemplate {
        let key = body["rkey"].as_str().unwrap();
        if self.records.get(key).is_some_and(|old| *old != body["record"]) {
            return error(400, "InvalidSwap", "Record was at bafy");
        }
        self.records.insert(key.to_owned(), body["record"].clone());
        ResponseTemplate::new(200).set_body_json(json!({ "uri": uri(key), "cid": format!("cid of {key}") }))
    }

    /// Writes all records or none.
    fn apply(&mut self, body: &Value) -> ResponseTemplate {
        assert!(body.get("validate").is_none(), "the server validates known lexicons by default");
        let writes = body["writes"].as_array().unwrap();
        for write in writes {
            assert_eq!(write["$type"], "com.atproto.repo.applyWrites#create");
            if let Some(rejection) = self.rejection(&write["value"]) {
                return rejection;
            }
        }
        if writes.iter().any(|write| self.records.contains_key(write["rkey"].as_str().unwrap())) {
            return error(500, "InternalServerError", "Internal Server Error");
        }
        for write in writes {
            self.records.insert(write["rkey"].as_str().unwrap().to_owned(), write["value"].clone());
        }
        match self.loses_response {
            true => ResponseTemplate::new(502),
            false => ResponseTemplate::new(200).set_body_json(json!({ "results": [] })),
        }
    }

    fn rejection(&self, record: &Value) -> Option<ResponseTemplate> {
        if record["text"].as_str().unwrap().graphemes(true).count() > 300 {
            let message = "Invalid app.bsky.feed.post record: Record/text must not be longer than 300 graphemes";
            return Some(error(400, "InvalidRequest", message));
        }
        let has_uploads = record["embed"].to_string().contains("$link");
        (has_uploads && !self.has_blobs).then(|| error(400, "BlobNotFound", "Could not find blob: bafkrei"))
    }
}

impl Respond for Repo {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let name = request.url.path().rsplit('.').next().unwrap().to_owned();
        let query: BTreeMap<String, String> = request.url.query_pairs().into_owned().collect();
        let body: Value = request.body_json().unwrap_or_default();
        let repo = query.get("repo").map(String::as_str).or(body["repo"].as_str());
        assert!(repo == Some(DID) || name == "resolveHandle");
        self.with(|state| {
            state.calls.push(name.clone());
            if let Some(response) = state.failing.get(name.as_str()) {
                return response.clone();
            }
            match name.as_str() {
                "getRecord" => match state.records.get(&query["rkey"]) {
                    Some(record) => {
                        let key = &query["rkey"];
                        let cid = format!("cid of {key}");
                        ResponseTemplate::new(200)
                            .set_body_json(json!({ "uri": uri(key), "cid": cid, "value": record }))
                    }
                    None => error(400, "RecordNotFound", "Could not locate record"),
                },
                "resolveHandle" => match query["handle"].strip_suffix(".test") {
                    Some(user) => ResponseTemplate::new(200).set_body_json(json!({ "did": format!("did:plc:{user}") })),
                    None => error(400, "InvalidRequest", "Unable to resolve handle"),
                },
                "putRecord" => state.put(&body),
                "applyWrites" => state.apply(&body),
                "deleteRecord" => {
                    assert_eq!(body["collection"], "app.bsky.feed.post");
                    state.records.remove(body["rkey"].as_str().unwrap());
                    ResponseTemplate::new(200)
                }
                other => panic!("no such call: {other}"),
            }
        })
    }
}

struct Bluesky {
    repo: Repo,
    connector: Arc<dyn Connector>,
    _server: MockServer,
}

async fn start() -> Bluesky {
    let (server, repo) = (MockServer::start().await, Repo::default());
    repo.with(|state| state.has_blobs = true);
    Mock::given(any()).and(bearer_token(ACCESS)).respond_with(repo.clone()).mount(&server).await;
    let resolution = Mock::given(path("/xrpc/com.atproto.identity.resolveHandle"));
    resolution.respond_with(repo.clone()).mount(&server).await;
    Bluesky { repo, connector: connector(Platform::Bluesky, &server.uri()), _server: server }
}

impl Bluesky {
    async fn publish_thread(&self, parts: &[OutgoingPost]) -> Result<Vec<Published>, CallError> {
        self.connector.publish_thread(&bluesky_account(), parts).await
    }

    async fn reconcile_thread(&self, parts: &[OutgoingPost]) -> Result<Option<Vec<Published>>, CallError> {
        self.connector.reconcile_thread(&bluesky_account(), parts).await
    }

    async fn unpublish(&self, uri: &str) -> Result<(), CallError> {
        self.connector.unpublish(&bluesky_account(), &unpublish_post(uri)).await
    }
}

fn uri(key: &str) -> String {
    format!("at://{DID}/app.bsky.feed.post/{key}")
}

fn seed(parts: usize) -> MarkerSeed {
    MarkerSeed { target_id: 7, at: now(), random: 99, reply: None, parts }
}

fn blob() -> Value {
    let link = json!({ "$link": "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity" });
    json!({ "$type": "blob", "ref": link, "mimeType": "image/png", "size": 12 })
}

/// A thread of three parts. The second one has an image.
fn thread(connector: &dyn Connector) -> Vec<OutgoingPost> {
    let marker = connector.marker(seed(3));
    let texts = ["Ünder https://a.example #tag", "Two", "Three"];
    let parts = texts.map(|text| OutgoingPost { marker: marker.clone(), ..post(connector, text) });
    let mut parts = parts.to_vec();
    parts[1].images = vec![image("cat")];
    parts[1].images[0].uploaded = Some(UploadedImage { name: blob(), uploaded_in_this_run: true });
    parts
}

/// The parts of [`thread`] as they are published.
fn published() -> Vec<Published> {
    let url = |key: &str| format!("https://bsky.app/profile/{DID}/post/{key}");
    KEYS.map(|key| Published::new(uri(key), Some(url(key)))).to_vec()
}

#[tokio::test]
async fn a_thread_is_written_in_one_call() {
    let t = start().await;
    assert!(t.connector.publishes_whole_threads());
    assert_eq!(t.publish_thread(&thread(t.connector.as_ref())).await.unwrap(), published());
    assert_eq!(t.repo.with(|state| state.calls.clone()), ["applyWrites"]);
    let records = t.repo.with(|state| state.records.clone());
    assert_eq!(t.repo.keys(), KEYS);
    let reference = |number: usize| json!({ "uri": uri(KEYS[number]), "cid": CIDS[number] });
    assert_eq!(records[KEYS[0]].get("reply"), None);
    assert_eq!(records[KEYS[1]]["reply"], json!({ "root": reference(0), "parent": reference(0) }));
    assert_eq!(records[KEYS[2]]["reply"], json!({ "root": reference(0), "parent": reference(1) }));
    let times = KEYS.map(|key| records[key]["createdAt"].as_str().unwrap().to_owned());
    assert_eq!(times, ["2026-03-01T12:00:00.000Z", "2026-03-01T12:00:00.001Z", "2026-03-01T12:00:00.002Z"]);
    assert_eq!(records[KEYS[0]]["facets"].as_array().unwrap().len(), 2);
    assert_eq!(records[KEYS[1]]["embed"]["images"][0]["image"], blob());
}

#[tokio::test]
async fn a_part_of_a_thread_may_have_a_link_card() {
    let t = start().await;
    let mut parts = thread(t.connector.as_ref());
    let (url, title) = ("https://a.example".to_owned(), "Fish".to_owned());
    parts[2].card = Some(LinkCard { url, title, description: String::new(), image: Some(blob()) });
    t.publish_thread(&parts).await.unwrap();
    let embed = t.repo.with(|state| state.records[KEYS[2]]["embed"].clone());
    assert_eq!((&embed["$type"], &embed["external"]["thumb"]), (&json!("app.bsky.embed.external"), &blob()));
}

#[tokio::test]
async fn a_handle_is_resolved_once_for_the_whole_thread() {
    let t = start().await;
    let mut parts = thread(t.connector.as_ref());
    parts[0].text = "With @bob.test and @nobody.com".to_owned();
    parts[1].text = "@nobody.com is not @bob.test".to_owned();
    parts[2].text = (1..=20).map(|number| format!("@u{number}.test ")).collect();
    t.publish_thread(&parts).await.unwrap();
    let mentioned = |key: &str| -> Vec<String> {
        let facets = t.repo.with(|state| state.records[key]["facets"].clone());
        let did = |facet: &Value| facet["features"][0]["did"].as_str().unwrap().to_owned();
        facets.as_array().unwrap().iter().map(did).collect()
    };
    assert_eq!(mentioned(KEYS[0]), ["did:plc:bob"]);
    assert_eq!(mentioned(KEYS[1]), ["did:plc:bob"]);
    assert_eq!(mentioned(KEYS[2]), (1..=8).map(|number| format!("did:plc:u{number}")).collect::<Vec<_>>());
    assert_eq!(t.repo.calls("resolveHandle"), 10);
}

#[tokio::test]
async fn one_invalid_part_keeps_all_parts_from_being_written() {
    let t = start().await;
    let mut parts = thread(t.connector.as_ref());
    parts[2].text = "x".repeat(301);
    let error = t.publish_thread(&parts).await.unwrap_err();
    assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent), "{error:?}");
    assert!(t.repo.keys().is_empty());

    // The reference to an image is from the server, so it may be anything.
    for link in [json!({ "$link": "Qm" }), json!({ "$link": 1 }), json!(1.5)] {
        let mut parts = thread(t.connector.as_ref());
        parts[1].images[0].uploaded.as_mut().unwrap().name["ref"] = link;
        let error = t.publish_thread(&parts).await.unwrap_err();
        assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::Media), "{error:?}");
    }
    assert_eq!(t.repo.calls("applyWrites"), 1);
}

#[tokio::test]
async fn a_missing_image_of_a_thread_requires_a_new_upload() {
    let t = start().await;
    t.repo.with(|state| state.has_blobs = false);
    let parts = thread(t.connector.as_ref());
    let error = t.publish_thread(&parts).await.unwrap_err();
    assert!(matches!(&error, CallError::UploadsMissing(f) if f.category == Category::Media), "{error:?}");
    t.repo.with(|state| state.has_blobs = true);
    assert_eq!(t.publish_thread(&parts).await.unwrap(), published());
}

#[tokio::test]
async fn a_thread_with_a_lost_response_is_found_by_its_first_record() {
    let t = start().await;
    let parts = thread(t.connector.as_ref());
    assert_eq!(t.reconcile_thread(&parts).await.unwrap(), None);
    t.repo.with(|state| {
        state.loses_response = true;
        state.failing.insert("getRecord", ResponseTemplate::new(502));
    });
    let error = t.publish_thread(&parts).await.unwrap_err();
    assert!(matches!(&error, CallError::Unknown(f) if f.category == Category::OutcomeUnknown), "{error:?}");
    let error = t.reconcile_thread(&parts).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "a failed lookup proves nothing: {error:?}");
    t.repo.with(|state| state.failing.clear());
    assert_eq!(t.reconcile_thread(&parts).await.unwrap(), Some(published()));
}

#[tokio::test]
async fn a_repeated_thread_is_not_written_twice() {
    let t = start().await;
    let parts = thread(t.connector.as_ref());
    t.publish_thread(&parts).await.unwrap();
    let mut edited = parts.clone();
    edited[0].text = "Second thoughts".to_owned();
    for again in [&parts, &edited] {
        assert_eq!(t.publish_thread(again).await.unwrap(), published());
    }
    assert_eq!((t.repo.keys().len(), t.repo.calls("applyWrites")), (3, 3));
    // A record of another time under the first key is not this thread.
    t.repo.with(|state| state.records.get_mut(KEYS[0]).unwrap()["createdAt"] = json!("2020-01-01T00:00:00.000Z"));
    assert!(matches!(t.publish_thread(&parts).await, Err(CallError::Unknown(_))));
}

#[tokio::test]
async fn a_rate_limit_writes_no_part() {
    let t = start().await;
    let reset = (now() + TimeDelta::minutes(5)).timestamp().to_string();
    let limited = error(429, "RateLimitExceeded", "x").insert_header("RateLimit-Reset", reset.as_str());
    t.repo.with(|state| state.failing.insert("applyWrites", limited));
    match t.publish_thread(&thread(t.connector.as_ref())).await {
        Err(CallError::RateLimited { until, .. }) => assert_eq!(until, Some(now() + TimeDelta::minutes(5))),
        other => panic!("{other:?}"),
    }
    assert!(t.repo.keys().is_empty());
    assert_eq!(t.repo.calls("getRecord"), 0);
}

#[tokio::test]
async fn the_marker_of_a_thread_has_the_keys_of_its_parts() {
    let t = start().await;
    let marker = t.connector.marker(seed(3));
    assert_eq!((&marker["rkey"], &marker["rkeys"]), (&json!(KEYS[0]), &json!(KEYS)));
    assert_eq!(marker["created_at"], "2026-03-01T12:00:00.000Z");
    assert!(!t.connector.marker(seed(1)).contains_key("rkeys"));
    // The first comment may be due in the same microsecond as its post.
    let comment = t.connector.marker(MarkerSeed { reply: Some(ReplyKind::Comment), ..seed(1) });
    assert!(!KEYS.contains(&comment["rkey"].as_str().unwrap()));

    let mut parts = thread(t.connector.as_ref());
    parts.pop();
    let error = t.publish_thread(&parts).await.unwrap_err();
    assert!(matches!(&error, CallError::Permanent(f) if f.message.contains("number of parts")), "{error:?}");
    parts.iter_mut().for_each(|part| part.marker = Marker::new());
    assert!(matches!(t.publish_thread(&parts).await, Err(CallError::Transient(_))));
    assert!(t.repo.keys().is_empty());
}

#[tokio::test]
async fn a_first_comment_replies_to_its_post() {
    let t = start().await;
    t.publish_thread(&thread(t.connector.as_ref())).await.unwrap();
    let comment = comment_on(t.connector.as_ref(), "More at https://a.example", &uri(KEYS[0]));
    let comment = OutgoingPost { marker: t.connector.marker(comment_seed()), ..comment };
    let first = t.connector.publish(&bluesky_account(), &comment).await.unwrap();
    let key = comment.marker["rkey"].as_str().unwrap();
    assert_eq!(first.external_id, uri(key));
    let record = t.repo.with(|state| state.records[key].clone());
    let reference = json!({ "uri": uri(KEYS[0]), "cid": format!("cid of {}", KEYS[0]) });
    assert_eq!(record["reply"], json!({ "root": reference, "parent": reference }));
    assert_eq!(record["facets"].as_array().unwrap().len(), 1);
    // It is not written twice, and it is found by its key.
    assert_eq!(t.connector.publish(&bluesky_account(), &comment).await.unwrap(), first);
    assert_eq!(t.repo.keys().len(), 4);
    let found = t.connector.reconcile(&bluesky_account(), &comment).await.unwrap();
    assert_eq!(found, ReconcileResult::Found(first));
}

fn comment_seed() -> MarkerSeed {
    MarkerSeed { reply: Some(ReplyKind::Comment), ..seed(1) }
}

#[tokio::test]
async fn a_reply_names_its_root_and_its_parent() {
    let t = start().await;
    t.publish_thread(&thread(t.connector.as_ref())).await.unwrap();
    let part = part_of(t.connector.as_ref(), "Four", &uri(KEYS[0]), &uri(KEYS[2]));
    let part = OutgoingPost { marker: t.connector.marker(comment_seed()), ..part };
    t.connector.publish(&bluesky_account(), &part).await.unwrap();
    let reply = t.repo.with(|state| state.records[part.marker["rkey"].as_str().unwrap()]["reply"].clone());
    assert_eq!((&reply["root"]["uri"], &reply["parent"]["uri"]), (&json!(uri(KEYS[0])), &json!(uri(KEYS[2]))));
}

#[tokio::test]
async fn a_deleted_post_gets_no_comment() {
    let t = start().await;
    let comment = comment_on(t.connector.as_ref(), "More", &uri("gone"));
    let error = t.connector.publish(&bluesky_account(), &comment).await.unwrap_err();
    assert!(matches!(&error, CallError::ParentMissing(f) if f.message.contains("deleted")), "{error:?}");
    t.repo.with(|state| state.failing.insert("getRecord", ResponseTemplate::new(503)));
    let error = t.connector.publish(&bluesky_account(), &comment).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "a failed lookup proves nothing: {error:?}");
    let mut elsewhere = comment;
    elsewhere.reply_to.as_mut().unwrap().parent = published_part("at://did:plc:bob/app.bsky.feed.post/x");
    let error = t.connector.publish(&bluesky_account(), &elsewhere).await.unwrap_err();
    assert!(matches!(error, CallError::Permanent(_)), "{error:?}");
    assert!(t.repo.keys().is_empty());
}

#[tokio::test]
async fn unpublishing_deletes_one_post_and_can_be_repeated() {
    let t = start().await;
    t.publish_thread(&thread(t.connector.as_ref())).await.unwrap();
    for _ in 0..2 {
        t.unpublish(&uri(KEYS[1])).await.unwrap();
        assert_eq!(t.repo.keys(), [KEYS[0], KEYS[2]]);
    }
    for (response, is_gone) in [
        (error(400, "RecordNotFound", "Could not locate record"), true),
        (error(400, "InvalidRequest", "Could not find repo: x"), false),
    ] {
        t.repo.with(|state| state.failing.insert("deleteRecord", response));
        assert_eq!(t.unpublish(&uri(KEYS[1])).await.is_ok(), is_gone);
    }
}

#[tokio::test]
async fn a_failed_unpublish_is_classified() {
    let t = start().await;
    let fail = async |response: ResponseTemplate| {
        t.repo.with(|state| state.failing.insert("deleteRecord", response));
        t.unpublish(&uri("x")).await.unwrap_err()
    };
    assert!(matches!(fail(ResponseTemplate::new(502)).await, CallError::Transient(_)), "it can be repeated");
    assert!(matches!(fail(error(400, "ExpiredToken", "Token has expired")).await, CallError::AuthExpired(_)));
    assert!(matches!(fail(error(429, "RateLimitExceeded", "x")).await, CallError::RateLimited { .. }));
}

#[tokio::test]
async fn only_posts_of_the_account_are_unpublished() {
    let t = start().await;
    for other in [
        "x",
        "at://did:plc:bob/app.bsky.feed.post/x",
        "at://did:plc:alice/app.bsky.feed.like/x",
        "at://did:plc:alice/app.bsky.feed.post/",
        "at://did:plc:alice/app.bsky.feed.post/x/y",
        "at://did:plc:alice2/app.bsky.feed.post/x",
    ] {
        let error = t.unpublish(other).await.unwrap_err();
        assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::Account), "{other}: {error:?}");
    }
    assert_eq!(t.repo.calls("deleteRecord"), 0);
}
