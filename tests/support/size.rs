//! The size of tests. Some tests fill tables with many rows, or try many random cases, which takes minutes. A part of
//! them is enough to find most mistakes.

use std::sync::LazyLock;

/// Returns `full` if `CRIER_TEST_FULL` is 1, as in `.ci/run`, otherwise `part`.
pub fn sized<T>(full: T, part: T) -> T {
    #[expect(clippy::disallowed_methods, reason = "a switch of the tests")]
    static IS_FULL: LazyLock<bool> = LazyLock::new(|| std::env::var("CRIER_TEST_FULL").is_ok_and(|value| value == "1"));
    if *IS_FULL { full } else { part }
}
