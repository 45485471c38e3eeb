//! Reports: the endpoints, the contents of an export, schedules, emails, and files.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod endpoints;
mod exports;
mod mail_limits;
mod mails;
mod numbers;
mod schedules;
