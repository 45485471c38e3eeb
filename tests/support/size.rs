//! How large tests are. A few fill tables with many rows or try many random cases: a part of them is enough to find a
//! mistake in a change, and the whole takes minutes.

use std::sync::LazyLock;

/// Returns `full` if `CRIER_TEST_FULL` is 1, as `.ci/run` sets it, else `part`.
pub fn sized<T>(full: T, part: T) -> T {
    #[expect(clippy::disallowed_methods, reason = "a test's own switch")]
    static IS_FULL: LazyLock<bool> = LazyLock::new(|| std::env::var("CRIER_TEST_FULL").is_ok_and(|value| value == "1"));
    if *IS_FULL { full } else { part }
}
