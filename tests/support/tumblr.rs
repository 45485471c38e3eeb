//! A fake of Tumblr's API v2, as its documentation describes it.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use url::Url;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::oauth::{OAuthServer, TokenRules, bearer};

/// The lifetime of an access token, in seconds.
pub const TOKEN_LIFE: u64 = 2_520;

#[derive(Default)]
struct State {
    /// The uuid, name and title of each blog.
    blogs: Vec<(String, String, String)>,
    /// The JSON of each post, and the raw request.
    posts: Vec<(Value, String)>,
    scripted: VecDeque<ResponseTemplate>,
}

#[derive(Clone)]
pub struct Tumblr {
    pub oauth: Arc<OAuthServer>,
    state: Arc<Mutex<State>>,
}

/// Returns an error response in Tumblr's envelope.
pub fn error(status: u16, code: Option<i64>, detail: &str) -> ResponseTemplate {
    let item = code.map(|code| json!({ "title": "Error", "code": code, "detail": detail }));
    ResponseTemplate::new(status).set_body_json(json!({
        "meta": { "status": status, "msg": "Error" }, "response": [], "errors": item.into_iter().collect::<Vec<_>>(),
    }))
}

impl Tumblr {
    pub async fn start(blogs: &[(&str, &str)]) -> (Self, MockServer) {
        let uuid = |name: &str| format!("t:{name}");
        let blogs = blogs.iter().map(|(name, title)| (uuid(name), (*name).to_owned(), (*title).to_owned())).collect();
        let rules = TokenRules { expires_in: Some(TOKEN_LIFE), refreshes: true, ..TokenRules::default() };
        let this = Self {
            oauth: Arc::new(OAuthServer::new(rules)),
            state: Arc::new(Mutex::new(State { blogs, ..State::default() })),
        };
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(this.clone()).mount(&server).await;
        (this, server)
    }

    /// Sets the response to the next call that creates or lists posts.
    pub fn script(&self, response: ResponseTemplate) {
        self.state.lock().unwrap().scripted.push_back(response);
    }

    pub fn posts(&self) -> Vec<(Value, String)> {
        self.state.lock().unwrap().posts.clone()
    }

    pub fn agree(&self, authorize_url: &Url) -> Url {
        assert_eq!(authorize_url.path(), "/oauth2/authorize");
        self.oauth.agree(authorize_url)
    }
}

impl Respond for Tumblr {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let path = request.url.path();
        if (request.method.as_str(), path) == ("POST", "/v2/oauth2/token") {
            return self.oauth.token(request);
        }
        if !self.oauth.knows(&bearer(request)) {
            return error(401, None, "Unauthorized");
        }
        let mut state = self.state.lock().unwrap();
        let envelope = |status: u16, response: Value| {
            let body = json!({ "meta": { "status": status, "msg": "OK" }, "response": response });
            ResponseTemplate::new(status).set_body_json(body)
        };
        match (request.method.as_str(), path) {
            ("GET", "/v2/user/info") => {
                let blogs: Vec<Value> = state
                    .blogs
                    .iter()
                    .map(|(uuid, name, title)| {
                        let url = format!("https://{name}.tumblr.com/");
                        json!({ "uuid": uuid, "name": name, "title": title, "url": url, "admin": true })
                    })
                    .collect();
                envelope(200, json!({ "user": { "name": "ann", "blogs": blogs } }))
            }
            ("POST", "/v2/blog/t%3Aann/posts") => {
                if let Some(response) = state.scripted.pop_front() {
                    return response;
                }
                let raw = String::from_utf8_lossy(&request.body).into_owned();
                // The body is JSON, or a form in which the JSON has its own line.
                let post: Value = raw.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap();
                state.posts.push((post, raw));
                let id = 7_000 + state.posts.len();
                envelope(201, json!({ "id": id.to_string() }))
            }
            ("GET", "/v2/blog/t%3Aann/posts") => {
                if let Some(response) = state.scripted.pop_front() {
                    return response;
                }
                let posts = state.posts.iter().enumerate().rev().map(
                    |(index, (post, _))| json!({ "id_string": (7_001 + index).to_string(), "slug": post["slug"] }),
                );
                envelope(200, json!({ "posts": posts.collect::<Vec<_>>() }))
            }
            other => panic!("no such call: {other:?}"),
        }
    }
}
