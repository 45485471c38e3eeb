//! Finds the comment that begins a thread, for platforms that return only a comment's parent. The connector looks up
//! the ancestors, one call per level, up to a maximum of levels.

use std::collections::{BTreeSet, HashMap};

/// The maximum number of levels that are looked up. Deeper comments belong to the thread of the highest ancestor found.
pub const MAX_LEVELS: usize = 8;

/// The parent of each known comment. `None` if it begins a thread.
#[derive(Debug, Default)]
pub struct Parents(HashMap<String, Option<String>>);

impl Parents {
    pub fn insert(&mut self, id: &str, parent: Option<&str>) {
        self.0.insert(id.to_owned(), parent.map(str::to_owned));
    }

    /// Returns the next ancestors of these comments that are not known yet.
    pub fn missing<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let tops: BTreeSet<&str> = ids.into_iter().map(|id| self.top(id)).collect();
        tops.into_iter().filter(|top| !self.0.contains_key(*top)).map(str::to_owned).collect()
    }

    /// Returns the highest known ancestor of this comment. It is itself unknown, or begins the thread.
    pub fn top<'a>(&'a self, id: &'a str) -> &'a str {
        self.climb(id).0
    }

    /// Returns the ancestor just below the highest one, or the highest one if this is it.
    pub fn below_top<'a>(&'a self, id: &'a str) -> &'a str {
        self.climb(id).1
    }

    fn climb<'a>(&'a self, id: &'a str) -> (&'a str, &'a str) {
        let (mut top, mut below) = (id, id);
        // A server may return a cycle.
        for _ in 0..=self.0.len() {
            match self.0.get(top) {
                Some(Some(parent)) => (top, below) = (parent, top),
                Some(None) | None => break,
            }
        }
        (top, below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_is_found_level_by_level() {
        let mut parents = Parents::default();
        parents.insert("c", Some("b"));
        parents.insert("d", Some("b"));
        assert_eq!(parents.missing(["c", "d"]), ["b"]);
        parents.insert("b", Some("a"));
        assert_eq!((parents.missing(["c"]), parents.top("c")), (vec!["a".to_owned()], "a"));
        parents.insert("a", None);
        assert_eq!((parents.missing(["c", "d"]).len(), parents.top("d")), (0, "a"));
        assert_eq!((parents.below_top("d"), parents.below_top("b"), parents.below_top("a")), ("b", "b", "a"));
    }

    #[test]
    fn a_circle_ends() {
        let mut parents = Parents::default();
        parents.insert("a", Some("b"));
        parents.insert("b", Some("a"));
        assert_eq!(parents.missing(["a"]), Vec::<String>::new());
    }
}
