//! Fits images to a platform's limits: another type, fewer bytes, fewer pixels.
//!
//! Each size is estimated from the result of the previous one, so that a few encodings come close to the limit.

use std::io::Cursor;

use bytes::Bytes;
use crier_domain::media::ImageType;
use crier_domain::platform::GifRules;
use crier_resize::SourceImage;

use super::decode::{Decoded, decode};
use super::{FittedImage, ImageRules, Rejection, encode, gif, head};

/// Maximum number of encodings per image.
const MAX_ENCODINGS: u32 = 8;
/// The steps of JPEG quality, with the estimated size in percent of the first step's. The estimates are rather too
/// high.
const STEPS: &[(u8, u64)] = &[(90, 100), (85, 82), (80, 70), (75, 62), (70, 56)];
/// The size to aim for, as a fraction of the limit.
const AIM: f64 = 0.94;
/// The size that is sufficient, as a fraction of the limit.
const GOOD: f64 = 0.86;
/// The exponent of the number of bytes by the length of a side: an image with half the sides has a quarter of the
/// pixels, but more than a quarter of the bytes.
const SIZE_EXPONENT: f64 = 1.7;
/// A profile may use at most the limit divided by this.
const PROFILE_DIVISOR: u64 = 4;

/// See [`super::fit`].
pub fn fit_to_rules(bytes: Bytes, kind: ImageType, rules: &ImageRules<'_>) -> Result<FittedImage, Rejection> {
    let head = head::read(Cursor::new(&bytes))?;
    let sides = rules.sides(head.width, head.height);
    let max_of_kind = if kind == ImageType::Gif { rules.gif.max_bytes.or(rules.max_bytes) } else { rules.max_bytes };
    let is_small = max_of_kind.is_none_or(|max| bytes.len() as u64 <= max);
    let is_accepted =
        rules.accepts(kind) && (kind != ImageType::Gif || rules.accepts_gif(&bytes, head.width, head.height)?);
    if is_small && sides == (head.width, head.height) && is_accepted {
        return Ok(FittedImage { kind, bytes, width: head.width, height: head.height });
    }
    let Decoded { image, icc } = decode(&bytes, kind)?;
    drop(bytes);
    let opaque = encode::is_opaque(&image);
    let kinds = if opaque {
        [ImageType::Jpeg, ImageType::Png, ImageType::Webp]
    } else {
        [ImageType::Png, ImageType::Webp, ImageType::Jpeg]
    };
    let kind = kinds.into_iter().find(|kind| rules.accepts(*kind)).ok_or_else(|| no_type(rules))?;
    let image = if kind == ImageType::Jpeg || opaque { encode::flattened(image) } else { image };
    let max_bytes = rules.max_bytes.unwrap_or(u64::MAX);
    let icc = encode::profile(icc, image.color()).filter(|icc| icc.len() as u64 <= max_bytes / PROFILE_DIVISOR);
    let mut task = ShrinkTask { source: SourceImage::new(image), kind, max_bytes, icc, encodings: 0 };
    task.run(sides)
}

impl ImageRules<'_> {
    fn accepts(&self, kind: ImageType) -> bool {
        self.mime_types.contains(&kind.as_str())
    }

    /// Returns whether a GIF is within the limits that only GIFs have.
    fn accepts_gif(&self, bytes: &Bytes, width: u32, height: u32) -> Result<bool, Rejection> {
        let pixels = pixels(width, height);
        let GifRules { max_bytes: _, max_pixels, max_frames, max_total_pixels, only_animated } = self.gif;
        if max_pixels.is_some_and(|max| pixels > max) {
            return Ok(false);
        }
        if max_frames.is_none() && max_total_pixels.is_none() && !only_animated {
            return Ok(true);
        }
        let frames = gif::walk(bytes)?.frames.len() as u64;
        Ok(max_frames.is_none_or(|max| frames <= u64::from(max))
            && max_total_pixels.is_none_or(|max| pixels.saturating_mul(frames) <= max)
            && (frames > 1 || !only_animated))
    }

    /// Returns the width and height, scaled to the limits.
    fn sides(&self, width: u32, height: u32) -> (u32, u32) {
        let together = u64::from(width) + u64::from(height);
        let (width, height) = match self.max_sides.map(u64::from) {
            Some(max) if together > max => {
                let scaled = |side: u32| u32::try_from(u64::from(side) * max / together).unwrap_or(side).max(1);
                (scaled(width), scaled(height))
            }
            _ => (width, height),
        };
        match self.max_pixels {
            Some(max) if pixels(width, height) > max => scaled_to_pixels(width, height, max),
            _ => (width, height),
        }
    }
}

fn pixels(width: u32, height: u32) -> u64 {
    u64::from(width) * u64::from(height)
}

/// Returns the width and height of the largest image of about this shape with at most `max` pixels.
fn scaled_to_pixels(width: u32, height: u32, max: u64) -> (u32, u32) {
    let (width, height) = (u64::from(width.max(1)), u64::from(height.max(1)));
    // The new width is the root of width² × max / (width × height). The height is at least 1, so it is at most `max`.
    let root = (u128::from(width) * u128::from(max) / u128::from(height)).isqrt();
    let width = u64::try_from(root).unwrap_or(width).min(max).clamp(1, width);
    let height = (max / width).clamp(1, height);
    (u32::try_from(width).unwrap_or(u32::MAX), u32::try_from(height).unwrap_or(u32::MAX))
}

struct ShrinkTask {
    source: SourceImage,
    kind: ImageType,
    max_bytes: u64,
    icc: Option<Vec<u8>>,
    /// The number of encodings so far.
    encodings: u32,
}

impl ShrinkTask {
    fn run(&mut self, sides: (u32, u32)) -> Result<FittedImage, Rejection> {
        let (mut out, mut quality) = (self.write(sides, STEPS[0].0)?, STEPS[0].0);
        if self.kind == ImageType::Jpeg && !self.fits(&out) {
            let first = out.len() as u64;
            let last = STEPS.len() - 1;
            let guess = STEPS.iter().position(|(_, percent)| first * percent / 100 <= self.max_bytes).unwrap_or(last);
            for (step, _) in STEPS.iter().skip(guess.max(1)) {
                (out, quality) = (self.write(sides, *step)?, *step);
                if self.fits(&out) {
                    break;
                }
            }
        }
        if self.fits(&out) { Ok(self.fitted(out, sides)) } else { self.shrink(sides, out.len(), quality) }
    }

    /// Shrinks the image until it fits, but not much further.
    fn shrink(&mut self, sides: (u32, u32), size: usize, quality: u8) -> Result<FittedImage, Rejection> {
        let (mut scale, mut size, mut best) = (1.0_f64, size as f64, None);
        let max_bytes = self.max_bytes as f64;
        // The smallest scale that is known to be too large.
        let mut above = 1.0_f64;
        while self.encodings < MAX_ENCODINGS {
            let guess = scale * (max_bytes * AIM / size).powf(1.0 / SIZE_EXPONENT);
            scale = if guess < above { guess } else { (scale + above) / 2.0 };
            let side = |side: u32| ((f64::from(side) * scale) as u32).clamp(1, side);
            let now = (side(sides.0), side(sides.1));
            let out = self.write(now, quality)?;
            size = out.len() as f64;
            if self.fits(&out) {
                let is_good = size >= max_bytes * GOOD;
                if best.as_ref().is_none_or(|(last, _): &(Vec<u8>, _)| last.len() < out.len()) {
                    best = Some((out, now));
                }
                if is_good {
                    break;
                }
            } else if now == (1, 1) {
                break;
            } else {
                above = above.min(scale);
            }
        }
        let (out, now) = best.ok_or_else(|| self.too_large())?;
        Ok(self.fitted(out, now))
    }

    fn write(&mut self, (width, height): (u32, u32), quality: u8) -> Result<Vec<u8>, Rejection> {
        self.encodings += 1;
        let image = self.source.resized_to(width, height).ok_or_else(super::broken)?;
        encode::write(&image, self.kind, quality, self.icc.as_deref())
    }

    fn fits(&self, out: &[u8]) -> bool {
        out.len() as u64 <= self.max_bytes
    }

    fn fitted(&self, out: Vec<u8>, (width, height): (u32, u32)) -> FittedImage {
        FittedImage { kind: self.kind, bytes: out.into(), width, height }
    }

    fn too_large(&self) -> Rejection {
        Rejection::TooLarge(format!("The image cannot be reduced to {} bytes. Use a smaller image.", self.max_bytes))
    }
}

fn no_type(rules: &ImageRules<'_>) -> Rejection {
    let accepted = rules.mime_types.join(", ");
    Rejection::Unsupported(format!("The image cannot be converted to an accepted type. Use one of: {accepted}."))
}
