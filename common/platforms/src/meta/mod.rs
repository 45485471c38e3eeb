//! What Meta's platforms share: the Graph API with its errors (`graph.rs`), many of its calls in one request
//! (`batch.rs`), metrics that are asked for by name (`insights.rs`), Facebook Login (`login.rs`), the tokens of
//! Instagram and Threads that are exchanged for longer ones (`tokens.rs`), the containers in which these two prepare a
//! post (`containers.rs`), and what their inboxes have in common (`inbox.rs`).

pub(super) mod batch;
pub(super) mod containers;
pub(super) mod graph;
pub(super) mod inbox;
pub(super) mod insights;
pub(super) mod login;
pub(super) mod tokens;

/// The version of the Graph API at Facebook and Instagram; it lives until 29 July 2028 (looked up in November 2026).
pub(super) const VERSION: &str = "v25.0";
