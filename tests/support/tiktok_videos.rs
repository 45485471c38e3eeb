//! A fake of TikTok's uploads of videos, which it publishes when it has the last chunk, as its documentation describes
//! them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::inbox::parameter;
use super::oauth::{OAuthServer, TokenRules, bearer};
use super::tiktok::rejection;

pub struct State {
    pub uploads: Vec<Upload>,
    /// What the account permits.
    pub creator: Value,
    /// The base URL of the upload URLs.
    pub base: String,
    /// The next statuses. After them, a complete upload is published.
    pub statuses: VecDeque<Value>,
    /// The methods and paths of all calls, and the ranges of chunks.
    pub calls: Vec<String>,
    /// Responses to the next calls whose method and path contain this, which have no effect.
    pub rejected: VecDeque<(&'static str, ResponseTemplate)>,
    /// Calls whose method and path contain this, which take effect, but whose response is lost in a gateway.
    pub lost: VecDeque<&'static str>,
}

pub struct Upload {
    /// The body of the request that began it.
    pub begun: Value,
    pub bytes: Vec<u8>,
    /// The sizes of its chunks.
    pub chunks: Vec<usize>,
    /// Whether its URL has expired.
    pub is_expired: bool,
}

#[derive(Clone)]
pub struct TiktokVideos {
    pub oauth: Arc<OAuthServer>,
    state: Arc<Mutex<State>>,
}

fn ok(data: Value) -> ResponseTemplate {
    let error = json!({ "code": "ok", "message": "", "log_id": "x" });
    ResponseTemplate::new(200).set_body_json(json!({ "data": data, "error": error }))
}

impl TiktokVideos {
    pub async fn start() -> (Self, MockServer) {
        let rules = TokenRules { expires_in: Some(7_200), refreshes: true, ..TokenRules::default() };
        let server = MockServer::start().await;
        let state = State {
            uploads: Vec::new(),
            creator: json!({
                "privacy_level_options": ["PUBLIC_TO_EVERYONE", "SELF_ONLY"], "comment_disabled": false,
                "duet_disabled": false, "stitch_disabled": true, "max_video_post_duration_sec": 300,
            }),
            base: server.uri(),
            statuses: VecDeque::new(),
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

impl Respond for TiktokVideos {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let mut state = self.state();
        let mut call = format!("{} {}", request.method, request.url.path());
        if request.method.as_str() == "PUT" {
            // The URL itself is the permission.
            assert!(request.headers.get("authorization").is_none(), "the token stays with the API");
            call = format!("{call} {}", header(request, "content-range"));
        } else if !self.oauth.knows(&bearer(request)) {
            return rejection(401, "access_token_invalid");
        }
        state.calls.push(call.clone());
        if let Some((_, response)) = state.rejected.pop_front_if(|(part, _)| call.contains(*part)) {
            return response;
        }
        let response = state.handle(request);
        if state.lost.pop_front_if(|part| call.contains(*part)).is_some() {
            return ResponseTemplate::new(504);
        }
        response
    }
}

fn header(request: &Request, name: &str) -> String {
    request.headers.get(name).unwrap().to_str().unwrap().to_owned()
}

fn publish_id(number: usize) -> String {
    format!("v_pub_file~v2-1.{number}")
}

impl State {
    fn handle(&mut self, request: &Request) -> ResponseTemplate {
        match (request.method.as_str(), request.url.path()) {
            ("POST", "/v2/post/publish/creator_info/query/") => ok(self.creator.clone()),
            ("POST", "/v2/post/publish/video/init/") => self.begin(request.body_json().unwrap()),
            ("PUT", "/video/") => self.put(request),
            ("POST", "/v2/post/publish/status/fetch/") => {
                let body: Value = request.body_json().unwrap();
                self.status(body["publish_id"].as_str().unwrap())
            }
            other => panic!("no such call: {other:?}"),
        }
    }

    fn begin(&mut self, body: Value) -> ResponseTemplate {
        let source = &body["source_info"];
        let number = |name: &str| source[name].as_u64().unwrap();
        let (size, chunk, count) = (number("video_size"), number("chunk_size"), number("total_chunk_count"));
        let is_accepted = count == (size / chunk.max(1)).max(1)
            && (chunk >= 5_000_000 || chunk == size)
            && chunk <= 64_000_000
            && source["source"] == "FILE_UPLOAD";
        if !is_accepted {
            return rejection(400, "invalid_params");
        }
        self.uploads.push(Upload { begun: body, bytes: Vec::new(), chunks: Vec::new(), is_expired: false });
        let number = self.uploads.len();
        let url = format!("{}/video/?upload_id={number}&upload_token=secret", self.base);
        ok(json!({ "publish_id": publish_id(number), "upload_url": url }))
    }

    fn put(&mut self, request: &Request) -> ResponseTemplate {
        assert_eq!(header(request, "content-type"), "video/mp4");
        assert_eq!(parameter(request, "upload_token").as_deref(), Some("secret"));
        let number: usize = parameter(request, "upload_id").unwrap().parse().unwrap();
        let upload = &mut self.uploads[number - 1];
        if upload.is_expired {
            return ResponseTemplate::new(403);
        }
        let size = upload.begun["source_info"]["video_size"].as_u64().unwrap();
        let (start, length) = (upload.bytes.len(), request.body.len());
        let expected = format!("bytes {start}-{}/{size}", (start + length).saturating_sub(1));
        if header(request, "content-range") != expected {
            let progress = format!("bytes 0-{start}/{size}");
            return ResponseTemplate::new(416).insert_header("content-range", progress.as_str());
        }
        upload.bytes.extend_from_slice(&request.body);
        upload.chunks.push(length);
        let is_complete = upload.bytes.len() as u64 == size;
        ResponseTemplate::new(if is_complete { 201 } else { 206 })
    }

    fn status(&mut self, id: &str) -> ResponseTemplate {
        let number = (1..=self.uploads.len()).find(|number| publish_id(*number) == id);
        let Some(number) = number else { return rejection(400, "invalid_publish_id") };
        if let Some(status) = self.statuses.pop_front() {
            return ok(status);
        }
        let upload = &self.uploads[number - 1];
        let is_complete = upload.bytes.len() as u64 == upload.begun["source_info"]["video_size"].as_u64().unwrap();
        ok(match is_complete {
            true => json!({ "status": "PUBLISH_COMPLETE", "publicaly_available_post_id": [74_000 + number] }),
            false => json!({ "status": "PROCESSING_UPLOAD", "uploaded_bytes": upload.bytes.len() }),
        })
    }

    /// Returns the number of calls that contain this.
    pub fn count(&self, part: &str) -> usize {
        self.calls.iter().filter(|call| call.contains(part)).count()
    }
}
