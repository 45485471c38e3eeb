//! Whether the free disk space has fallen below the reserve. While it has, nothing new is taken in, so that what is left
//! is there for publishing, deletions and clean-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The last reading. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct DiskReserve(Arc<AtomicBool>);

impl DiskReserve {
    /// Returns whether less space than the reserve is free.
    pub fn is_low(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Stores a reading; returns whether it differs from the one before.
    pub fn set_low(&self, is_low: bool) -> bool {
        self.0.swap(is_low, Ordering::Relaxed) != is_low
    }
}
