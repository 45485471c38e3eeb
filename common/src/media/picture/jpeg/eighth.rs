//! A picture at an eighth of its size, for nothing: the first coefficient of a block is the mean of its 64 pixels (ITU T.81,
//! section A.3.3), and the walk over the scans comes past all of them. A thumbnail of a photograph needs no more.

use image::{DynamicImage, GrayImage, RgbImage};

use super::super::{THUMBNAIL, resize};
use super::{Component, FrameHead};

/// What the head says about colours.
#[derive(Debug, Default)]
pub struct Marks {
    jfif: bool,
    adobe: Option<u8>,
}

impl Marks {
    /// Takes note of APP0 and APP14, by their bodies.
    pub fn note(&mut self, code: u8, body: &[u8]) {
        match code {
            0xe0 => self.jfif |= body.starts_with(b"JFIF\0"),
            0xee if body.starts_with(b"Adobe") => self.adobe = self.adobe.or(body.get(11).copied()),
            _ => {}
        }
    }

    /// Brightness and two colours, beyond doubt.
    fn is_ycc(&self, components: &[Component]) -> bool {
        match self.adobe {
            Some(transform) => transform == 1,
            None => self.jfif || components.iter().map(|c| c.id).eq([1, 2, 3]),
        }
    }
}

/// Whether an eighth of the picture is large enough for a thumbnail, and is of a kind that is read here.
pub fn is_enough(frame: &FrameHead, marks: &Marks) -> bool {
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

/// The means of a component's blocks, from the left and from the top.
#[derive(Debug, Default)]
pub struct Means {
    columns: usize,
    /// What the coefficients are multiplied with.
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

    /// The first coefficient of a block. What does not fit is of no sound picture, and becomes any colour.
    pub fn first(&mut self, column: usize, row: usize) -> Option<&mut i16> {
        self.firsts.get_mut(row * self.columns + column)
    }

    /// `width` by `height` of them.
    fn plane(&self, width: u32, height: u32) -> GrayImage {
        GrayImage::from_fn(width, height, |x, y| {
            let first = self.firsts.get(y as usize * self.columns + x as usize).copied().unwrap_or_default();
            image::Luma([clamp((i32::from(first) * self.step + 4).div_euclid(8) + 128)])
        })
    }
}

/// The picture; `None` where it cannot be made.
pub fn picture(width: u32, height: u32, components: &[Component]) -> Option<DynamicImage> {
    let (width, height) = (width.div_ceil(8), height.div_ceil(8));
    let [first, others @ ..] = components else { return None };
    let luma = first.means.plane(width, height);
    let [blue, red] = others else { return Some(luma.into()) };
    // Colours may have fewer blocks.
    let plane = |c: &Component| {
        let (across, down) = (u32::try_from(first.h / c.h).ok()?, u32::try_from(first.v / c.v).ok()?);
        let plane = c.means.plane(width.div_ceil(across), height.div_ceil(down));
        Some(resize::Source::new(plane.into()).to(width, height)?.into_owned().into_luma8())
    };
    let (blue, red) = (plane(blue)?, plane(red)?);
    let pixels = luma.pixels().zip(blue.pixels().zip(red.pixels()));
    let bytes = pixels.flat_map(|(y, (cb, cr))| rgb(y.0[0], cb.0[0], cr.0[0])).collect();
    Some(RgbImage::from_raw(width, height, bytes)?.into())
}

/// As JFIF 1.02 says, in 65,536ths.
fn rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y) << 16, i32::from(cb) - 128, i32::from(cr) - 128);
    let round = |n: i32| clamp((n + (1 << 15)) >> 16);
    [round(y + 91_881 * cr), round(y - 22_554 * cb - 46_802 * cr), round(y + 116_130 * cb)]
}

fn clamp(n: i32) -> u8 {
    n.clamp(0, 255) as u8
}
