//! Counts the steps of reading and checking a request, so that tests can measure work without a clock.
//!
//! **To add one:** call [`step`] wherever code runs once for each element of what a client sends.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Counts one field, element or problem. A no-op outside of tests.
#[inline]
pub fn step() {
    #[cfg(test)]
    TAKEN.with(|taken| taken.set(taken.get() + 1));
}

/// Returns the result of `work` and the number of its steps.
#[cfg(test)]
pub fn of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = TAKEN.with(Cell::get);
    let made = work();
    (made, TAKEN.with(Cell::get) - before)
}
