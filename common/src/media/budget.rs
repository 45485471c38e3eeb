//! How much memory pictures may take up together, and how many are worked on at once: one for each core.
//!
//! A decoded picture is up to a hundred times as large as its file; twenty uploads at once would be twenty of them.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

/// What one permit stands for.
const UNIT: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Budget {
    memory: Arc<Semaphore>,
    units: u32,
    threads: Arc<Threads>,
}

/// One thread for each core, made when they are needed. Threads of their own, and few: the system's allocator keeps some of
/// what was freed for each thread that ever asked for much, so that pictures worked on by any of tokio's hundreds would
/// leave several times as much memory behind as is in use.
#[derive(Debug)]
struct Threads(Option<Runtime>);

impl Threads {
    fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_current_thread().max_blocking_threads(cores).thread_name("pictures").build();
        if let Err(error) = &runtime {
            tracing::error!(%error, "pictures have no threads of their own");
        }
        Self(runtime.ok())
    }

    /// The next free thread takes it up, in order.
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
            // What runs is not waited for: this may be dropped where nobody may wait.
            runtime.shutdown_background();
        }
    }
}

/// A share of the memory; given back when it is dropped.
#[derive(Debug)]
pub struct Share(Option<OwnedSemaphorePermit>);

impl Share {
    /// Gives back what is over so many bytes.
    pub fn keep(&mut self, bytes: u64) {
        if let Some(held) = &mut self.0 {
            let over = held.num_permits().saturating_sub(units(bytes) as usize);
            drop(held.split(over));
        }
    }
}

/// How many permits so many bytes are.
fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

impl Budget {
    pub fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).clamp(1, u32::MAX >> 4);
        Self { memory: Arc::new(Semaphore::new(units as usize)), units, threads: Arc::new(Threads::new()) }
    }

    /// Waits for so much memory, first come, first served; what needs more than there is gets all of it, and so is alone.
    pub async fn share(&self, bytes: u64) -> Share {
        let units = units(bytes).min(self.units);
        // Never closed.
        Share(self.memory.clone().acquire_many_owned(units).await.ok())
    }

    /// Runs heavy work on a thread once a core is free for it; `None` where it panicked.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        match self.threads.spawn(work).await {
            Ok(done) => Some(done),
            Err(error) => {
                tracing::error!(%error, "work on a picture panicked");
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
    async fn what_a_share_gives_back_is_there_for_others() {
        let budget = Budget::new(10 * UNIT);
        let mut share = budget.share(50 * UNIT).await;
        let others = budget.share(6 * UNIT);
        tokio::pin!(others);
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut others).await.is_err(), "all of it is taken");
        share.keep(50 * UNIT);
        share.keep(5 * UNIT);
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut others).await.is_err(), "there is room for 5");
        share.keep(4 * UNIT - 1);
        others.await;
    }
}
