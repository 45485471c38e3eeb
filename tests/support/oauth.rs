//! The part of an OAuth server that all fakes share: consent, codes that work once, PKCE, tokens, refresh tokens that
//! rotate. It answers as RFC 6749 and RFC 7636 say.

#![allow(dead_code, clippy::unwrap_used, reason = "a part of the tests uses a part of it")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::Url;
use wiremock::{Request, ResponseTemplate};

/// What a person agreed to.
#[derive(Clone, Debug)]
pub struct Consent {
    pub client_id: String,
    pub redirect_uri: String,
    pub scope: String,
    challenge: Option<String>,
}

/// How tokens look.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenRules {
    /// The life of an access token, in seconds.
    pub expires_in: Option<u64>,
    /// A refresh token is given, and replaced at each use.
    pub refreshes: bool,
    /// A used refresh token stays valid until the one that replaced it is used.
    pub keeps_previous: bool,
}

#[derive(Default)]
struct State {
    clients: BTreeMap<String, String>,
    codes: BTreeMap<String, Consent>,
    tokens: BTreeMap<String, String>,
    refresh_tokens: BTreeMap<String, String>,
    /// The refresh token that each one replaced.
    replaced: BTreeMap<String, String>,
    refreshes: usize,
    /// Granted in place of what was asked for.
    granted: Option<String>,
    /// Refresh tokens are given no more, as by platforms that give one with the first consent only.
    no_refresh_tokens: bool,
    /// The same application gets the same token again, as at Mastodon.
    reuses_tokens: bool,
    count: usize,
}

/// The server.
#[derive(Default)]
pub struct OAuthServer {
    rules: TokenRules,
    state: Mutex<State>,
}

/// Parses a form.
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

    /// Forgets all applications, as a server that cleans up.
    pub fn forget_clients(&self) {
        self.state.lock().unwrap().clients.clear();
    }

    /// Grants these scopes in place of those that are asked for.
    pub fn set_granted_scopes(&self, scope: &str) {
        self.state.lock().unwrap().granted = Some(scope.to_owned());
    }

    pub fn reuse_tokens(&self) {
        self.state.lock().unwrap().reuses_tokens = true;
    }

    pub fn stop_refresh_tokens(&self) {
        self.state.lock().unwrap().no_refresh_tokens = true;
    }

    /// The person agrees at the authorization page; returns the address to which the browser is sent back.
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

    /// Ends all access tokens, as when their time is over.
    pub fn expire_tokens(&self) {
        self.state.lock().unwrap().tokens.clear();
    }

    /// Returns how often a refresh token was sent.
    pub fn refreshes(&self) -> usize {
        self.state.lock().unwrap().refreshes
    }

    pub fn revoke(&self, token: &str) {
        self.state.lock().unwrap().tokens.remove(token);
    }

    /// Answers at the token endpoint.
    pub fn token(&self, request: &Request) -> ResponseTemplate {
        match self.grant(request, &form(request)) {
            Ok(tokens) => ResponseTemplate::new(200).set_body_json(tokens),
            Err((status, code)) => error(status, code),
        }
    }

    /// Returns the tokens for a form, or the status and the code of a refusal.
    pub fn grant(&self, request: &Request, form: &BTreeMap<String, String>) -> Result<Value, (u16, &'static str)> {
        let (id, secret) = client_credentials(request, form);
        let mut state = self.state.lock().unwrap();
        if state.clients.get(&id) != Some(&secret) {
            return Err((401, "invalid_client"));
        }
        let scope = match form["grant_type"].as_str() {
            // GoToSocial and Mastodon's documentation want the address here as well.
            "client_credentials" if !form.contains_key("redirect_uri") => return Err((400, "invalid_request")),
            "client_credentials" => {
                let scope = form.get("scope").cloned().unwrap_or_default();
                return Ok(json!({ "access_token": "of-the-application", "token_type": "Bearer", "scope": scope }));
            }
            "authorization_code" => match state.codes.remove(&form["code"]) {
                Some(consent) if consent.client_id == id && is_same_person(&consent, form) => consent.scope,
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

    /// Returns the scope of a refresh token that is used now.
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

fn is_same_person(consent: &Consent, form: &BTreeMap<String, String>) -> bool {
    let verified = match (&consent.challenge, form.get("code_verifier")) {
        (None, None) => true,
        (Some(challenge), Some(verifier)) => *challenge == URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes())),
        _ => false,
    };
    verified && form.get("redirect_uri") == Some(&consent.redirect_uri)
}

/// The application's id and secret: from `Authorization: Basic`, else from the form.
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

/// The bearer token of a request.
pub fn bearer(request: &Request) -> String {
    let header = request.headers.get("authorization").and_then(|value| value.to_str().ok());
    header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default().to_owned()
}
