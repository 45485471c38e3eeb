//! A fake of Reddit's uploads, of its storage and of posts with videos, as PRAW uses them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::forms::{FormPart, form_part, form_parts};
use super::oauth::{OAuthServer, TokenRules, bearer, form};

/// The time of the posts, as a Unix time: 2026-03-01 12:00:05 UTC.
const CREATED_AT: f64 = 1_772_366_405.0;

pub struct State {
    /// The URL of the storage.
    pub storage: String,
    /// The types of the files for which a location was leased.
    pub leased: Vec<String>,
    /// The forms that the storage accepted, by their key.
    pub stored: BTreeMap<String, Vec<FormPart>>,
    /// The fields of each submission.
    pub posts: Vec<BTreeMap<String, String>>,
    /// Whether Reddit is still processing the videos.
    pub is_processing: bool,
    /// The methods and paths of all calls.
    pub calls: Vec<String>,
    /// Responses to the next calls whose method and path contain this, which have no effect.
    pub rejected: VecDeque<(&'static str, ResponseTemplate)>,
    /// Calls whose method and path contain this, which take effect, but whose response is lost in a gateway.
    pub lost: VecDeque<&'static str>,
}

#[derive(Clone)]
pub struct RedditVideos {
    pub oauth: Arc<OAuthServer>,
    state: Arc<Mutex<State>>,
}

fn response(status: u16, body: Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

/// Returns the response to a submission that Reddit rejects.
pub fn submit_error(code: &str, text: &str, field: &str) -> ResponseTemplate {
    response(200, json!({ "json": { "errors": [[code, text, field]] } }))
}

impl RedditVideos {
    pub async fn start() -> (Self, MockServer) {
        let rules = TokenRules { expires_in: Some(86_400), refreshes: true, ..TokenRules::default() };
        let server = MockServer::start().await;
        let state = State {
            storage: format!("{}/storage", server.uri()),
            leased: Vec::new(),
            stored: BTreeMap::new(),
            posts: Vec::new(),
            is_processing: false,
            calls: Vec::new(),
            rejected: VecDeque::new(),
            lost: VecDeque::new(),
        };
        let fake = Self { oauth: Arc::new(OAuthServer::new(rules)), state: Arc::new(Mutex::new(state)) };
        fake.oauth.add_token("access-0");
        Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
        (fake, server)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Respond for RedditVideos {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let mut state = self.state();
        let call = format!("{} {}", request.method, request.url.path());
        state.calls.push(call.clone());
        if call == "POST /storage" {
            assert!(request.headers.get("authorization").is_none(), "the token stays with Reddit");
            assert!(request.headers.get("content-length").is_some(), "the storage requires the length");
        } else if !self.oauth.knows(&bearer(request)) {
            return response(401, json!({ "message": "Unauthorized", "error": 401 }));
        }
        if let Some((_, response)) = state.rejected.pop_front_if(|(part, _)| call.contains(*part)) {
            return response;
        }
        let response = state.handle(request, &call);
        if state.lost.pop_front_if(|part| call.contains(*part)).is_some() {
            return ResponseTemplate::new(504);
        }
        response
    }
}

impl State {
    fn handle(&mut self, request: &Request, call: &str) -> ResponseTemplate {
        match call {
            "POST /api/media/asset.json" => self.lease(&form(request)),
            "POST /storage" => {
                let parts = form_parts(request);
                let key = form_part(&parts, "key").unwrap().text();
                assert_eq!(form_part(&parts, "x-amz-signature").unwrap().text(), "signed");
                assert_eq!(parts.last().unwrap().name, "file", "the storage ignores fields after the file");
                self.stored.insert(key, parts);
                ResponseTemplate::new(201)
            }
            "POST /api/submit" => self.submit(form(request)),
            "GET /user/ann_b/submitted" => self.submitted(),
            other => panic!("no such call: {other}"),
        }
    }

    fn lease(&mut self, form: &BTreeMap<String, String>) -> ResponseTemplate {
        self.leased.push(form["mimetype"].clone());
        let number = self.leased.len();
        let fields = json!([
            { "name": "acl", "value": "private" },
            { "name": "key", "value": format!("rte_media/{number}-{}", form["filepath"]) },
            { "name": "Content-Type", "value": form["mimetype"] },
            { "name": "x-amz-signature", "value": "signed" },
        ]);
        let asset = json!({ "asset_id": format!("asset-{number}"), "websocket_url": "wss://ws.example/1" });
        response(200, json!({ "args": { "action": self.storage, "fields": fields }, "asset": asset }))
    }

    fn submit(&mut self, fields: BTreeMap<String, String>) -> ResponseTemplate {
        for field in ["url", "video_poster_url"] {
            let key = fields[field].strip_prefix(&format!("{}/", self.storage));
            if key.is_none_or(|key| !self.stored.contains_key(key)) {
                return submit_error("BAD_URL", "you should check that url", field);
            }
        }
        self.posts.push(fields);
        let data = json!({ "user_submitted_page": "https://x.example", "websocket_url": "wss://ws.example/1" });
        response(200, json!({ "json": { "errors": [], "data": data } }))
    }

    fn submitted(&self) -> ResponseTemplate {
        let posts = (1..).zip(self.posts.iter().filter(|_| !self.is_processing));
        let child = |(number, post): (usize, &BTreeMap<String, String>)| {
            let data = json!({
                "name": format!("t3_v{number}"), "title": post["title"], "subreddit": post["sr"],
                "created_utc": CREATED_AT, "selftext": post["text"],
            });
            json!({ "kind": "t3", "data": data })
        };
        let mut children: Vec<Value> = posts.map(child).collect();
        children.reverse();
        response(200, json!({ "kind": "Listing", "data": { "children": children, "after": null } }))
    }
}
