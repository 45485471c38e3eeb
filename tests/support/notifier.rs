//! Helpers that listen to a notifier.

use std::sync::Arc;

use crier_domain::job::JobKind;
use crier_queue::{Handler, Transport};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, UnboundedReceiver, error::TryRecvError};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A listener that receives ids until it is dropped.
pub struct TestListener {
    ids: UnboundedReceiver<i64>,
    /// Has a permit for each place that the test gives back.
    places: Arc<Semaphore>,
    _stop: DropGuard,
}

/// Listens with more places than any test needs, and gives back every place immediately.
pub fn test_listener(notifier: &dyn Transport, kind: JobKind) -> TestListener {
    let listener = test_listener_with_slots(notifier, kind, 100);
    listener.places.add_permits(1_000_000);
    listener
}

/// Listens with this many places. Each id occupies a place until [`TestListener::give_back`].
pub fn test_listener_with_slots(notifier: &dyn Transport, kind: JobKind, count: usize) -> TestListener {
    let (sender, ids) = mpsc::unbounded_channel();
    let (places, stop) = (Arc::new(Semaphore::new(0)), CancellationToken::new());
    let given_back = places.clone();
    let handler: Handler = Arc::new(move |id| {
        let (sender, places) = (sender.clone(), given_back.clone());
        Box::pin(async move {
            let _ = sender.send(id);
            places.acquire().await.expect("it is never closed").forget();
        })
    });
    tokio::spawn(notifier.listen(kind, count, handler, stop.clone()));
    TestListener { ids, places, _stop: stop.drop_guard() }
}

impl TestListener {
    /// Returns the next id; `None` once the listener has ended.
    pub async fn recv(&mut self) -> Option<i64> {
        self.ids.recv().await
    }

    pub fn try_recv(&mut self) -> Result<i64, TryRecvError> {
        self.ids.try_recv()
    }

    /// Gives back the place of one id.
    pub fn give_back(&self) {
        self.places.add_permits(1);
    }
}
