//! How much work it is to read and check a request, for tests: they count steps, so that they need no clock.
//!
//! **To add one:** call [`step`] wherever something is looked at once for each element of what a client sends.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// One field, element or problem is looked at. Nothing outside of tests.
#[inline]
pub fn step() {
    #[cfg(test)]
    TAKEN.with(|taken| taken.set(taken.get() + 1));
}

/// How many steps the work takes.
#[cfg(test)]
pub fn of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = TAKEN.with(Cell::get);
    let made = work();
    (made, TAKEN.with(Cell::get) - before)
}
