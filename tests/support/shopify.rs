//! A fake Shopify shop: the signed redirect from its consent page, tokens that expire and rotate, and the blogs and
//! articles of the Admin API, as shopify.dev describes them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use url::Url;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::hang::Hangs;
use super::oauth::{OAuthServer, TokenRules, form};

pub const SHOP: &str = "rye.myshopify.com";
pub const SECRET: &str = "secret";

#[derive(Default)]
struct State {
    /// The id and title of each blog.
    blogs: Vec<(String, String)>,
    articles: Vec<Value>,
    scripted: VecDeque<ResponseTemplate>,
    /// Whether the list of newest articles does not contain the posts, so that only the search finds them.
    buried: bool,
}

#[derive(Clone)]
pub struct Shopify {
    pub oauth: Arc<OAuthServer>,
    pub hangs: Arc<Hangs>,
    state: Arc<Mutex<State>>,
}

fn data(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({ "data": body }))
}

/// Returns an error in a response with status 200.
pub fn graphql_error(code: &str, extensions: Value) -> ResponseTemplate {
    let error = json!({ "message": format!("It is {code}"), "extensions": { "code": code } });
    ResponseTemplate::new(200).set_body_json(json!({ "data": null, "errors": [error], "extensions": extensions }))
}

/// Returns the response to an article that is rejected.
pub fn user_error(code: &str) -> ResponseTemplate {
    let error = json!({ "code": code, "field": ["article"], "message": format!("It is {code}") });
    data(json!({ "articleCreate": { "article": null, "userErrors": [error] } }))
}

pub fn blog_id(number: usize) -> String {
    format!("gid://shopify/Blog/{number}")
}

impl Shopify {
    pub async fn start(blogs: &[&str]) -> (Self, MockServer) {
        let blogs = (1..).zip(blogs).map(|(number, title)| (blog_id(number), (*title).to_owned())).collect();
        let rules = TokenRules { expires_in: Some(3_600), refreshes: true, keeps_previous: true };
        let this = Self {
            oauth: Arc::new(OAuthServer::new(rules)),
            hangs: Arc::default(),
            state: Arc::new(Mutex::new(State { blogs, ..State::default() })),
        };
        this.oauth.add_client("id", SECRET);
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(this.clone()).mount(&server).await;
        (this, server)
    }

    /// Sets the response to the next API call.
    pub fn script(&self, response: ResponseTemplate) {
        self.state.lock().unwrap().scripted.push_back(response);
    }

    pub fn articles(&self) -> Vec<Value> {
        self.state.lock().unwrap().articles.clone()
    }

    pub fn bury(&self) {
        self.state.lock().unwrap().buried = true;
    }

    /// Grants the consent of the user. Returns the signed URL to which the shop redirects the browser.
    pub fn agree(&self, authorize_url: &Url) -> Url {
        let mut back = self.oauth.agree(authorize_url);
        back.query_pairs_mut()
            .append_pair("shop", SHOP)
            .append_pair("timestamp", "1772366400")
            .append_pair("host", "YWRtaW4uc2hvcGlmeS5jb20vc3RvcmUvcnll");
        let mut pairs: Vec<(String, String)> = back.query_pairs().into_owned().collect();
        pairs.sort();
        let message = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
        mac.update(message.as_bytes());
        let signature: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        back.query_pairs_mut().append_pair("hmac", &signature);
        back
    }

    fn token(&self, request: &Request) -> ResponseTemplate {
        let form = form(request);
        match form["grant_type"].as_str() {
            "authorization_code" => assert_eq!(form["expiring"], "1"),
            _ if !self.oauth.knows_refresh_token(&form["refresh_token"]) => {
                return ResponseTemplate::new(401).set_body_json(json!({
                    "error": "invalid_request",
                    "error_description": "This request requires an active refresh_token",
                }));
            }
            _ => {}
        }
        self.hangs.respond(&form["grant_type"], self.oauth.token(request))
    }

    fn create(&self, article: &Value) -> ResponseTemplate {
        let mut state = self.state.lock().unwrap();
        if state.articles.iter().any(|there| there["handle"] == article["handle"]) {
            return user_error("TAKEN");
        }
        if !state.blogs.iter().any(|(id, _)| article["blogId"] == json!(id)) {
            return user_error("NOT_FOUND");
        }
        state.articles.push(article.clone());
        let number = state.articles.len();
        let created = json!({ "id": article_id(number), "handle": article["handle"], "blog": { "handle": "news" } });
        data(json!({ "articleCreate": { "article": created, "userErrors": [] } }))
    }

    fn find(&self, variables: &Value) -> ResponseTemplate {
        let state = self.state.lock().unwrap();
        let node = |(number, article): (usize, &Value)| json!({ "id": article_id(number), "handle": article["handle"], "blog": { "handle": "news" } });
        let of_blog = (1..).zip(&state.articles).filter(|(_, article)| article["blogId"] == variables["blog"]);
        let mut newest: Vec<Value> = of_blog.map(node).filter(|_| !state.buried).collect();
        newest.reverse();
        let (handle, blog) = variables["query"].as_str().unwrap().split_once(" AND ").unwrap();
        let wanted = |article: &Value| format!("handle:{}", article["handle"].as_str().unwrap()) == handle;
        let id = format!("gid://shopify/Blog/{}", blog.strip_prefix("blog_id:").unwrap());
        let found: Vec<Value> = (1..)
            .zip(&state.articles)
            .filter(|(_, article)| state.buried && wanted(article) && article["blogId"] == json!(id))
            .map(node)
            .collect();
        data(json!({ "blog": { "articles": { "nodes": newest } }, "articles": { "nodes": found } }))
    }

    /// Lists a hundred blogs per page. The cursor is the number of the last blog.
    fn list(&self, variables: &Value) -> ResponseTemplate {
        let state = self.state.lock().unwrap();
        let from: usize = variables["after"].as_str().map_or(0, |cursor| cursor.parse().unwrap());
        let end = (from + 100).min(state.blogs.len());
        let nodes: Vec<Value> = state.blogs[from..end]
            .iter()
            .map(|(id, title)| json!({ "id": id, "title": title, "handle": title.to_lowercase() }))
            .collect();
        let info = json!({ "hasNextPage": end < state.blogs.len(), "endCursor": end.to_string() });
        data(json!({ "blogs": { "nodes": nodes, "pageInfo": info } }))
    }

    fn chosen(&self, variables: &Value) -> ResponseTemplate {
        let state = self.state.lock().unwrap();
        let blog = state.blogs.iter().find(|(id, _)| variables["id"] == json!(id));
        let blog = blog.map(|(id, title)| json!({ "id": id, "title": title, "handle": title.to_lowercase() }));
        data(json!({
            "shop": { "name": "Rye & Co", "primaryDomain": { "url": "https://rye.example/" } }, "blog": blog,
        }))
    }
}

pub fn article_id(number: usize) -> String {
    format!("gid://shopify/Article/{number}")
}

impl Respond for Shopify {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        match (request.method.as_str(), request.url.path()) {
            ("POST", "/admin/oauth/access_token") => return self.token(request),
            ("POST", "/admin/api/2026-10/graphql.json") => {}
            other => panic!("no such call: {other:?}"),
        }
        let token = request.headers.get("x-shopify-access-token").and_then(|value| value.to_str().ok());
        if !self.oauth.knows(token.unwrap_or_default()) {
            let body =
                json!({ "errors": "[API] Invalid API key or access token (unrecognized login or wrong password)" });
            return ResponseTemplate::new(401).set_body_json(body);
        }
        if let Some(response) = self.state.lock().unwrap().scripted.pop_front() {
            return response;
        }
        let body: Value = request.body_json().unwrap();
        let (query, variables) = (body["query"].as_str().unwrap(), &body["variables"]);
        match query.trim_start().split(['(', ' ']).nth(1) {
            Some("Create") => self.create(&variables["article"]),
            Some("Find") => self.find(variables),
            Some("Blogs") => self.list(variables),
            Some("Chosen") => self.chosen(variables),
            Some("Shop") => data(json!({ "shop": { "name": "Rye & Co" } })),
            other => panic!("no such operation: {other:?}"),
        }
    }
}
