//! The callback: the platform redirects the user here, with a code or an error.

use std::sync::Arc;

use crier_domain::authorization::{Authorization, Stage};
use crier_domain::platform::Platform;
use crier_endpoints::app::App;
use crier_platforms::OAuthConnector;
use crier_platforms::oauth::{Choices, ConnectAttempt, Grant};
use crier_store::authorizations;
use http::HeaderMap;
use salvo::{Depot, Request, Response, handler};
use secrecy::{ExposeSecret, SecretString};

use super::choose::Pending;
use super::finish::finish;
use super::{
    Step, StepError, StepResult, admit, connector_of, is_same_browser, open_authorization, platform_name, respond,
};

/// The maximum length of a code, in bytes. The codes of platforms are much shorter.
const MAX_CODE: usize = 4_096;

/// The error codes of platforms if the user denies access.
const DENIED: [&str; 4] = ["access_denied", "user_cancelled_login", "user_cancelled_authorize", "user_denied"];

/// The parameters of the callback. Not `Debug`: the code is a secret.
struct CallbackQuery {
    platform: Option<Platform>,
    state: String,
    code: Option<String>,
    issuer: Option<String>,
    error: Option<String>,
    /// The raw query string.
    query: String,
}

#[handler]
pub(super) async fn receive(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = admit(req, depot, res).await else { return };
    let callback = CallbackQuery {
        platform: req.param::<String>("platform").and_then(|name| name.parse().ok()),
        state: req.query::<String>("state").unwrap_or_default(),
        code: req.query::<String>("code").filter(|code| !code.is_empty() && code.len() <= MAX_CODE),
        issuer: req.query::<String>("iss"),
        error: req.query::<String>("error"),
        query: req.uri().query().unwrap_or_default().to_owned(),
    };
    let step = process(app, req.headers(), callback).await;
    respond(res, step);
}

async fn process(app: &Arc<App>, headers: &HeaderMap, callback: CallbackQuery) -> StepResult {
    let mut conn = app.store.read().await?;
    let found = authorizations::find_by_state(&mut conn, &callback.state).await?.ok_or(StepError::WrongState)?;
    if callback.platform != Some(found.platform) {
        return Err(StepError::WrongState);
    }
    if !is_same_browser(app, headers, &found) {
        return Err(StepError::OtherBrowser);
    }
    // The page was reloaded.
    match found.stage {
        Stage::Used => return Ok(Step::Redirect(format!("/connect/done/{}", found.id))),
        Stage::Choosing => return Ok(Step::Redirect(format!("/connect/choose/{}", found.id))),
        _ => {}
    }
    let authorization = open_authorization(app, Some(found))?;
    let data = authorizations::data(&mut conn, app.store.cipher(), authorization.id).await?;
    drop(conn);
    let attempt: Option<ConnectAttempt> = data.and_then(|data| serde_json::from_str(data.expose_secret()).ok());
    let attempt = attempt.filter(|_| authorization.stage == Stage::AtPlatform).ok_or(StepError::WrongState)?;
    let name = platform_name(app, &authorization);
    let connector = connector_of(app, &authorization)?;
    let oauth = connector.oauth().ok_or(StepError::NotConfigured)?;
    if !oauth.is_authentic(&attempt, &callback.query) {
        return Err(StepError::NotAuthentic(name));
    }
    if !attempt.accepts_issuer(callback.issuer.as_deref()) {
        return Err(StepError::WrongIssuer(name));
    }
    let (code, to) = match (callback.error, callback.code) {
        (Some(error), _) => (Err(platform_error(name, &error)), Stage::Issued),
        (None, Some(code)) => (Ok(code), Stage::Exchanging),
        (None, None) => return Err(StepError::WrongState),
    };
    // Only the process that advances the stage exchanges the code, so state and code are used once.
    let mut tx = app.store.begin().await?;
    let moved = authorizations::advance(&mut tx, authorization.id, &callback.state, Stage::AtPlatform, to).await?;
    tx.commit().await?;
    if !moved {
        return Err(StepError::WrongState);
    }
    exchange(app, &authorization, oauth, &attempt, &code?, &callback.state).await
}

/// Returns the error for the platform's `error` parameter, which is a code of the standard or of the platform.
fn platform_error(platform: &'static str, error: &str) -> StepError {
    if DENIED.contains(&error) {
        return StepError::Denied(platform);
    }
    if matches!(error, "server_error" | "temporarily_unavailable") {
        return StepError::PlatformUnavailable(platform, format!("{platform} reported an internal error."));
    }
    let is_word = error.len() <= 60 && error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let reason = if is_word { format!(" ({error})") } else { String::new() };
    let sentence =
        format!("{platform} did not ask for your permission{reason}. The application may not be set up correctly.");
    StepError::PlatformRejected(platform, sentence)
}

async fn exchange(
    app: &Arc<App>,
    authorization: &Authorization,
    oauth: &dyn OAuthConnector,
    attempt: &ConnectAttempt,
    code: &str,
    state: &str,
) -> StepResult {
    let name = platform_name(app, authorization);
    let failed = |error| StepError::of(name, error);
    let mut grant = oauth.exchange(attempt, code).await.map_err(failed)?;
    let missing = missing_purposes(oauth, attempt, &grant);
    if !missing.is_empty() {
        return Err(StepError::MissingPermission(name, missing));
    }
    // Stored with the account. Scopes that were not requested come from the platform, in any number and length.
    grant.scopes = Some(grant.granted(&attempt.server));
    let choices = match oauth.choices(&grant).await.map_err(failed)? {
        Choices::NotNeeded => return finish(app, authorization, oauth, &grant, None).await,
        Choices::Of(choices) => choices,
    };
    match choices.as_slice() {
        [] => Err(StepError::NothingToChoose(name, oauth.choice_noun())),
        [only] => finish(app, authorization, oauth, &grant, Some(only)).await,
        _ => {
            let pending = serde_json::to_string(&Pending { grant, choices }).map_err(|_| StepError::Unavailable)?;
            let mut tx = app.store.begin().await?;
            let pending = SecretString::from(pending);
            if !authorizations::store_choices(&mut tx, authorization.id, state, &pending).await? {
                return Err(StepError::WrongState);
            }
            tx.commit().await?;
            Ok(Step::Redirect(format!("/connect/choose/{}", authorization.id)))
        }
    }
}

/// Returns the purposes whose permissions the grant lacks, each with its scope. The consent page lists the same
/// purposes.
fn missing_purposes(oauth: &dyn OAuthConnector, attempt: &ConnectAttempt, grant: &Grant) -> Vec<String> {
    let permissions = oauth.permissions(attempt.target);
    let purpose = |scope: &String| {
        let found = permissions.iter().find(|permission| permission.scopes.contains(&scope.as_str()));
        found.map_or_else(|| scope.clone(), |permission| format!("{} ({scope})", permission.purpose))
    };
    grant.missing(&attempt.server).iter().map(purpose).collect()
}
