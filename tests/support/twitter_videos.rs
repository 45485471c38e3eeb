//! A fake of X's uploads in segments, of its posts, and of the connection of an account, as its documentation describes
//! them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::forms::{form_part, form_parts};
use super::hang::Hangs;
use super::inbox::parameter;
use super::oauth::{OAuthServer, TokenRules, bearer};

const FIRST_ID: u64 = 1_900_000_000_000_000_000;

#[derive(Default)]
pub struct State {
    pub uploads: Vec<Upload>,
    /// The results of the next checks of an upload that X processes: its `processing_info`. After them, X has processed
    /// it.
    pub states: VecDeque<Value>,
    /// The bodies of the requests that created posts.
    pub tweets: Vec<Value>,
    pub alts: Vec<Value>,
    /// The path of each call to the uploads, with the number of the segment.
    pub calls: Vec<String>,
    /// Responses to the next calls whose path ends so, which have no effect.
    pub rejected: VecDeque<(&'static str, ResponseTemplate)>,
    /// Calls whose path ends so, which take effect, but whose response is lost in a gateway.
    pub lost: VecDeque<&'static str>,
}

#[derive(Default)]
pub struct Upload {
    pub initialized: Value,
    pub segments: BTreeMap<u64, Vec<u8>>,
    pub is_final: bool,
    pub is_deleted: bool,
}

impl Upload {
    pub fn bytes(&self) -> Vec<u8> {
        self.segments.values().flatten().copied().collect()
    }
}

#[derive(Clone)]
pub struct TwitterVideos {
    pub oauth: Arc<OAuthServer>,
    /// Calls that take effect and get no response, by the last segment of the path; for `append`, with the number of the
    /// segment of the video, such as `append?1`.
    pub hangs: Arc<Hangs>,
    state: Arc<Mutex<State>>,
}

/// Returns an error response.
pub fn problem(status: u16, detail: &str) -> ResponseTemplate {
    let body = json!({ "type": "about:blank", "title": "Problem", "detail": detail, "status": status });
    ResponseTemplate::new(status).set_body_json(body)
}

/// Returns the response to a request with an invalid parameter.
fn invalid(parameter: &str, message: &str) -> ResponseTemplate {
    ResponseTemplate::new(400).set_body_json(json!({
        "errors": [{ "parameters": { parameter: [] }, "message": message }],
        "title": "Invalid Request",
        "detail": "One or more parameters to your request was invalid.",
        "type": "https://api.twitter.com/2/problems/invalid-request",
    }))
}

fn data(data: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({ "data": data }))
}

impl TwitterVideos {
    pub async fn start() -> (Self, MockServer) {
        let rules = TokenRules { expires_in: Some(7_200), refreshes: true, ..TokenRules::default() };
        let fake = Self { oauth: Arc::new(OAuthServer::new(rules)), hangs: Arc::default(), state: Arc::default() };
        fake.oauth.add_token("access-0");
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
        (fake, server)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Respond for TwitterVideos {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let path = request.url.path();
        if path == "/2/oauth2/token" {
            return self.oauth.token(request);
        }
        if !self.oauth.knows(&bearer(request)) {
            return problem(401, "Unauthorized");
        }
        let mut state = self.state();
        let number = if path.ends_with("/append") { segment_index(request) } else { String::new() };
        if let Some(segment) = path.strip_prefix("/2/media/upload") {
            state.calls.push(format!("{} {segment}{number}", request.method));
        }
        if let Some((_, response)) = state.rejected.pop_front_if(|(end, _)| path.ends_with(*end)) {
            return response;
        }
        let response = state.handle(request);
        if state.lost.pop_front_if(|end| path.ends_with(*end)).is_some() {
            return problem(504, "Gateway Timeout");
        }
        let last = path.rsplit('/').next().unwrap_or_default();
        self.hangs.respond(&format!("{last}{number}"), response)
    }
}

fn segment_index(request: &Request) -> String {
    format!("?{}", form_part(&form_parts(request), "segment_index").unwrap().text())
}

impl State {
    fn handle(&mut self, request: &Request) -> ResponseTemplate {
        let path = request.url.path().strip_prefix("/2").unwrap();
        let steps: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (request.method.as_str(), steps.as_slice()) {
            ("GET", ["users", "me"]) => data(json!({ "id": "44", "username": "ann_b", "name": "Ann" })),
            ("POST", ["media", "upload", "initialize"]) => {
                let initialized = request.body_json().unwrap();
                self.uploads.push(Upload { initialized, ..Upload::default() });
                let id = (FIRST_ID + self.uploads.len() as u64).to_string();
                data(json!({ "id": id, "media_key": format!("7_{id}"), "expires_after_secs": 86_400 }))
            }
            ("POST", ["media", "upload", id, "append"]) => match self.upload(id) {
                Some(upload) => {
                    let parts = form_parts(request);
                    let index = form_part(&parts, "segment_index").unwrap().text().parse().unwrap();
                    assert!(index <= 999, "{index}");
                    upload.segments.insert(index, form_part(&parts, "media").unwrap().bytes.clone());
                    data(json!({ "expires_at": 1_772_452_800 }))
                }
                None => problem(404, "Could not find media."),
            },
            ("POST", ["media", "upload", id, "finalize"]) => self.finalize(id),
            ("GET", ["media", "upload"]) => {
                assert_eq!(parameter(request, "command").as_deref(), Some("STATUS"));
                let id = parameter(request, "media_id").unwrap();
                match self.upload(&id).map(|upload| upload.is_final) {
                    Some(true) => data(json!({ "id": id, "processing_info": self.next_state() })),
                    Some(false) => data(json!({ "id": id })),
                    None => invalid("media_id", "The media_id query parameter value is not valid."),
                }
            }
            ("POST", ["media", "metadata"]) => {
                self.alts.push(request.body_json().unwrap());
                data(json!({ "id": "1" }))
            }
            ("POST", ["tweets"]) => self.tweet(request.body_json().unwrap()),
            other => panic!("no such call: {other:?}"),
        }
    }

    fn upload(&mut self, id: &str) -> Option<&mut Upload> {
        let number: u64 = id.parse().unwrap();
        let upload = self.uploads.get_mut(usize::try_from(number - FIRST_ID - 1).unwrap())?;
        (!upload.is_deleted).then_some(upload)
    }

    fn finalize(&mut self, id: &str) -> ResponseTemplate {
        let Some(upload) = self.upload(id) else { return problem(404, "Could not find media.") };
        if upload.is_final {
            return problem(400, "The upload was finalized before.");
        }
        if upload.bytes().len() as u64 != upload.initialized["total_bytes"].as_u64().unwrap() {
            return problem(400, "Segments do not add up to provided total file size.");
        }
        upload.is_final = true;
        data(json!({ "id": id, "size": 1, "processing_info": { "state": "pending", "check_after_secs": 3 } }))
    }

    fn next_state(&mut self) -> Value {
        self.states.pop_front().unwrap_or_else(|| json!({ "state": "succeeded", "progress_percent": 100 }))
    }

    fn tweet(&mut self, body: Value) -> ResponseTemplate {
        for id in body["media"]["media_ids"].as_array().into_iter().flatten() {
            if self.upload(id.as_str().unwrap()).is_none_or(|upload| !upload.is_final) {
                return invalid("media.media_ids", "Your media IDs are invalid.");
            }
        }
        self.tweets.push(body);
        let id = 9_000 + self.tweets.len();
        ResponseTemplate::new(201).set_body_json(json!({ "data": { "id": id.to_string(), "text": "…" } }))
    }
}
