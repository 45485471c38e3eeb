//! How long a document may be read.

use std::cell::Cell;
use std::io::{self, Read};

use super::NotAFeed;

/// Of so many questions one is asked.
const EVERY: u32 = 256;

/// Asked at each step of the way; once it is over, it stays over.
pub struct Deadline<'a> {
    is_over: &'a dyn Fn() -> bool,
    asked: Cell<u32>,
    over: Cell<bool>,
}

impl<'a> Deadline<'a> {
    pub fn new(is_over: &'a dyn Fn() -> bool) -> Self {
        Self { is_over, asked: Cell::new(0), over: Cell::new(false) }
    }

    /// As long as it takes.
    pub fn none() -> Self {
        Self::new(&|| false)
    }

    /// Of something small: most times the answer of the last time.
    pub(super) fn check(&self) -> Result<(), NotAFeed> {
        let asked = self.asked.get();
        self.asked.set(asked.wrapping_add(1));
        if asked.is_multiple_of(EVERY) { self.check_now() } else { self.known() }
    }

    /// Of something large.
    pub(super) fn check_now(&self) -> Result<(), NotAFeed> {
        self.over.set(self.over.get() || (self.is_over)());
        self.known()
    }

    fn known(&self) -> Result<(), NotAFeed> {
        if self.over.get() { Err(NotAFeed::TooSlow) } else { Ok(()) }
    }

    /// What a library reads in its own way: it gets a document in small pieces, and an error in place of one that is late.
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
