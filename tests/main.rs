//! The test binary for tests of more than one crate. `./scripts/test` runs it with what it needs.

mod analytics_guide;
mod api;
mod architecture;
mod bench;
mod browser;
mod commands;
mod connect;
mod console;
mod faults;
mod feeds;
mod guide;
mod jobs;
mod mail;
mod media;
mod metrics;
mod platforms;
mod readme;
mod reports;
mod store;
mod support;
mod texts;
mod traces;
