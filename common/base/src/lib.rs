//! Parts that every other crate may use, and that know nothing of posts, jobs or platforms.

pub mod backoff;
pub mod clock;
pub mod cron;
pub mod disk_reserve;
pub mod hexadecimal;
pub mod permissions;
pub mod random;
pub mod secrets;
mod text_enum;

pub use text_enum::UnknownWord;

// For `text_enum!`, which other crates use.
#[doc(hidden)]
pub use {serde, sqlx};
