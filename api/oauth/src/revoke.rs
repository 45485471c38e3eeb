//! `POST /mcp/oauth/revoke`: revokes a token (RFC 7009). A refresh token is revoked with its grant.

use std::sync::Arc;

use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_endpoints::error::ApiError;
use crier_store::oauth::tokens;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use salvo::{Depot, Request, Response, handler};

use crate::error::{self, OAuthError, Result};
use crate::token::{client_id, read_form, required};

#[handler]
pub async fn handle(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = depot.get_typed::<Arc<App>>().ok().cloned() else { return };
    match revoke(&app, req).await {
        Ok(()) => {
            res.status_code(StatusCode::OK);
            res.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        Err(error) => error::write(&app, req, res, error).await,
    }
}

async fn revoke(app: &Arc<App>, req: &mut Request) -> Result<()> {
    let form = read_form(app, req).await?;
    let (token, client_id) = (required(&form, "token")?, client_id(req, &form)?);
    if !tokens::exists(&mut app.store.read().await?, token).await? {
        // A token that does not exist counts as revoked (RFC 7009, 2.2), and as a guess.
        let decision = admission::count_address(app, req).await;
        return if decision.allowed { Ok(()) } else { Err(ApiError::rate_limited(decision.retry_after).into()) };
    }
    let mut tx = app.store.begin().await?;
    if !tokens::revoke(&mut tx, token, &client_id).await? {
        return Err(OAuthError::new("invalid_client", "The token belongs to another application."));
    }
    tx.commit().await?;
    Ok(())
}
