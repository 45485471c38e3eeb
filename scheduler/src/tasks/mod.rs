//! The recurring tasks, one file each. [`crate::TASKS`] defines when they run.

pub mod analytics;
pub mod clean_up;
pub mod dispatch;
pub mod feeds;
pub mod inbox;
pub mod measure;
pub mod misdated;
pub mod notices;
pub mod recurring;
pub mod renotify;
pub mod reports;
pub mod rescue;
pub mod reservations;
pub mod sweep;
pub mod tokens;
pub mod uploads;
