//! A deadline for parsing a document.

use std::cell::Cell;
use std::io::{self, Read};

use super::FeedError;

/// The number of checks per reading of the clock.
const CHECKS_PER_CLOCK_READ: u32 = 256;

/// A deadline that is checked at each step of parsing. After it has passed, it stays passed.
pub struct Deadline<'a> {
    is_over: &'a dyn Fn() -> bool,
    checks: Cell<u32>,
    has_passed: Cell<bool>,
}

impl<'a> Deadline<'a> {
    pub fn new(is_over: &'a dyn Fn() -> bool) -> Self {
        Self { is_over, checks: Cell::new(0), has_passed: Cell::new(false) }
    }

    /// Returns a deadline that never passes.
    pub fn none() -> Self {
        Self::new(&|| false)
    }

    /// Checks the deadline before a small step. Usually returns the cached result.
    pub(super) fn check(&self) -> Result<(), FeedError> {
        let checks = self.checks.get();
        self.checks.set(checks.wrapping_add(1));
        if checks.is_multiple_of(CHECKS_PER_CLOCK_READ) { self.check_now() } else { self.cached() }
    }

    /// Checks the deadline before a large step. Always reads the clock.
    pub(super) fn check_now(&self) -> Result<(), FeedError> {
        self.has_passed.set(self.has_passed.get() || (self.is_over)());
        self.cached()
    }

    fn cached(&self) -> Result<(), FeedError> {
        if self.has_passed.get() { Err(FeedError::TooSlow) } else { Ok(()) }
    }

    /// Returns a reader for libraries that do not check the deadline themselves: it returns the document in small
    /// pieces, and an error after the deadline.
    pub(super) fn reader<'t>(&'t self, document: &'t [u8]) -> impl Read + 't {
        Pieces { deadline: self, rest: document }
    }
}

impl std::fmt::Debug for Deadline<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deadline").field("over", &self.has_passed.get()).finish_non_exhaustive()
    }
}

const PIECE: usize = 4 << 10;

struct Pieces<'t> {
    deadline: &'t Deadline<'t>,
    rest: &'t [u8],
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.deadline.check_now().map_err(|why| io::Error::new(io::ErrorKind::TimedOut, why.to_string()))?;
        let length = buffer.len().min(PIECE).min(self.rest.len());
        let (piece, rest) = self.rest.split_at(length);
        buffer[..length].copy_from_slice(piece);
        self.rest = rest;
        Ok(length)
    }
}
