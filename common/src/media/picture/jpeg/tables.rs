//! The tables of a JPEG: Huffman codes and quantization steps.

use super::super::rewrite::Input;
use super::super::{Refusal, broken};

/// Codes up to this length are resolved with one lookup; longer ones are rare.
pub const SHORT: u32 = 10;

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
    /// By the next [`SHORT`] bits: the length of a code and its value; length 0 if the code is longer.
    pub short: [(u8, u8); 1 << SHORT],
    /// By length: the first code that is too large for it, left-aligned in 16 bits.
    pub ends: [u32; 17],
    /// By length: the offset from a code to the index of its value.
    pub offsets: [i32; 17],
    pub values: Vec<u8>,
}

impl Tables {
    /// Parses the body of DHT.
    pub fn define(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let (input, mut at) = (Input(bytes), 0);
        while at < bytes.len() {
            let (place, counts) = (input.u8(at)?, input.range(at + 1..at + 17)?);
            let total: usize = counts.iter().map(|count| usize::from(*count)).sum();
            let values = input.range(at + 17..at + 17 + total)?;
            let tables = if place >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            *tables.get_mut(usize::from(place & 15)).ok_or_else(broken)? = Some(Box::new(Codes::new(counts, values)?));
            at += 17 + total;
        }
        Ok(())
    }

    /// Parses the body of DQT.
    pub fn quantize(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let (input, mut at) = (Input(bytes), 0);
        while at < bytes.len() {
            let place = input.u8(at)?;
            let wide = place >> 4 > 0;
            let step = if wide { input.be16(at + 1)? } else { input.u8(at + 1)?.into() };
            let length = if wide { 128 } else { 64 };
            input.range(at + 1..at + 1 + length)?;
            *self.steps.get_mut(usize::from(place & 15)).ok_or_else(broken)? = u16::try_from(step).ok();
            at += 1 + length;
        }
        Ok(())
    }
}

impl Codes {
    fn new(counts: &[u8], values: &[u8]) -> Result<Self, Refusal> {
        let mut codes = Self { short: [(0, 0); 1 << SHORT], ends: [0; 17], offsets: [0; 17], values: values.to_vec() };
        let (mut code, mut place) = (0_u32, 0_usize);
        for length in 1..=16_u32 {
            let at = length as usize;
            let count = usize::from(counts.get(at - 1).copied().unwrap_or_default());
            codes.offsets[at] = i32::try_from(place).unwrap_or_default() - i32::try_from(code).unwrap_or_default();
            for _ in 0..count {
                if code >= 1 << length {
                    return Err(broken());
                }
                if length <= SHORT {
                    let (first, width) = ((code as usize) << (SHORT - length), 1 << (SHORT - length));
                    codes.short[first..first + width].fill((length as u8, values[place]));
                }
                code += 1;
                place += 1;
            }
            codes.ends[at] = code << (16 - length);
            code <<= 1;
        }
        Ok(codes)
    }
}
