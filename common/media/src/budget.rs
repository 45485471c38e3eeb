//! Limits the memory of heavy work (images, reports), and its concurrency to the number of cores.
//!
//! A decoded image is up to a hundred times as large as its file, and several uploads arrive at the same time.
//!
//! Some work waits for a server other than the storage while it holds memory. Such a server may be slow, and a user may
//! choose it. So this work can hold at most half of the memory, and that of one workspace at most a quarter. All other
//! work can use the other half, which is never held for long.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::workspace_permits::WorkspacePermits;

/// The number of bytes per permit.
const UNIT: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Budget {
    memory: Arc<Semaphore>,
    units: u32,
    /// The half that work can hold while it waits for other servers.
    waiting: Arc<Semaphore>,
    /// The quarter that the work of each workspace can hold.
    workspaces: WorkspacePermits,
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
            tracing::error!(%error, "failed to start dedicated threads for images");
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
pub struct MemoryPermit {
    memory: Option<OwnedSemaphorePermit>,
    waiting: Option<OwnedSemaphorePermit>,
    workspace: Option<OwnedSemaphorePermit>,
}

impl MemoryPermit {
    /// Releases all but `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        for held in [&mut self.memory, &mut self.waiting, &mut self.workspace].into_iter().flatten() {
            let over = held.num_permits().saturating_sub(units(bytes) as usize);
            drop(held.split(over));
        }
    }
}

/// Converts bytes to permits.
fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

/// Returns a part of the permits, at least one.
fn part(units: u32, divisor: u32) -> u32 {
    (units / divisor).max(1)
}

impl Budget {
    pub fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).clamp(1, u32::MAX >> 4);
        Self {
            memory: Arc::new(Semaphore::new(units as usize)),
            units,
            waiting: Arc::new(Semaphore::new(part(units, 2) as usize)),
            workspaces: WorkspacePermits::default(),
            threads: Arc::new(Threads::new()),
        }
    }

    /// Waits for memory, in the order of the calls. A request for more than the total gets all of it, and so runs
    /// alone.
    pub async fn share(&self, bytes: u64) -> MemoryPermit {
        let units = units(bytes).min(self.units);
        // The semaphores are never closed.
        let memory = self.memory.clone().acquire_many_owned(units).await.ok();
        MemoryPermit { memory, waiting: None, workspace: None }
    }

    /// Waits for memory like [`Budget::share`]. At most `held` bytes of it are held while the work waits for another
    /// server, which the caller ensures with [`MemoryPermit::shrink_to`].
    pub async fn share_of_workspace(&self, workspace_id: i64, bytes: u64, held: u64) -> MemoryPermit {
        let (half, quarter, held) = (part(self.units, 2), part(self.units, 4), units(held));
        // In this order, so that work that waits for its own part does not block others.
        let workspace = self.workspaces.of(workspace_id, quarter).acquire_many_owned(held.min(quarter)).await.ok();
        let waiting = self.waiting.clone().acquire_many_owned(held.min(half)).await.ok();
        MemoryPermit { waiting, workspace, ..self.share(bytes).await }
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

    #[tokio::test]
    async fn slow_servers_hold_at_most_half_of_the_memory() {
        let budget = Budget::new(16 * UNIT);
        let mut first = budget.share_of_workspace(1, 8 * UNIT, 3 * UNIT).await;
        first.shrink_to(3 * UNIT);
        let second = budget.share_of_workspace(1, 2 * UNIT, 2 * UNIT);
        tokio::pin!(second);
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut second).await.is_err(), "its quarter is used up");
        let other = budget.share_of_workspace(2, 4 * UNIT, 4 * UNIT).await;
        let third = budget.share_of_workspace(3, 2 * UNIT, 2 * UNIT);
        tokio::pin!(third);
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut third).await.is_err(), "the half is used up");
        // Work that waits for no server has the rest.
        drop(budget.share(9 * UNIT).await);
        drop(other);
        third.await;
        first.shrink_to(UNIT);
        drop((first, second.await));
        // An image that needs more than that gets all, alone in its workspace.
        drop(budget.share_of_workspace(1, 50 * UNIT, 50 * UNIT).await);
        drop(budget.share(16 * UNIT).await);
        drop(budget.share_of_workspace(4, UNIT, UNIT).await);
        drop(budget.share_of_workspace(5, UNIT, UNIT).await);
        assert_eq!(budget.workspaces.count(), 1, "nothing is kept of workspaces that hold no memory");
    }
}
