//! One file a task; [`crate::TASKS`] says how often each runs.

pub mod clean_up;
pub mod dispatch;
pub mod feeds;
pub mod measure;
pub mod rescue;
pub mod reservations;
pub mod sweep;
