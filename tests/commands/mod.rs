//! The operator's commands through the real program, on both engines.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod backup;
mod delete;
mod doctor;
mod jobs;
mod key;
mod plan;
mod post;
mod start;
mod storage;
mod user;
mod webhooks;
