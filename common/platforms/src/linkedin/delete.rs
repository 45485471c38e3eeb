//! Deletes posts and comments of an account.
//!
//! Sources: learn.microsoft.com/linkedin ("Posts API": deleting is idempotent, 204; "Comments API": `actor` for a
//! page), January to August 2026.

use http::{Method, StatusCode};

use super::urn::{comment_parts, encoded, is_post};
use super::{Linkedin, LinkedinError, comments};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount, UnpublishPost};

/// The permissions to delete posts, of a user's account and of a page.
const DELETE_POSTS: [&str; 2] = ["w_member_social", "w_organization_social"];

/// Returns the path of a comment. `None` if the URN is not that of a comment.
fn comment_path(account: &ConnectorAccount, urn: &str) -> Option<String> {
    let (object, number) = comment_parts(urn)?;
    let path = format!("/rest/socialActions/{}/comments/{number}", encoded(object));
    // Without the actor, LinkedIn deletes only comments of the user.
    Some(match Linkedin::is_page(account) {
        true => format!("{path}?actor={}", encoded(&account.external_id)),
        false => path,
    })
}

fn post_path(urn: &str) -> Option<String> {
    is_post(urn).then(|| format!("/rest/posts/{}", encoded(urn)))
}

impl Linkedin {
    /// Deletes a post or a comment. Succeeds if it no longer exists.
    pub(super) async fn delete(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        let urn = post.external_id.as_str();
        let (path, what, names) = match post.is_comment {
            true => (comment_path(account, urn), "delete this account's comments", comments::WRITE),
            false => (post_path(urn), "delete this account's posts", DELETE_POSTS),
        };
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::DELETE, &path.ok_or_else(|| self.client.unknown_post())?, &token);
        match self.send(Effect::Repeatable, request).await {
            Ok(_) | Err(LinkedinError { status: Some(StatusCode::NOT_FOUND), .. }) => Ok(()),
            Err(failed) => Err(failed.with_permission(Self::missing(account, what, names))),
        }
    }
}
