//! Permits that each workspace has for itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// The semaphores of the workspaces. Each is dropped when nobody holds its permits or waits for them.
#[derive(Clone, Debug, Default)]
pub struct WorkspacePermits(Arc<Mutex<HashMap<i64, Weak<Semaphore>>>>);

impl WorkspacePermits {
    /// Returns the semaphore of a workspace, or creates one with `permits`. It is never closed.
    pub fn of(&self, workspace_id: i64, permits: u32) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.get(&workspace_id).and_then(Weak::upgrade) {
            return found;
        }
        all.retain(|_, semaphore| semaphore.strong_count() > 0);
        let new = Arc::new(Semaphore::new(permits as usize));
        all.insert(workspace_id, Arc::downgrade(&new));
        new
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
