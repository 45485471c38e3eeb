//! What several tests need.

pub mod app;
pub mod client;
pub mod connector;
pub mod fake_platform;
pub mod jobs;
pub mod process;
pub mod receiver;
pub mod servers;
pub mod sites;
pub mod store;
