//! The capacity of the notifier: no kind is notified beyond it, and a kind without listeners does not block the others.

use std::collections::HashMap;
use std::time::Duration;

use crier_domain::job::JobKind;
use crier_queue::Transport;

/// The maximum number of ids of a kind per transaction.
const BATCH: i64 = 1_000;
/// How long a task waits for workers to fetch ids from a notifier that it has filled. Each time at most 2,000 ids of a
/// kind follow, so this limits how many jobs of a backlog are started per second.
const REFILL_INTERVAL: Duration = Duration::from_millis(50);

/// How many more ids of each kind a run of a task may notify.
pub struct NotifierCapacity {
    rooms: HashMap<JobKind, Room>,
    notified: usize,
    is_reachable: bool,
}

#[derive(Clone, Copy, Default)]
struct Room {
    ids: i64,
    /// No id of the kind waited in the notifier.
    was_empty: bool,
}

impl NotifierCapacity {
    /// Returns the remaining capacity; `None` while the notifier is unreachable.
    pub async fn of(transport: &dyn Transport) -> Option<Self> {
        let kinds = transport.capacity().await?;
        let rooms = kinds.into_iter().map(|capacity| {
            let ids = i64::try_from(capacity.free).unwrap_or(i64::MAX);
            (capacity.kind, Room { ids, was_empty: capacity.waiting == 0 })
        });
        Some(Self { rooms: rooms.collect(), notified: 0, is_reachable: true })
    }

    /// Returns room for one batch of each kind, for a notifier that is unreachable.
    pub fn one_batch() -> Self {
        let room = Room { ids: BATCH, was_empty: false };
        Self { rooms: JobKind::ALL.iter().map(|kind| (*kind, room)).collect(), notified: 0, is_reachable: false }
    }

    /// Returns how many ids of a kind the next transaction may notify.
    pub fn batch(&self, kind: JobKind) -> i64 {
        self.room(kind).ids.min(BATCH)
    }

    /// Whether no id of the kind waited in the notifier at first.
    pub fn was_empty(&self, kind: JobKind) -> bool {
        self.room(kind).was_empty
    }

    /// Subtracts the notified ids.
    pub fn take(&mut self, kind: JobKind, notified: usize) {
        self.notified += notified;
        if let Some(room) = self.rooms.get_mut(&kind) {
            room.ids = room.ids.saturating_sub(i64::try_from(notified).unwrap_or(i64::MAX));
        }
    }

    /// Returns how long to wait until the task runs again, if it has filled the notifier with ids of one of these kinds, and
    /// workers may fetch them soon.
    pub fn refill_in(&self, kinds: &[JobKind]) -> Option<Duration> {
        let is_full = kinds.iter().any(|kind| self.batch(*kind) == 0);
        (is_full && self.notified > 0 && self.is_reachable).then_some(REFILL_INTERVAL)
    }

    fn room(&self, kind: JobKind) -> Room {
        self.rooms.get(&kind).copied().unwrap_or_default()
    }
}
