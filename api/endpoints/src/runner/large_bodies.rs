//! Processes large bodies one at a time. Processing one takes milliseconds, in which its thread could serve many small
//! requests, so the thread's other tasks move to another thread meanwhile.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// The minimum size of a large body, in bytes. Parsing it takes about 0.3 ms.
const MIN_LARGE_BYTES: usize = 64 << 10;

/// A semaphore with one permit for large bodies.
#[derive(Debug)]
pub struct LargeBodySemaphore(Semaphore);

impl Default for LargeBodySemaphore {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

impl LargeBodySemaphore {
    /// Runs `work` on a body of this size.
    pub async fn run<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        if bytes < MIN_LARGE_BYTES {
            return work();
        }
        let _permit = self.0.acquire().await;
        match Handle::current().runtime_flavor() {
            // There is no other thread to move tasks to.
            RuntimeFlavor::CurrentThread => work(),
            _ => tokio::task::block_in_place(work),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn concurrent_large_bodies_are_limited() {
        let (semaphore, running, max_running) =
            (Arc::new(LargeBodySemaphore::default()), AtomicUsize::new(0), AtomicUsize::new(0));
        let counts = Arc::new((running, max_running));
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let (semaphore, counts) = (semaphore.clone(), counts.clone());
            all.spawn(async move {
                let work = || {
                    let (running, max_running) = &*counts;
                    max_running.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                };
                semaphore.run(MIN_LARGE_BYTES, work).await
            });
        }
        assert_eq!(all.join_all().await.len(), 50);
        assert_eq!(counts.1.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn small_bodies_do_not_wait() {
        let semaphore = LargeBodySemaphore::default();
        let _permit = semaphore.0.acquire().await;
        assert_eq!(semaphore.run(MIN_LARGE_BYTES - 1, || 7).await, 7);
    }
}
