//! What a running process tells of itself: logs, metrics, and the small server at which an operator's tools ask.
//!
//! **To add a metric:** a line in `metrics::METRICS` with its help text, and a function beside the others that names its
//! labels as types. **To add a part that readiness waits for:** name it where the process makes its [`ops::Readiness`].

pub mod logs;
pub mod metrics;
pub mod ops;
