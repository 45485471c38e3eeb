//! Comments on a site's posts: the first comment of a post, and those that the inbox reads and writes.
//!
//! A comment has no idempotency key: after a call with an unknown outcome, the comments of its post are searched by
//! author, time and text. WordPress changes quotation marks and smilies when it renders a text, so only letters and
//! digits are compared.
//!
//! Sources: REST API handbook, "Comments"; `WP_REST_Comments_Controller`, `wp_allow_comment` (`comment_duplicate`,
//! `comment_flood`).

use crier_domain::failure::{Category, Failure};
use crier_domain::post::PublishedPart;
use crier_html::plain_text;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Wordpress;
use crate::call::Effect;
use crate::window::{CallWindow, Listed, find};
use crate::wp::oldest_first::{PAGE, parse_gmt};
use crate::wp::{Rest, RestError, WpBody, html};
use crate::{CallError, ConnectorAccount, OutgoingPost, Published, ReconcileResult};

pub(super) const PATH: &str = "wp/v2/comments";
pub(super) const FIELDS: &str = "id,post,parent,author,author_name,author_avatar_urls,date_gmt,content,link";
/// The maximum number of a post's comments that are searched.
pub(super) const MAX_RECENT_COMMENTS: usize = 2 * PAGE;

#[derive(Deserialize)]
pub(super) struct Comment {
    pub(super) id: i64,
    pub(super) post: i64,
    #[serde(default)]
    pub(super) parent: i64,
    /// The user's id; 0 for a visitor.
    #[serde(default)]
    pub(super) author: i64,
    #[serde(default)]
    pub(super) author_name: String,
    #[serde(default)]
    pub(super) author_avatar_urls: Value,
    pub(super) date_gmt: String,
    #[serde(default)]
    pub(super) content: Rendered,
    pub(super) link: Option<String>,
    #[serde(default)]
    pub(super) status: String,
}

#[derive(Default, Deserialize)]
pub(super) struct Rendered {
    #[serde(default)]
    pub(super) rendered: String,
}

impl Comment {
    pub(super) fn published(self) -> Published {
        Published::new(self.id.to_string(), self.link)
    }
}

#[derive(Deserialize)]
struct UserId {
    id: i64,
}

/// Returns the id of the account's user.
pub(super) async fn own_id(rest: &Rest<'_>) -> Result<i64, CallError> {
    let query = [("_fields", "id")];
    let me: UserId = rest.call(Effect::Repeatable, Method::GET, "wp/v2/users/me", &query, WpBody::None).await?;
    Ok(me.id)
}

/// Returns the readable entries of a list. An unreadable entry must not hide the others.
pub(super) async fn comments(rest: &Rest<'_>, query: &[(&str, &str)]) -> Result<Vec<Comment>, CallError> {
    let found: Vec<Value> = rest.call(Effect::Repeatable, Method::GET, PATH, query, WpBody::None).await?;
    Ok(found.into_iter().take(100).filter_map(|comment| serde_json::from_value(comment).ok()).collect())
}

/// Returns the newest comments of a post, for a search for one of the account with this text. `parent` is the comment to
/// which it replies, or 0.
pub(super) async fn newest(rest: &Rest<'_>, post: &str, text: &str, parent: i64) -> Result<Vec<Listed>, CallError> {
    let own = own_id(rest).await?;
    let limit = MAX_RECENT_COMMENTS.to_string();
    let query = [("post", post), ("order", "desc"), ("per_page", limit.as_str()), ("_fields", FIELDS)];
    let wanted = letters(text);
    let listed = comments(rest, &query).await?.into_iter().map(|comment| Listed {
        at: parse_gmt(&comment.date_gmt),
        is_same: comment.author == own
            && comment.parent == parent
            && letters(&plain_text(&comment.content.rendered)) == wanted,
        published: comment.published(),
    });
    Ok(listed.collect())
}

/// Returns the letters and digits of a text for comparison, or the whole text if it has none.
fn letters(text: &str) -> String {
    let letters: String = text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    if letters.is_empty() { text.trim().to_owned() } else { letters }
}

/// Sends a comment.
pub(super) async fn send(rest: &Rest<'_>, body: &Value) -> Result<Comment, RestError> {
    let sent: Result<Comment, RestError> =
        rest.call(Effect::Publishes, Method::POST, PATH, &[], WpBody::Json(body)).await;
    sent.map_err(|RestError { status, code, error }| {
        let failure = |category, text: &str| Failure::of(category, text).from_platform(&code);
        let error = match code.as_str() {
            "comment_flood" => CallError::Transient(failure(
                Category::PlatformError,
                "WordPress does not accept comments in such quick succession.",
            )),
            "comment_duplicate" => CallError::Permanent(failure(
                Category::DuplicateContent,
                "WordPress already has a comment with this text, or holds it for moderation.",
            )),
            "rest_comment_closed" => {
                CallError::Permanent(failure(Category::Account, "Comments are closed on this WordPress post."))
            }
            "rest_comment_trash_post" => CallError::Permanent(failure(
                Category::PlatformRejected,
                "The post is in the trash of the WordPress site.",
            )),
            _ => error,
        };
        RestError { status, code, error }
    })
}

impl Wordpress {
    /// Writes the first comment of a post. The site may hold it for moderation.
    pub(super) async fn comment_on(
        &self,
        account: &ConnectorAccount,
        post: &PublishedPart,
        text: &str,
    ) -> Result<Published, CallError> {
        let rest = self.rest(&account.secrets)?;
        match send(&rest, &json!({ "post": post.external_id, "content": html::escape(text) })).await {
            Ok(comment) => Ok(comment.published()),
            Err(failed) if failed.code == "rest_comment_invalid_post_id" => {
                let failure = Failure::of(Category::PlatformRejected, "The post does not exist on the WordPress site.");
                Err(CallError::ParentMissing(failure.from_platform(&failed.code)))
            }
            Err(failed) => Err(failed.error),
        }
    }

    /// Searches a post's newest comments for its first comment.
    pub(super) async fn find_comment(
        &self,
        account: &ConnectorAccount,
        comment: &OutgoingPost,
        post: &PublishedPart,
    ) -> Result<ReconcileResult, CallError> {
        let listed = newest(&self.rest(&account.secrets)?, &post.external_id, &comment.text, 0).await?;
        Ok(find(CallWindow::of(comment.called_at), listed, MAX_RECENT_COMMENTS))
    }
}
