//! The authorization server for agents, without the page on which the user decides: the tests take its place.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod documents;
mod flow;
mod grants;
mod registration;
mod threats;
mod tools;

use std::collections::BTreeMap;

use crier_domain::access::{Role, Scopes};
use crier_oauth::authorize::{self, AuthorizationRequest, AuthorizeError};
use crier_store::keys::Authenticated;
use crier_store::oauth::{self, grants::GrantRow};
use secrecy::SecretString;
use serde_json::{Value, json};
use url::Url;

use crate::support::app::{Tenant, TestApp};
use crate::support::request::Reply;

/// The example of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const REDIRECT: &str = "https://agent.example/callback";
const SCOPES: &str = "brands:read posts:read posts:write";
const REGISTER: &str = "/mcp/oauth/register";
const TOKEN: &str = "/mcp/oauth/token";
const REVOKE: &str = "/mcp/oauth/revoke";

/// The parameters of a form or of a query, by name.
type Fields<'a> = BTreeMap<&'a str, String>;

/// The tokens in a response.
#[derive(Debug)]
struct Tokens {
    access: String,
    refresh: String,
    scope: String,
}

impl Tokens {
    #[track_caller]
    fn of(reply: &Reply) -> Self {
        reply.assert_status(200);
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        let body = reply.json();
        assert_eq!((&body["token_type"], &body["expires_in"]), (&json!("Bearer"), &json!(3_600)));
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        let tokens = Self { access: text("access_token"), refresh: text("refresh_token"), scope: text("scope") };
        assert!(tokens.access.starts_with("svc_oat_") && tokens.refresh.starts_with("svc_ort_"), "{tokens:?}");
        tokens
    }
}

/// Asserts an error response of an endpoint for applications.
#[track_caller]
fn assert_error(reply: &Reply, code: &str) {
    reply.assert_status(400);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let body = reply.json();
    assert_eq!(body["error"], code, "{body}");
    assert!(body["error_description"].as_str().is_some_and(|text| text.len() > 10), "{body}");
}

async fn register_with(app: &TestApp, metadata: &Value) -> Reply {
    app.request_at_root("POST", &app.url, REGISTER).json(metadata).send().await
}

/// Registers an application with one redirect URI, and returns its ID.
async fn register(app: &TestApp, redirect_uri: &str) -> String {
    let reply = register_with(app, &json!({ "client_name": "Agent", "redirect_uris": [redirect_uri] })).await;
    reply.assert_status(201);
    reply.json()["client_id"].as_str().unwrap().to_owned()
}

fn encoded(fields: &Fields<'_>) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Returns the parameters of a valid authorization request.
fn request_of<'a>(app: &TestApp, client_id: &str) -> Fields<'a> {
    [
        ("response_type", "code".to_owned()),
        ("client_id", client_id.to_owned()),
        ("redirect_uri", REDIRECT.to_owned()),
        ("code_challenge", CHALLENGE.to_owned()),
        ("code_challenge_method", "S256".to_owned()),
        ("resource", resource(app)),
        ("scope", SCOPES.to_owned()),
        ("state", "a state & more".to_owned()),
    ]
    .into()
}

fn resource(app: &TestApp) -> String {
    format!("{}/mcp/oauth", app.url)
}

async fn check(app: &TestApp, fields: &Fields<'_>) -> Result<AuthorizationRequest, AuthorizeError> {
    authorize::check(&app.api, &encoded(fields)).await
}

/// Returns the parameters with which a user is redirected to the application.
#[track_caller]
fn redirected(url: &str) -> BTreeMap<String, String> {
    assert!(url.starts_with(REDIRECT), "{url}");
    Url::parse(url).unwrap().query_pairs().into_owned().collect()
}

/// What the user of a tenant allows.
#[derive(Clone, Copy, Default)]
struct Allowed<'a> {
    brands: Option<&'a [i64]>,
    role_limit: Option<Role>,
}

/// Allows an application what it requests, and returns its code.
async fn allow(t: &Tenant<'_>, client_id: &str, allowed: Allowed<'_>) -> String {
    let request = check(t.app, &request_of(t.app, client_id)).await.unwrap();
    let scopes = request.scopes.clone();
    let url = t
        .app
        .write(async |tx| {
            let Allowed { brands, role_limit } = allowed;
            authorize::grant(&t.app.api, tx, t.user, &request, &scopes, brands, role_limit).await
        })
        .await;
    let mut parameters = redirected(&url);
    assert_eq!(parameters["state"], "a state & more");
    assert_eq!(parameters["iss"], resource(t.app));
    parameters.remove("code").unwrap()
}

/// Returns the form with which an application exchanges a code.
fn exchange_of<'a>(app: &TestApp, client_id: &str, code: &str) -> Fields<'a> {
    [
        ("grant_type", "authorization_code".to_owned()),
        ("code", code.to_owned()),
        ("client_id", client_id.to_owned()),
        ("redirect_uri", REDIRECT.to_owned()),
        ("code_verifier", VERIFIER.to_owned()),
        ("resource", resource(app)),
    ]
    .into()
}

/// Sends a form to an endpoint for applications.
async fn send(app: &TestApp, path: &str, fields: &Fields<'_>) -> Reply {
    let request = app.request_at_root("POST", &app.url, path).raw(encoded(fields));
    request.header("content-type", "application/x-www-form-urlencoded").send().await
}

/// Registers an application, allows it access, and returns its ID and its tokens.
async fn connect(t: &Tenant<'_>, allowed: Allowed<'_>) -> (String, Tokens) {
    let client = register(t.app, REDIRECT).await;
    let code = allow(t, &client, allowed).await;
    let tokens = Tokens::of(&send(t.app, TOKEN, &exchange_of(t.app, &client, &code)).await);
    (client, tokens)
}

async fn refresh(app: &TestApp, client_id: &str, token: &str) -> Reply {
    let fields: Fields<'_> = [
        ("grant_type", "refresh_token".to_owned()),
        ("refresh_token", token.to_owned()),
        ("client_id", client_id.to_owned()),
    ]
    .into();
    send(app, TOKEN, &fields).await
}

async fn revoke(app: &TestApp, client_id: &str, token: &str) -> Reply {
    send(app, REVOKE, &[("token", token.to_owned()), ("client_id", client_id.to_owned())].into()).await
}

/// Returns the caller of an access token, as the MCP server finds it.
async fn caller(app: &TestApp, access: &str, brand: Option<i64>) -> Option<Authenticated> {
    let token = SecretString::from(access);
    let found = oauth::authenticate(&mut app.conn().await, &token, brand, None, app.now()).await.unwrap();
    found.map(|(authenticated, _)| authenticated)
}

async fn grants_of(t: &Tenant<'_>) -> Vec<GrantRow> {
    oauth::grants::list(&mut t.app.conn().await, t.user).await.unwrap()
}

async fn count_grants(app: &TestApp) -> i64 {
    app.count_rows("oauth_grants").await
}

fn scopes(list: &str) -> Scopes {
    list.replace(' ', ",").parse().unwrap()
}
