//! Telemetry: logs, metrics, traces, and the ops server for monitoring tools.
//!
//! **To add a metric:** see [`metrics`]. **To add a part of readiness:** add its name where the process creates its
//! [`ops::Readiness`].

pub mod logs;
pub mod metrics;
pub mod ops;
pub mod traces;

/// Returns the name of a method. `None` for an unknown one: clients may send any method, and names must be bounded.
fn known_method(method: &http::Method) -> Option<&'static str> {
    const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    METHODS.into_iter().find(|name| *name == method.as_str())
}
