//! Counts the steps of reading and checking a request, so that tests can measure work without a clock.
//!
//! **To add one:** call [`count_step`] in code that runs once for each element of a request.

#[cfg(debug_assertions)]
use std::cell::Cell;

#[cfg(debug_assertions)]
thread_local! {
    static STEP_COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts one field, element or problem. A no-op in release builds.
#[inline]
pub fn count_step() {
    #[cfg(debug_assertions)]
    STEP_COUNT.with(|taken| taken.set(taken.get() + 1));
}

/// Returns the result of `work` and the number of its steps.
#[cfg(debug_assertions)]
pub fn count_steps<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = STEP_COUNT.with(Cell::get);
    let result = work();
    (result, STEP_COUNT.with(Cell::get) - before)
}
