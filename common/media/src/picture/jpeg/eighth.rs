//! Extracts a picture at an eighth of its size at no extra cost: the first coefficient of a block is the mean of its 64
//! pixels (ITU T.81, section A.3.3), and the walk over the scans reads all of them. It is enough for a photograph's
//! thumbnail.

use image::{DynamicImage, GrayImage, RgbImage};

use super::super::{THUMBNAIL, resize};
use super::{Component, FrameHead};

/// The colour information in the head.
#[derive(Debug, Default)]
pub struct ColorInfo {
    jfif: bool,
    adobe: Option<u8>,
}

impl ColorInfo {
    /// Records APP0 and APP14 segments, by their bodies.
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

/// Returns whether an eighth of the picture is large enough for a thumbnail, and its format is supported here.
pub fn is_enough(frame: &FrameHead, marks: &ColorInfo) -> bool {
    let large = frame.width.max(frame.height) >= 8 * THUMBNAIL;
    large
        && match &frame.components[..] {
            [_] => true,
            [first, others @ ..] if others.len() == 2 => {
                let whole = |c: &Component| first.h.is_multiple_of(c.h) && first.v.is_multiple_of(c.v);
                others.iter().all(whole) && marks.is_ycc(&frame.components)
            }
            _ => false,
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

    /// Returns the first coefficient of a block. Overflowing values occur only in invalid pictures and produce
    /// arbitrary colours.
    pub fn first(&mut self, column: usize, row: usize) -> Option<&mut i16> {
        self.firsts.get_mut(row * self.columns + column)
    }

    /// Returns `width` by `height` of them as a picture.
    fn plane(&self, width: u32, height: u32) -> GrayImage {
        GrayImage::from_fn(width, height, |x, y| {
            let first = self.firsts.get(y as usize * self.columns + x as usize).copied().unwrap_or_default();
            image::Luma([clamp((i32::from(first) * self.step + 4).div_euclid(8) + 128)])
        })
    }
}

/// Returns the picture; `None` if it cannot be made.
pub fn picture(width: u32, height: u32, components: &[Component]) -> Option<DynamicImage> {
    let (width, height) = (width.div_ceil(8), height.div_ceil(8));
    let [first, others @ ..] = components else { return None };
    let luma = first.means.plane(width, height);
    let [blue, red] = others else { return Some(luma.into()) };
    // Chroma components may have fewer blocks.
    let plane = |c: &Component| {
        let (across, down) = (u32::try_from(first.h / c.h).ok()?, u32::try_from(first.v / c.v).ok()?);
        let plane = c.means.plane(width.div_ceil(across), height.div_ceil(down));
        Some(resize::SourceImage::new(plane.into()).resized_to(width, height)?.into_owned().into_luma8())
    };
    let (blue, red) = (plane(blue)?, plane(red)?);
    let pixels = luma.pixels().zip(blue.pixels().zip(red.pixels()));
    let bytes = pixels.flat_map(|(y, (cb, cr))| rgb(y.0[0], cb.0[0], cr.0[0])).collect();
    Some(RgbImage::from_raw(width, height, bytes)?.into())
}

/// Converts as in JFIF 1.02, in 65,536ths.
fn rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y) << 16, i32::from(cb) - 128, i32::from(cr) - 128);
    let round = |n: i32| clamp((n + (1 << 15)) >> 16);
    [round(y + 91_881 * cr), round(y - 22_554 * cb - 46_802 * cr), round(y + 116_130 * cb)]
}

fn clamp(n: i32) -> u8 {
    n.clamp(0, 255) as u8
}
