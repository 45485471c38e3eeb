//! `POST /mcp/oauth/token`: exchanges a code or a refresh token for new tokens.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use crier_endpoints::app::App;
use crier_endpoints::error::ApiError;
use crier_endpoints::limits::RateLimitSubject;
use crier_endpoints::runner::body;
use crier_store::oauth::codes;
use crier_store::oauth::tokens::{self, ACCESS_LIFETIME, Tokens};
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use salvo::{Depot, Request, Response, handler};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::authorize::parse_scopes;
use crate::error::{self, OAuthError, Result};
use crate::parameters::{MAX_BYTES, Parameters};
use crate::{resource, response};

/// The lengths of a code verifier (RFC 7636, 4.1).
const VERIFIER_LENGTHS: std::ops::RangeInclusive<usize> = 43..=128;
/// The maximum number of refreshes of a grant, per minute. An access token is valid for an hour.
const REFRESHES_PER_MINUTE: u32 = 10;

#[handler]
pub async fn handle(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = depot.get_typed::<Arc<App>>().ok().cloned() else { return };
    match exchange(&app, req).await {
        Ok(tokens) => response::secret_json(res, StatusCode::OK, &body_of(&tokens)),
        Err(error) => error::write(&app, req, res, error).await,
    }
}

fn body_of(tokens: &Tokens) -> Value {
    json!({
        "access_token": tokens.access.expose_secret(),
        "token_type": "Bearer",
        "expires_in": ACCESS_LIFETIME.num_seconds(),
        "refresh_token": tokens.refresh.expose_secret(),
        "scope": tokens.scopes.to_string().replace(',', " "),
    })
}

async fn exchange(app: &Arc<App>, req: &mut Request) -> Result<Tokens> {
    let form = read_form(app, req).await?;
    let resource = resource(app);
    if form.get("resource").is_some_and(|requested| requested != resource) {
        return Err(OAuthError::invalid_target(&resource));
    }
    match form.get("grant_type") {
        Some("authorization_code") => redeem_code(app, &form, &client_id(req, &form)?).await,
        Some("refresh_token") => refresh(app, &form, &client_id(req, &form)?).await,
        Some(_) => {
            let description = "`grant_type` must be `authorization_code` or `refresh_token`.";
            Err(OAuthError::new("unsupported_grant_type", description))
        }
        None => Err(OAuthError::invalid_request("`grant_type` is missing.")),
    }
}

/// Reads a form without repeated fields.
pub async fn read_form(app: &Arc<App>, req: &mut Request) -> Result<Parameters> {
    let kind = req.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let description = "Send the header `Content-Type: application/x-www-form-urlencoded`.";
        return Err(OAuthError::invalid_request(description));
    }
    let body = body::read_up_to(req, app.min_rate, MAX_BYTES).await?;
    let form = Parameters::parse(&body);
    if form.repeated().is_some() {
        return Err(OAuthError::invalid_request("A field of the form is repeated."));
    }
    Ok(form)
}

pub fn required<'f>(form: &'f Parameters, name: &str) -> Result<&'f str> {
    form.get(name).ok_or_else(|| OAuthError::invalid_request(format!("`{name}` is missing.")))
}

/// Returns the ID of the application: a field of the form, or the username of `Authorization: Basic` with an empty
/// password, which n8n sends when it refreshes the tokens of an application without a secret.
pub fn client_id(req: &Request, form: &Parameters) -> Result<String> {
    let basic = || {
        let header = req.headers().get(AUTHORIZATION)?.to_str().ok()?;
        let (scheme, encoded) = header.split_once(' ')?;
        let encoded = Some(encoded).filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
        let pair = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
        pair.strip_suffix(':').map(str::to_owned)
    };
    form.get("client_id")
        .map(str::to_owned)
        .or_else(basic)
        .ok_or_else(|| OAuthError::invalid_request("`client_id` is missing."))
}

async fn redeem_code(app: &Arc<App>, form: &Parameters, client_id: &str) -> Result<Tokens> {
    let (code, verifier) = (required(form, "code")?, required(form, "code_verifier")?);
    let invalid = || {
        OAuthError::invalid_grant(
            "The code is invalid, has expired, or belongs to another request. Start the authorization again.",
        )
    };
    // Anyone can send guesses, so they do not wait for the writers of the database, and these do not wait for them.
    if !codes::exists(&mut app.store.read().await?, code).await? {
        return Err(invalid());
    }
    let mut tx = app.store.begin().await?;
    let code = codes::find_and_lock(&mut tx, code).await?.ok_or_else(invalid)?;
    if let Some(grant_id) = code.grant_id {
        // Either the application or a thief used it first, so nobody keeps its tokens.
        tokens::revoke_grant(&mut tx, grant_id).await?;
        tx.commit().await?;
        tracing::warn!(grant_id, "an authorization code was used twice: its grant was revoked");
        return Err(OAuthError::invalid_grant(
            "The code was already used, so its tokens were revoked. Start the authorization again.",
        ));
    }
    // OAuth 2.1 omits the redirect URI, because the verifier already binds the code to its request.
    let is_same_redirect = form.get("redirect_uri").is_none_or(|uri| uri == code.redirect_uri);
    let is_valid = code.expires_at > tx.now && code.client_id == client_id && is_same_redirect;
    if !is_valid || !is_verifier_of(verifier, &code.code_challenge) {
        return Err(invalid());
    }
    let tokens = codes::redeem(&mut tx, &code).await?.ok_or_else(invalid)?;
    tx.commit().await?;
    Ok(tokens)
}

/// Returns whether a challenge was made of this verifier. The comparison of the hashes reveals nothing about the texts.
fn is_verifier_of(verifier: &str, challenge: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_well_formed = VERIFIER_LENGTHS.contains(&verifier.len()) && verifier.bytes().all(is_allowed);
    let computed = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier));
    is_well_formed && Sha256::digest(computed) == Sha256::digest(challenge)
}

fn invalid_refresh_token() -> OAuthError {
    OAuthError::invalid_grant("The refresh token is invalid, expired or revoked. Start the authorization again.")
}

/// Counts a refresh against the limit of its grant, before the transaction, which locks the user and writes. The client's
/// address has no part in it, because all users of a hosted application share its addresses. Fails if the token does not
/// exist.
async fn count_refresh(app: &Arc<App>, token: &str) -> Result<()> {
    let found = tokens::grant_of(&mut app.store.read().await?, token).await?;
    let (grant_id, was_replaced) = found.ok_or_else(invalid_refresh_token)?;
    if was_replaced {
        // Its second use must be detected, however often someone else refreshes the grant.
        return Ok(());
    }
    let decision = app.limiter.take(RateLimitSubject::Grant(grant_id), REFRESHES_PER_MINUTE).await;
    if decision.allowed { Ok(()) } else { Err(ApiError::rate_limited(decision.retry_after).into()) }
}

async fn refresh(app: &Arc<App>, form: &Parameters, client_id: &str) -> Result<Tokens> {
    let token = required(form, "refresh_token")?;
    count_refresh(app, token).await?;
    let mut tx = app.store.begin().await?;
    let found = tokens::find_and_lock(&mut tx, token).await?.ok_or_else(invalid_refresh_token)?;
    if found.expires_at <= tx.now {
        return Err(invalid_refresh_token());
    }
    if found.was_replaced {
        tokens::revoke_grant(&mut tx, found.grant_id).await?;
        tx.commit().await?;
        tracing::warn!(grant_id = found.grant_id, "a refresh token was used twice: its grant was revoked");
        return Err(OAuthError::invalid_grant(
            "The refresh token was already used, so its grant was revoked. Start the authorization again.",
        ));
    }
    if found.client_id != client_id {
        return Err(invalid_refresh_token());
    }
    let invalid_scope = || OAuthError::new("invalid_scope", "`scope` must contain only scopes that the user allowed.");
    let requested = form.get("scope").map(|list| parse_scopes(list).ok_or_else(invalid_scope)).transpose()?;
    if requested.as_ref().is_some_and(|requested| requested.intersection(&found.scopes) != *requested) {
        return Err(invalid_scope());
    }
    let tokens = tokens::refresh(&mut tx, &found, requested.filter(|requested| *requested != found.scopes)).await?;
    tx.commit().await?;
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7636, appendix B.
    #[test]
    fn a_challenge_is_the_hash_of_its_verifier() {
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert!(is_verifier_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", challenge));
        assert!(!is_verifier_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXl", challenge));
        // The challenge itself, as with the method `plain`.
        assert!(!is_verifier_of(challenge, challenge));
        assert!(!is_verifier_of("short", &URL_SAFE_NO_PAD.encode(Sha256::digest("short"))));
    }
}
