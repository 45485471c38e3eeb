//! Code that is shared by several roles of Crier.
//!
//! Imports run one way: `domain` imports only `backoff`, `store` only `domain` (and `backoff`, `clock`, `random`,
//! `secrets`, `telemetry`), `queue` only `store`; `jobs` is above them. A test in `tests/architecture.rs` enforces this.

pub mod accounts;
pub mod ai;
pub mod backoff;
pub mod clock;
pub mod config;
pub mod cron;
pub mod domain;
pub mod feeds;
pub mod hexadecimal;
pub mod http;
pub mod jobs;
pub mod limits;
pub mod mail;
pub mod media;
pub mod notices;
pub mod permissions;
pub mod platforms;
pub mod process;
pub mod publishing;
pub mod queue;
pub mod random;
pub mod replies;
pub mod reports;
pub mod secrets;
pub mod store;
pub mod telemetry;
pub mod webhooks;

// For `text_enum!`, which other crates use too.
#[doc(hidden)]
pub use {serde, sqlx};
