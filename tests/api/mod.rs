//! The API over a real socket, on both engines.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod accounts;
mod ai;
mod analytics;
mod bio;
mod bio_http;
mod bodies;
mod brands;
mod caps;
mod checks;
mod content_plan_limits;
mod content_plans;
mod conversations;
mod docs;
mod feeds;
mod first_comments;
mod fixed_caps;
mod idempotency;
mod large_responses;
mod leftovers;
mod limits;
mod link_cards;
mod link_in_bio;
mod lists;
mod media;
mod pages;
mod post_bulk;
mod post_duplicate;
mod post_labels;
mod post_media;
mod post_search;
mod post_split;
mod posts;
mod publishing;
mod records;
mod rejections;
mod sandbox;
mod snippets;
mod storage;
pub mod tenancy;
mod threads;
mod typos;
mod unpublish;
mod unread;
mod warnings;
mod webhooks;
