//! Large bodies: processing one takes milliseconds, in which its thread could serve many small requests. So one body is
//! processed at a time, and the thread's other tasks move to another thread meanwhile.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// A body of this size or more is large: parsing it takes about 0.3 ms or more.
const LARGE: usize = 64 << 10;

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
        if bytes < LARGE {
            return work();
        }
        let _turn = self.0.acquire().await;
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
        let (heavy, at_once, most) =
            (Arc::new(LargeBodySemaphore::default()), AtomicUsize::new(0), AtomicUsize::new(0));
        let counts = Arc::new((at_once, most));
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let (heavy, counts) = (heavy.clone(), counts.clone());
            all.spawn(async move {
                let work = || {
                    let (at_once, most) = &*counts;
                    most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    at_once.fetch_sub(1, Ordering::SeqCst);
                };
                heavy.run(LARGE, work).await
            });
        }
        assert_eq!(all.join_all().await.len(), 50);
        assert_eq!(counts.1.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn small_bodies_do_not_wait() {
        let heavy = LargeBodySemaphore::default();
        let _turn = heavy.0.acquire().await;
        assert_eq!(heavy.run(LARGE - 1, || 7).await, 7);
    }
}
