//! A fake of Google's OAuth server and its Business Profile APIs, as developers.google.com describes them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use url::Url;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::oauth::{OAuthServer, TokenRules, bearer, form};

pub const MADE_AT: &str = "2026-03-01T12:00:05.123Z";

#[derive(Default)]
struct State {
    /// The id of each account, and the ids of its locations.
    accounts: Vec<(u64, Vec<u64>)>,
    posts: Vec<Value>,
    scripted: VecDeque<ResponseTemplate>,
    state: String,
}

#[derive(Clone)]
pub struct Google {
    pub oauth: Arc<OAuthServer>,
    state: Arc<Mutex<State>>,
}

/// Returns an error response with a `google.rpc.Status`.
pub fn error(code: u16, status: &str, details: Value) -> ResponseTemplate {
    let message = format!("It is {status}.");
    let body = json!({ "error": { "code": code, "status": status, "message": message, "details": details } });
    ResponseTemplate::new(code).set_body_json(body)
}

/// Returns the response to a project that has no access.
pub fn no_quota() -> ResponseTemplate {
    let info = json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "RATE_LIMIT_EXCEEDED",
        "domain": "googleapis.com",
        "metadata": { "service": "mybusinessaccountmanagement.googleapis.com", "quota_limit_value": "0" },
    });
    error(429, "RESOURCE_EXHAUSTED", json!([info]))
}

impl Google {
    pub async fn start(accounts: &[(u64, &[u64])]) -> (Self, MockServer) {
        let accounts = accounts.iter().map(|(account, locations)| (*account, locations.to_vec())).collect();
        let rules = TokenRules { expires_in: Some(3_599), refreshes: true, ..TokenRules::default() };
        let this = Self {
            oauth: Arc::new(OAuthServer::new(rules)),
            state: Arc::new(Mutex::new(State { accounts, state: "LIVE".to_owned(), ..State::default() })),
        };
        this.oauth.add_client("id", "secret");
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(this.clone()).mount(&server).await;
        (this, server)
    }

    /// Sets the response to the next API call.
    pub fn script(&self, response: ResponseTemplate) {
        self.state.lock().unwrap().scripted.push_back(response);
    }

    /// Sets the initial state of new posts.
    pub fn set_state(&self, state: &str) {
        self.state.lock().unwrap().state = state.to_owned();
    }

    /// Sets the state of all posts, as after Google's review.
    pub fn judge(&self, state: &str) {
        for post in &mut self.state.lock().unwrap().posts {
            post["state"] = json!(state);
        }
    }

    pub fn posts(&self) -> Vec<Value> {
        self.state.lock().unwrap().posts.clone()
    }

    pub fn agree(&self, authorize_url: &Url) -> Url {
        let query: BTreeMap<_, _> = authorize_url.query_pairs().into_owned().collect();
        assert_eq!((query["access_type"].as_str(), query["prompt"].as_str()), ("offline", "consent"));
        self.oauth.agree(authorize_url)
    }
}

/// Responds at the token endpoint. Google does not rotate refresh tokens, so a refresh returns none.
pub fn token(oauth: &OAuthServer, request: &Request) -> ResponseTemplate {
    let form = form(request);
    let Some(refresh_token) = form.get("refresh_token").filter(|token| oauth.knows_refresh_token(token)) else {
        return oauth.token(request);
    };
    oauth.stop_refresh_tokens();
    let response = oauth.token(request);
    oauth.add_refresh_token(refresh_token);
    response
}

/// Returns a page of a list, and the token of the next page.
fn part<T: Clone>(list: &[T], query: &BTreeMap<String, String>) -> (Vec<T>, Option<String>) {
    let size: usize = query["pageSize"].parse().unwrap();
    let from: usize = query.get("pageToken").map_or(0, |token| token.parse().unwrap());
    let end = (from + size).min(list.len());
    (list[from..end].to_vec(), (end < list.len()).then(|| end.to_string()))
}

fn location(number: u64) -> Value {
    json!({
        "name": format!("locations/{number}"),
        "title": format!("Bakery {number}"),
        "storefrontAddress": { "addressLines": [format!("Main Street {number}")], "locality": "Ryetown" },
    })
}

impl Respond for Google {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let path = request.url.path();
        if (request.method.as_str(), path) == ("POST", "/token") {
            return token(&self.oauth, request);
        }
        if !self.oauth.knows(&bearer(request)) {
            return error(401, "UNAUTHENTICATED", json!([]));
        }
        let mut state = self.state.lock().unwrap();
        if let Some(response) = state.scripted.pop_front() {
            return response;
        }
        let query: BTreeMap<String, String> = request.url.query_pairs().into_owned().collect();
        let ok = |body: Value| ResponseTemplate::new(200).set_body_json(body);
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (request.method.as_str(), segments.as_slice()) {
            ("GET", ["v1", "accounts"]) => {
                let (accounts, next) = part(&state.accounts, &query);
                let named =
                    accounts.iter().map(|(id, _)| json!({ "name": format!("accounts/{id}"), "type": "PERSONAL" }));
                ok(json!({ "accounts": named.collect::<Vec<_>>(), "nextPageToken": next }))
            }
            ("GET", ["v1", "accounts", account, "locations"]) => {
                assert_eq!(query["readMask"], "name,title,storefrontAddress");
                let found = state.accounts.iter().find(|(id, _)| id.to_string() == *account).unwrap();
                let (numbers, next) = part(&found.1, &query);
                let locations: Vec<Value> = numbers.into_iter().map(location).collect();
                ok(json!({ "locations": locations, "nextPageToken": next }))
            }
            ("GET", ["v1", "locations", number]) => {
                let mut found = location(number.parse().unwrap());
                found["metadata"] = json!({ "mapsUri": format!("https://maps.example/{number}") });
                ok(found)
            }
            ("POST", ["v4", "accounts", _, "locations", _, "localPosts"]) => {
                let mut created: Value = request.body_json().unwrap();
                let number = state.posts.len() + 1;
                created["name"] = json!(format!("{}/{number}", path.trim_start_matches("/v4/")));
                created["state"] = json!(state.state);
                created["createTime"] = json!(MADE_AT);
                created["searchUrl"] = json!(format!("https://search.example/{number}"));
                state.posts.push(created.clone());
                ok(created)
            }
            ("GET", ["v4", "accounts", _, "locations", _, "localPosts"]) => {
                let prefix = format!("{}/", path.trim_start_matches("/v4/"));
                let own = state.posts.iter().rev().filter(|post| post["name"].as_str().unwrap().starts_with(&prefix));
                ok(json!({ "localPosts": own.collect::<Vec<_>>() }))
            }
            ("GET", ["v4", "accounts", _, "locations", _, "localPosts", _]) => {
                match state.posts.iter().find(|post| path.trim_start_matches("/v4/") == post["name"]) {
                    Some(post) => ok(post.clone()),
                    None => error(404, "NOT_FOUND", json!([])),
                }
            }
            other => panic!("no such call: {other:?}"),
        }
    }
}
