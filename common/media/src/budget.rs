//! Limits the memory of heavy work (images, reports), and its concurrency to the number of cores.
//!
//! A decoded image is up to a hundred times as large as its file, and several uploads arrive at the same time.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

/// The number of bytes per permit.
const UNIT: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Budget {
    memory: Arc<Semaphore>,
    units: u32,
    threads: Arc<Threads>,
}

/// One dedicated thread per core, started on demand. The system's allocator retains freed memory for each thread that
/// has allocated much, so processing images on tokio's hundreds of blocking threads would retain several times the
/// memory in use.
#[derive(Debug)]
struct Threads(Option<Runtime>);

impl Threads {
    fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_current_thread().max_blocking_threads(cores).thread_name("heavy-work").build();
        if let Err(error) = &runtime {
            tracing::error!(%error, "could not start dedicated threads for images");
        }
        Self(runtime.ok())
    }

    /// Queues work for the next free thread, in order.
    fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        match &self.0 {
            Some(runtime) => runtime.spawn_blocking(work),
            None => tokio::task::spawn_blocking(work),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Does not wait for running work: this may be dropped in an async context.
            runtime.shutdown_background();
        }
    }
}

/// A share of the memory, which is released on drop.
#[derive(Debug)]
pub struct MemoryPermit(Option<OwnedSemaphorePermit>);

impl MemoryPermit {
    /// Releases all but `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        if let Some(held) = &mut self.0 {
            let over = held.num_permits().saturating_sub(units(bytes) as usize);
            drop(held.split(over));
        }
    }
}

/// Converts bytes to permits.
fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

impl Budget {
    pub fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).clamp(1, u32::MAX >> 4);
        Self { memory: Arc::new(Semaphore::new(units as usize)), units, threads: Arc::new(Threads::new()) }
    }

    /// Waits for memory, in the order of the calls. A request for more than the total gets all of it, and so runs
    /// alone.
    pub async fn share(&self, bytes: u64) -> MemoryPermit {
        let units = units(bytes).min(self.units);
        // The semaphore is never closed.
        MemoryPermit(self.memory.clone().acquire_many_owned(units).await.ok())
    }

    /// Runs heavy work when a core is free; returns `None` if it panicked.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        match self.threads.spawn(work).await {
            Ok(done) => Some(done),
            Err(error) => {
                tracing::error!(%error, "image processing panicked");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_released_share_is_available_to_others() {
        let budget = Budget::new(10 * UNIT);
        let mut share = budget.share(50 * UNIT).await;
        let others = budget.share(6 * UNIT);
        tokio::pin!(others);
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut others).await.is_err(), "all of it is taken");
        share.shrink_to(50 * UNIT);
        share.shrink_to(5 * UNIT);
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut others).await.is_err(), "there is room for 5");
        share.shrink_to(4 * UNIT - 1);
        others.await;
    }
}
