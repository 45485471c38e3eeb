//! A fake of LinkedIn's Videos API and of posts with videos, as its documentation describes them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::oauth::{OAuthServer, TokenRules, bearer};

pub const VIDEO: &str = "urn:li:video:D4D10AQE_p-P_odQhXQ";
/// When the URLs expire, in Unix milliseconds: 2026-03-01 13:00 UTC.
pub const EXPIRES_AT: i64 = 1_772_370_000_000;

pub struct State {
    /// The size of a part, in bytes. LinkedIn's have 4 MiB.
    pub part_size: u64,
    /// The base URL of the upload URLs.
    pub base: String,
    pub expires_at: i64,
    /// The bodies of the requests that began an upload.
    pub initialized: Vec<Value>,
    /// The parts of the newest upload, by their number.
    pub parts: BTreeMap<usize, Vec<u8>>,
    pub cover: Option<Vec<u8>>,
    pub is_final: bool,
    /// The next states of the video. After them, it is available.
    pub states: VecDeque<Value>,
    pub posts: Vec<Value>,
    /// The methods and paths of all calls.
    pub calls: Vec<String>,
    /// Responses to the next calls whose method and path contain this, which have no effect.
    pub rejected: VecDeque<(&'static str, ResponseTemplate)>,
    /// Calls whose method and path contain this, which take effect, but whose response is lost in a gateway.
    pub lost: VecDeque<&'static str>,
}

#[derive(Clone)]
pub struct LinkedinVideos {
    pub oauth: Arc<OAuthServer>,
    state: Arc<Mutex<State>>,
}

/// Returns an error response with the name of the error.
pub fn error(status: u16, code: &str, message: &str) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(json!({ "status": status, "code": code, "message": message }))
}

impl LinkedinVideos {
    pub async fn start() -> (Self, MockServer) {
        let rules = TokenRules { expires_in: Some(5_184_000), refreshes: false, ..TokenRules::default() };
        let server = MockServer::start().await;
        let state = State {
            part_size: 4 * 1024 * 1024,
            base: server.uri(),
            expires_at: EXPIRES_AT,
            initialized: Vec::new(),
            parts: BTreeMap::new(),
            cover: None,
            is_final: false,
            states: VecDeque::new(),
            posts: Vec::new(),
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

impl Respond for LinkedinVideos {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let call = format!("{} {}", request.method, request.url.path());
        let call = request.url.query().map(|query| format!("{call}?{query}")).unwrap_or(call);
        let mut state = self.state();
        state.calls.push(call.clone());
        if request.method.as_str() == "PUT" {
            // The URL itself is the permission.
            assert!(request.headers.get("authorization").is_none(), "the token stays with the API");
        } else {
            assert_eq!(request.headers.get("linkedin-version").and_then(|v| v.to_str().ok()), Some("202607"));
            if !self.oauth.knows(&bearer(request)) {
                return error(401, "EXPIRED_ACCESS_TOKEN", "The token has expired");
            }
        }
        if let Some((_, response)) = state.rejected.pop_front_if(|(part, _)| call.contains(*part)) {
            return response;
        }
        let response = state.handle(request, &call);
        if state.lost.pop_front_if(|part| call.contains(*part)).is_some() {
            return error(504, "GATEWAY_TIMEOUT", "Gateway timeout");
        }
        response
    }
}

fn etag(number: usize) -> String {
    format!("/ambry-video/signedId/part-{number}")
}

impl State {
    fn handle(&mut self, request: &Request, call: &str) -> ResponseTemplate {
        let value = |value: Value| ResponseTemplate::new(200).set_body_json(value);
        match call {
            "POST /rest/videos?action=initializeUpload" => {
                let body: Value = request.body_json().unwrap();
                let session = self.begin(&body["initializeUploadRequest"]);
                self.initialized.push(body["initializeUploadRequest"].clone());
                value(json!({ "value": session }))
            }
            "POST /rest/videos?action=finalizeUpload" => {
                let body: Value = request.body_json().unwrap();
                self.finalize(&body["finalizeUploadRequest"])
            }
            "GET /rest/videos/urn%3Ali%3Avideo%3AD4D10AQE%5Fp%2DP%5FodQhXQ" => {
                if !self.is_final {
                    return value(json!({ "id": VIDEO, "status": "WAITING_UPLOAD" }));
                }
                value(self.states.pop_front().unwrap_or_else(|| json!({ "id": VIDEO, "status": "AVAILABLE" })))
            }
            "POST /rest/posts" => {
                self.posts.push(request.body_json().unwrap());
                ResponseTemplate::new(201).insert_header("x-restli-id", format!("urn:li:ugcPost:{}", self.posts.len()))
            }
            "PUT /dms-uploads/cover" => {
                let family = request.headers.get("media-type-family").and_then(|value| value.to_str().ok());
                assert_eq!(family, Some("STILLIMAGE"));
                self.cover = Some(request.body.clone());
                ResponseTemplate::new(201)
            }
            other => {
                let number = other.strip_prefix("PUT /dms-uploads/part/").and_then(|number| number.parse().ok());
                let number = number.unwrap_or_else(|| panic!("no such call: {other}"));
                assert_eq!(
                    request.headers.get("content-type").and_then(|v| v.to_str().ok()),
                    Some("application/octet-stream")
                );
                self.parts.insert(number, request.body.clone());
                ResponseTemplate::new(200).insert_header("etag", format!("\"{}\"", etag(number)))
            }
        }
    }

    fn begin(&mut self, request: &Value) -> Value {
        (self.parts, self.cover, self.is_final) = (BTreeMap::new(), None, false);
        let size = request["fileSizeBytes"].as_u64().unwrap();
        let base = &self.base;
        let instruction = |number: u64| {
            let first = number * self.part_size;
            // As in LinkedIn's example, the last part does not end with the file.
            json!({
                "uploadUrl": format!("{base}/dms-uploads/part/{number}"),
                "firstByte": first,
                "lastByte": first + self.part_size - 1,
            })
        };
        let instructions: Vec<Value> = (0..size.div_ceil(self.part_size)).map(instruction).collect();
        let mut session = json!({
            "uploadUrlsExpireAt": self.expires_at,
            "video": VIDEO,
            "uploadInstructions": instructions,
            "uploadToken": if instructions.len() > 1 { "token-1" } else { "" },
        });
        if request["uploadThumbnail"] == true {
            session["thumbnailUploadUrl"] = json!(format!("{base}/dms-uploads/cover"));
        }
        session
    }

    fn finalize(&mut self, request: &Value) -> ResponseTemplate {
        if self.is_final {
            return error(400, "UPDATING_ASSET_FAILED", "Failed to update asset.");
        }
        let part_ids: Vec<Value> = self.parts.keys().map(|number| Value::from(etag(*number))).collect();
        if request["video"] != VIDEO || request["uploadedPartIds"] != Value::from(part_ids) {
            return error(400, "MEDIA_ASSET_WAITING_UPLOAD", "Media asset is waiting upload");
        }
        let token = if self.parts.len() > 1 { "token-1" } else { "" };
        assert_eq!(request["uploadToken"], token);
        self.is_final = true;
        ResponseTemplate::new(200)
    }
}
