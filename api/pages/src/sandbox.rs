//! `/sandbox/{handle}`: the timeline of a sandbox account, with posts that failed, and the comments of visitors.
//!
//! Anyone may read a timeline and comment on it without an API key. So everything has a limit: posts per page, comments
//! shown per post, comments per post, and comments per IP address.

use std::sync::{Arc, LazyLock};

use askama::Template;
use chrono::{DateTime, Utc};
use crier_domain::platform::Platform;
use crier_domain::sandbox::{SandboxComment, SandboxMedia};
use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_endpoints::page_body::PageBody;
use crier_endpoints::reply;
use crier_platforms::sandbox::{is_handle, post_path, reply_path};
use crier_store::Result;
use crier_store::sandbox::{self, CommentOutcome, MAX_COMMENTS, SandboxPost};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode};
use salvo::{Depot, Request, Response, Router, handler};

use super::links::{TextPart, text_parts};
use super::styles::send;
use super::{html, notice, too_many_requests, unavailable};

/// The number of posts per page of a timeline.
const POSTS_PER_PAGE: usize = 20;
/// The maximum number of parts of threads and first comments that are shown: 24 parts and one comment per post.
const REPLIES_SHOWN: i64 = 500;
/// The number of newest comments that are shown per post. The page shows the number of the others.
const COMMENTS_SHOWN: i64 = 10;
/// The maximum number of failed posts that are shown.
const FAILED_SHOWN: i64 = 10;
/// The policy of other pages, extended by videos, and by the script that shows times in the visitor's time zone.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; media-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const MAX_NAME: usize = 80;
const MAX_BODY: usize = 2_000;
/// The maximum size of a comment's form, percent-encoded.
const MAX_FORM: usize = 64 * 1024;

pub fn router() -> Router {
    Router::new()
        .push(Router::with_path("sandbox.css").get(styles).head(styles))
        .push(Router::with_path("times.js").get(times).head(times))
        .push(Router::with_path("sandbox/{handle}").get(timeline).head(timeline))
        .push(Router::with_path("sandbox/{handle}/posts/{post}/comments").post(add_comment))
}

#[derive(Template)]
#[template(path = "sandbox.html")]
struct Timeline {
    handle: String,
    initial: String,
    /// Posts that could not be published. Only the first page shows them.
    failed: Vec<FailedView>,
    posts: Vec<PostView>,
    /// Whether the page begins with the newest post.
    is_first: bool,
    /// The ID of the first post on the next page.
    older: Option<i64>,
}

struct FailedView {
    id: i64,
    text: Vec<TextPart>,
    error: String,
    at: String,
    shown: String,
}

struct PostView {
    id: i64,
    /// The post, then the other parts of its thread.
    parts: Vec<PartView>,
    first_comments: Vec<PartView>,
    comments: Vec<SandboxComment>,
    /// The number of comments that are not shown.
    earlier: usize,
    /// Whether the post has the maximum number of comments.
    full: bool,
}

struct PartView {
    id: i64,
    path: String,
    text: Vec<TextPart>,
    /// At most ten. The layout depends on their number.
    media: Vec<SandboxMedia>,
    at: String,
    shown: String,
}

impl From<SandboxPost> for PartView {
    fn from(post: SandboxPost) -> Self {
        Self {
            id: post.id,
            path: reply_path(&post.handle, post.root_id.unwrap_or(post.id), post.id),
            text: text_parts(&post.content),
            media: post.media,
            at: post.created_at.to_rfc3339(),
            shown: shown(post.created_at),
        }
    }
}

const HANDLE_NOT_FOUND: &str =
    "No account has this sandbox handle. Connect it in the console or with the API, then publish to it.";
const SANDBOX_DISABLED: &str = "The sandbox is disabled on this server (CRIER_SANDBOX).";

#[handler]
async fn styles(res: &mut Response) {
    res.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"));
    res.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    let _ = res.write_body(include_str!("../templates/sandbox.css"));
}

#[handler]
async fn times(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(include_str!("../templates/times.js")));
    send(req, res, &BODY, "text/javascript; charset=utf-8", "public, max-age=3600");
}

/// Returns the app if the sandbox is enabled; otherwise renders an error page.
fn app_if_enabled<'d>(depot: &'d Depot, res: &mut Response) -> Option<&'d Arc<App>> {
    let app = depot.get_typed::<Arc<App>>().ok()?;
    if app.platforms.get(Platform::Sandbox).is_none() {
        notice(res, StatusCode::NOT_FOUND, SANDBOX_DISABLED);
        return None;
    }
    Some(app)
}

/// Returns the handle in the path. `None` if it is not valid.
fn handle(req: &Request) -> Option<String> {
    req.param::<String>("handle").filter(|handle| is_handle(handle))
}

#[handler]
async fn timeline(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = app_if_enabled(depot, res) else { return };
    let Some(handle) = handle(req) else { return notice(res, StatusCode::NOT_FOUND, HANDLE_NOT_FOUND) };
    // An invalid id shows the newest posts.
    let from = req.query::<i64>("from").filter(|id| *id > 0);
    match load(app, handle, from).await {
        Ok(Some(page)) => {
            html(res, StatusCode::OK, &page);
            res.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        }
        Ok(None) => notice(res, StatusCode::NOT_FOUND, HANDLE_NOT_FOUND),
        Err(error) => {
            tracing::warn!(%error, "failed to read a sandbox page");
            unavailable(res);
        }
    }
}

async fn load(app: &App, handle: String, from: Option<i64>) -> Result<Option<Timeline>> {
    let mut conn = app.store.read().await?;
    // Load one more than is shown, to find out whether there is another page.
    let limit = i64::try_from(POSTS_PER_PAGE).unwrap_or(i64::MAX).saturating_add(1);
    let Some(mut posts) = sandbox::timeline(&mut conn, &handle, from, limit).await? else { return Ok(None) };
    let older = posts.get(POSTS_PER_PAGE).map(|post| post.id);
    posts.truncate(POSTS_PER_PAGE);
    let failed = if from.is_none() { sandbox::failed(&mut conn, &handle, FAILED_SHOWN).await? } else { Vec::new() };
    let ids: Vec<i64> = posts.iter().map(|post| post.id).collect();
    let mut replies = sandbox::replies(&mut conn, &ids, REPLIES_SHOWN).await?;
    let mut comments = sandbox::comments(&mut conn, &ids, COMMENTS_SHOWN).await?;
    let posts = posts
        .into_iter()
        .map(|p| {
            let id = p.id;
            let own: Vec<_> = comments.extract_if(.., |c| c.comment.post_id == id).collect();
            let total = own.first().map_or(0, |c| c.total);
            let under = replies.extract_if(.., |reply| reply.root_id == Some(id));
            let (first_comments, parts): (Vec<_>, Vec<_>) = under.partition(|reply| reply.is_comment);
            PostView {
                id,
                parts: std::iter::once(p).chain(parts).map(PartView::from).collect(),
                first_comments: first_comments.into_iter().map(PartView::from).collect(),
                earlier: usize::try_from(total).unwrap_or_default().saturating_sub(own.len()),
                full: total >= MAX_COMMENTS,
                comments: own.into_iter().map(|c| c.comment).collect(),
            }
        })
        .collect();
    let initial = handle.chars().next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let failed = failed.into_iter().map(|post| FailedView {
        id: post.id,
        text: text_parts(&post.content),
        error: post.error,
        at: post.failed_at.to_rfc3339(),
        shown: shown(post.failed_at),
    });
    Ok(Some(Timeline { handle, initial, failed: failed.collect(), posts, is_first: from.is_none(), older }))
}

/// Returns a time as text, in UTC. The script of the page replaces it by the time in the visitor's time zone.
fn shown(at: DateTime<Utc>) -> String {
    at.format("%-d %b %Y, %H:%M:%S UTC").to_string()
}

#[handler]
async fn add_comment(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = app_if_enabled(depot, res) else { return };
    // Count the request before the body is read, because a comment is a write without an API key.
    let decision = admission::count_address(app, req).await;
    reply::write_rate_limit_headers(res.headers_mut(), &decision);
    if !decision.allowed {
        return too_many_requests(res, &decision);
    }
    let (Some(handle), Some(post)) = (handle(req), req.param::<i64>("post")) else { return no_such_post(res) };
    let Ok(body) = req.payload_with_max_size(MAX_FORM).await else {
        return notice(res, StatusCode::PAYLOAD_TOO_LARGE, "The comment is too long.");
    };
    let field = |name: &str| {
        let found = url::form_urlencoded::parse(body).find(|(key, _)| key == name);
        found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let (name, text) = (field("name"), field("body"));
    let fits = |text: &str, max: usize| !text.is_empty() && text.chars().count() <= max && !text.contains('\0');
    if !fits(&name, MAX_NAME) || !fits(&text, MAX_BODY) {
        let sentence = "Enter a name of at most 80 characters and a comment of at most 2,000.";
        return notice(res, StatusCode::UNPROCESSABLE_ENTITY, sentence);
    }
    let written = async {
        let mut tx = app.store.begin().await?;
        let id = sandbox::comment(&mut tx, &handle, post, &name, &text).await?;
        tx.commit().await?;
        Ok::<_, crier_store::StoreError>(id)
    };
    match written.await {
        Ok(CommentOutcome::Added(_)) => {
            res.status_code(StatusCode::SEE_OTHER);
            if let Ok(to) = HeaderValue::from_str(&post_path(&handle, post)) {
                res.headers_mut().insert(LOCATION, to);
            }
        }
        Ok(CommentOutcome::NoSuchPost) => no_such_post(res),
        Ok(CommentOutcome::Full) => {
            notice(res, StatusCode::CONFLICT, "This post has the maximum number of comments. Comment on another post.");
        }
        Err(error) => {
            tracing::warn!(%error, "failed to store a sandbox comment");
            unavailable(res);
        }
    }
}

fn no_such_post(res: &mut Response) {
    notice(res, StatusCode::NOT_FOUND, "This post does not exist.");
}
