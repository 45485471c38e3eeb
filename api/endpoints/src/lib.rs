//! The endpoints of the API, and the checks that are common to them, without a server.
//!
//! A request is read into a type, authenticated and checked, and its handler runs in one transaction that also stores
//! the response. The [`runner`] does so for a client's request, and [`runner::call`] for a caller in this process, such
//! as a page. Nothing here waits for external services, except for connecting and refreshing an account, DNS lookups of
//! new URLs, and the AI.
//!
//! - `routes/<resource>/<verb>.rs`: the endpoints; [`endpoint`] explains how to add one
//! - `request/`: how requests describe themselves
//! - `openapi/`: the OpenAPI document

use std::sync::Once;

use regex::Regex;
use salvo::routing::filters::PathFilter;

pub mod admission;
pub mod ai;
pub mod app;
pub mod avatars;
pub mod bio;
pub mod client_documents;
pub mod context;
pub mod endpoint;
pub mod error;
pub mod fields;
pub mod file;
pub mod limits;
pub mod openapi;
pub mod outgoing;
pub mod page_body;
pub mod pagination;
pub mod reply;
pub mod request;
pub mod response;
pub mod routes;
pub mod runner;
pub mod tus;

pub use app::{App, AppDeps};

/// The prefix of every path of the API.
pub const PREFIX: &str = "/api/public/v1";

/// Converts a path, or a part of one, to salvo's syntax. Ids match only positive integers, so that
/// `/social-accounts/platforms` does not match an account.
pub fn pattern(path: &str) -> String {
    static REGISTER_ID: Once = Once::new();
    // Registered under a name, because salvo would compile an inline pattern again for each of the several hundred ids
    // in paths.
    REGISTER_ID.call_once(|| {
        let id = Regex::new("^[1-9][0-9]*$").expect("the pattern of ids compiles");
        PathFilter::register_wisp_regex("id", id);
    });
    path.trim_start_matches('/').replace('}', ":id}")
}
