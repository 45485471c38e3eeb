//! Every endpoint of the API, a folder a resource and a file a verb. How to add one: [`crate::endpoint`].

use crate::endpoint::Endpoint;

pub mod accounts;
mod ai;
mod brands;
mod media;
mod posts;
mod webhooks;

/// All endpoints, in the order of the document.
pub fn all() -> Vec<Endpoint> {
    [
        brands::endpoints(),
        accounts::endpoints(),
        posts::endpoints(),
        media::endpoints(),
        webhooks::endpoints(),
        ai::endpoints(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
