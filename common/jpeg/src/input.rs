//! Random access to the bytes of a file.

use std::ops::Range;

use crate::Error;

#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Returns a range of bytes.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the file ends before the range does, like the other functions.
    pub fn range(self, range: Range<usize>) -> Result<&'a [u8], Error> {
        self.0.get(range).ok_or(Error::Truncated)
    }

    pub fn u8(self, at: usize) -> Result<u8, Error> {
        self.0.get(at).copied().ok_or(Error::Truncated)
    }

    pub fn be16(self, at: usize) -> Result<usize, Error> {
        Ok(usize::from(self.u8(at)?) << 8 | usize::from(self.u8(at + 1)?))
    }
}
