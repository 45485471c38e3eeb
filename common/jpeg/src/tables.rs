//! The tables of a JPEG: Huffman codes and quantization steps.

use crate::Error;
use crate::input::Input;

/// The maximum length of codes that are resolved with one lookup. Longer codes are rare.
pub const SHORT: u32 = 10;

/// The value of a DC code is a number of bits.
const MAX_DC_VALUE: u8 = 15;
/// The value of an AC code is one byte.
const MAX_VALUES: usize = 256;

/// Tables by class and number, and the restart interval in MCUs (0: none).
#[derive(Debug, Default)]
pub struct Tables {
    pub dc: [Option<Box<Codes>>; 4],
    pub ac: [Option<Box<Codes>>; 4],
    /// The quantization steps of the first coefficients.
    pub steps: [Option<u16>; 4],
    pub restart: usize,
}

/// A table of Huffman codes.
#[derive(Debug)]
pub struct Codes {
    /// Indexed by the next [`SHORT`] bits: the length and the value of the code. The length is 0 if the code is longer.
    pub short: [(u8, u8); 1 << SHORT],
    /// Indexed by length: the first code that is too large for this length, left-aligned in 16 bits.
    pub ends: [u32; 17],
    /// Indexed by length: the offset from a code to the index of its value.
    pub offsets: [i32; 17],
    pub values: Vec<u8>,
}

impl Tables {
    /// Parses the body of DHT.
    pub fn define(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let (input, mut at) = (Input(bytes), 0);
        while at < bytes.len() {
            let (place, counts) = (input.u8(at)?, input.range(at + 1..at + 17)?);
            let total: usize = counts.iter().map(|count| usize::from(*count)).sum();
            let values = input.range(at + 17..at + 17 + total)?;
            let tables = match place >> 4 {
                0 if values.iter().all(|value| *value <= MAX_DC_VALUE) => &mut self.dc,
                1 if values.len() <= MAX_VALUES => &mut self.ac,
                _ => return Err(Error::Invalid),
            };
            *tables.get_mut(usize::from(place & 15)).ok_or(Error::Invalid)? =
                Some(Box::new(Codes::new(counts, values)?));
            at += 17 + total;
        }
        Ok(())
    }

    /// Parses the body of DQT.
    pub fn quantize(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let (input, mut at) = (Input(bytes), 0);
        while at < bytes.len() {
            let place = input.u8(at)?;
            let wide = match place >> 4 {
                0 => false,
                1 => true,
                _ => return Err(Error::Invalid),
            };
            let step = if wide { input.be16(at + 1)? } else { input.u8(at + 1)?.into() };
            let length = if wide { 128 } else { 64 };
            input.range(at + 1..at + 1 + length)?;
            *self.steps.get_mut(usize::from(place & 15)).ok_or(Error::Invalid)? = u16::try_from(step).ok();
            at += 1 + length;
        }
        Ok(())
    }
}

impl Codes {
    fn new(counts: &[u8], values: &[u8]) -> Result<Self, Error> {
        let mut codes = Self { short: [(0, 0); 1 << SHORT], ends: [0; 17], offsets: [0; 17], values: values.to_vec() };
        let (mut code, mut place) = (0_u32, 0_usize);
        for length in 1..=16_u32 {
            let at = length as usize;
            let count = usize::from(counts.get(at - 1).copied().unwrap_or_default());
            codes.offsets[at] = i32::try_from(place).unwrap_or_default() - i32::try_from(code).unwrap_or_default();
            for _ in 0..count {
                if code >= 1 << length {
                    return Err(Error::Invalid);
                }
                if length <= SHORT {
                    let (first, width) = ((code as usize) << (SHORT - length), 1 << (SHORT - length));
                    codes.short[first..first + width].fill((length as u8, values[place]));
                }
                code += 1;
                place += 1;
            }
            // No code consists only of ones (ITU-T T.81, annex C); decoders reject a table with such a code.
            if count > 0 && code >= 1 << length {
                return Err(Error::Invalid);
            }
            codes.ends[at] = code << (16 - length);
            code <<= 1;
        }
        Ok(codes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the body of DHT with a table that has `one` codes of one bit and `two` codes of two bits.
    fn table(class: u8, one: u8, two: u8, values: &[u8]) -> Vec<u8> {
        let mut bytes = vec![class << 4, one, two];
        bytes.resize(17, 0);
        bytes.extend_from_slice(values);
        bytes
    }

    #[test]
    fn tables_that_decoders_reject_are_rejected() {
        for (bytes, is_valid) in [
            (table(0, 1, 1, &[0, 15]), true),
            (table(0, 1, 1, &[0, 16]), false),
            (table(1, 1, 1, &[0, 255]), true),
            // The second code of one bit is 1; the fourth of two bits is 11.
            (table(1, 2, 0, &[0, 1]), false),
            (table(1, 0, 4, &[0, 1, 2, 3]), false),
            (table(1, 0, 3, &[0, 1, 2]), true),
            // A class that does not exist.
            (table(2, 1, 1, &[0, 1]), false),
        ] {
            assert_eq!(Tables::default().define(&bytes).is_ok(), is_valid, "{bytes:?}");
        }
    }
}
