//! What several tests need.

pub mod process;
pub mod servers;
pub mod store;
