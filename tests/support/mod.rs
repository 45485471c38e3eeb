//! Helpers shared by several tests.

pub mod ai_server;
pub mod app;
pub mod client;
pub mod command;
pub mod connector;
pub mod facebook;
pub mod fake_inbox;
pub mod fake_platform;
pub mod jobs;
pub mod mail_server;
pub mod mastodon;
pub mod notifier;
pub mod oauth;
pub mod page;
pub mod person;
pub mod picture;
pub mod process;
pub mod receiver;
pub mod s3;
pub mod scripted;
pub mod servers;
pub mod sites;
pub mod source;
pub mod store;
pub mod tumblr;
