//! The binary of the integration tests, which cover more than one crate. `./scripts/test` starts the servers that it
//! needs, and runs it.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests make connections of their own")]

mod analytics_guide;
mod api;
mod architecture;
mod bench;
mod browser;
mod clients;
mod commands;
mod connect;
mod console;
mod faults;
mod feeds;
mod guide;
mod jobs;
mod mail;
mod mcp;
mod media;
mod metrics;
mod module_circles;
mod oauth;
mod platforms;
mod readme;
mod reports;
mod store;
mod support;
mod texts;
mod traces;
