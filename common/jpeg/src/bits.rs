//! Reads the bits of scans.

use crate::Error;
use crate::tables::{Codes, SHORT};

/// The bits of a scan up to the next marker.
pub struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    /// The next bits, left-aligned.
    buffer: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, buffer: 0, count: 0 }
    }

    /// Buffers at least 32 bits, or all that are left.
    fn fill(&mut self) {
        if let Some(next) = self.data.get(self.at..).and_then(<[u8]>::first_chunk).map(|next| u32::from_be_bytes(*next))
            && !has_ff(next)
        {
            self.buffer |= u64::from(next) << (32 - self.count);
            self.count += 32;
            self.at += 4;
            return;
        }
        while self.count <= 56 {
            match (self.data.get(self.at), self.data.get(self.at + 1)) {
                // A zero after FF is stuffing, not data.
                (Some(0xff), Some(0)) => self.push(0xff, 2),
                (Some(0xff), _) | (None, _) => return,
                (Some(byte), _) => self.push(*byte, 1),
            }
        }
    }

    fn push(&mut self, byte: u8, length: usize) {
        self.buffer |= u64::from(byte) << (56 - self.count);
        self.count += 8;
        self.at += length;
    }

    /// Skips at most 32 bits.
    pub fn skip(&mut self, length: u32) -> Result<(), Error> {
        if length > self.count {
            self.fill();
            if length > self.count {
                return Err(Error::Truncated);
            }
        }
        self.buffer <<= length;
        self.count -= length;
        Ok(())
    }

    /// Reads at most 32 bits as a number.
    pub fn take(&mut self, length: u32) -> Result<u32, Error> {
        if length > self.count {
            self.fill();
        }
        let value = if length == 0 { 0 } else { (self.buffer >> (64 - length)) as u32 };
        self.skip(length)?;
        Ok(value)
    }

    /// Returns the length and the value of the next code.
    fn next(&mut self, codes: &Codes) -> Result<(u32, u8), Error> {
        if self.count < 32 {
            self.fill();
        }
        let (length, value) = codes.short[(self.buffer >> (64 - SHORT)) as usize];
        if length > 0 { Ok((length.into(), value)) } else { self.long(codes) }
    }

    /// Like [`Self::next`], for codes that are longer than the table.
    #[cold]
    fn long(&self, codes: &Codes) -> Result<(u32, u8), Error> {
        let next = (self.buffer >> 48) as u32;
        let length = (SHORT as usize + 1..=16).find(|length| next < codes.ends[*length]);
        let Some(length) = length else { return Err(if self.count < 16 { Error::Truncated } else { Error::Invalid }) };
        let place = (next >> (16 - length)) as i32 + codes.offsets[length];
        let value = usize::try_from(place).ok().and_then(|place| codes.values.get(place)).ok_or(Error::Invalid)?;
        Ok((length as u32, *value))
    }

    /// Reads a run of zeros, and the size of the coefficient after it.
    pub fn pair(&mut self, codes: &Codes) -> Result<(u32, u32), Error> {
        let (length, value) = self.next(codes)?;
        self.skip(length)?;
        Ok((u32::from(value >> 4), u32::from(value & 15)))
    }

    /// Like [`Self::pair`], but also skips the coefficient.
    pub fn skip_coefficient(&mut self, codes: &Codes) -> Result<(u32, u32), Error> {
        let (length, value) = self.next(codes)?;
        let size = u32::from(value & 15);
        self.skip(length + size)?;
        Ok((u32::from(value >> 4), size))
    }

    /// Reads the difference between a DC coefficient and the previous one.
    pub fn difference(&mut self, codes: &Codes) -> Result<i32, Error> {
        let (length, size) = self.next(codes)?;
        self.skip(length)?;
        if size > 15 {
            return Err(Error::Invalid);
        }
        let value = self.take(size.into())? as i32;
        // A leading 0 bit means a negative value.
        Ok(if size > 0 && value < 1 << (size - 1) { value - (1 << size) + 1 } else { value })
    }

    /// Returns the number of bytes that were read, including a partly read byte.
    pub fn end(&self) -> usize {
        let mut at = self.at;
        for _ in 0..self.count / 8 {
            let stuffed = at >= 2 && self.data.get(at - 2..at) == Some(&[0xff, 0]);
            at -= if stuffed { 2 } else { 1 };
        }
        at
    }

    /// Skips a restart marker, which must be the next marker.
    pub fn restart(&mut self) -> Result<(), Error> {
        let mut at = self.end();
        loop {
            match (self.data.get(at), self.data.get(at + 1)) {
                (Some(0xff), Some(0xd0..=0xd7)) => break,
                (Some(0xff), Some(0xff | 0)) | (Some(0..0xff), _) => at += 1,
                (Some(0xff), Some(_)) => return Err(Error::Invalid),
                _ => return Err(Error::Truncated),
            }
        }
        *self = Self { at: at + 2, ..Self::new(self.data) };
        Ok(())
    }
}

/// Returns whether one of the four bytes is FF.
fn has_ff(bytes: u32) -> bool {
    let zero_where_ff = !bytes;
    zero_where_ff.wrapping_sub(0x0101_0101) & !zero_where_ff & 0x8080_8080 != 0
}
