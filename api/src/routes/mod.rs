//! Every endpoint of the API, a folder a resource and a file a verb. How to add one: [`crate::endpoint`].

use crate::endpoint::Endpoint;

pub mod accounts;
mod ai;
mod brands;
mod content_plans;
mod feeds;
mod link_in_bio;
pub mod media;
mod posts;
mod webhooks;

/// All endpoints, in the order of the document.
pub fn all() -> Vec<Endpoint> {
    [
        brands::endpoints(),
        accounts::endpoints(),
        posts::endpoints(),
        media::endpoints(),
        feeds::endpoints(),
        content_plans::endpoints(),
        link_in_bio::endpoints(),
        webhooks::endpoints(),
        ai::endpoints(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
