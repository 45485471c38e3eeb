//! The console's pages, over HTTP, as a person uses them without JavaScript.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod accounts;
mod calendar;
mod composer;
mod analytics;
mod home;
mod inbox;
mod keys;
mod post;
mod posts;
mod media;
mod operator;
mod security;
mod settings;
mod sign_in;
mod webhooks;
