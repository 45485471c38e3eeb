//! The problems of a request, by field, which are reported together.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::ops::Bound;

use crate::steps;

/// The maximum number of problems in a response. Validation stops at this number.
pub const MAX_PROBLEMS: usize = 100;

/// Maps a field's path (`accounts.0`) to its problems.
pub type FieldProblems = BTreeMap<String, Vec<String>>;

/// The problems of a request.
#[derive(Clone, Debug, Default)]
pub struct ProblemSet {
    fields: FieldProblems,
    /// The number of messages.
    count: usize,
    /// Whether there were more problems than [`MAX_PROBLEMS`].
    has_more: bool,
}

impl ProblemSet {
    /// Returns the problems by field.
    pub const fn fields(&self) -> &FieldProblems {
        &self.fields
    }

    pub fn into_fields(self) -> FieldProblems {
        self.fields
    }
}

impl From<FieldProblems> for ProblemSet {
    fn from(fields: FieldProblems) -> Self {
        let count = fields.values().map(Vec::len).sum();
        Self { fields, count, has_more: false }
    }
}

/// Names the first problem, and the number of fields that have one.
impl Display for ProblemSet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let first = self.fields.iter().next().and_then(|(path, problems)| Some((path, problems.first()?)));
        match first {
            Some((path, problem)) if self.fields.len() == 1 => write!(f, "`{path}` is not valid: {problem}"),
            Some((path, problem)) => {
                let (at_least, count) = (if self.has_more { "At least " } else { "" }, self.fields.len());
                write!(f, "{at_least}{count} fields are not valid. The first is `{path}`: {problem}")
            }
            None => f.write_str("The request is not valid."),
        }
    }
}

/// Collects the problems of a request, at most [`MAX_PROBLEMS`].
#[derive(Debug, Default)]
pub struct Problems(RefCell<ProblemSet>);

impl From<FieldProblems> for Problems {
    fn from(fields: FieldProblems) -> Self {
        Self(RefCell::new(fields.into()))
    }
}

impl Problems {
    pub fn add(&self, path: impl Into<String>, message: impl Into<String>) {
        steps::count_step();
        let mut found = self.0.borrow_mut();
        if found.count == MAX_PROBLEMS {
            found.has_more = true;
            return;
        }
        found.count += 1;
        found.fields.entry(path.into()).or_default().push(message.into());
    }

    /// Returns whether the maximum is reached, so that further validation can be skipped.
    pub fn is_full(&self) -> bool {
        self.0.borrow().count == MAX_PROBLEMS
    }

    /// Returns whether the field or a nested one has a problem, or the maximum is reached.
    pub fn has(&self, path: &str) -> bool {
        steps::count_step();
        let found = self.0.borrow();
        if found.count == MAX_PROBLEMS || found.fields.contains_key(path) {
            return true;
        }
        let within = format!("{path}.");
        let mut nested = found.fields.range::<str, _>((Bound::Included(within.as_str()), Bound::Unbounded));
        nested.next().is_some_and(|(first, _)| first.starts_with(&within))
    }

    /// Adds the problems of `other`, with paths renamed by `rename`, except for fields that already have a problem.
    pub fn merge(&self, other: Self, rename: impl Fn(&str) -> String) {
        for (path, messages) in other.0.into_inner().fields {
            let path = rename(&path);
            if !self.has(path.split('.').next().unwrap_or_default()) {
                messages.into_iter().for_each(|message| self.add(path.clone(), message));
            }
        }
    }

    pub fn from_set(found: ProblemSet) -> Self {
        Self(RefCell::new(found))
    }

    pub fn into_set(self) -> ProblemSet {
        self.0.into_inner()
    }

    /// Returns the paths of the fields with problems.
    pub fn paths(&self) -> Vec<String> {
        self.0.borrow().fields.keys().cloned().collect()
    }

    /// Fails if there are problems.
    pub fn into_result(self) -> Result<(), ProblemSet> {
        let found = self.0.into_inner();
        if found.fields.is_empty() { Ok(()) } else { Err(found) }
    }
}
