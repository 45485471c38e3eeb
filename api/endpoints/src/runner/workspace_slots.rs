//! Limits the requests of one kind that hold much memory, and stay for a while, in this process. Other requests never wait
//! for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The divisor for the share of one workspace. Not two, because a request may hold its slot for long without any effort
/// of its client, so two workspaces could otherwise lock out all others.
const WORKSPACE_SHARE: usize = 4;

/// The number of requests by workspace.
#[derive(Clone, Debug)]
pub struct WorkspaceSlots {
    max: usize,
    requests: Arc<Mutex<HashMap<i64, usize>>>,
}

/// The place of one request. Dropping it makes room for another one.
#[derive(Debug)]
pub struct WorkspaceSlot {
    slots: WorkspaceSlots,
    workspace_id: i64,
}

impl WorkspaceSlots {
    /// `max`: the maximum number of requests of all workspaces.
    pub fn new(max: usize) -> Self {
        Self { max, requests: Arc::default() }
    }

    /// Returns `None` if there are too many requests.
    pub fn enter(&self, workspace_id: i64) -> Option<WorkspaceSlot> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.values().sum::<usize>() >= self.max {
            return None;
        }
        let own = requests.entry(workspace_id).or_default();
        if *own >= self.max / WORKSPACE_SHARE {
            return None;
        }
        *own += 1;
        Some(WorkspaceSlot { slots: self.clone(), workspace_id })
    }
}

impl Drop for WorkspaceSlot {
    fn drop(&mut self) {
        let mut requests = self.slots.requests.lock().unwrap_or_else(PoisonError::into_inner);
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
        let slots = WorkspaceSlots::new(32);
        let mut held: Vec<_> = (0..8).map(|_| slots.enter(1).unwrap()).collect();
        assert!(slots.enter(1).is_none());
        let others: Vec<_> = (2..99).map_while(|workspace| slots.enter(workspace)).collect();
        assert_eq!(held.len() + others.len(), 32);
        held.pop();
        assert!(slots.enter(99).is_some(), "a slot is free again");
        drop((held, others));
        assert!(slots.requests.lock().unwrap().is_empty(), "workspaces without requests are removed");
    }
}
