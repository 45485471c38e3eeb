//! `/console/brands/{brand}/media/uploads`: resumable uploads for the console's script, by the same protocol and the same
//! endpoints as those of the API.
//!
//! The script sends the CSRF token of the session in the header `X-CSRF-Token`. A page of another site cannot set this
//! header, and does not know the token.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_endpoints::endpoint::Endpoint;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::limits::RateLimitSubject;
use crier_endpoints::reply;
use crier_endpoints::response::Nothing;
use crier_endpoints::routes::media::uploads::{PATH, UPLOAD_PATH, append, create, delete, status};
use crier_endpoints::runner::call::InProcessCall;
use crier_endpoints::runner::{RequestId, RouteLabel};
use crier_endpoints::tus::{TusRequest, TusResponse, write_version};
use crier_store::keys::Authenticated;
use crier_store::sessions;
use futures::FutureExt;
use http::Method;
use salvo::routing::filters::MethodFilter;
use salvo::{Depot, FlowCtrl, Request, Response, Router};

use super::cookie;
use super::error::page_headers;
use super::route::PAGES_PER_MINUTE;
use crate::is_from_another_site;

const CSRF: &str = "x-csrf-token";

type MakeEndpoint = fn() -> Endpoint<(), Nothing>;

/// One operation of the protocol.
#[derive(Clone)]
struct UploadRunner {
    app: Arc<App>,
    path: &'static str,
    endpoint: MakeEndpoint,
}

/// Returns the routes, relative to the root of the host.
pub fn router(app: &Arc<App>) -> Router {
    let operations: [(Method, &'static str, MakeEndpoint); 4] = [
        (Method::POST, PATH, create::endpoint),
        (Method::HEAD, UPLOAD_PATH, status::endpoint),
        (Method::PATCH, UPLOAD_PATH, append::endpoint),
        (Method::DELETE, UPLOAD_PATH, delete::endpoint),
    ];
    operations.into_iter().fold(Router::new(), |router, (method, path, endpoint)| {
        let runner = UploadRunner { app: app.clone(), path, endpoint };
        let path = format!("console/{}", crier_endpoints::pattern(path));
        let route = Router::with_path(path).filter(MethodFilter::new(method)).goal(runner);
        router.push(route)
    })
}

#[salvo::async_trait]
impl salvo::Handler for UploadRunner {
    async fn handle(&self, req: &mut Request, depot: &mut Depot, res: &mut Response, _ctrl: &mut FlowCtrl) {
        depot.insert_typed(RouteLabel(self.path));
        let request_id = depot.get_typed::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
        page_headers(res);
        write_version(res);
        let run = AssertUnwindSafe(self.run(req, res, &request_id)).catch_unwind().await;
        match run.unwrap_or_else(|panic| Err(reply::panic_error(&panic))) {
            Ok(response) => response.write(res),
            Err(error) => reply::write_error(&self.app, res, &error, &request_id),
        }
    }
}

impl UploadRunner {
    async fn run(&self, req: &mut Request, res: &mut Response, request_id: &str) -> Result<TusResponse> {
        let ids = self.ids(req).ok_or_else(ApiError::no_route)?;
        let authenticated = self.authenticate(req, res, &ids).await?;
        let (path, headers) = (req.uri().path().to_owned(), req.headers().clone());
        let request = TusRequest { path: &path, headers: &headers, body: req.body_mut() };
        let versions = HashMap::new();
        let call = InProcessCall { app: &self.app, authenticated, ids, version: None, versions, request_id };
        Box::pin(call.tus(&(self.endpoint)(), request)).await
    }

    /// Makes the checks of a page: session, rate limit, brand membership, CSRF token.
    async fn authenticate(
        &self,
        req: &Request,
        res: &mut Response,
        ids: &[(&'static str, i64)],
    ) -> Result<Authenticated> {
        let Some(token) = cookie::token(&self.app, req.headers()) else { return Err(signed_out()) };
        let brand_id = ids.iter().find(|(name, _)| *name == "brand").map(|(_, id)| *id);
        let mut conn = self.app.store.read().await?;
        let found = sessions::authenticate(&mut conn, &token, brand_id, self.app.store.now()).await?;
        drop(conn);
        let Some(authenticated) = found else {
            // Limit guesses of the token, because each one is a database query.
            let decision = admission::count_address(&self.app, req).await;
            return Err(if decision.allowed { signed_out() } else { ApiError::rate_limited(decision.retry_after) });
        };
        self.app.touch(&authenticated.caller);
        cookie::set(&self.app, res, &token);
        let key = RateLimitSubject::Key(authenticated.caller.key_id);
        let decision = self.app.limiter.take(key, PAGES_PER_MINUTE).await;
        if !decision.allowed {
            return Err(ApiError::rate_limited(decision.retry_after));
        }
        if authenticated.membership.is_none() {
            return Err(ApiError::not_found("page"));
        }
        let sent = req.headers().get(CSRF).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !cookie::is_csrf_token(&token, sent) || is_from_another_site(&self.app, req.headers()) {
            let message = "This page does not belong to your session. Reload the page, and choose the file again.";
            return Err(ApiError::new(ErrorCode::InsufficientScope, message));
        }
        Ok(authenticated)
    }

    /// Returns the IDs in the path. `None` if one does not fit 63 bits.
    fn ids(&self, req: &Request) -> Option<Vec<(&'static str, i64)>> {
        let names = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        names.map(|name| Some((name, req.params().get(name)?.parse().ok()?))).collect()
    }
}

fn signed_out() -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, "Your session has ended. Sign in, and choose the file again.")
}
