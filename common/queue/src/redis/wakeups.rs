//! Wakes the workers of this process when ids are pushed: one subscription for all kinds, which is renewed when it
//! breaks.
//!
//! A lost wake-up costs little, because a worker also looks for ids every second.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crier_base::backoff::Pauses;
use crier_domain::job::JobKind;
use futures::{Stream, StreamExt, stream};
use redis::RedisError;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{CONNECT_TIMEOUT, Queues, RESPONSE_TIMEOUT, reconnect_pauses};

/// The interval at which a worker looks for ids without being woken.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(1);
/// A worker that is woken during a fetch may miss ids that were pushed meanwhile, so it looks again after this time.
const SECOND_LOOK: Duration = Duration::from_millis(10);
/// The time without messages after which the subscription is checked.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// A stream whose items wake a worker.
pub type WakeupStream = Pin<Box<dyn Stream<Item = ()> + Send + Sync>>;

/// The subscription, which starts with the first listener.
pub struct Wakeups {
    queues: Queues,
    kinds: Mutex<HashMap<JobKind, watch::Sender<()>>>,
    started: AtomicBool,
    stop: CancellationToken,
}

impl Wakeups {
    pub fn new(queues: Queues, stop: CancellationToken) -> Self {
        Self { queues, kinds: Mutex::default(), started: AtomicBool::new(false), stop }
    }

    /// Returns the wake-ups of a kind.
    pub fn subscribe(this: &Arc<Self>, kind: JobKind) -> watch::Receiver<()> {
        let receiver = {
            let mut kinds = this.kinds.lock().unwrap_or_else(PoisonError::into_inner);
            kinds.entry(kind).or_insert_with(|| watch::channel(()).0).subscribe()
        };
        if !this.started.swap(true, Ordering::SeqCst) {
            let wakeups = this.clone();
            tokio::spawn(async move {
                tokio::select! { () = wakeups.run() => {}, () = wakeups.stop.cancelled() => {} }
            });
        }
        receiver
    }

    async fn run(&self) {
        let mut pauses = reconnect_pauses();
        loop {
            match self.receive(&mut pauses).await {
                Ok(()) => {}
                Err(error) => tracing::debug!(%error, "the subscription to the queue (Redis) ended; renewing it"),
            }
            sleep(pauses.next_pause()).await;
        }
    }

    /// Receives until the connection fails.
    async fn receive(&self, pauses: &mut Pauses) -> Result<(), RedisError> {
        let silent = |_| RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let pubsub = timeout(CONNECT_TIMEOUT, self.queues.client.get_async_pubsub()).await.map_err(silent)??;
        let (mut sink, mut messages) = pubsub.split();
        let channels: Vec<(JobKind, String)> =
            JobKind::ALL.iter().map(|kind| (*kind, self.queues.channel(*kind))).collect();
        for (_, channel) in &channels {
            timeout(RESPONSE_TIMEOUT, sink.subscribe(channel)).await.map_err(silent)??;
        }
        pauses.reset();
        // Ids may have been pushed before the subscription.
        JobKind::ALL.iter().for_each(|kind| self.wake(*kind));
        loop {
            match timeout(PING_INTERVAL, messages.next()).await {
                Ok(Some(message)) => {
                    if let Some((kind, _)) = channels.iter().find(|(_, name)| name == message.get_channel_name()) {
                        self.wake(*kind);
                    }
                }
                Ok(None) => return Ok(()),
                Err(_) => timeout(RESPONSE_TIMEOUT, sink.ping::<redis::Value>()).await.map_err(silent)?.map(drop)?,
            }
        }
    }

    fn wake(&self, kind: JobKind) {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = kinds.get(&kind) {
            sender.send_replace(());
        }
    }
}

/// Returns the stream that wakes one worker.
///
/// With each item it wakes its task once more. apalis polls the stream once per poll of the worker, and does not poll
/// it again after an item. If that poll also ends a fetch without ids, nothing else would wake the worker before its
/// next heartbeat, up to ten seconds later.
pub fn stream(wakeups: watch::Receiver<()>) -> WakeupStream {
    let mut items = Box::pin(stream::unfold((wakeups, FALLBACK_INTERVAL), |(mut wakeups, wait)| async move {
        let woken = tokio::select! {
            changed = wakeups.changed() => changed.is_ok(),
            () = sleep(wait) => false,
        };
        let next_wait = if woken { SECOND_LOOK } else { FALLBACK_INTERVAL };
        Some(((), (wakeups, next_wait)))
    }));
    Box::pin(stream::poll_fn(move |cx| {
        let item = items.poll_next_unpin(cx);
        if item.is_ready() {
            cx.waker().wake_by_ref();
        }
        item
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Poll};

    use apalis_core::backend::Backend;
    use apalis_core::backend::ext::BackendExt;
    use apalis_core::worker::context::WorkerContext;

    use super::*;

    /// A storage whose fetches end immediately without a task, after which apalis' storages do not wake the worker.
    #[derive(Clone)]
    struct Empty(Arc<AtomicUsize>);

    impl Backend for Empty {
        type Task = i64;
        type Error = std::io::Error;

        fn poll_ready(&mut self, _: &mut Context<'_>, _: &WorkerContext) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn poll_next(&mut self, _: &mut Context<'_>, _: &WorkerContext) -> Poll<Option<Result<i64, Self::Error>>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Poll::Pending
        }

        fn poll_close(&mut self, _: &mut Context<'_>, _: &WorkerContext) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_is_woken_again_after_a_fetch_that_found_nothing() {
        let (fetches, (wake, wakeups)) = (Arc::<AtomicUsize>::default(), watch::channel(()));
        let mut backend = Empty(fetches.clone()).poll_with_stream(stream(wakeups));
        let worker = WorkerContext::new("worker");
        let polling = std::future::poll_fn(move |cx| backend.poll_next(cx, &worker).map(drop));
        let polling = tokio::spawn(polling);
        let mut before = 0;
        for round in 0..5 {
            // A wake-up, then an interval in which the worker looks without one.
            if round % 2 == 0 {
                wake.send_replace(());
            } else {
                sleep(FALLBACK_INTERVAL).await;
            }
            sleep(SECOND_LOOK * 2).await;
            let now = fetches.load(Ordering::SeqCst);
            assert!(now > before, "round {round}: {now} fetches");
            before = now;
        }
        polling.abort();
    }
}
