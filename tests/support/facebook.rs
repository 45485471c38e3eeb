//! A fake Graph API with Facebook pages, as Meta's documentation and SDK describe it.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use url::Url;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::oauth::{OAuthServer, TokenRules, bearer, form};

/// A post on the page.
#[derive(Clone, Debug)]
pub struct Posted {
    pub body: Value,
    created_time: String,
}

#[derive(Default)]
struct State {
    pages: Vec<(String, String)>,
    /// The id and name of the Instagram account that is linked to a page, by the page's id.
    instagram: BTreeMap<String, (String, String)>,
    declined: Vec<String>,
    posts: Vec<Posted>,
    /// The bodies of uploaded photos.
    photos: Vec<String>,
    scripted: VecDeque<ResponseTemplate>,
    requests: Vec<String>,
    now: String,
}

#[derive(Clone)]
pub struct Facebook {
    pub oauth: Arc<OAuthServer>,
    state: Arc<Mutex<State>>,
}

/// Returns an error response of the Graph API.
pub fn error(status: u16, code: i64, subcode: Option<i64>, message: &str) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(json!({
        "error": { "message": message, "type": "OAuthException", "code": code, "error_subcode": subcode, "fbtrace_id": "x" },
    }))
}

/// Returns the error of a call for an object that does not exist or may not be seen.
pub fn no_such_object() -> ResponseTemplate {
    let message = "Unsupported request. Object with ID does not exist, cannot be loaded due to missing permissions, or \
                   does not support this operation.";
    error(400, 100, Some(33), message)
}

impl Facebook {
    /// Starts an API with these pages, whose clock is fixed at `now` (`2026-03-01T12:00:05+0000`).
    pub async fn start(now: &str, pages: &[(&str, &str)]) -> (Self, MockServer) {
        let pages = pages.iter().map(|(id, name)| ((*id).to_owned(), (*name).to_owned())).collect();
        let rules = TokenRules { expires_in: Some(3_600), refreshes: false, ..TokenRules::default() };
        let this = Self {
            oauth: Arc::new(OAuthServer::new(rules)),
            state: Arc::new(Mutex::new(State { pages, now: now.to_owned(), ..State::default() })),
        };
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(this.clone()).mount(&server).await;
        (this, server)
    }

    /// Links an Instagram account to a page.
    pub fn link_instagram(&self, page: &str, id: &str, username: &str) {
        let account = (id.to_owned(), username.to_owned());
        self.state.lock().unwrap().instagram.insert(page.to_owned(), account);
    }

    /// Makes the user decline these permissions.
    pub fn declines(&self, permissions: &[&str]) {
        self.state.lock().unwrap().declined = permissions.iter().map(|one| (*one).to_owned()).collect();
    }

    /// Sets the response to the next call for a page.
    pub fn script(&self, response: ResponseTemplate) {
        self.state.lock().unwrap().scripted.push_back(response);
    }

    pub fn posts(&self) -> Vec<Posted> {
        self.state.lock().unwrap().posts.clone()
    }

    pub fn photos(&self) -> Vec<String> {
        self.state.lock().unwrap().photos.clone()
    }

    /// Returns the URLs of all calls.
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    pub fn agree(&self, authorize_url: &Url) -> Url {
        assert_eq!(authorize_url.path(), "/v25.0/dialog/oauth");
        self.oauth.agree(authorize_url)
    }

    fn list_pages(&self, request: &Request) -> ResponseTemplate {
        let query: BTreeMap<String, String> = request.url.query_pairs().into_owned().collect();
        let state = self.state.lock().unwrap();
        let start: usize = query.get("after").map_or(0, |after| after.parse().unwrap());
        let end = (start + 2).min(state.pages.len());
        let shown = &state.pages[start..end];
        let listed = |(id, name): &(String, String)| {
            let mut page = json!({ "id": id, "name": name, "tasks": ["MANAGE"] });
            if query["fields"].contains("instagram_business_account")
                && let Some((id, username)) = state.instagram.get(id)
            {
                page["instagram_business_account"] = json!({ "id": id, "username": username });
            }
            page
        };
        let data: Vec<Value> = shown.iter().map(listed).collect();
        let mut paging = json!({ "cursors": { "after": end.to_string() } });
        if end < state.pages.len() {
            paging["next"] = json!("https://graph.facebook.com/me/accounts?access_token=leaked");
        }
        ResponseTemplate::new(200).set_body_json(json!({ "data": data, "paging": paging }))
    }
}

impl Respond for Facebook {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let path = request.url.path().strip_prefix("/v25.0/").expect("the version").to_owned();
        self.state.lock().unwrap().requests.push(request.url.to_string());
        let response = |body: Value| ResponseTemplate::new(200).set_body_json(body);
        if path == "oauth/access_token" {
            let form = form(request);
            if form["grant_type"] == "fb_exchange_token" {
                assert!(self.oauth.knows(&form["fb_exchange_token"]));
                self.oauth.add_token("person-60-days");
                return response(json!({ "access_token": "person-60-days", "expires_in": 5_184_000 }));
            }
            return self.oauth.token(request);
        }
        if !self.oauth.knows(&bearer(request)) {
            return error(
                400,
                190,
                Some(460),
                "The session has been invalidated because the user changed the password.",
            );
        }
        let proof = request.url.query_pairs().find(|(name, _)| name == "appsecret_proof");
        assert!(proof.is_some_and(|(_, proof)| proof.len() == 64), "the proof is sent");
        if path == "me/accounts" {
            return self.list_pages(request);
        }
        let mut state = self.state.lock().unwrap();
        if path == "me/permissions" {
            let all = [
                "pages_show_list",
                "pages_manage_posts",
                "pages_read_engagement",
                "business_management",
                "instagram_basic",
                "instagram_content_publish",
            ];
            let status = |name: &str| if state.declined.iter().any(|d| d == name) { "declined" } else { "granted" };
            let data: Vec<Value> =
                all.iter().map(|name| json!({ "permission": name, "status": status(name) })).collect();
            return response(json!({ "data": data }));
        }
        if let Some(scripted) = state.scripted.pop_front() {
            return scripted;
        }
        match (request.method.as_str(), path.split_once('/')) {
            ("GET", None) => {
                let (id, name) = state.pages.iter().find(|(id, _)| *id == path).expect("a page").clone();
                let instagram = state.instagram.get(&id).cloned();
                drop(state);
                self.oauth.add_token(&format!("page-{id}"));
                let mut page = json!({
                    "id": id, "name": name, "link": format!("https://www.facebook.com/{id}"),
                    "access_token": format!("page-{id}"), "picture": { "data": { "url": "https://p.example/p.png" } },
                });
                if let Some((id, username)) = instagram {
                    page["instagram_business_account"] =
                        json!({ "id": id, "username": username, "name": "The Bakery" });
                }
                response(page)
            }
            ("POST", Some((_, "photos"))) => {
                let body = String::from_utf8_lossy(&request.body).into_owned();
                state.photos.push(body);
                response(json!({ "id": (500 + state.photos.len()).to_string() }))
            }
            ("POST", Some((page, "feed"))) => {
                let created_time = state.now.clone();
                state.posts.push(Posted { body: request.body_json().unwrap(), created_time });
                response(json!({ "id": format!("{page}_{}", state.posts.len()) }))
            }
            ("GET", Some((page, "published_posts"))) => {
                let posts = state.posts.iter().enumerate().rev().map(|(index, post)| {
                    let id = format!("{page}_{}", index + 1);
                    json!({
                        "id": id, "message": post.body["message"], "created_time": post.created_time,
                        "permalink_url": format!("https://www.facebook.com/{id}/permalink"),
                    })
                });
                response(json!({ "data": posts.collect::<Vec<_>>() }))
            }
            other => panic!("no such call: {other:?}"),
        }
    }
}
