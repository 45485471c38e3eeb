//! Jobs from the notification to the stored result, on both engines: what each kind does, how it fails, and that no
//! crash loses or duplicates anything. The tests run all jobs manually ([`crate::support::jobs::TestWorker`]) and do
//! not wait for real time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod accounts;
mod analytics;
mod circuit;
mod downgrades;
mod engine;
mod events;
mod first_comments;
mod hanging;
mod image_platforms;
mod images;
mod import_media;
mod imports;
pub mod inbox;
mod inbox_deletions;
mod inbox_random;
mod inbox_sandbox;
mod invalid_results;
mod lateness;
mod link_cards;
mod notices_accounts;
mod notices_digest;
mod pacing;
mod publish;
mod random;
mod random_threads;
mod recurring;
pub mod replies;
mod retry;
mod sandbox;
mod scheduler;
mod send_mail;
mod slots;
mod staged;
mod successors;
mod thread_kills;
mod threads;
mod together;
mod tokens;
mod transport;
mod unpublish;
mod unwanted;
mod video;
mod video_waits;
mod webhook_sending;
mod webhooks;
