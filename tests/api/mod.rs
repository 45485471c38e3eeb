//! The API, driven over a socket as clients drive it, on both engines.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod accounts;
mod bodies;
mod brands;
mod checks;
mod feeds;
mod idempotency;
mod limits;
mod lists;
mod media;
mod post_media;
mod posts;
mod publishing;
mod tenancy;
mod webhooks;
