//! The store's conformance suite: every function of `common/store/src`, on both engines.
//!
//! **To add a table:** add a file with its tests, each a function that takes a `TestStore`, and list their names in
//! [`on_both!`](crate::support::store::on_both) at the top.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod account_holders;
mod accounts;
mod ai_credits;
mod attempts;
mod avatars;
mod bio_pages;
mod cached_plans;
mod calendar_plans;
mod content_plans;
mod conversations;
mod deletions;
mod deliveries;
mod errors;
mod events;
mod feeds;
mod idempotency;
mod jobs;
mod mail_counts;
mod mails;
mod plans;
mod posts;
mod publishing;
mod queue;
mod reading_plans;
mod sandbox;
mod schema;
mod snippets;
mod sqlite_plans;
mod storage_marker;
mod stored_texts;
mod tenants;
mod webhooks;
