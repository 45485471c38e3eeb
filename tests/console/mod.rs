//! The console's pages, over HTTP, as a user without JavaScript sees them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod accounts;
mod agents;
mod analytics;
mod applications;
mod avatars;
mod bio;
mod boards;
mod calendar;
mod composer;
mod content_plans;
mod feeds;
mod form_keys;
mod home;
mod imports;
mod inbox;
mod keys;
mod link_cards;
mod long_lists;
mod media;
mod oauth_consent;
mod operator;
mod post;
mod post_bulk;
mod post_threads;
mod posts;
mod previews;
mod queue;
mod recurring;
mod reports;
mod required_options;
mod security;
mod settings;
mod sign_in;
mod snippets;
mod threads;
mod videos;
mod webhooks;
