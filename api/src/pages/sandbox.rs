//! `/sandbox/{handle}`: the timeline of a sandbox account, and its visitors' comments.

use std::sync::Arc;

use askama::Template;
use crier_common::domain::platform::Platform;
use crier_common::store::{Result, sandbox};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode};
use salvo::{Depot, Request, Response, Router, handler};

use super::{html, plain};
use crate::app::App;

/// How much of a timeline is shown.
const POSTS: i64 = 200;
const COMMENTS: i64 = 2_000;
const LONGEST_NAME: usize = 80;
const LONGEST_BODY: usize = 2_000;
/// A comment's form, percent-encoded, is never larger.
const LARGEST_FORM: usize = 64 * 1024;

pub fn router() -> Router {
    Router::new()
        .push(Router::with_path("sandbox.css").get(styles))
        .push(Router::with_path("sandbox/{handle}").get(timeline))
        .push(Router::with_path("sandbox/{handle}/posts/{post}/comments").post(add_comment))
}

#[derive(Template)]
#[template(path = "sandbox.html")]
struct Timeline {
    handle: String,
    initial: String,
    posts: Vec<PostView>,
}

struct PostView {
    id: i64,
    text: String,
    /// At most ten; how they are laid out goes by how many they are.
    pictures: Vec<sandbox::SandboxPicture>,
    at: String,
    shown: String,
    comments: Vec<sandbox::SandboxComment>,
}

#[derive(Template)]
#[template(path = "sandbox_missing.html")]
struct Missing {
    title: &'static str,
    message: &'static str,
}

const NOBODY: Missing = Missing {
    title: "Nobody here",
    message: "Nobody has connected this sandbox handle yet. Connect it with the API, then publish to it.",
};
const OFF: Missing =
    Missing { title: "Sandbox off", message: "The sandbox is switched off on this installation (CRIER_SANDBOX)." };

#[handler]
async fn styles(res: &mut Response) {
    res.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"));
    res.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    let _ = res.write_body(include_str!("../../templates/sandbox.css"));
}

/// The state, where the sandbox is switched on.
fn open<'d>(depot: &'d Depot, res: &mut Response) -> Option<&'d Arc<App>> {
    let app = depot.get_typed::<Arc<App>>().ok()?;
    if app.platforms.get(Platform::Sandbox).is_none() {
        html(res, StatusCode::NOT_FOUND, &OFF);
        return None;
    }
    Some(app)
}

#[handler]
async fn timeline(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let handle = req.param::<String>("handle").unwrap_or_default();
    let Some(app) = open(depot, res) else { return };
    match load(app, handle).await {
        Ok(Some(page)) => html(res, StatusCode::OK, &page),
        Ok(None) => html(res, StatusCode::NOT_FOUND, &NOBODY),
        Err(error) => {
            tracing::warn!(%error, "a sandbox page could not be read");
            plain(
                res,
                StatusCode::SERVICE_UNAVAILABLE,
                "The database does not answer right now; try again in a moment.",
            );
        }
    }
}

async fn load(app: &App, handle: String) -> Result<Option<Timeline>> {
    let mut conn = app.store.read().await?;
    let Some(posts) = sandbox::timeline(&mut conn, &handle, POSTS).await? else { return Ok(None) };
    let mut comments = sandbox::comments(&mut conn, &handle, COMMENTS).await?;
    let posts = posts
        .into_iter()
        .map(|p| PostView {
            id: p.id,
            text: p.content,
            pictures: p.media,
            at: p.created_at.to_rfc3339(),
            shown: p.created_at.format("%-d %b %Y, %H:%M:%S UTC").to_string(),
            comments: comments.extract_if(.., |c| c.post_id == p.id).collect(),
        })
        .collect();
    let initial = handle.chars().next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    Ok(Some(Timeline { handle, initial, posts }))
}

#[handler]
async fn add_comment(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = open(depot, res) else { return };
    let (handle, post) =
        (req.param::<String>("handle").unwrap_or_default(), req.param::<i64>("post").unwrap_or_default());
    let Ok(body) = req.payload_with_max_size(LARGEST_FORM).await else {
        return plain(res, StatusCode::PAYLOAD_TOO_LARGE, "The comment is too long.");
    };
    let field = |name: &str| {
        let found = url::form_urlencoded::parse(body).find(|(key, _)| key == name);
        found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let (name, text) = (field("name"), field("body"));
    let fits = |text: &str, most: usize| !text.is_empty() && text.chars().count() <= most && !text.contains('\0');
    if !fits(&name, LONGEST_NAME) || !fits(&text, LONGEST_BODY) {
        let sentence = "A comment needs a name of at most 80 characters and a text of at most 2,000.";
        return plain(res, StatusCode::UNPROCESSABLE_ENTITY, sentence);
    }
    let written = async {
        let mut tx = app.store.begin().await?;
        let id = sandbox::comment(&mut tx, &handle, post, &name, &text).await?;
        tx.commit().await?;
        Ok::<_, crier_common::store::StoreError>(id)
    };
    match written.await {
        Ok(Some(_)) => {
            res.status_code(StatusCode::SEE_OTHER);
            if let Ok(to) = HeaderValue::from_str(&format!("/sandbox/{handle}#post-{post}")) {
                res.headers_mut().insert(LOCATION, to);
            }
        }
        Ok(None) => plain(res, StatusCode::NOT_FOUND, "There is no such post here."),
        Err(error) => {
            tracing::warn!(%error, "a sandbox comment could not be stored");
            plain(
                res,
                StatusCode::SERVICE_UNAVAILABLE,
                "The database does not answer right now; try again in a moment.",
            );
        }
    }
}
