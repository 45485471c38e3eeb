//! `/docs`: the API reference ([`reference`]), and the guides of the directory `docs/` ([`guides`]), which are compiled
//! into the program.

use salvo::Router;

pub mod guides;
mod markdown;
mod reference;

pub fn router() -> Router {
    Router::with_path("docs").push(reference::router()).push(guides::router())
}
