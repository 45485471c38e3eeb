//! The OAuth server that the fake platforms share: consent, single-use codes, PKCE, tokens, and refresh tokens that
//! rotate. It follows RFC 6749 and RFC 7636.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::Url;
use wiremock::{Request, ResponseTemplate};

/// The consent of a user.
#[derive(Clone, Debug)]
pub struct Consent {
    pub client_id: String,
    pub redirect_uri: String,
    pub scope: String,
    challenge: Option<String>,
}

/// The properties of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenRules {
    /// The lifetime of an access token, in seconds.
    pub expires_in: Option<u64>,
    /// Whether responses have a refresh token, which each use replaces.
    pub refreshes: bool,
    /// Whether a used refresh token stays valid until its replacement is used.
    pub keeps_previous: bool,
}

#[derive(Default)]
struct State {
    clients: BTreeMap<String, String>,
    codes: BTreeMap<String, Consent>,
    tokens: BTreeMap<String, String>,
    refresh_tokens: BTreeMap<String, String>,
    /// The refresh token that each refresh token replaced.
    replaced: BTreeMap<String, String>,
    refreshes: usize,
    /// The scopes that are granted instead of the requested ones.
    granted: Option<String>,
    /// Whether responses omit the refresh token, as on platforms that return one only after the first consent.
    no_refresh_tokens: bool,
    /// Whether an application always gets the same token, as on Mastodon.
    reuses_tokens: bool,
    count: usize,
}

/// An OAuth server.
#[derive(Default)]
pub struct OAuthServer {
    rules: TokenRules,
    state: Mutex<State>,
}

/// Returns the fields of a form.
pub fn form(request: &Request) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(&request.body).into_owned().collect()
}

pub fn error(status: u16, code: &str) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(json!({ "error": code, "error_description": format!("It is {code}.") }))
}

impl OAuthServer {
    pub fn new(rules: TokenRules) -> Self {
        Self { rules, state: Mutex::default() }
    }

    pub fn add_client(&self, id: &str, secret: &str) {
        self.state.lock().unwrap().clients.insert(id.to_owned(), secret.to_owned());
    }

    /// Deletes all applications, as a server does that cleans up.
    pub fn forget_clients(&self) {
        self.state.lock().unwrap().clients.clear();
    }

    /// Grants these scopes instead of the requested ones.
    pub fn set_granted_scopes(&self, scope: &str) {
        self.state.lock().unwrap().granted = Some(scope.to_owned());
    }

    pub fn reuse_tokens(&self) {
        self.state.lock().unwrap().reuses_tokens = true;
    }

    pub fn stop_refresh_tokens(&self) {
        self.state.lock().unwrap().no_refresh_tokens = true;
    }

    /// Grants the consent of the user on the authorization page. Returns the URL to which the server redirects the
    /// browser.
    pub fn agree(&self, authorize_url: &Url) -> Url {
        let query: BTreeMap<String, String> = authorize_url.query_pairs().into_owned().collect();
        let mut state = self.state.lock().unwrap();
        assert_eq!(query["response_type"], "code");
        assert!(state.clients.contains_key(&query["client_id"]), "the application is registered");
        if query.contains_key("code_challenge") {
            assert_eq!(query["code_challenge_method"], "S256");
        }
        state.count += 1;
        let code = format!("code-{}", state.count);
        let consent = Consent {
            client_id: query["client_id"].clone(),
            redirect_uri: query["redirect_uri"].clone(),
            scope: state.granted.clone().unwrap_or_else(|| query["scope"].clone()),
            challenge: query.get("code_challenge").cloned(),
        };
        state.codes.insert(code.clone(), consent);
        let mut back = Url::parse(&query["redirect_uri"]).unwrap();
        back.query_pairs_mut().append_pair("code", &code).append_pair("state", &query["state"]);
        back
    }

    /// Returns whether an access token is valid.
    pub fn knows(&self, token: &str) -> bool {
        self.state.lock().unwrap().tokens.contains_key(token)
    }

    /// Makes an access token valid.
    pub fn add_token(&self, token: &str) {
        self.state.lock().unwrap().tokens.insert(token.to_owned(), String::new());
    }

    /// Makes a refresh token valid.
    pub fn add_refresh_token(&self, token: &str) {
        self.state.lock().unwrap().refresh_tokens.insert(token.to_owned(), String::new());
    }

    /// Returns whether a refresh token is valid.
    pub fn knows_refresh_token(&self, token: &str) -> bool {
        self.state.lock().unwrap().refresh_tokens.contains_key(token)
    }

    /// Makes all access tokens invalid, as if they had expired.
    pub fn expire_tokens(&self) {
        self.state.lock().unwrap().tokens.clear();
    }

    /// Returns the number of refresh requests.
    pub fn refreshes(&self) -> usize {
        self.state.lock().unwrap().refreshes
    }

    pub fn revoke(&self, token: &str) {
        self.state.lock().unwrap().tokens.remove(token);
    }

    /// Responds at the token endpoint.
    pub fn token(&self, request: &Request) -> ResponseTemplate {
        match self.grant(request, &form(request)) {
            Ok(tokens) => ResponseTemplate::new(200).set_body_json(tokens),
            Err((status, code)) => error(status, code),
        }
    }

    /// Returns the tokens for a form, or the status and the code of an error.
    pub fn grant(&self, request: &Request, form: &BTreeMap<String, String>) -> Result<Value, (u16, &'static str)> {
        let (id, secret) = client_credentials(request, form);
        let mut state = self.state.lock().unwrap();
        if state.clients.get(&id) != Some(&secret) {
            return Err((401, "invalid_client"));
        }
        let scope = match form["grant_type"].as_str() {
            // GoToSocial and Mastodon's documentation require the redirect URI here too.
            "client_credentials" if !form.contains_key("redirect_uri") => return Err((400, "invalid_request")),
            "client_credentials" => {
                let scope = form.get("scope").cloned().unwrap_or_default();
                return Ok(json!({ "access_token": "of-the-application", "token_type": "Bearer", "scope": scope }));
            }
            "authorization_code" => match state.codes.remove(&form["code"]) {
                Some(consent) if consent.client_id == id && matches_consent(&consent, form) => consent.scope,
                _ => return Err((400, "invalid_grant")),
            },
            "refresh_token" => self.use_refresh_token(&mut state, &form["refresh_token"])?,
            _ => return Err((400, "unsupported_grant_type")),
        };
        state.count += 1;
        let token = match state.reuses_tokens {
            true => format!("access-of-{id}"),
            false => format!("access-{}", state.count),
        };
        state.tokens.insert(token.clone(), scope.clone());
        let mut body = json!({ "access_token": token, "token_type": "Bearer", "scope": scope });
        if let Some(seconds) = self.rules.expires_in {
            body["expires_in"] = Value::from(seconds);
        }
        if self.rules.refreshes && !state.no_refresh_tokens {
            let refresh = format!("refresh-{}", state.count);
            if let Some(used) = form.get("refresh_token") {
                state.replaced.insert(refresh.clone(), used.clone());
            }
            state.refresh_tokens.insert(refresh.clone(), scope);
            body["refresh_token"] = Value::from(refresh);
        }
        Ok(body)
    }

    /// Uses a refresh token, and returns its scope.
    fn use_refresh_token(&self, state: &mut State, token: &str) -> Result<String, (u16, &'static str)> {
        state.refreshes += 1;
        if let Some(previous) = state.replaced.remove(token) {
            state.refresh_tokens.remove(&previous);
        }
        let scope = match self.rules.keeps_previous {
            true => state.refresh_tokens.get(token).cloned(),
            false => state.refresh_tokens.remove(token),
        };
        scope.ok_or((400, "invalid_grant"))
    }
}

fn matches_consent(consent: &Consent, form: &BTreeMap<String, String>) -> bool {
    let verified = match (&consent.challenge, form.get("code_verifier")) {
        (None, None) => true,
        (Some(challenge), Some(verifier)) => *challenge == URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes())),
        _ => false,
    };
    verified && form.get("redirect_uri") == Some(&consent.redirect_uri)
}

/// Returns the application's id and secret, from `Authorization: Basic` or from the form.
fn client_credentials(request: &Request, form: &BTreeMap<String, String>) -> (String, String) {
    let basic = request.headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
    let field = |name: &str| form.get(name).cloned().unwrap_or_default();
    match basic {
        Some(encoded) => {
            let text = String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap();
            let (id, secret) = text.split_once(':').unwrap();
            let plain = |part: &str| {
                let pair = format!("x={part}");
                url::form_urlencoded::parse(pair.as_bytes()).next().unwrap().1.into_owned()
            };
            (plain(id), plain(secret))
        }
        None => (field("client_id"), field("client_secret")),
    }
}

/// Returns the bearer token of a request, or an empty string.
pub fn bearer(request: &Request) -> String {
    let header = request.headers.get("authorization").and_then(|value| value.to_str().ok());
    header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default().to_owned()
}
