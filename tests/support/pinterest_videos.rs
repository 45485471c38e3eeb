//! A fake of Pinterest's uploads of videos, of its storage and of pins with videos, as its documentation describes
//! them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::forms::{FormPart, form_parts};
use super::oauth::{OAuthServer, TokenRules, bearer};

const FIRST_ID: usize = 5_000_000_000_000_000_000;

pub struct State {
    pub uploads: Vec<Upload>,
    /// The URL of the storage.
    pub storage: String,
    /// The next states of an upload whose file arrived. After them, it has succeeded.
    pub states: VecDeque<&'static str>,
    pub pins: Vec<Value>,
    /// The methods and paths of all calls.
    pub calls: Vec<String>,
    /// Responses to the next calls whose method and path contain this, which have no effect.
    pub rejected: VecDeque<(&'static str, ResponseTemplate)>,
    /// Calls whose method and path contain this, which take effect, but whose response is lost in a gateway.
    pub lost: VecDeque<&'static str>,
}

#[derive(Default)]
pub struct Upload {
    /// The parts of the form that arrived last.
    pub form: Vec<FormPart>,
    pub is_deleted: bool,
}

#[derive(Clone)]
pub struct PinterestVideos {
    pub oauth: Arc<OAuthServer>,
    state: Arc<Mutex<State>>,
}

/// Returns an error response of the API.
pub fn error(status: u16, code: i64, message: &str) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(json!({ "code": code, "message": message }))
}

impl PinterestVideos {
    pub async fn start() -> (Self, MockServer) {
        let rules = TokenRules { expires_in: Some(2_592_000), refreshes: true, ..TokenRules::default() };
        let server = MockServer::start().await;
        let state = State {
            uploads: Vec::new(),
            storage: format!("{}/storage", server.uri()),
            states: VecDeque::new(),
            pins: Vec::new(),
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

impl Respond for PinterestVideos {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let mut state = self.state();
        let call = format!("{} {}", request.method, request.url.path());
        state.calls.push(call.clone());
        if call == "POST /storage" {
            assert!(request.headers.get("authorization").is_none(), "the token stays with Pinterest");
            assert!(request.headers.get("content-length").is_some(), "the storage requires the length");
        } else if !self.oauth.knows(&bearer(request)) {
            return error(401, 2, "Authentication failed.");
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
        let response = |status: u16, body: Value| ResponseTemplate::new(status).set_body_json(body);
        match call {
            "POST /v5/media" => {
                assert_eq!(request.body_json::<Value>().unwrap(), json!({ "media_type": "video" }));
                self.uploads.push(Upload::default());
                let number = self.uploads.len();
                response(
                    201,
                    json!({
                        "media_id": (FIRST_ID + number).to_string(),
                        "media_type": "video",
                        "upload_url": self.storage,
                        "upload_parameters": {
                            "x-amz-date": "20260301T120000Z",
                            "x-amz-signature": "signed",
                            "x-amz-security-token": "temporary",
                            "key": format!("uploads/{number}"),
                            "policy": "eyJ4Ijoi",
                            "x-amz-credential": "AKIA/20260301/us-east-1/s3/aws4_request",
                            "Content-Type": "multipart/form-data",
                            "x-amz-algorithm": "AWS4-HMAC-SHA256",
                        },
                    }),
                )
            }
            "POST /storage" => {
                let parts = form_parts(request);
                let key = parts.iter().find(|part| part.name == "key").unwrap().text();
                let number: usize = key.strip_prefix("uploads/").unwrap().parse().unwrap();
                assert!(parts.iter().any(|part| part.name == "x-amz-signature" && part.bytes == b"signed"));
                assert_eq!(parts.last().unwrap().name, "file", "the storage ignores fields after the file");
                self.uploads[number - 1].form = parts;
                ResponseTemplate::new(204)
            }
            "POST /v5/pins" => self.pin(request.body_json().unwrap()),
            "GET /v5/pins" => response(200, json!({ "items": self.pins.iter().rev().collect::<Vec<_>>() })),
            other => {
                let id = other.strip_prefix("GET /v5/media/").unwrap_or_else(|| panic!("no such call: {other}"));
                let Some(upload) = self.upload(id) else { return error(404, 2402, "Media not found.") };
                let status = match upload.form.is_empty() {
                    true => "registered",
                    false => self.states.pop_front().unwrap_or("succeeded"),
                };
                response(200, json!({ "media_id": id, "media_type": "video", "status": status }))
            }
        }
    }

    fn upload(&self, id: &str) -> Option<&Upload> {
        let number: usize = id.parse().unwrap();
        self.uploads.get(number - FIRST_ID - 1).filter(|upload| !upload.is_deleted)
    }

    fn pin(&mut self, mut pin: Value) -> ResponseTemplate {
        let source = &pin["media_source"];
        assert_eq!(source["source_type"], "video_id");
        if self.upload(source["media_id"].as_str().unwrap()).is_none_or(|upload| upload.form.is_empty()) {
            return error(400, 2402, "Media not found.");
        }
        pin["id"] = json!((900 + self.pins.len()).to_string());
        pin["created_at"] = json!("2026-03-01T12:00:05");
        self.pins.push(pin.clone());
        ResponseTemplate::new(201).set_body_json(pin)
    }
}
