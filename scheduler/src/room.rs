//! What the bell takes: no kind is rung for beyond that, and one that nobody hears holds up no other.

use std::collections::HashMap;

use crier_common::domain::job::Kind;
use crier_common::queue::Transport;

/// How many ids of a kind share a transaction at most.
const BATCH: i64 = 1_000;

/// How many more ids of each kind may be rung for.
pub struct Room(HashMap<Kind, i64>);

impl Room {
    /// `None` while the bell cannot be reached.
    pub async fn of(transport: &dyn Transport) -> Option<Self> {
        let kinds = transport.room().await?;
        Some(Self(kinds.into_iter().map(|(kind, room)| (kind, i64::try_from(room).unwrap_or(i64::MAX))).collect()))
    }

    /// One batch of each kind.
    pub fn one_batch() -> Self {
        Self(Kind::ALL.iter().map(|kind| (*kind, BATCH)).collect())
    }

    /// How many ids of a kind the next transaction may ring for.
    pub fn batch(&self, kind: Kind) -> i64 {
        self.0.get(&kind).copied().unwrap_or(0).min(BATCH)
    }

    /// They were rung for.
    pub fn take(&mut self, kind: Kind, rung: usize) {
        if let Some(room) = self.0.get_mut(&kind) {
            *room = room.saturating_sub(i64::try_from(rung).unwrap_or(i64::MAX));
        }
    }
}
