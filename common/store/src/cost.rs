//! Counts the statements and transactions of this process, for `crier-bench cost`. On an idle installation, the counts
//! of a request are the same on every machine, so they reveal a change that adds a statement.

use std::sync::atomic::{AtomicU64, Ordering};

static STATEMENTS: AtomicU64 = AtomicU64::new(0);
static TRANSACTIONS: AtomicU64 = AtomicU64::new(0);

/// What this process has sent to its databases since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Includes `BEGIN`, `COMMIT` and `ROLLBACK`.
    pub statements: u64,
    /// Only explicit transactions; a single statement outside a transaction does not count.
    pub transactions: u64,
}

pub fn total() -> Cost {
    Cost { statements: STATEMENTS.load(Ordering::Relaxed), transactions: TRANSACTIONS.load(Ordering::Relaxed) }
}

pub(super) fn count_statements(count: u64) {
    STATEMENTS.fetch_add(count, Ordering::Relaxed);
}

pub(super) fn count_transaction() {
    TRANSACTIONS.fetch_add(1, Ordering::Relaxed);
}
