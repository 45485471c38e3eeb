//! Jobs from the bell to the record, on both engines: what each kind does, how it fails, and that no crash loses or doubles
//! anything. All of it is driven by hand ([`crate::support::jobs::TestWorker`]): no test waits for a time to pass.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod accounts;
mod circuit;
mod engine;
mod events;
mod hanging;
mod import_media;
mod lateness;
mod notices;
mod outside;
mod pacing;
mod picture_platforms;
mod pictures;
mod publish;
mod random;
mod retry;
mod sandbox;
mod scheduler;
mod send_mail;
mod transport;
mod unwanted;
mod webhook_sending;
mod webhooks;
