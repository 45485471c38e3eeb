//! Types and transitions; no I/O. A status is an enum here and a SQL `CHECK` in the migrations: change both.

mod text_enum;

pub mod access;
pub mod account;
pub mod ai;
pub mod analytics;
pub mod application;
pub mod authorization;
pub mod bio_page;
pub mod brand;
pub mod circuit;
pub mod content_plan;
pub mod conversation;
pub mod event;
pub mod failure;
pub mod feed;
pub mod job;
pub mod mail;
pub mod media;
pub mod plan;
pub mod platform;
pub mod post;
pub mod report;
pub mod report_schedule;
pub mod untrusted;
pub mod webhook;
pub mod words;

/// A word that is not a value of the enum.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("`{word}` is unknown; it must be one of: {known}")]
pub struct UnknownWord {
    pub word: String,
    pub known: String,
}
