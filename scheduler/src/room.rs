//! The capacity of the notifier: no kind is notified beyond it, and a kind without listeners does not block the others.

use std::collections::HashMap;

use crier_domain::job::JobKind;
use crier_queue::Transport;

/// The maximum number of ids of a kind per transaction.
const BATCH: i64 = 1_000;

/// How many more ids of each kind may be notified.
pub struct NotifierCapacity(HashMap<JobKind, i64>);

impl NotifierCapacity {
    /// Returns the remaining capacity; `None` while the notifier is unreachable.
    pub async fn of(transport: &dyn Transport) -> Option<Self> {
        let kinds = transport.free_capacity().await?;
        Some(Self(kinds.into_iter().map(|(kind, room)| (kind, i64::try_from(room).unwrap_or(i64::MAX))).collect()))
    }

    /// Returns room for one batch of each kind.
    pub fn one_batch() -> Self {
        Self(JobKind::ALL.iter().map(|kind| (*kind, BATCH)).collect())
    }

    /// Returns how many ids of a kind the next transaction may notify.
    pub fn batch(&self, kind: JobKind) -> i64 {
        self.0.get(&kind).copied().unwrap_or(0).min(BATCH)
    }

    /// Subtracts the notified ids.
    pub fn take(&mut self, kind: JobKind, notified: usize) {
        if let Some(room) = self.0.get_mut(&kind) {
            *room = room.saturating_sub(i64::try_from(notified).unwrap_or(i64::MAX));
        }
    }
}
