//! The first comment of a post, and the deletion of posts and comments.
//!
//! Reddit returns 403 for a comment on a post that does not exist, and for one that the account may not write. It
//! returns `{}` for a deletion even if the account has no such post or comment.
//!
//! Sources: www.reddit.com/dev/api (`/api/comment`, scope `submit`; `/api/del`, scope `edit`);
//! github.com/reddit-archive/reddit (`VSubmitParent`, `POST_del`); github.com/praw-dev/praw 8.0.3
//! (`json.data.things`).

use crier_domain::failure::{Category, Failure};
use crier_domain::post::PublishedPart;
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::rest::{Session, is_forbidden};
use super::{MAX_RECENT_POSTS, Reddit, user_name};
use crate::call::Effect;
use crate::text::comparable::is_same;
use crate::window::{CallWindow, find};
use crate::{CallError, ConnectorAccount, OutgoingPost, Published, ReconcileResult};

/// The response to a new comment or message.
#[derive(Deserialize)]
struct Created {
    things: Vec<Thing>,
}

#[derive(Deserialize)]
struct Thing {
    data: ThingData,
}

#[derive(Default, Deserialize)]
struct ThingData {
    /// Missing in the response to a private message.
    name: Option<String>,
    id: Option<String>,
    permalink: Option<String>,
}

impl Session<'_> {
    /// Writes below a post, a comment or a message.
    pub(super) async fn comment(&self, thing: &str, text: &str) -> Result<Published, CallError> {
        let form = [("api_type", "json"), ("thing_id", thing), ("text", text)];
        let request = self.request(Method::POST, "/api/comment").form(&form);
        let created: Created = self.submit(request).await.map_err(|failure| failure.error)?;
        let created = created.things.into_iter().next().map(|thing| thing.data).unwrap_or_default();
        Ok(Published::new(created.name.or(created.id).unwrap_or_default(), url_of(created.permalink)))
    }

    /// Writes the first comment of a post.
    pub(super) async fn comment_on(&self, post: &PublishedPart, text: &str) -> Result<Published, CallError> {
        if !post.external_id.starts_with("t3_") {
            let message = "Reddit has not returned the ID of the post yet.";
            return Err(CallError::ParentMissing(Failure::of(Category::PlatformRejected, message)));
        }
        self.comment(&post.external_id, text).await.map_err(|error| match error {
            CallError::Permanent(failure) if is_forbidden(&failure) || is_not_found(&failure) => {
                let message =
                    "Reddit does not accept this account's comments on the post, or the post no longer exists.";
                CallError::ParentMissing(Failure { message: message.to_owned(), ..failure })
            }
            error => error,
        })
    }

    /// Deletes a post or a comment of the account.
    pub(super) async fn delete(&self, name: &str) -> Result<(), CallError> {
        let request = self.request(Method::POST, "/api/del").form(&[("id", name)]);
        match self.call::<Value>(Effect::Repeatable, request).await {
            Ok(_) => Ok(()),
            Err(CallError::Permanent(failure)) if is_forbidden(&failure) => {
                let message = "Reddit does not allow Crier to delete this account's posts and comments. Missing: edit. \
                               Connect the account again.";
                Err(CallError::Permanent(Failure::with_code(Category::Account, "missing_permission", message)))
            }
            Err(error) => Err(error),
        }
    }
}

impl Reddit {
    /// Searches the account's newest comments for the first comment of a post.
    pub(super) async fn find_comment(
        &self,
        account: &ConnectorAccount,
        comment: &OutgoingPost,
        post: &PublishedPart,
    ) -> Result<ReconcileResult, CallError> {
        let (newest, next) = self.newest(account, &format!("/user/{}/comments", user_name(account)?)).await?;
        let window = CallWindow::of(comment.called_at).with_next_page(next.is_some());
        let listed = newest.into_iter().map(|found| {
            let is_below = found.parent_id.as_deref() == Some(post.external_id.as_str());
            let is_comment = is_below && is_same(&found.body, &comment.text);
            found.listed(is_comment)
        });
        Ok(find(window, listed.collect(), MAX_RECENT_POSTS))
    }
}

fn is_not_found(failure: &Failure) -> bool {
    failure.platform_code.as_deref() == Some("404")
}

/// Returns the URL of a comment.
pub(super) fn url_of(permalink: Option<String>) -> Option<String> {
    let path = permalink.filter(|path| path.starts_with('/'))?;
    Some(format!("https://www.reddit.com{path}"))
}
