//! `/@{slug}`: a public link-in-bio page, and `/@{slug}/l/{id}`, the redirect to one of its links.
//!
//! A page is rendered once and cached in memory ([`crier_endpoints::bio::cache`]), so most visits need no database query. The
//! replica that changed a page serves the new version immediately, except for the alt text of its image. Other replicas
//! look a page up again when their entry is [two seconds](crier_endpoints::bio::cache::CACHE_TTL) old, so a page is stale for at
//! most this time plus the time of the lookup. While the database is unavailable, cached pages are still served.
//!
//! A page is compressed when it is rendered, and has an ETag. A returning visitor gets a 304 and is counted like any
//! other visitor.
//!
//! Views and clicks are counted in memory and written every few seconds ([`crier_endpoints::bio::counts`]). A graceful shutdown
//! loses no counts; `kill -9` or a crash loses those of the last
//! [few seconds](crier_endpoints::bio::counts::WRITE_INTERVAL). A view is a GET of the page by a client whose user agent is not
//! that of a bot. A click is the same for a link.
//!
//! **To add a theme:** its name in `common/domain/src/bio_page.rs` (and in the table's `CHECK`, by a migration), and
//! its colors in `api/pages/templates/bio.css`. A test checks that their contrast is sufficient.

use std::sync::{Arc, LazyLock};

use crier_domain::bio_page::is_slug;
use crier_endpoints::app::App;
use crier_endpoints::bio::cache::{CacheLookup, RenderedPage};
use crier_endpoints::page_body::PageBody;
use crier_store::{Result, StoreError, bio_pages};
use crier_telemetry::metrics;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, REFERRER_POLICY, USER_AGENT, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, StatusCode};
use salvo::{Depot, Request, Response, Router, handler};

use super::{headers, notice};

mod icons;
mod view;

pub fn router() -> Router {
    Router::new()
        .push(Router::with_path("bio.css").get(styles).head(styles))
        .push(Router::with_path("@{slug}").get(visit).head(visit))
        .push(Router::with_path("@{slug}/l/{id}").get(follow).head(follow))
}

#[handler]
async fn styles(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(view::STYLES));
    let headers = res.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"));
    // The URL contains a version.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    BODY.send(req.headers(), res);
}

#[handler]
async fn visit(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some((app, page)) = requested_page(req, depot, res).await else { return };
    if *req.method() == Method::GET && !is_bot(req) {
        app.bio.counts.view(page.version.page_id);
        metrics::bio_viewed();
    }
    headers(res);
    res.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    page.html.send(req.headers(), res);
}

#[handler]
async fn follow(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some((app, page)) = requested_page(req, depot, res).await else { return };
    let link = req.param::<i64>("id").and_then(|id| Some((id, page.links.get(&id)?)));
    let Some((id, to)) = link else { return missing(res) };
    if *req.method() == Method::GET && !is_bot(req) {
        app.bio.counts.click(id);
        metrics::bio_clicked();
    }
    res.status_code(StatusCode::FOUND);
    let headers = res.headers_mut();
    headers.insert(LOCATION, to.clone());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

/// Returns the requested page. If there is none, sends an error page and returns `None`.
async fn requested_page(req: &Request, depot: &Depot, res: &mut Response) -> Option<(Arc<App>, Arc<RenderedPage>)> {
    let app = depot.get_typed::<Arc<App>>().ok()?.clone();
    // Phones capitalize the first letter of an input.
    let slug = req.param::<String>("slug").unwrap_or_default().to_ascii_lowercase();
    if !is_slug(&slug) {
        missing(res);
        return None;
    }
    match find(&app, slug).await {
        Ok(Some(page)) => Some((app, page)),
        Ok(None) => {
            missing(res);
            None
        }
        Err(error) => {
            tracing::warn!(%error, "failed to read a link-in-bio page");
            let sentence = "This page is unavailable. Wait a moment, then reload it.";
            notice(res, StatusCode::SERVICE_UNAVAILABLE, sentence);
            None
        }
    }
}

fn missing(res: &mut Response) {
    notice(res, StatusCode::NOT_FOUND, "This page does not exist or has been deleted. Check the URL.");
}

/// Returns the page from memory if it is fresh, otherwise from the database.
async fn find(app: &Arc<App>, slug: String) -> Result<Option<Arc<RenderedPage>>> {
    let stale = match app.bio.cache.get(&slug, app.store.now()) {
        CacheLookup::Fresh(page) => return Ok(page),
        CacheLookup::Stale(page) => Some(page),
        CacheLookup::Unknown => None,
    };
    // Runs as a separate task, so that the lookup completes even if the visitor disconnects.
    let (task_app, cached) = (app.clone(), stale.clone());
    let refreshed = tokio::spawn(async move { refresh_page(&task_app, &slug, cached).await }).await;
    let refreshed = refreshed.unwrap_or_else(|error| Err(StoreError::Decode(format!("a lookup did not end: {error}"))));
    match (refreshed, stale) {
        (Err(error), Some(page)) => {
            tracing::warn!(%error, "serving a stale link-in-bio page");
            Ok(Some(page))
        }
        (refreshed, _) => refreshed,
    }
}

/// Checks in the database whether the cached page is current, and loads it if not.
async fn refresh_page(app: &App, slug: &str, cached: Option<Arc<RenderedPage>>) -> Result<Option<Arc<RenderedPage>>> {
    let generation = app.bio.cache.generation();
    let now = app.store.now();
    let mut conn = app.store.read().await?;
    if let Some(page) = cached
        && bio_pages::version(&mut conn, slug).await?.as_ref() == Some(&page.version)
    {
        return Ok(Some(page));
    }
    let page = match bio_pages::by_slug(&mut conn, slug).await? {
        None => None,
        Some((row, links)) => {
            let avatar = bio_pages::avatar(&mut conn, &row).await?;
            drop(conn);
            let rendered = view::render(&app.public_url, &row, &links, avatar.as_ref());
            Some(Arc::new(rendered.map_err(|error| StoreError::Decode(format!("a page was not rendered: {error}")))?))
        }
    };
    app.bio.cache.put(slug, page.clone(), generation, now);
    Ok(page)
}

/// Returns whether the user agent is that of a bot.
fn is_bot(req: &Request) -> bool {
    let agent = req.headers().get(USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
    is_bot_user_agent(&String::from_utf8_lossy(agent).to_ascii_lowercase())
}

/// Words in the user agents of search engines, link previews and uptime monitors.
const BOTS: &[&str] = &[
    "bot",
    "crawl",
    "spider",
    "slurp",
    "facebookexternalhit",
    "facebookcatalog",
    "preview",
    "embedly",
    "whatsapp",
    "mediapartners",
    "feedfetcher",
    "lighthouse",
    "pingdom",
    "uptime",
    "monitoring",
];

fn is_bot_user_agent(agent: &str) -> bool {
    // Cubot is a phone maker.
    let agent = agent.replace("cubot", "");
    BOTS.iter().any(|word| agent.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bots_are_detected_by_user_agent() {
        for bot in [
            "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
            "Mozilla/5.0 (compatible; Yahoo! Slurp)",
            "facebookexternalhit/1.1",
            "WhatsApp/2.23",
            "Baiduspider",
            "SkypeUriPreview",
            "AHC-Crawler",
        ] {
            assert!(is_bot_user_agent(&bot.to_ascii_lowercase()), "{bot}");
        }
        for visitor in [
            "",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
             Version/18.0 Mobile/15E148 Safari/604.1",
            "Mozilla/5.0 (Linux; Android 11; CUBOT X50) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 \
             Mobile Safari/537.36",
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
            "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile \
             Safari/537.36 Instagram 390.0",
        ] {
            assert!(!is_bot_user_agent(&visitor.to_ascii_lowercase()), "{visitor}");
        }
    }
}
