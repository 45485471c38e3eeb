//! A fake of LinkedIn's versioned API, for members and for pages of organizations, as its documentation describes it.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::oauth::{OAuthServer, TokenRules, bearer};

/// The creation time of posts, in Unix milliseconds.
pub const MADE_AT: i64 = 1_772_366_405_000;

#[derive(Clone)]
pub struct Linkedin {
    pub oauth: Arc<OAuthServer>,
    pub posts: Arc<Mutex<Vec<Value>>>,
    /// The owner of each upload.
    pub owners: Arc<Mutex<Vec<String>>>,
    pub images: Arc<Mutex<Vec<String>>>,
    /// Responses to the next calls below `/rest`, the last one first.
    pub scripted: Arc<Mutex<Vec<ResponseTemplate>>>,
    /// The base URL of the server, for uploads.
    pub base: Arc<Mutex<String>>,
    /// The roles of the member: the id of the organization, and the role.
    roles: Arc<Vec<(u64, &'static str)>>,
    /// The queries of all look-ups.
    pub lookups: Arc<Mutex<Vec<String>>>,
}

impl Linkedin {
    pub async fn start(roles: &[(u64, &'static str)]) -> (Self, MockServer) {
        let rules = TokenRules { expires_in: Some(5_184_000), refreshes: false, ..TokenRules::default() };
        let fake = Self {
            oauth: Arc::new(OAuthServer::new(rules)),
            posts: Arc::default(),
            owners: Arc::default(),
            images: Arc::default(),
            scripted: Arc::default(),
            base: Arc::default(),
            roles: Arc::new(roles.to_vec()),
            lookups: Arc::default(),
        };
        fake.oauth.add_client("id", "secret");
        fake.oauth.add_token("access-0");
        let server = MockServer::start().await;
        *fake.base.lock().unwrap() = server.uri();
        Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
        (fake, server)
    }

    /// Returns a page of the organizations in which the member has a role.
    fn acls(&self, request: &Request) -> ResponseTemplate {
        let query: std::collections::BTreeMap<_, _> = request.url.query_pairs().into_owned().collect();
        assert_eq!((query["q"].as_str(), query["state"].as_str()), ("roleAssignee", "APPROVED"));
        let (start, count) = (query["start"].parse().unwrap(), query["count"].parse().unwrap());
        let element = |(id, role): &(u64, &str)| {
            let urn = format!("urn:li:organization:{id}");
            json!({ "role": role, "organization": urn, "roleAssignee": "urn:li:person:x", "state": "APPROVED" })
        };
        let elements: Vec<Value> = self.roles.iter().skip(start).take(count).map(element).collect();
        response(200, json!({ "elements": elements, "paging": { "start": start, "count": count } }))
    }

    fn lookup(&self, request: &Request) -> ResponseTemplate {
        let query = request.url.query().unwrap().to_owned();
        let ids = query.strip_prefix("ids=List(").and_then(|rest| rest.strip_suffix(')')).expect("a list of ids");
        let of = |id: &str| {
            let body = json!({ "id": id.parse::<u64>().unwrap(), "localizedName": format!("Organisation {id}"),
                "vanityName": format!("org-{id}") });
            (id.to_owned(), body)
        };
        let results: serde_json::Map<String, Value> = ids.split(',').map(of).collect();
        self.lookups.lock().unwrap().push(query.clone());
        response(200, json!({ "results": results, "statuses": {}, "errors": {} }))
    }

    fn newest(&self, request: &Request) -> ResponseTemplate {
        let finder = request.headers.get("x-restli-method").and_then(|value| value.to_str().ok());
        assert_eq!(finder, Some("FINDER"));
        let query: std::collections::BTreeMap<_, _> = request.url.query_pairs().into_owned().collect();
        assert_eq!(query["q"], "author");
        let posts = self.posts.lock().unwrap();
        let numbered = (1..).zip(posts.iter()).filter(|(_, post)| post["author"] == json!(query["author"]));
        let element = |(number, post): (usize, &Value)| {
            json!({ "id": format!("urn:li:share:{number}"), "author": post["author"], "createdAt": MADE_AT,
                "commentary": post["commentary"], "publishedAt": MADE_AT, "lifecycleState": "PUBLISHED" })
        };
        let mut elements: Vec<Value> = numbered.map(element).collect();
        elements.reverse();
        response(200, json!({ "elements": elements }))
    }
}

fn response(status: u16, body: Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

impl Respond for Linkedin {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let path = request.url.path();
        if path == "/oauth/v2/accessToken" {
            return self.oauth.token(request);
        }
        if !self.oauth.knows(&bearer(request)) {
            let body = json!({ "status": 401, "serviceErrorCode": 65_602, "message": "The token has expired" });
            return response(401, body);
        }
        if path.starts_with("/rest/") {
            let version = request.headers.get("linkedin-version").and_then(|v| v.to_str().ok());
            assert_eq!(version, Some("202607"));
            if path != "/rest/images"
                && let Some(response) = self.scripted.lock().unwrap().pop()
            {
                return response;
            }
        }
        match (request.method.as_str(), path) {
            ("GET", "/v2/userinfo") => {
                response(200, json!({ "sub": "782bbtaQ", "name": "Ann Baker", "picture": "https://p.example/a.png" }))
            }
            ("GET", "/rest/organizationAcls") => self.acls(request),
            ("GET", "/rest/organizationsLookup") => self.lookup(request),
            ("POST", "/rest/images") => {
                assert_eq!(request.url.query(), Some("action=initializeUpload"));
                let body: Value = request.body_json().unwrap();
                let owner = body["initializeUploadRequest"]["owner"].as_str().unwrap().to_owned();
                self.owners.lock().unwrap().push(owner);
                let number = self.images.lock().unwrap().len();
                let base = self.base.lock().unwrap().clone();
                let value = json!({
                    "uploadUrl": format!("{base}/upload/{number}"), "image": format!("urn:li:image:{number}"),
                });
                response(200, json!({ "value": value }))
            }
            ("PUT", _) => {
                self.images.lock().unwrap().push(String::from_utf8_lossy(&request.body).into_owned());
                ResponseTemplate::new(201)
            }
            ("GET", "/rest/posts") => self.newest(request),
            ("POST", "/rest/posts") => {
                let mut posts = self.posts.lock().unwrap();
                posts.push(request.body_json().unwrap());
                ResponseTemplate::new(201).insert_header("x-restli-id", format!("urn:li:share:{}", posts.len()))
            }
            other => panic!("no such call: {other:?}"),
        }
    }
}
