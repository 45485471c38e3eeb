//! The number of runs of each workspace in this worker.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// By workspace lane; a lane without runs has no entry.
#[derive(Default)]
pub(super) struct WorkspaceRuns(Mutex<HashMap<String, i64>>);

impl WorkspaceRuns {
    pub fn add(&self, lane: &str) {
        let mut runs = self.lock();
        match runs.get_mut(lane) {
            Some(count) => *count += 1,
            None => drop(runs.insert(lane.to_owned(), 1)),
        }
    }

    pub fn remove(&self, lane: &str) {
        let mut runs = self.lock();
        if let Some(count) = runs.get_mut(lane) {
            *count -= 1;
            if *count == 0 {
                runs.remove(lane);
            }
        }
    }

    pub fn count(&self, lane: &str) -> i64 {
        self.lock().get(lane).copied().unwrap_or_default()
    }

    /// No code panics while it holds the lock, so a poisoned one is safe to use.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_counted_apart_and_forgotten() {
        let runs = WorkspaceRuns::default();
        runs.add("a");
        runs.add("a");
        runs.add("b");
        runs.remove("b");
        assert_eq!((runs.count("a"), runs.count("b")), (2, 0));
        runs.remove("a");
        runs.remove("a");
        assert!(runs.lock().is_empty());
    }
}
