//! The remaining capacity of the notifier, per kind. It limits notifications, and a kind without listeners does not
//! block the others.

use std::collections::HashMap;
use std::time::Duration;

use crier_domain::job::JobKind;
use crier_queue::Transport;

/// The maximum number of ids of a kind per transaction.
const BATCH: i64 = 1_000;
/// The time that a task waits for workers to fetch ids from a notifier that it has filled. At most 2,000 ids of a kind
/// follow each time, so this limits how many jobs of a backlog start per second.
const REFILL_INTERVAL: Duration = Duration::from_millis(50);

/// The number of further ids of each kind that a run of a task may notify.
pub struct NotifierCapacity {
    by_kind: HashMap<JobKind, RemainingCapacity>,
    notified: usize,
    is_reachable: bool,
}

#[derive(Clone, Copy, Default)]
struct RemainingCapacity {
    ids: i64,
    /// Whether no id of the kind waited in the notifier.
    was_empty: bool,
}

impl NotifierCapacity {
    /// Returns the remaining capacity; `None` if the notifier is unreachable.
    pub async fn of(transport: &dyn Transport) -> Option<Self> {
        let kinds = transport.capacity().await?;
        let by_kind = kinds.into_iter().map(|capacity| {
            let ids = i64::try_from(capacity.free).unwrap_or(i64::MAX);
            (capacity.kind, RemainingCapacity { ids, was_empty: capacity.waiting == 0 })
        });
        Some(Self { by_kind: by_kind.collect(), notified: 0, is_reachable: true })
    }

    /// Returns a capacity of one batch per kind, for an unreachable notifier.
    pub fn one_batch() -> Self {
        let capacity = RemainingCapacity { ids: BATCH, was_empty: false };
        Self { by_kind: JobKind::ALL.iter().map(|kind| (*kind, capacity)).collect(), notified: 0, is_reachable: false }
    }

    /// Returns the number of ids of a kind that the next transaction may notify.
    pub fn batch(&self, kind: JobKind) -> i64 {
        self.of_kind(kind).ids.min(BATCH)
    }

    /// Returns whether no id of the kind waited in the notifier at first.
    pub fn was_empty(&self, kind: JobKind) -> bool {
        self.of_kind(kind).was_empty
    }

    /// Subtracts the notified ids.
    pub fn subtract(&mut self, kind: JobKind, notified: usize) {
        self.notified += notified;
        if let Some(capacity) = self.by_kind.get_mut(&kind) {
            capacity.ids = capacity.ids.saturating_sub(i64::try_from(notified).unwrap_or(i64::MAX));
        }
    }

    /// Returns how long to wait until the task runs again if it has filled the notifier with ids of one of these kinds
    /// and workers may fetch them soon.
    pub fn refill_in(&self, kinds: &[JobKind]) -> Option<Duration> {
        let is_full = kinds.iter().any(|kind| self.batch(*kind) == 0);
        (is_full && self.notified > 0 && self.is_reachable).then_some(REFILL_INTERVAL)
    }

    fn of_kind(&self, kind: JobKind) -> RemainingCapacity {
        self.by_kind.get(&kind).copied().unwrap_or_default()
    }
}
