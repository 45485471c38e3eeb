//! Reports: the endpoints, what an export shows, schedules, mails, and files.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod endpoints;
mod exports;
mod mail_limits;
mod mails;
mod numbers;
mod schedules;
