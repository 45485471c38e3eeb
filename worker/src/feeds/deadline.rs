//! A deadline for parsing a document.

use std::cell::Cell;
use std::io::{self, Read};

use super::FeedError;

/// Every how many checks the clock is read.
const CHECKS_PER_CLOCK_READ: u32 = 256;

/// Checked at each step of parsing; once it has passed, it stays passed.
pub struct Deadline<'a> {
    is_over: &'a dyn Fn() -> bool,
    asked: Cell<u32>,
    over: Cell<bool>,
}

impl<'a> Deadline<'a> {
    pub fn new(is_over: &'a dyn Fn() -> bool) -> Self {
        Self { is_over, asked: Cell::new(0), over: Cell::new(false) }
    }

    /// Returns a deadline that never passes.
    pub fn none() -> Self {
        Self::new(&|| false)
    }

    /// Checks before a small step; mostly returns the cached result.
    pub(super) fn check(&self) -> Result<(), FeedError> {
        let asked = self.asked.get();
        self.asked.set(asked.wrapping_add(1));
        if asked.is_multiple_of(CHECKS_PER_CLOCK_READ) { self.check_now() } else { self.known() }
    }

    /// Checks before a large step; always reads the clock.
    pub(super) fn check_now(&self) -> Result<(), FeedError> {
        self.over.set(self.over.get() || (self.is_over)());
        self.known()
    }

    fn known(&self) -> Result<(), FeedError> {
        if self.over.get() { Err(FeedError::TooSlow) } else { Ok(()) }
    }

    /// Returns a reader for libraries that do not check the deadline themselves: it returns the document in small
    /// pieces, and an error after the deadline.
    pub(super) fn reader<'t>(&'t self, document: &'t [u8]) -> impl Read + 't {
        Pieces { deadline: self, rest: document }
    }
}

impl std::fmt::Debug for Deadline<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deadline").field("over", &self.over.get()).finish_non_exhaustive()
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
