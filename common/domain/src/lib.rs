//! The types of posts, accounts, jobs and all other records, and their transitions, without input and output.
//!
//! **To add a type:** a file per resource, and its line below. A status is a `text_enum!` here and a `CHECK` in the
//! schemas: change both. A type that is a row or a column derives that with the feature `sqlx`.

pub mod access;
pub mod account;
pub mod ai;
pub mod analytics;
pub mod application;
pub mod authorization;
pub mod auto_post;
pub mod bio_page;
pub mod brand;
pub mod catalogue;
pub mod circuit;
pub mod content_plan;
pub mod conversation;
pub mod event;
pub mod failure;
pub mod feed;
pub mod job;
pub mod limits;
pub mod local_time;
pub mod mail;
pub mod media;
pub mod notice;
pub mod plan;
pub mod platform;
pub mod post;
pub mod post_import;
pub mod queue;
pub mod recurrence;
pub mod recurring_post;
pub mod report;
pub mod report_naming;
pub mod report_schedule;
pub mod sandbox;
pub mod snippet;
pub mod spreadsheet;
pub mod untrusted;
pub mod webhook;
pub mod webhook_signature;
pub mod words;
