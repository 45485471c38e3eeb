//! What several tests need.

pub mod servers;
