//! The frame header.

use crate::Error;
use crate::eighth::Means;
use crate::input::Input;

/// The frame header (SOF): kind, sides and components of the image.
#[derive(Debug)]
pub struct FrameHead {
    /// Whether each scan has only a part of the coefficients.
    pub progressive: bool,
    /// In pixels, at least 1.
    pub width: u32,
    /// In pixels, at least 1.
    pub height: u32,
    pub(crate) components: Vec<Component>,
}

/// A component with its sampling factors.
#[derive(Debug)]
pub struct Component {
    pub id: u8,
    /// From 1 to 4, like `v`.
    pub h: usize,
    pub v: usize,
    /// The index of its quantization table.
    pub table: usize,
    /// Whether a scan contained it (in a progressive image: its first coefficients).
    pub seen: bool,
    /// For each block, the bit set of its coefficients that are not zero so far; only for progressive images.
    pub history: Vec<u64>,
    /// Only filled if the image at an eighth of its size is extracted.
    pub means: Means,
}

impl FrameHead {
    /// Parses a frame header from the code of its marker and its body without the length field. All SOF segments have
    /// the same structure; the reader accepts 0xc0, 0xc1 and 0xc2.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if samples do not have 8 bits; other errors if it is truncated or invalid.
    pub fn parse(code: u8, body: &[u8]) -> Result<Self, Error> {
        let input = Input(body);
        if input.u8(0)? != 8 {
            return Err(Error::Unsupported);
        }
        let (height, width, count) = (side(input, 1)?, side(input, 3)?, usize::from(input.u8(5)?));
        if !matches!(count, 1 | 3 | 4) || body.len() < 6 + 3 * count {
            return Err(Error::Invalid);
        }
        let mut components = Vec::with_capacity(count);
        for n in 0..count {
            let (id, factors, table) = (input.u8(6 + 3 * n)?, input.u8(7 + 3 * n)?, input.u8(8 + 3 * n)?.into());
            let (h, v) = (usize::from(factors >> 4), usize::from(factors & 15));
            if !(1..=4).contains(&h) || !(1..=4).contains(&v) || table > 3 {
                return Err(Error::Invalid);
            }
            components.push(Component { id, h, v, table, seen: false, history: Vec::new(), means: Means::default() });
        }
        Ok(Self { progressive: code == 0xc2, width, height, components })
    }

    /// Returns the number of components: 1 (gray), 3 or 4.
    pub fn component_count(&self) -> usize {
        self.components.len()
    }
}

/// Reads a side in pixels; 0 is invalid.
fn side(input: Input<'_>, at: usize) -> Result<u32, Error> {
    u32::try_from(input.be16(at)?).ok().filter(|length| *length > 0).ok_or(Error::Invalid)
}
