//! Feeds: what is made of documents of every kind, and what a fetch does with servers of every kind.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod corpus;
mod fetching;
mod jobs;
mod server;
