//! Feeds: parsing documents of every kind, and fetching from servers of every kind.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod corpus;
mod fetching;
mod jobs;
mod publishing;
mod server;
