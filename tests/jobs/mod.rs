//! Jobs from the notification to the stored result, on both engines: what each kind does, how it fails, and that no
//! crash loses or duplicates anything. All of it is driven manually ([`crate::support::jobs::TestWorker`]): no test
//! waits for real time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod accounts;
mod analytics;
mod circuit;
mod downgrades;
mod engine;
mod events;
mod hanging;
mod import_media;
pub mod inbox;
mod inbox_deletions;
mod inbox_random;
mod inbox_sandbox;
mod lateness;
mod notices;
mod outside;
mod pacing;
mod picture_platforms;
mod pictures;
mod publish;
mod random;
pub mod replies;
mod retry;
mod sandbox;
mod scheduler;
mod send_mail;
mod slots;
mod staged;
mod successors;
mod together;
mod tokens;
mod transport;
mod unwanted;
mod webhook_sending;
mod webhooks;
