//! Code that every other crate may use, and that is independent of posts, jobs and platforms.
//!
//! **To add a module:** a file here, and its line below. Code that only one crate uses belongs in that crate.

pub mod backoff;
pub mod clock;
pub mod cron;
pub mod disk_reserve;
pub mod hexadecimal;
pub mod patch_field;
pub mod permissions;
pub mod problems;
pub mod random;
pub mod secrets;
pub mod steps;
mod text_enum;

pub use text_enum::UnknownWord;

// `text_enum!` refers to them in other crates.
#[doc(hidden)]
pub use serde;
#[cfg(feature = "sqlx")]
#[doc(hidden)]
pub use sqlx;
