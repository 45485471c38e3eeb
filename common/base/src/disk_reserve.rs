//! Whether the free disk space is below the reserve. While it is, uploads and new records are rejected, so that the
//! remaining space is available for publishing, deletions and cleanup.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The last reading of the free disk space. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct DiskReserve(Arc<AtomicBool>);

impl DiskReserve {
    /// Returns whether the free space is below the reserve.
    pub fn is_low(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Stores a reading; returns whether it differs from the previous one.
    pub fn set_low(&self, is_low: bool) -> bool {
        self.0.swap(is_low, Ordering::Relaxed) != is_low
    }
}
