//! A fake server for Instagram or Threads: publishing with containers, and the login, as Meta's documentation describes
//! them. A container can be published once. It is `IN_PROGRESS` until its images and videos are downloaded. That of a
//! carousel cannot be created while one of its videos is in progress.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::facebook::error;
use super::hang::Hangs;
use super::oauth::{OAuthServer, TokenRules, bearer};

/// The account's id.
pub const ACCOUNT: &str = "17841";

/// The names and values in which the two platforms differ.
#[derive(Clone, Copy)]
pub struct Words {
    pub version: &'static str,
    create: &'static str,
    publish: &'static str,
    quota: &'static str,
    status: &'static str,
    reason: &'static str,
    text: &'static str,
    profile: fn() -> Value,
}

pub const INSTAGRAM: Words = Words {
    version: "v25.0",
    create: "media",
    publish: "media_publish",
    quota: "content_publishing_limit",
    status: "status_code",
    reason: "status",
    text: "caption",
    profile: || json!({ "id": "999", "user_id": ACCOUNT, "username": "bakery", "name": "The Bakery" }),
};

pub const THREADS: Words = Words {
    version: "v1.0",
    create: "threads",
    publish: "threads_publish",
    quota: "threads_publishing_limit",
    status: "status",
    reason: "error_message",
    text: "text",
    profile: || json!({ "id": ACCOUNT, "username": "bakery", "name": "The Bakery" }),
};

/// A container.
#[derive(Clone, Debug)]
pub struct Container {
    pub request: Value,
    pub status: &'static str,
    /// The number of status requests before it is finished.
    polls: usize,
    /// The reason of an error.
    reason: &'static str,
    /// The id of the post.
    pub post: Option<String>,
}

#[derive(Default)]
struct State {
    containers: BTreeMap<String, Container>,
    /// The ids and captions of published posts, oldest first.
    published: Vec<(String, String)>,
    /// The ids of those that are stories.
    stories: Vec<String>,
    polls: usize,
    quota_usage: u64,
    /// Responses to the next calls, by the last part of the path. `{}` stands for the status of a container.
    scripted: BTreeMap<String, VecDeque<ResponseTemplate>>,
    requests: Vec<String>,
    /// The index of the call that takes effect and gets no response.
    hangs_at: Option<usize>,
    now: String,
}

#[derive(Clone)]
pub struct ContainerServer {
    pub oauth: Arc<OAuthServer>,
    words: Words,
    state: Arc<Mutex<State>>,
    pub hangs: Arc<Hangs>,
}

/// Returns the fields of a multipart form.
fn parts(request: &Request) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(&request.body).into_owned();
    let part = |part: &str| {
        let (head, value) = part.split_once("\r\n\r\n")?;
        let name = head.split("name=\"").nth(1)?.split('"').next()?;
        Some((name.to_owned(), value.split("\r\n--").next()?.to_owned()))
    };
    text.split("Content-Disposition: form-data;").filter_map(part).collect()
}

impl ContainerServer {
    /// Starts a platform whose clock is fixed at `now` (`2026-03-01T12:00:05+0000`).
    pub async fn start(words: Words, now: &str) -> (Self, MockServer) {
        let rules = TokenRules { expires_in: Some(3_600), refreshes: false, ..TokenRules::default() };
        let this = Self {
            oauth: Arc::new(OAuthServer::new(rules)),
            words,
            state: Arc::new(Mutex::new(State { now: now.to_owned(), ..State::default() })),
            hangs: Arc::default(),
        };
        this.oauth.add_token("token");
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(this.clone()).mount(&server).await;
        (this, server)
    }

    /// Sets the number of status requests for which a new container is in progress.
    pub fn set_polls(&self, polls: usize) {
        self.state.lock().unwrap().polls = polls;
    }

    pub fn set_quota_usage(&self, usage: u64) {
        self.state.lock().unwrap().quota_usage = usage;
    }

    /// Sets the response to the next call whose path ends with `edge`. `{}` stands for the status of a container.
    pub fn script(&self, edge: &str, response: ResponseTemplate) {
        self.state.lock().unwrap().scripted.entry(edge.to_owned()).or_default().push_back(response);
    }

    /// Makes the `n`-th call from now (from 0) take effect and never get a response.
    pub fn hang_at(&self, n: usize) {
        let mut state = self.state.lock().unwrap();
        state.hangs_at = Some(state.requests.len() + n);
    }

    pub fn containers(&self) -> Vec<(String, Container)> {
        self.state.lock().unwrap().containers.clone().into_iter().collect()
    }

    /// Returns the requests that created the containers, in order.
    pub fn made(&self) -> Vec<Value> {
        self.containers().into_iter().map(|(_, container)| container.request).collect()
    }

    pub fn set_status(&self, container: &str, status: &'static str) {
        self.state.lock().unwrap().containers.get_mut(container).unwrap().status = status;
    }

    /// Makes a container fail for this reason.
    pub fn fail(&self, container: &str, reason: &'static str) {
        let mut state = self.state.lock().unwrap();
        let container = state.containers.get_mut(container).unwrap();
        (container.status, container.reason) = ("ERROR", reason);
    }

    /// Deletes all containers, as the platform does after some days.
    pub fn forget_containers(&self) {
        self.state.lock().unwrap().containers.clear();
    }

    /// Returns the texts of the published posts.
    pub fn published(&self) -> Vec<String> {
        self.state.lock().unwrap().published.iter().map(|(_, text)| text.clone()).collect()
    }

    pub fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    /// Returns the number of calls of a kind (`GET {}`, `POST media_publish`).
    pub fn count(&self, call: &str) -> usize {
        self.requests().iter().filter(|request| *request == call).count()
    }

    fn long_lived(&self, query: &BTreeMap<String, String>) -> ResponseTemplate {
        if !self.oauth.knows(&query["access_token"]) {
            return error(400, 190, Some(463), "Error validating access token: Session has expired");
        }
        if query["grant_type"].ends_with("_exchange_token") {
            assert_eq!(query["client_secret"], "secret");
        }
        let token = format!("long-{}", self.state.lock().unwrap().requests.len());
        self.oauth.add_token(&token);
        let body = json!({ "access_token": token, "token_type": "bearer", "expires_in": 5_184_000 });
        ResponseTemplate::new(200).set_body_json(body)
    }

    fn publish(&self, state: &mut State, body: &[u8]) -> ResponseTemplate {
        let form: BTreeMap<String, String> = url::form_urlencoded::parse(body).into_owned().collect();
        let number = state.published.len();
        let Some(container) = state.containers.get_mut(&form["creation_id"]) else {
            return error(400, 24, Some(2_207_006), "The requested resource does not exist");
        };
        match container.status {
            "FINISHED" => {}
            "IN_PROGRESS" => return error(400, 9007, Some(2_207_027), "Media ID is not available"),
            status => return error(400, 100, Some(2_207_008), &format!("The container is {status}")),
        }
        let id = format!("{}", 800 + number);
        container.status = "PUBLISHED";
        container.post = Some(id.clone());
        let text = container.request[self.words.text].as_str().unwrap_or_default().to_owned();
        if container.request["media_type"] == "STORIES" {
            state.stories.push(id.clone());
        }
        state.published.push((id.clone(), text));
        ResponseTemplate::new(200).set_body_json(json!({ "id": id }))
    }

    fn create(&self, state: &mut State, body: Value) -> ResponseTemplate {
        for child in body["children"].as_str().into_iter().flat_map(|children| children.split(',')) {
            match state.containers.get(child) {
                Some(container) if container.status == "IN_PROGRESS" && container.request["video_url"].is_string() => {
                    return error(400, 9007, Some(2_207_027), "Media ID is not available");
                }
                Some(container) if container.status != "EXPIRED" => {}
                _ => return error(400, 24, Some(2_207_006), "The requested resource does not exist"),
            }
        }
        let id = format!("{}", 100 + state.containers.len());
        let status = if state.polls == 0 { "FINISHED" } else { "IN_PROGRESS" };
        let polls = state.polls;
        let reason = "Error: Media upload has failed with error code 2207082";
        state.containers.insert(id.clone(), Container { request: body, status, polls, reason, post: None });
        ResponseTemplate::new(200).set_body_json(json!({ "id": id }))
    }

    fn status(&self, state: &mut State, id: &str) -> ResponseTemplate {
        let Some(container) = state.containers.get_mut(id) else {
            if state.published.iter().any(|(post, _)| post == id) {
                let permalink = format!("https://www.example/p/{id}/");
                return ResponseTemplate::new(200).set_body_json(json!({ "id": id, "permalink": permalink }));
            }
            return error(400, 100, Some(33), "Unsupported get request. Object does not exist");
        };
        if container.status == "IN_PROGRESS" {
            match container.polls {
                0 => container.status = "FINISHED",
                _ => container.polls -= 1,
            }
        }
        let mut body = json!({ "id": id, self.words.status: container.status });
        if container.status == "ERROR" {
            body[self.words.reason] = json!(container.reason);
        }
        ResponseTemplate::new(200).set_body_json(body)
    }

    fn list(&self, state: &State, are_stories: bool) -> ResponseTemplate {
        let listed = state.published.iter().rev().filter(|(id, _)| state.stories.contains(id) == are_stories);
        let shown = listed.map(|(id, text)| {
            json!({
                "id": id, self.words.text: text, "timestamp": state.now,
                "permalink": format!("https://www.example/p/{id}/"),
            })
        });
        ResponseTemplate::new(200).set_body_json(json!({ "data": shown.collect::<Vec<_>>() }))
    }

    fn call(&self, state: &mut State, request: &Request, path: &str) -> ResponseTemplate {
        let Some((account, edge)) = path.split_once('/') else { return self.status(state, path) };
        assert_eq!(account, ACCOUNT);
        let words = self.words;
        match (request.method.as_str(), edge) {
            ("POST", edge) if edge == words.publish => self.publish(state, &request.body),
            ("POST", edge) if edge == words.create => self.create(state, request.body_json().unwrap()),
            ("GET", edge) if edge == words.create => self.list(state, false),
            ("GET", "stories") => self.list(state, true),
            ("GET", edge) if edge == words.quota => ResponseTemplate::new(200).set_body_json(json!({
                "data": [{ "quota_usage": state.quota_usage, "config": { "quota_total": 100, "quota_duration": 86_400 } }],
            })),
            other => panic!("no such call: {other:?}"),
        }
    }
}

impl Respond for ContainerServer {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let query: BTreeMap<String, String> = request.url.query_pairs().into_owned().collect();
        let path = request.url.path().trim_start_matches('/').to_owned();
        match path.as_str() {
            "oauth/access_token" => {
                return match self.oauth.grant(request, &parts(request)) {
                    Ok(tokens) => ResponseTemplate::new(200).set_body_json(tokens),
                    Err(_) => error(400, 100, Some(36_009), "This authorization code has been used."),
                };
            }
            "access_token" | "refresh_access_token" => {
                let response = self.long_lived(&query);
                self.state.lock().unwrap().requests.push(format!("{} {path}", request.method));
                return response;
            }
            _ => {}
        }
        let path = path.strip_prefix(self.words.version).expect("the version").trim_start_matches('/').to_owned();
        if !self.oauth.knows(&bearer(request)) {
            return error(400, 190, Some(460), "The session has been invalidated");
        }
        if path == "me" {
            return ResponseTemplate::new(200).set_body_json((self.words.profile)());
        }
        if path == ACCOUNT {
            // The metrics of the account, which Crier also requests.
            return ResponseTemplate::new(200).set_body_json(json!({ "id": ACCOUNT, "followers_count": 7 }));
        }
        let edge = path.split_once('/').map_or("{}", |(_, edge)| edge).to_owned();
        let requests_field = |field: &str| query.get("fields").is_some_and(|fields| fields.contains(field));
        // The inbox, which Crier also requests. The account has no permissions for it.
        if matches!(edge.as_str(), "conversations" | "mentions")
            || requests_field("comments")
            || requests_field("has_replies")
        {
            return error(400, 10, None, "Application does not have permission for this action");
        }
        let mut state = self.state.lock().unwrap();
        let number = state.requests.len();
        state.requests.push(format!("{} {edge}", request.method));
        let scripted = state.scripted.get_mut(&edge).and_then(VecDeque::pop_front);
        let response = scripted.unwrap_or_else(|| self.call(&mut state, request, &path));
        let call = format!("{} {edge}", request.method);
        if state.hangs_at == Some(number) {
            self.hangs.at(&[&call]);
        }
        self.hangs.respond(&call, response)
    }
}
