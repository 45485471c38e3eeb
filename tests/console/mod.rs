//! The console's pages, over HTTP, as a person uses them without JavaScript.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod home;
mod security;
mod sign_in;
