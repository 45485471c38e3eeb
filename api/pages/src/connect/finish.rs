//! The last step: saves the account and invalidates the URL, in one transaction.

use std::sync::Arc;

use askama::Template;
use crier_domain::authorization::{Authorization, Stage};
use crier_endpoints::app::App;
use crier_endpoints::routes::accounts::save::{Place, save_account};
use crier_platforms::OAuthConnector;
use crier_platforms::oauth::{Choice, Grant};
use crier_store::{accounts, authorizations, brands};
use http::HeaderMap;
use salvo::{Depot, Request, Response, handler};

use super::{Step, StepError, StepResult, admit, is_same_browser, open_authorization, platform_name, respond};

#[derive(Template)]
#[template(path = "connect_done.html")]
struct Done {
    platform: &'static str,
    brand: String,
    /// The name of the account. `None` if it has been disconnected.
    account: Option<String>,
}

/// Connects the account of the grant.
pub(super) async fn finish(
    app: &Arc<App>,
    authorization: &Authorization,
    oauth: &dyn OAuthConnector,
    grant: &Grant,
    choice: Option<&Choice>,
) -> StepResult {
    let name = platform_name(app, authorization);
    let connected = oauth.finish(grant, choice).await.map_err(|error| StepError::of(name, error))?;
    let mut tx = app.store.begin().await?;
    // Another attempt may have used the URL in the meantime.
    let found = authorizations::lock(&mut tx, authorization.id).await?;
    let authorization = open_authorization(app, found)?;
    let (workspace_id, plan) = brands::plan_of(&mut tx, authorization.brand_id).await?.ok_or(StepError::Unknown)?;
    let cap = app.plans.get(&plan).and_then(|plan| plan.social_accounts);
    let (brand_id, user_id, key_id) = (authorization.brand_id, authorization.user_id, authorization.key_id);
    let place = Place { workspace_id, brand_id, user_id, key_id, cap, trace: None };
    let saved = save_account(&mut tx, app, place, authorization.platform, &connected, grant.scopes.as_deref()).await;
    let account = saved.map_err(|error| StepError::of_save(name, error))?;
    authorizations::consume(&mut tx, authorization.id, account.id).await?;
    tx.commit().await?;
    Ok(Step::Redirect(format!("/connect/done/{}", authorization.id)))
}

#[handler]
pub(super) async fn show(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = admit(req, depot, res).await else { return };
    let id = req.param::<i64>("id").unwrap_or_default();
    let step = done(app, req.headers(), id).await;
    respond(res, step);
}

async fn done(app: &App, headers: &HeaderMap, id: i64) -> StepResult {
    let mut conn = app.store.read().await?;
    let found = authorizations::find(&mut conn, id).await?;
    let found = found.filter(|found| is_same_browser(app, headers, found)).ok_or(StepError::OtherBrowser)?;
    let Some(account_id) = found.account_id.filter(|_| found.stage == Stage::Used) else {
        return Err(StepError::WrongState);
    };
    let account = accounts::find(&mut conn, found.brand_id, account_id).await?;
    Ok(Step::page(Done {
        platform: platform_name(app, &found),
        brand: found.brand_name,
        account: account.map(|account| account.name),
    }))
}
