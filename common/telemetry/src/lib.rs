//! Telemetry: logs, metrics, traces, and the ops server for monitoring tools.
//!
//! **To add a metric:** see [`metrics`]. **To add a part of readiness:** add its name where the process creates its
//! [`ops::Readiness`].

pub mod logs;
pub mod metrics;
pub mod ops;
pub mod traces;
