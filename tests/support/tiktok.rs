//! A fake TikTok, which accepts posts and publishes them later, as its documentation describes it.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::hang::Hangs;
use super::oauth::{OAuthServer, TokenRules, bearer, form};

#[derive(Clone)]
pub struct Tiktok {
    pub oauth: Arc<OAuthServer>,
    pub posts: Arc<Mutex<Vec<Value>>>,
    /// Responses to the next publish calls, the last one first.
    pub scripted: Arc<Mutex<Vec<ResponseTemplate>>>,
    /// The next statuses. When there are none, the status is `PUBLISH_COMPLETE`.
    pub statuses: Arc<Mutex<VecDeque<Value>>>,
    pub revoked: Arc<Mutex<Vec<String>>>,
    pub hangs: Arc<Hangs>,
    /// Whether all posts are still being processed.
    pub is_working: Arc<AtomicBool>,
}

fn response(data: Value) -> ResponseTemplate {
    let error = json!({ "code": "ok", "message": "", "log_id": "x" });
    ResponseTemplate::new(200).set_body_json(json!({ "data": data, "error": error }))
}

pub fn rejection(status: u16, code: &str) -> ResponseTemplate {
    let error = json!({ "code": code, "message": "It is rejected.", "log_id": "x" });
    ResponseTemplate::new(status).set_body_json(json!({ "data": {}, "error": error }))
}

impl Tiktok {
    /// Starts a platform with the application `id`.
    pub async fn start() -> (Self, MockServer) {
        let rules = TokenRules { expires_in: Some(7_200), refreshes: true, ..TokenRules::default() };
        let this = Self {
            oauth: Arc::new(OAuthServer::new(rules)),
            posts: Arc::default(),
            scripted: Arc::default(),
            statuses: Arc::default(),
            revoked: Arc::default(),
            hangs: Arc::default(),
            is_working: Arc::default(),
        };
        this.oauth.add_client("id", "secret");
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(this.clone()).mount(&server).await;
        (this, server)
    }

    fn status(&self) -> Value {
        if self.is_working.load(Ordering::SeqCst) {
            return json!({ "status": "PROCESSING_DOWNLOAD" });
        }
        let done = json!({ "status": "PUBLISH_COMPLETE", "publicaly_available_post_id": [73_001_u64] });
        self.statuses.lock().unwrap().pop_front().unwrap_or(done)
    }

    /// Responds at the token endpoint. The id of the application is `client_key`, and errors have the status 200.
    fn token(&self, request: &Request) -> ResponseTemplate {
        let mut fields = form(request);
        fields.insert("client_id".to_owned(), fields["client_key"].clone());
        let body = match self.oauth.grant(request, &fields) {
            Ok(mut tokens) => {
                tokens["open_id"] = json!("723f24d7");
                tokens["refresh_expires_in"] = json!(15_552_000);
                tokens
            }
            Err((_, code)) => json!({ "error": code, "error_description": "It is rejected.", "log_id": "x" }),
        };
        ResponseTemplate::new(200).set_body_json(body)
    }
}

impl Respond for Tiktok {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        match request.url.path() {
            "/v2/oauth/token/" => return self.token(request),
            "/v2/oauth/revoke/" => {
                self.revoked.lock().unwrap().push(form(request)["token"].clone());
                return ResponseTemplate::new(200);
            }
            _ => {}
        }
        if !self.oauth.knows(&bearer(request)) {
            return rejection(401, "access_token_invalid");
        }
        match (request.method.as_str(), request.url.path()) {
            ("GET", "/v2/user/info/") => response(json!({
                "user": { "open_id": "723f24d7", "display_name": "The Bakery", "username": "bakery" },
            })),
            ("POST", "/v2/post/publish/creator_info/query/") => response(json!({
                "privacy_level_options": ["PUBLIC_TO_EVERYONE", "SELF_ONLY"], "comment_disabled": false,
            })),
            ("POST", "/v2/post/publish/content/init/") => {
                if let Some(scripted) = self.scripted.lock().unwrap().pop() {
                    return scripted;
                }
                let mut posts = self.posts.lock().unwrap();
                posts.push(request.body_json().unwrap());
                let accepted = response(json!({ "publish_id": format!("p_pub_url~v2.{}", posts.len()) }));
                self.hangs.respond("init", accepted)
            }
            ("POST", "/v2/post/publish/status/fetch/") => {
                let body: Value = request.body_json().unwrap();
                assert!(body["publish_id"].as_str().unwrap().starts_with("p_pub_url~"));
                self.hangs.respond("status", response(self.status()))
            }
            other => panic!("no such call: {other:?}"),
        }
    }
}
