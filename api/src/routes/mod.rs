//! Every endpoint of the API, a folder a resource and a file a verb. How to add one: [`crate::endpoint`].

use crate::endpoint::Endpoint;

mod brands;
mod posts;

/// All endpoints, in the order of the document.
pub fn all() -> Vec<Endpoint> {
    [brands::endpoints(), posts::endpoints()].into_iter().flatten().collect()
}
