//! Pages for people.

use salvo::Router;

/// All pages. A page finds the [`App`](crate::App) in its depot, as an `Arc`.
pub fn router() -> Router {
    Router::new()
}
