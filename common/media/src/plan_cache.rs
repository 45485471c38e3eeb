//! The last plans of videos that are returned with their index first (`index_first.rs`), because a platform or a
//! resumable transfer requests many ranges of the same file.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::video::faststart::Faststart;

/// The maximum number of plans, and of their bytes: enough for three of the largest. The index of most videos has less than
/// a megabyte.
const MAX_PLANS: usize = 64;
const MAX_BYTES: usize = 36 << 20;

/// How a file is returned. `None`: as it is stored.
pub(super) type Plan = Option<Arc<Faststart>>;

/// The plans by the names of their files, which never change. The last one was used last.
#[derive(Debug, Default)]
pub(super) struct PlanCache(Mutex<VecDeque<(String, Plan)>>);

impl PlanCache {
    /// Returns the plan of a file. `None` if it is not here.
    pub fn find(&self, key: &str) -> Option<Plan> {
        let mut plans = self.lock();
        let index = plans.iter().position(|(kept, _)| kept == key)?;
        let found = plans.remove(index)?;
        let plan = found.1.clone();
        plans.push_back(found);
        Some(plan)
    }

    /// Keeps the plan of a file. Drops those that were not used for the longest time.
    pub fn keep(&self, key: &str, plan: Plan) {
        let mut plans = self.lock();
        plans.retain(|(kept, _)| kept != key);
        plans.push_back((key.to_owned(), plan));
        while plans.len() > MAX_PLANS || plans.iter().map(|(_, plan)| size(plan)).sum::<usize>() > MAX_BYTES {
            plans.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(String, Plan)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size(plan: &Plan) -> usize {
    plan.as_ref().map_or(0, |plan| plan.head.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(bytes: usize) -> Plan {
        Some(Arc::new(Faststart { head: vec![0; bytes], segments: Vec::new(), size: 0 }))
    }

    #[test]
    fn the_plans_that_were_used_last_are_kept() {
        let cache = PlanCache::default();
        cache.keep("a", plan(MAX_BYTES / 2));
        cache.keep("b", None);
        cache.keep("c", plan(MAX_BYTES / 2));
        assert_eq!(cache.find("a"), Some(plan(MAX_BYTES / 2)));
        cache.keep("d", plan(1));
        assert_eq!((cache.find("c"), cache.find("b"), cache.find("a").is_some()), (None, None, true));
        cache.keep("e", plan(MAX_BYTES + 1));
        assert!(cache.lock().is_empty(), "no plan exceeds the limit");
        (0..MAX_PLANS + 1).for_each(|number| cache.keep(&number.to_string(), None));
        cache.keep("1", None);
        assert_eq!((cache.find("0"), cache.find("1"), cache.lock().len()), (None, Some(None), MAX_PLANS));
    }
}
