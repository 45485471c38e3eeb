//! `POST /mcp/oauth/register`: dynamic registration (RFC 7591), for clients without a metadata document. Anyone can
//! register an application under any name, so the consent page also shows the host of the redirect.

use std::sync::Arc;

use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_endpoints::error::{ApiError, ErrorCode};
use crier_endpoints::limits::RateLimitSubject;
use crier_endpoints::runner::body;
use crier_store::oauth::clients::{self, NewClient, Registration};
use http::StatusCode;
use salvo::{Depot, Request, Response, handler};
use serde_json::{Map, Value, json};

use crate::error::{self, OAuthError, Result};
use crate::parameters::MAX_BYTES;
use crate::redirect_uri::{self, Rejected};
use crate::{client, response};

const GRANT_TYPES: [&str; 2] = ["authorization_code", "refresh_token"];
/// The time after which a registration that exceeded a limit may succeed, in seconds.
const RETRY_AFTER: u64 = 3_600;

#[handler]
pub async fn handle(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = depot.get_typed::<Arc<App>>().ok().cloned() else { return };
    let decision = admission::count_address(&app, req).await;
    if !decision.allowed {
        return error::write_rate_limited(res, decision.retry_after);
    }
    match register(&app, req).await {
        Ok(Some(body)) => response::secret_json(res, StatusCode::CREATED, &body),
        Ok(None) => error::write_rate_limited(res, RETRY_AFTER),
        Err(error) => error::write(&app, req, res, error).await,
    }
}

/// Returns the registered metadata. `None` if there are too many registrations.
async fn register(app: &Arc<App>, req: &mut Request) -> Result<Option<Value>> {
    let raw = body::read_up_to(req, app.min_rate, MAX_BYTES).await.map_err(|error| match error.code {
        ErrorCode::PayloadTooLarge => invalid_metadata(error.message),
        _ => error.into(),
    })?;
    let metadata = body::parse(req.headers(), &raw, false).map_err(|error| invalid_metadata(error.message))?;
    check_methods(&metadata)?;
    let redirect_uris = redirect_uris(&metadata)?;
    if app.library.disk().is_low() {
        let message = "The server has too little free disk space to register an application. Retry later.";
        return Err(ApiError::new(ErrorCode::ServiceUnavailable, message).retry_after(60).into());
    }
    let name = client::name(metadata.get("client_name").and_then(Value::as_str));
    // The address by which requests are limited: networks of IPv6 count as one client.
    let network = RateLimitSubject::address(admission::address_of(app, req)).to_string();
    let new = NewClient { name: &name, redirect_uris: &redirect_uris, network: &network };
    let mut tx = app.store.begin().await?;
    let issued_at = tx.now.timestamp();
    let id = match clients::register(&mut tx, &new).await? {
        Registration::Created(id) => id,
        Registration::NetworkFull | Registration::Full => return Ok(None),
    };
    tx.commit().await?;
    Ok(Some(json!({
        "client_id": id,
        "client_id_issued_at": issued_at,
        "client_name": name,
        "redirect_uris": redirect_uris,
        "grant_types": GRANT_TYPES,
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    })))
}

fn invalid_metadata(description: impl Into<std::borrow::Cow<'static, str>>) -> OAuthError {
    OAuthError::new("invalid_client_metadata", description)
}

/// Checks that the application can use what this server offers. Other fields are ignored. A
/// `token_endpoint_auth_method` is replaced with `none` (RFC 7591, 3.2.1), because libraries request one by default, such
/// as `client_secret_post`, and then use the one in the response.
fn check_methods(metadata: &Map<String, Value>) -> Result<()> {
    let lacks = |field: &str, value: &str| {
        let list = metadata.get(field).and_then(Value::as_array);
        list.is_some_and(|list| !list.iter().any(|item| item == value))
    };
    if lacks("grant_types", "authorization_code") {
        return Err(invalid_metadata("`grant_types` must contain `authorization_code`."));
    }
    if lacks("response_types", "code") {
        return Err(invalid_metadata("`response_types` must contain `code`."));
    }
    Ok(())
}

fn redirect_uris(metadata: &Map<String, Value>) -> Result<Vec<String>> {
    let invalid = |description: String| OAuthError::new("invalid_redirect_uri", description);
    let list = metadata.get("redirect_uris").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() || list.len() > redirect_uri::MAX_COUNT {
        return Err(invalid(format!("`redirect_uris` must contain 1 to {} URIs.", redirect_uri::MAX_COUNT)));
    }
    let check = |uri: &Value| -> Result<String> {
        let uri = uri.as_str().ok_or_else(|| invalid("A redirect URI must be a string.".to_owned()))?;
        redirect_uri::check(uri).map_err(|Rejected(reason)| invalid(format!("A redirect URI {reason}.")))?;
        Ok(uri.to_owned())
    };
    list.iter().map(check).collect()
}
