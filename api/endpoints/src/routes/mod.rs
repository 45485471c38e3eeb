//! The endpoints of the API: one folder per resource, one file per verb. [`crate::endpoint`] describes them.

use crate::endpoint::AnyEndpoint;

pub mod accounts;
pub mod ai;
pub mod analytics;
pub mod brands;
pub mod content_plans;
pub mod conversations;
pub mod feeds;
pub mod link_in_bio;
pub mod media;
pub mod post_imports;
pub mod posts;
pub mod queue;
pub mod recurring_posts;
pub mod reports;
pub mod snippets;
pub mod webhooks;

/// Returns all endpoints in the order of the OpenAPI document.
pub fn all() -> Vec<AnyEndpoint> {
    [
        brands::endpoints(),
        accounts::endpoints(),
        posts::endpoints(),
        queue::endpoints(),
        post_imports::endpoints(),
        snippets::endpoints(),
        recurring_posts::endpoints(),
        media::endpoints(),
        feeds::endpoints(),
        content_plans::endpoints(),
        link_in_bio::endpoints(),
        conversations::endpoints(),
        webhooks::endpoints(),
        analytics::endpoints(),
        ai::endpoints(),
        reports::endpoints(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
