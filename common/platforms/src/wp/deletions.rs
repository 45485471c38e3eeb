//! Finds comments of WordPress, or reviews of WooCommerce, that were deleted.
//!
//! Comments that are no longer listed are searched for in the trash and in spam, if the account may read these lists.
//! If a comment is in neither, it is requested separately. Only "no such id" proves that it was deleted, because a
//! comment that waits for approval is in no list that the account may read.
//!
//! Sources: REST API handbook, "Comments" (`include`, `status`; `rest_forbidden_param`, `rest_comment_invalid_id`);
//! WooCommerce REST API documentation, "Product reviews" (`include`, `status`: `approved`, `spam`, `trash`;
//! `woocommerce_rest_review_invalid_id`).

use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::{Rest, RestError, WpBody};
use crate::CallError;
use crate::call::Effect;

/// The maximum number of ids per call. A page has at most 100.
pub const IDS_PER_CALL: usize = 100;
/// The maximum number of comments that are requested separately.
const MAX_SINGLE_CHECKS: usize = 10;

/// The endpoint that lists a site's comments or reviews.
pub struct CommentEndpoint {
    pub path: &'static str,
    /// The status of listed comments.
    pub visible_status: &'static str,
    /// The error code for an id that does not exist.
    pub no_such_id: &'static str,
}

#[derive(Deserialize)]
struct Id {
    id: i64,
}

impl CommentEndpoint {
    /// Returns the ids of deleted comments.
    pub async fn deleted(&self, rest: &Rest<'_>, ids: &[String]) -> Result<Vec<String>, CallError> {
        let visible = self.with_status(rest, ids, self.visible_status).await?;
        let mut unresolved: Vec<String> = ids.iter().filter(|id| !visible.contains(id)).cloned().collect();
        let mut deleted = Vec::new();
        for status in ["trash", "spam"] {
            if unresolved.is_empty() {
                return Ok(deleted);
            }
            let found = match self.with_status(rest, &unresolved, status).await {
                Ok(found) => found,
                Err(failed) if is_inconclusive(&failed) => break,
                Err(failed) => return Err(failed.error),
            };
            unresolved.retain(|id| !found.contains(id));
            deleted.extend(found);
        }
        for id in unresolved.into_iter().take(MAX_SINGLE_CHECKS) {
            let path = format!("{}/{id}", self.path);
            let query = [("_fields", "id")];
            let found: Result<Value, RestError> =
                rest.call(Effect::Repeatable, Method::GET, &path, &query, WpBody::None).await;
            match found {
                Err(failed) if failed.status == Some(404) && failed.code == self.no_such_id => deleted.push(id),
                Err(failed) if !is_inconclusive(&failed) => return Err(failed.error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(deleted)
    }

    /// Returns the ids of comments with this status.
    async fn with_status(&self, rest: &Rest<'_>, ids: &[String], status: &str) -> Result<Vec<String>, RestError> {
        let include = ids.join(",");
        let query = [("include", include.as_str()), ("status", status), ("per_page", "100"), ("_fields", "id")];
        let found: Vec<Value> = rest.call(Effect::Repeatable, Method::GET, self.path, &query, WpBody::None).await?;
        let found = found.iter().take(IDS_PER_CALL).filter_map(|one| Id::deserialize(one).ok());
        Ok(found.map(|one| one.id.to_string()).filter(|id| ids.contains(id)).collect())
    }
}

/// Returns whether an error proves nothing: the site does not show this to the account, or rejects the request.
fn is_inconclusive(failed: &RestError) -> bool {
    matches!(failed.error, CallError::Permanent(_) | CallError::Reauth(_) | CallError::AuthExpired(_))
}
