//! What several tests need.

pub mod servers;
pub mod store;
