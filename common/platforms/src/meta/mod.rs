//! The common parts of Meta's platforms: the Graph API with its errors (`graph.rs`), batch requests (`batch.rs`),
//! metrics that are requested by name (`insights.rs`), Facebook Login (`login.rs`), the long-lived tokens of Instagram
//! and Threads (`tokens.rs`), the containers in which these two prepare a post (`containers.rs`), the files that they
//! do not accept (`file_errors.rs`), inboxes (`inbox.rs`), and deletion (`posts.rs`).

pub(super) mod batch;
pub(super) mod containers;
mod file_errors;
pub(super) mod graph;
pub(super) mod inbox;
pub(super) mod insights;
pub(super) mod login;
pub(super) mod posts;
pub(super) mod tokens;

/// The version of the Graph API for Facebook and Instagram. It is supported until 29 July 2028 (checked in November
/// 2026).
pub(super) const VERSION: &str = "v25.0";
