//! Limits the requests that receive bytes of resumable uploads in this process. Each holds a piece in memory, and stays
//! for minutes. Other requests never wait for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of requests of all workspaces. They hold 64 MiB of memory together.
const MAX_REQUESTS: usize = 32;
/// The maximum number of requests of a workspace. A quarter of all, because a request that sends nothing holds its slot for
/// half a minute, so two workspaces could otherwise lock out all others without any effort.
const MAX_PER_WORKSPACE: usize = MAX_REQUESTS / 4;

/// The number of requests by workspace.
#[derive(Clone, Debug, Default)]
pub struct UploadSlots(Arc<Mutex<HashMap<i64, usize>>>);

/// The place of one request. Dropping it makes room for another one.
#[derive(Debug)]
pub struct UploadSlot {
    slots: UploadSlots,
    workspace_id: i64,
}

impl UploadSlots {
    /// Returns `None` if there are too many requests.
    pub fn enter(&self, workspace_id: i64) -> Option<UploadSlot> {
        let mut requests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.values().sum::<usize>() >= MAX_REQUESTS {
            return None;
        }
        let own = requests.entry(workspace_id).or_default();
        if *own >= MAX_PER_WORKSPACE {
            return None;
        }
        *own += 1;
        Some(UploadSlot { slots: self.clone(), workspace_id })
    }
}

impl Drop for UploadSlot {
    fn drop(&mut self) {
        let mut requests = self.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = requests.get_mut(&self.workspace_id) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                requests.remove(&self.workspace_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_has_a_quarter_of_the_slots() {
        let slots = UploadSlots::default();
        let mut held: Vec<_> = (0..MAX_PER_WORKSPACE).map(|_| slots.enter(1).unwrap()).collect();
        assert!(slots.enter(1).is_none());
        let others: Vec<_> = (2..99).map_while(|workspace| slots.enter(workspace)).collect();
        assert_eq!(held.len() + others.len(), MAX_REQUESTS);
        held.pop();
        assert!(slots.enter(99).is_some(), "a slot is free again");
        drop((held, others));
        assert!(slots.0.lock().unwrap().is_empty(), "workspaces without requests are removed");
    }
}
