//! Connectors against servers that respond as the platforms document it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bluesky;
mod bluesky_inbox;
mod calls;
mod facebook;
mod facebook_inbox;
mod figures;
mod google_business;
mod google_business_inbox;
mod guarded;
mod instagram;
mod instagram_inbox;
mod linkedin;
mod linkedin_inbox;
mod mastodon;
mod mastodon_inbox;
mod pinterest;
mod reddit;
mod reddit_inbox;
mod registry;
mod shopify;
mod support;
mod telegram;
mod telegram_inbox;
mod text;
mod threads_inbox;
mod tiktok;
mod tumblr;
mod tumblr_inbox;
mod twitter;
mod twitter_inbox;
mod woocommerce;
mod wordpress;
mod wp_inbox;
