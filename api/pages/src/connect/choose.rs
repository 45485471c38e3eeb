//! The page on which the user chooses what to connect: a page, blog or board. A long list has a search field.

use std::sync::Arc;

use askama::Template;
use crier_domain::authorization::{Authorization, Stage};
use crier_endpoints::app::App;
use crier_platforms::oauth::{Choice, Grant};
use crier_store::authorizations;
use http::HeaderMap;
use salvo::{Depot, Request, Response, handler};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use super::finish::finish;
use super::{
    Step, StepError, StepResult, admit, connector_of, is_same_browser, open_authorization, platform_name, respond,
};
use crate::is_from_another_site;

/// The maximum number of choices that are shown. The search finds the others.
const SHOWN: usize = 50;
/// A list with more choices than this has a search field.
const SEARCH_FROM: usize = 10;
const MAX_SEARCH: usize = 100;
/// The maximum size of the form, percent-encoded.
const MAX_FORM: usize = 16 * 1024;

/// The data that is stored until the user has chosen. Not `Debug`: it contains tokens.
#[derive(Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) grant: Grant,
    pub(super) choices: Vec<Choice>,
}

#[derive(Template)]
#[template(path = "connect_choose.html")]
struct ChoosePage {
    platform: &'static str,
    brand: String,
    noun: &'static str,
    path: String,
    search: String,
    has_search: bool,
    shown: Vec<Choice>,
    /// The number of matching choices that are not shown.
    more: usize,
}

#[handler]
pub(super) async fn show(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = admit(req, depot, res).await else { return };
    let search: String = req.query::<String>("q").unwrap_or_default().trim().chars().take(MAX_SEARCH).collect();
    let id = req.param::<i64>("id").unwrap_or_default();
    let step = list(app, req.headers(), id, search).await;
    respond(res, step);
}

async fn list(app: &App, headers: &HeaderMap, id: i64, search: String) -> StepResult {
    let Some((authorization, pending)) = load(app, headers, id).await? else {
        return Ok(Step::Redirect(format!("/connect/done/{id}")));
    };
    let connector = connector_of(app, &authorization)?;
    let oauth = connector.oauth().ok_or(StepError::NotConfigured)?;
    let has_search = pending.choices.len() > SEARCH_FROM;
    let search_lower = search.to_lowercase();
    let fits = |choice: &Choice| {
        let detail = choice.detail.as_deref().unwrap_or_default();
        search_lower.is_empty()
            || choice.name.to_lowercase().contains(&search_lower)
            || detail.to_lowercase().contains(&search_lower)
    };
    let mut found: Vec<Choice> = pending.choices.into_iter().filter(fits).collect();
    let more = found.len().saturating_sub(SHOWN);
    found.truncate(SHOWN);
    Ok(Step::page(ChoosePage {
        platform: platform_name(app, &authorization),
        brand: authorization.brand_name,
        noun: oauth.choice_noun(),
        path: format!("/connect/choose/{id}"),
        search,
        has_search,
        shown: found,
        more,
    }))
}

#[handler]
pub(super) async fn pick(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = admit(req, depot, res).await else { return };
    if is_from_another_site(app, req.headers()) {
        return respond(res, Err(StepError::OtherSite));
    }
    let id = req.param::<i64>("id").unwrap_or_default();
    let chosen = match req.payload_with_max_size(MAX_FORM).await {
        Ok(body) => {
            let field = url::form_urlencoded::parse(body).find(|(name, _)| name == "choice");
            field.map(|(_, value)| value.into_owned())
        }
        Err(_) => None,
    };
    let step = connect(app, req.headers(), id, chosen).await;
    respond(res, step);
}

async fn connect(app: &Arc<App>, headers: &HeaderMap, id: i64, chosen: Option<String>) -> StepResult {
    let Some((authorization, pending)) = load(app, headers, id).await? else {
        return Ok(Step::Redirect(format!("/connect/done/{id}")));
    };
    let choice = pending.choices.iter().find(|choice| Some(&choice.id) == chosen.as_ref());
    let choice = choice.ok_or(StepError::InvalidChoice)?;
    let connector = connector_of(app, &authorization)?;
    let oauth = connector.oauth().ok_or(StepError::NotConfigured)?;
    finish(app, &authorization, oauth, &pending.grant, Some(choice)).await
}

/// Returns the authorization and its choices. `None` if the choice was already made in this browser.
async fn load(app: &App, headers: &HeaderMap, id: i64) -> Result<Option<(Authorization, Pending)>, StepError> {
    let mut conn = app.store.read().await?;
    let found = authorizations::find(&mut conn, id).await?;
    // Without the cookie, the response is the same for all IDs, so guessing one reveals nothing.
    let found = found.filter(|found| is_same_browser(app, headers, found)).ok_or(StepError::OtherBrowser)?;
    if found.stage == Stage::Used {
        return Ok(None);
    }
    let authorization = open_authorization(app, Some(found))?;
    if authorization.stage != Stage::Choosing {
        return Err(StepError::WrongState);
    }
    let data = authorizations::data(&mut conn, app.store.cipher(), id).await?;
    let pending = data.and_then(|data| serde_json::from_str(data.expose_secret()).ok());
    Ok(Some((authorization, pending.ok_or(StepError::WrongState)?)))
}
