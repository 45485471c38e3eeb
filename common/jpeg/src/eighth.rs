//! Extracts the image at an eighth of its size, which is enough for the thumbnail of a photograph. The first
//! coefficient of a block is the mean of its 64 pixels (ITU T.81, section A.3.3), and reading the scans reads all of
//! them anyway.

use crate::frame::{Component, FrameHead};

/// The image at an eighth of its size, with a sample for each block of 8 × 8 pixels. Blocks at the right and the lower
/// edge may be partly outside of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eighth {
    Gray(Plane),
    /// Y, Cb and Cr ([`ycbcr_to_rgb`]). The sides of the planes of Cb and Cr may be those of Y divided by a whole
    /// number, rounded up.
    YCbCr([Plane; 3]),
}

/// The samples of one component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plane {
    pub width: u32,
    pub height: u32,
    /// `width` × `height` samples, row by row from the top.
    pub samples: Vec<u8>,
}

/// The color information in the application segments.
#[derive(Debug, Default)]
pub struct ColorInfo {
    jfif: bool,
    adobe: Option<u8>,
}

impl ColorInfo {
    /// Records a segment, by the code of its marker and its body. Only APP0 (0xe0) and APP14 (0xee) matter.
    pub fn note(&mut self, code: u8, body: &[u8]) {
        match code {
            0xe0 => self.jfif |= body.starts_with(b"JFIF\0"),
            0xee if body.starts_with(b"Adobe") => self.adobe = self.adobe.or(body.get(11).copied()),
            _ => {}
        }
    }

    /// Returns whether the components are certainly YCbCr.
    fn is_ycc(&self, components: &[Component]) -> bool {
        match self.adobe {
            Some(transform) => transform == 1,
            None => self.jfif || components.iter().map(|c| c.id).eq([1, 2, 3]),
        }
    }
}

impl FrameHead {
    /// Returns whether the image at an eighth of its size can be extracted, and its longer side has at least `min_side`
    /// pixels. It can be extracted from gray images, and from images of three components that are certainly YCbCr.
    pub fn has_eighth(&self, colors: &ColorInfo, min_side: u32) -> bool {
        let large = self.width.max(self.height) / 8 >= min_side;
        large
            && match &self.components[..] {
                [_] => true,
                [first, others @ ..] if others.len() == 2 => {
                    let whole = |c: &Component| first.h.is_multiple_of(c.h) && first.v.is_multiple_of(c.v);
                    others.iter().all(whole) && colors.is_ycc(&self.components)
                }
                _ => false,
            }
    }
}

/// The means of a component's blocks, row by row.
#[derive(Debug, Default)]
pub struct Means {
    columns: usize,
    /// The quantization step of the first coefficient.
    step: i32,
    firsts: Vec<i16>,
}

impl Means {
    pub fn new(columns: usize, rows: usize) -> Self {
        Self { columns, step: 0, firsts: vec![0; columns * rows] }
    }

    pub fn set_step(&mut self, step: u16) {
        self.step = step.into();
    }

    /// Returns the first coefficient of a block. Overflows occur only in invalid images, and result in arbitrary
    /// colors.
    pub fn first(&mut self, column: usize, row: usize) -> Option<&mut i16> {
        self.firsts.get_mut(row * self.columns + column)
    }

    /// Returns the means of `width` × `height` blocks as samples.
    fn plane(&self, width: u32, height: u32) -> Plane {
        let mut samples = Vec::with_capacity(width as usize * height as usize);
        for y in 0..height as usize {
            for x in 0..width as usize {
                let first = self.firsts.get(y * self.columns + x).copied().unwrap_or_default();
                samples.push(clamp((i32::from(first) * self.step + 4).div_euclid(8) + 128));
            }
        }
        Plane { width, height, samples }
    }
}

/// Returns the image at an eighth of its size; `None` if it cannot be extracted.
pub fn draw(frame: &FrameHead) -> Option<Eighth> {
    let (width, height) = (frame.width.div_ceil(8), frame.height.div_ceil(8));
    let [first, others @ ..] = &frame.components[..] else { return None };
    let luma = first.means.plane(width, height);
    let [blue, red] = others else { return Some(Eighth::Gray(luma)) };
    // Chroma components may have fewer blocks.
    let plane = |c: &Component| {
        let (across, down) = (u32::try_from(first.h / c.h).ok()?, u32::try_from(first.v / c.v).ok()?);
        Some(c.means.plane(width.div_ceil(across), height.div_ceil(down)))
    };
    Some(Eighth::YCbCr([luma, plane(blue)?, plane(red)?]))
}

/// Converts a pixel to red, green and blue, as in JFIF 1.02.
#[inline]
pub fn ycbcr_to_rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    // Fixed-point numbers with 16 fractional bits.
    let (y, cb, cr) = (i32::from(y) << 16, i32::from(cb) - 128, i32::from(cr) - 128);
    let round = |n: i32| clamp((n + (1 << 15)) >> 16);
    [round(y + 91_881 * cr), round(y - 22_554 * cb - 46_802 * cr), round(y + 116_130 * cb)]
}

fn clamp(n: i32) -> u8 {
    n.clamp(0, 255) as u8
}
