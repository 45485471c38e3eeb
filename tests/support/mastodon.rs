//! A Mastodon server, as docs.joinmastodon.org describes one of version 4.3 or later; with [`Switches`], a compatible
//! one that differs from it.

#![allow(clippy::result_large_err, reason = "a refusal is an answer of the fake server")]
#![allow(dead_code, clippy::unwrap_used, reason = "a part of the tests uses a part of it")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use url::Url;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::oauth::{OAuthServer, TokenRules, bearer, error, form};

/// A published status.
#[derive(Clone, Debug)]
pub struct Toot {
    pub id: String,
    pub text: String,
    pub media: Vec<String>,
    pub body: Value,
    created_at: String,
}

/// How a compatible server differs, and what goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Switches {
    /// Strips texts: white space at both ends, CRLF, more than one empty line.
    pub strips_texts: bool,
    /// Takes the same `Idempotency-Key` for another post.
    pub forgets_keys: bool,
    /// Shows no sources, so that only rendered texts can be read.
    pub has_no_sources: bool,
    /// The server's own limit of characters, which it tells.
    pub max_characters: Option<usize>,
    /// Publishes, and the answer is lost.
    pub loses_answers: bool,
    /// Loses posts before it publishes them.
    pub loses_posts: bool,
}

#[derive(Default)]
struct State {
    switches: Switches,
    toots: Vec<Toot>,
    by_key: BTreeMap<String, usize>,
    /// Uploaded pictures by id: the request's body.
    media: BTreeMap<String, String>,
    registrations: usize,
    /// Answers to the next calls of a path, in place of the usual ones.
    scripted: VecDeque<(String, ResponseTemplate)>,
    /// How the server answers for a picture: 200 unless a test says otherwise.
    media_status: Option<u16>,
    now: String,
    older: bool,
}

/// The server; clones share its state.
#[derive(Clone)]
pub struct Mastodon {
    pub oauth: Arc<OAuthServer>,
    state: Arc<Mutex<State>>,
    /// Its address, once it runs.
    base: Arc<Mutex<String>>,
}

pub struct RunningMastodon {
    pub fake: Mastodon,
    pub server: MockServer,
}

impl Mastodon {
    /// Starts a server whose clock stands at `now` (RFC 3339).
    pub async fn start(now: &str) -> RunningMastodon {
        let state = State { now: now.to_owned(), ..State::default() };
        let fake = Self {
            oauth: Arc::new(OAuthServer::new(TokenRules::default())),
            state: Arc::new(Mutex::new(state)),
            base: Arc::default(),
        };
        let server = MockServer::start().await;
        *fake.base.lock().unwrap() = server.uri();
        Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
        RunningMastodon { fake, server }
    }

    /// Answers the next call of a path with this.
    pub fn script(&self, path: &str, answer: ResponseTemplate) {
        self.state.lock().unwrap().scripted.push_back((path.to_owned(), answer));
    }

    pub fn set(&self, switches: Switches) {
        self.state.lock().unwrap().switches = switches;
    }

    /// Sets the server's clock (RFC 3339).
    pub fn set_now(&self, now: &str) {
        self.state.lock().unwrap().now = now.to_owned();
    }

    /// Publishes as a person does, with another application (or one that is not shown).
    pub fn publish_by_hand(&self, text: &str, application: Option<&str>) {
        let mut state = self.state.lock().unwrap();
        let (id, created_at) = (format!("{}", 1000 + state.toots.len()), state.now.clone());
        let body = json!({ "application": application });
        state.toots.push(Toot { id, text: text.to_owned(), media: Vec::new(), body, created_at });
    }

    /// Becomes a server before 4.3: no description of itself, no PKCE, no scope `profile`.
    pub fn set_older(&self) {
        self.state.lock().unwrap().older = true;
    }

    pub fn set_media_status(&self, status: u16) {
        self.state.lock().unwrap().media_status = Some(status);
    }

    pub fn toots(&self) -> Vec<Toot> {
        self.state.lock().unwrap().toots.clone()
    }

    pub fn media(&self) -> BTreeMap<String, String> {
        self.state.lock().unwrap().media.clone()
    }

    pub fn registrations(&self) -> usize {
        self.state.lock().unwrap().registrations
    }

    /// The person agrees; returns the address to which the browser is sent back.
    pub fn agree(&self, authorize_url: &Url) -> Url {
        assert_eq!(authorize_url.path(), "/oauth/authorize");
        self.oauth.agree(authorize_url)
    }

    fn account(&self, request: &Request) -> Result<Value, ResponseTemplate> {
        if !self.oauth.knows(&bearer(request)) {
            let body = json!({ "error": "The access token was revoked" });
            return Err(ResponseTemplate::new(401).set_body_json(body));
        }
        let base = self.base.lock().unwrap().clone();
        Ok(json!({
            "id": "23634", "username": "ann", "acct": "ann", "display_name": "Ann <b>",
            "url": format!("{base}/@ann"), "avatar": format!("{base}/ann.png"),
        }))
    }

    fn answer(&self, request: &Request) -> Result<ResponseTemplate, ResponseTemplate> {
        let path = request.url.path().to_owned();
        {
            let mut state = self.state.lock().unwrap();
            if state.scripted.front().is_some_and(|(scripted, _)| *scripted == path) {
                return Err(state.scripted.pop_front().unwrap().1);
            }
        }
        let json = |body: Value| Ok(ResponseTemplate::new(200).set_body_json(body));
        let base = self.base.lock().unwrap().clone();
        match (request.method.as_str(), path.as_str()) {
            ("GET", "/.well-known/oauth-authorization-server") if self.state.lock().unwrap().older => {
                Err(ResponseTemplate::new(404))
            }
            ("GET", "/.well-known/oauth-authorization-server") => json(json!({
                "issuer": format!("{base}/"),
                "authorization_endpoint": format!("{base}/oauth/authorize"),
                "token_endpoint": format!("{base}/oauth/token"),
                "scopes_supported": ["read", "write", "profile", "read:accounts", "read:statuses", "write:statuses"],
                "code_challenge_methods_supported": ["S256"],
            })),
            ("POST", "/api/v1/apps") => {
                let mut state = self.state.lock().unwrap();
                state.registrations += 1;
                let (id, secret) = (format!("app-{}", state.registrations), format!("shh-{}", state.registrations));
                self.oauth.add_client(&id, &secret);
                json(json!({ "id": "1", "name": "Crier", "client_id": id, "client_secret": secret }))
            }
            ("POST", "/oauth/token") => Ok(self.oauth.token(request)),
            ("POST", "/oauth/revoke") => {
                self.oauth.revoke(&form(request)["token"]);
                json(json!({}))
            }
            ("GET", "/api/v1/accounts/verify_credentials") => json(self.account(request)?),
            ("GET", "/api/v2/instance") => {
                let most = self.state.lock().unwrap().switches.max_characters.unwrap_or(500);
                json(json!({ "configuration": { "statuses": { "max_characters": most } } }))
            }
            ("POST", "/api/v2/media") => {
                self.account(request)?;
                let mut state = self.state.lock().unwrap();
                let id = format!("{}", 100 + state.media.len());
                state.media.insert(id.clone(), String::from_utf8_lossy(&request.body).into_owned());
                json(json!({ "id": id, "type": "image", "url": format!("{base}/{id}.png") }))
            }
            ("POST", "/api/v1/statuses") => self.publish(request),
            ("GET", "/api/v1/accounts/23634/statuses") => {
                self.account(request)?;
                let toots = self.state.lock().unwrap().toots.clone();
                json(Value::from(toots.iter().rev().map(|toot| self.shown(toot)).collect::<Vec<_>>()))
            }
            (_, path) if path.starts_with("/api/v1/media/") => {
                self.account(request)?;
                let status = self.state.lock().unwrap().media_status.unwrap_or(200);
                Ok(ResponseTemplate::new(status).set_body_json(json!({ "id": "100" })))
            }
            (_, path) if path.ends_with("/source") => {
                self.account(request)?;
                if self.state.lock().unwrap().switches.has_no_sources {
                    return Err(error(404, "Record not found"));
                }
                let toots = self.state.lock().unwrap().toots.clone();
                let toot = toots.iter().find(|toot| path == format!("/api/v1/statuses/{}/source", toot.id));
                let toot = toot.ok_or_else(|| error(404, "Record not found"))?;
                json(json!({ "id": toot.id, "text": toot.text, "spoiler_text": "" }))
            }
            other => panic!("no such call: {other:?}"),
        }
    }

    fn publish(&self, request: &Request) -> Result<ResponseTemplate, ResponseTemplate> {
        self.account(request)?;
        let body: Value = request.body_json().unwrap();
        let key = request.headers.get("idempotency-key").expect("a key").to_str().unwrap().to_owned();
        let mut text = body["status"].as_str().unwrap().to_owned();
        let mut state = self.state.lock().unwrap();
        let switches = state.switches;
        let most = switches.max_characters.unwrap_or(500);
        if text.chars().count() > most {
            let body = json!({ "error": format!("Validation failed: Text character limit of {most} exceeded") });
            return Err(ResponseTemplate::new(422).set_body_json(body));
        }
        if switches.loses_posts {
            return Err(ResponseTemplate::new(502));
        }
        if switches.strips_texts {
            text = stripped(&text);
        }
        let index = match state.by_key.get(&key) {
            Some(index) if !switches.forgets_keys => *index,
            _ => {
                let media = body["media_ids"].as_array().unwrap();
                let toot = Toot {
                    id: format!("{}", 1000 + state.toots.len()),
                    text,
                    media: media.iter().map(|id| id.as_str().unwrap().to_owned()).collect(),
                    body,
                    created_at: state.now.clone(),
                };
                state.toots.push(toot);
                let index = state.toots.len() - 1;
                state.by_key.insert(key, index);
                index
            }
        };
        let toot = state.toots[index].clone();
        drop(state);
        if switches.loses_answers {
            return Err(ResponseTemplate::new(502));
        }
        Ok(ResponseTemplate::new(200).set_body_json(self.shown(&toot)))
    }

    fn shown(&self, toot: &Toot) -> Value {
        let base = self.base.lock().unwrap().clone();
        let media: Vec<Value> = toot.media.iter().map(|id| json!({ "id": id })).collect();
        json!({
            "id": toot.id, "url": format!("{base}/@ann/{}", toot.id), "created_at": toot.created_at,
            "content": rendered(&toot.text), "media_attachments": media,
            "in_reply_to_id": toot.body.get("in_reply_to_id"),
            "application": match toot.body.get("application") {
                Some(by_hand) => by_hand.as_str().map(|name| json!({ "name": name })),
                None => Some(json!({ "name": "Crier", "website": null })),
            },
        })
    }
}

impl Respond for Mastodon {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let now: DateTime<Utc> = self.state.lock().unwrap().now.parse().unwrap();
        let date = now.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        self.answer(request).unwrap_or_else(|refusal| refusal).insert_header("date", date.as_str())
    }
}

fn stripped(text: &str) -> String {
    let mut text = text.replace("\r\n", "\n").trim().to_owned();
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text
}

fn rendered(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<p>{}</p>", escaped.replace("\r\n", "\n").replace("\n\n", "</p><p>").replace('\n', "<br />"))
}
