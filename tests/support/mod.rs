//! What several tests need.

pub mod app;
pub mod connector;
pub mod fake_platform;
pub mod jobs;
pub mod process;
pub mod scripted;
pub mod servers;
pub mod store;
