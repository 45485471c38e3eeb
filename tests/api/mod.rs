//! The API, driven over a socket as clients drive it, on both engines.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod accounts;
mod ai;
mod bodies;
mod brands;
mod checks;
mod idempotency;
mod limits;
mod lists;
mod media;
mod posts;
mod publishing;
mod tenancy;
mod webhooks;
