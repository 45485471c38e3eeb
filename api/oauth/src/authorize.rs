//! Authorization requests: their checks before a user is asked, and the redirect after the user has decided. The page
//! itself is in `crier-pages`.

use std::sync::Arc;

use crier_domain::access::{AgentPreset, Role, Scope, Scopes};
use crier_endpoints::app::App;
use crier_endpoints::error::ApiError;
use crier_store::oauth::codes::{self, NewCode};
use crier_store::{Result, Tx};
use secrecy::ExposeSecret;

use crate::client::{self, ClientError};
use crate::parameters::{MAX_BYTES, Parameters};
use crate::{is_supported, redirect_uri, resource};

/// The maximum length of `state`, in bytes. Some clients, such as n8n, encrypt what they must remember in it.
const MAX_STATE: usize = 2_048;
/// The length of a SHA-256 hash in base64url, without padding.
const CHALLENGE_LENGTH: usize = 43;

/// A valid request of an application for access.
#[derive(Clone, Debug)]
pub struct AuthorizationRequest {
    pub client_id: String,
    /// The name that the application gives itself, as one line. Another application may use the same one.
    pub client_name: String,
    pub redirect_uri: String,
    /// The host that gets the code, or the scheme of an installed application.
    pub redirect_host: String,
    /// Whether all redirect URIs of the application lead to the computer on which the browser runs, so that nothing
    /// proves which application it is.
    pub is_loopback_only: bool,
    /// Whether `client_id` is the URL of a metadata document, so that its host vouches for the application.
    pub is_metadata_document: bool,
    /// The scopes that the application requests.
    pub scopes: Scopes,
    pub state: Option<String>,
    pub code_challenge: String,
    /// The URL of the MCP server, which is also the issuer.
    pub resource: String,
}

/// What to do with an invalid request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorizeError {
    /// Show this message. The application or its redirect URI is wrong, so the user must not be redirected.
    Page(String),
    /// Redirect the user to this URL, which tells the application what is wrong.
    Redirect(String),
}

impl AuthorizeError {
    fn page(message: &str) -> Self {
        Self::Page(message.to_owned())
    }
}

impl From<ClientError> for AuthorizeError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Rejected(message) => Self::Page(message),
            ClientError::Store(error) => {
                ApiError::from(error).log();
                Self::page("Crier cannot check this request now. Wait a moment, then reload the page.")
            }
        }
    }
}

/// Checks an authorization request. `query`: the query string of the page's URL, encoded.
pub async fn check(app: &Arc<App>, query: &str) -> std::result::Result<AuthorizationRequest, AuthorizeError> {
    if query.len() > MAX_BYTES {
        return Err(AuthorizeError::page("The application sent a request that is too long. Tell its developer."));
    }
    let parameters = Parameters::parse(query.as_bytes());
    let required = |name: &str| {
        parameters.get(name).ok_or_else(|| {
            AuthorizeError::Page(format!(
                "The application sent an invalid request: `{name}` is missing or repeated. Tell its developer."
            ))
        })
    };
    let (client_id, redirect_uri) = (required("client_id")?, required("redirect_uri")?);
    let client = client::find(app, client_id).await?;
    if !client.redirect_uris.iter().any(|registered| redirect_uri::matches(registered, redirect_uri)) {
        let message = "The application wants to send you to a URL that it has not registered. Do not continue: someone \
                       else may have created the link that you followed.";
        return Err(AuthorizeError::page(message));
    }
    // From here on, the application is told what is wrong.
    let resource = resource(app);
    let state = parameters.get("state").filter(|state| state.len() <= MAX_STATE);
    let (scopes, code_challenge) = check_parameters(&parameters, &resource).map_err(|(error, description)| {
        AuthorizeError::Redirect(error_redirect(redirect_uri, state, &resource, error, description))
    })?;
    Ok(AuthorizationRequest {
        client_id: client.id,
        client_name: client.name,
        redirect_uri: redirect_uri.to_owned(),
        redirect_host: redirect_uri::host(redirect_uri),
        is_loopback_only: client.redirect_uris.iter().all(|uri| redirect_uri::is_loopback(uri)),
        is_metadata_document: client.is_metadata_document,
        scopes,
        state: state.map(str::to_owned),
        code_challenge,
        resource,
    })
}

/// The value of `error`, and a sentence for the application's developer.
type ParameterError = (&'static str, &'static str);

/// Checks the parameters that do not decide where the user is redirected. Returns the scopes and the code challenge.
fn check_parameters(parameters: &Parameters, resource: &str) -> std::result::Result<(Scopes, String), ParameterError> {
    let invalid = |description| Err(("invalid_request", description));
    if parameters.repeated().is_some() {
        return invalid("A parameter is repeated.");
    }
    if parameters.get("state").is_some_and(|state| state.len() > MAX_STATE) {
        return invalid("state must have at most 2,048 bytes.");
    }
    match parameters.get("response_type") {
        Some("code") => {}
        Some(_) => return Err(("unsupported_response_type", "response_type must be code.")),
        None => return invalid("response_type is missing."),
    }
    if parameters.get("response_mode").is_some_and(|mode| mode != "query") {
        return invalid("response_mode must be query.");
    }
    // Without a method, the challenge would be the verifier itself.
    if parameters.get("code_challenge_method") != Some("S256") {
        return invalid("code_challenge_method must be S256.");
    }
    let challenge = parameters.get("code_challenge").filter(|challenge| is_challenge(challenge));
    let Some(challenge) = challenge else {
        return invalid("code_challenge must be a SHA-256 hash in base64url without padding.");
    };
    // Crier has one resource, so a client of an older revision that names none gets this one.
    if parameters.get("resource").is_some_and(|requested| requested != resource) {
        return Err(("invalid_target", "resource must be the URL of the MCP server."));
    }
    let scopes = match parameters.get("scope") {
        None => AgentPreset::all_scopes(),
        Some(list) => parse_scopes(list).ok_or(("invalid_scope", "scope contains no scope that is supported."))?,
    };
    Ok((scopes, challenge.to_owned()))
}

fn is_challenge(text: &str) -> bool {
    text.len() == CHALLENGE_LENGTH
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Parses a list of scopes that is separated by spaces. Unknown ones are ignored (RFC 6749, 3.3), because some clients
/// always request `offline_access` or `openid` too; the response names those that are granted. `None` if none is left.
pub(crate) fn parse_scopes(list: &str) -> Option<Scopes> {
    let scope = |name: &str| name.parse::<Scope>().ok().filter(|scope| is_supported(*scope));
    let scopes: Scopes = list.split(' ').filter_map(scope).collect();
    (!scopes.is_empty()).then_some(scopes)
}

/// Stores what the user allows, and returns the URL to which the user must be redirected. `scopes`: those that the user
/// chose; scopes that the application did not request are omitted. `brands`: the brands that the application can use;
/// `None` for all brands of the user, including future ones. `role_limit`: the highest role that it can have.
pub async fn grant(
    app: &Arc<App>,
    tx: &mut Tx,
    user_id: i64,
    request: &AuthorizationRequest,
    scopes: &Scopes,
    brands: Option<&[i64]>,
    role_limit: Option<Role>,
) -> Result<String> {
    let scopes = scopes.intersection(&request.scopes);
    let new = NewCode {
        client_id: &request.client_id,
        client_name: &request.client_name,
        redirect_uri: &request.redirect_uri,
        redirect_host: &request.redirect_host,
        code_challenge: &request.code_challenge,
        scopes: &scopes,
        brands,
        role_limit,
    };
    let code = codes::create(tx, user_id, &new).await?;
    let issuer = resource(app);
    Ok(redirect(&request.redirect_uri, &[("code", code.expose_secret())], request.state.as_deref(), &issuer))
}

/// Returns the URL to which Crier redirects a user who denied the request.
pub fn denied(request: &AuthorizationRequest) -> String {
    let (uri, state) = (&request.redirect_uri, request.state.as_deref());
    error_redirect(uri, state, &request.resource, "access_denied", "The user denied access.")
}

fn error_redirect(uri: &str, state: Option<&str>, issuer: &str, error: &str, description: &str) -> String {
    redirect(uri, &[("error", error), ("error_description", description)], state, issuer)
}

/// Returns a redirect URI with the parameters of a response. `iss` lets clients of several servers detect a response of
/// another one (RFC 9207).
fn redirect(uri: &str, parameters: &[(&str, &str)], state: Option<&str>, issuer: &str) -> String {
    let mut all = parameters.to_vec();
    all.extend(state.map(|state| ("state", state)));
    all.push(("iss", issuer));
    redirect_uri::with_parameters(uri, &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOURCE: &str = "https://crier.example/mcp/oauth";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn outcome(query: &str) -> std::result::Result<(Scopes, String), ParameterError> {
        let start = format!("response_type=code&code_challenge_method=S256&code_challenge={CHALLENGE}");
        check_parameters(&Parameters::parse(format!("{start}{query}").as_bytes()), RESOURCE)
    }

    #[test]
    fn scopes_are_those_of_the_presets_by_default() {
        assert_eq!(outcome("").unwrap().0, AgentPreset::all_scopes());
        assert_eq!(
            outcome("&scope=posts:read++brands:read").unwrap().0,
            "brands:read,posts:read".parse::<Scopes>().unwrap()
        );
        assert_eq!(
            outcome("&scope=openid+posts:read+offline_access+webhooks:read").unwrap().0,
            "posts:read".parse::<Scopes>().unwrap()
        );
        for scope in ["posts:destroy", "webhooks:read", "posts:read,brands:read", "all", "+"] {
            assert_eq!(outcome(&format!("&scope={scope}")).unwrap_err().0, "invalid_scope", "{scope}");
        }
    }

    #[test]
    fn errors_have_the_codes_of_the_specifications() {
        let code = |query: &str| check_parameters(&Parameters::parse(query.as_bytes()), RESOURCE).unwrap_err().0;
        assert_eq!(code(""), "invalid_request");
        assert_eq!(code("response_type=token"), "unsupported_response_type");
        let challenge = format!("&code_challenge={CHALLENGE}");
        for pkce in ["", "&code_challenge_method=S256", &challenge, &format!("&code_challenge_method=plain{challenge}")]
        {
            assert_eq!(code(&format!("response_type=code{pkce}")), "invalid_request", "{pkce}");
        }
        assert_eq!(outcome("&resource=https://other.example/mcp").unwrap_err().0, "invalid_target");
        assert_eq!(outcome("&resource=https://crier.example/mcp").unwrap_err().0, "invalid_target");
        assert!(outcome(&format!("&resource={RESOURCE}")).is_ok());
        assert_eq!(outcome("&state=a&state=a").unwrap_err().0, "invalid_request");
        assert!(outcome(&format!("&state={}", "a".repeat(2_048))).is_ok());
        assert_eq!(outcome(&format!("&state={}", "a".repeat(2_049))).unwrap_err().0, "invalid_request");
        assert_eq!(outcome("&response_mode=fragment").unwrap_err().0, "invalid_request");
    }
}
