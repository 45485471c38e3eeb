//! What the bell takes: no kind is rung for beyond that, and one that nobody hears holds up no other.

use crier_common::domain::job::Kind;
use crier_common::queue::Transport;

/// How many ids may be rung, and for which kinds none.
pub struct Room {
    /// Kinds whose part of the bell is full: their workers are away, or slower than what comes.
    pub full: Vec<Kind>,
    /// How many ids may be rung, of whatever other kinds.
    pub ids: i64,
    /// How many more than those of a kind that has more room than another.
    pub more: Vec<(Kind, i64)>,
}

impl Room {
    /// `None` while the bell cannot be reached.
    pub async fn of(transport: &dyn Transport) -> Option<Self> {
        let kinds = transport.room().await?;
        let full = kinds.iter().filter(|(_, room)| *room == 0).map(|(kind, _)| *kind).collect();
        let least = kinds.iter().map(|(_, room)| *room).filter(|room| *room > 0).min().unwrap_or(0);
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let more = kinds.iter().filter(|(_, room)| *room > least).map(|(kind, room)| (*kind, count(room - least)));
        Some(Self { full, ids: count(least), more: more.collect() })
    }
}
