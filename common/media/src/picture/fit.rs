//! Fits pictures to a platform's limits: another type, fewer bytes, fewer pixels.
//!
//! The next output size is estimated from the last one, so that few attempts come close to the limit.

use std::io::Cursor;

use bytes::Bytes;
use crier_domain::media::ImageType;
use crier_domain::platform::GifRules;

use super::decode::{Decoded, decode};
use super::resize::SourceImage;
use super::{FittedPicture, PictureRules, Refusal, encode, gif, head};

/// Maximum number of encodings per picture.
const MAX_ENCODINGS: u32 = 8;
/// JPEG quality steps, with their estimated output size in per cent of the first step's; rather too high.
const STEPS: &[(u8, u64)] = &[(90, 100), (85, 82), (80, 70), (75, 62), (70, 56)];
/// The target size when shrinking, and the size that is good enough; as fractions of the limit.
const AIM: f64 = 0.94;
const GOOD: f64 = 0.86;
/// Exponent of bytes by side length: half the sides are a quarter of the pixels, but more than a quarter of the bytes.
const SIZE_EXPONENT: f64 = 1.7;
/// Maximum share of the bytes for a profile: one in this many.
const PROFILE: u64 = 4;

/// See [`super::fit`].
pub fn fit_to_rules(bytes: Bytes, kind: ImageType, rules: &PictureRules<'_>) -> Result<FittedPicture, Refusal> {
    let head = head::read(Cursor::new(&bytes))?;
    let sides = rules.sides(head.width, head.height);
    let small = rules.max_bytes.is_none_or(|most| bytes.len() as u64 <= most);
    let takes = rules.takes(kind) && (kind != ImageType::Gif || rules.takes_gif(&bytes, head.width, head.height)?);
    if small && sides == (head.width, head.height) && takes {
        return Ok(FittedPicture { kind, bytes, width: head.width, height: head.height });
    }
    let Decoded { picture, icc } = decode(&bytes, kind)?;
    drop(bytes);
    let opaque = encode::is_opaque(&picture);
    let kinds = if opaque {
        [ImageType::Jpeg, ImageType::Png, ImageType::Webp]
    } else {
        [ImageType::Png, ImageType::Webp, ImageType::Jpeg]
    };
    let kind = kinds.into_iter().find(|kind| rules.takes(*kind)).ok_or_else(|| no_type(rules))?;
    let picture = if kind == ImageType::Jpeg || opaque { encode::flattened(picture) } else { picture };
    let most = rules.max_bytes.unwrap_or(u64::MAX);
    let icc = encode::profile(icc, picture.color()).filter(|icc| icc.len() as u64 <= most / PROFILE);
    let mut work = ShrinkTask { source: SourceImage::new(picture), kind, most, icc, tries: 0 };
    work.run(sides)
}

impl PictureRules<'_> {
    fn takes(&self, kind: ImageType) -> bool {
        self.mime_types.contains(&kind.as_str())
    }

    /// Returns whether a GIF is within the limits that only GIFs have.
    fn takes_gif(&self, bytes: &Bytes, width: u32, height: u32) -> Result<bool, Refusal> {
        let pixels = pixels(width, height);
        let GifRules { max_pixels, max_frames, max_total_pixels } = self.gif;
        if max_pixels.is_some_and(|most| pixels > most) {
            return Ok(false);
        }
        if max_frames.is_none() && max_total_pixels.is_none() {
            return Ok(true);
        }
        let frames = gif::walk(bytes)?.frames.len() as u64;
        Ok(max_frames.is_none_or(|most| frames <= u64::from(most))
            && max_total_pixels.is_none_or(|most| pixels.saturating_mul(frames) <= most))
    }

    /// Returns the sides scaled to the limits.
    fn sides(&self, width: u32, height: u32) -> (u32, u32) {
        let together = u64::from(width) + u64::from(height);
        let (width, height) = match self.max_sides.map(u64::from) {
            Some(most) if together > most => {
                let scaled = |side: u32| u32::try_from(u64::from(side) * most / together).unwrap_or(side).max(1);
                (scaled(width), scaled(height))
            }
            _ => (width, height),
        };
        match self.max_pixels {
            Some(most) if pixels(width, height) > most => scaled_to_pixels(width, height, most),
            _ => (width, height),
        }
    }
}

fn pixels(width: u32, height: u32) -> u64 {
    u64::from(width) * u64::from(height)
}

/// Returns the sides of the largest picture of about this shape with at most so many pixels.
fn scaled_to_pixels(width: u32, height: u32, most: u64) -> (u32, u32) {
    let (width, height) = (u64::from(width.max(1)), u64::from(height.max(1)));
    // The new width is the root of width² × most / (width × height). The height is at least 1, so it is at most `most`.
    let root = (u128::from(width) * u128::from(most) / u128::from(height)).isqrt();
    let width = u64::try_from(root).unwrap_or(width).min(most).clamp(1, width);
    let height = (most / width).clamp(1, height);
    (u32::try_from(width).unwrap_or(u32::MAX), u32::try_from(height).unwrap_or(u32::MAX))
}

struct ShrinkTask {
    source: SourceImage,
    kind: ImageType,
    most: u64,
    icc: Option<Vec<u8>>,
    tries: u32,
}

impl ShrinkTask {
    fn run(&mut self, sides: (u32, u32)) -> Result<FittedPicture, Refusal> {
        let (mut out, mut quality) = (self.write(sides, STEPS[0].0)?, STEPS[0].0);
        if self.kind == ImageType::Jpeg && !self.fits(&out) {
            let first = out.len() as u64;
            let last = STEPS.len() - 1;
            let guess = STEPS.iter().position(|(_, percent)| first * percent / 100 <= self.most).unwrap_or(last);
            for (step, _) in STEPS.iter().skip(guess.max(1)) {
                (out, quality) = (self.write(sides, *step)?, *step);
                if self.fits(&out) {
                    break;
                }
            }
        }
        if self.fits(&out) { Ok(self.fitted(out, sides)) } else { self.shrink(sides, out.len(), quality) }
    }

    /// Shrinks the picture until it fits, but not much further.
    fn shrink(&mut self, sides: (u32, u32), size: usize, quality: u8) -> Result<FittedPicture, Refusal> {
        let (mut scale, mut size, mut best) = (1.0_f64, size as f64, None);
        let most = self.most as f64;
        // The smallest scale known to be too large.
        let mut above = 1.0_f64;
        while self.tries < MAX_ENCODINGS {
            let guess = scale * (most * AIM / size).powf(1.0 / SIZE_EXPONENT);
            scale = if guess < above { guess } else { (scale + above) / 2.0 };
            let side = |side: u32| ((f64::from(side) * scale) as u32).clamp(1, side);
            let now = (side(sides.0), side(sides.1));
            let out = self.write(now, quality)?;
            size = out.len() as f64;
            if self.fits(&out) {
                let good = size >= most * GOOD;
                if best.as_ref().is_none_or(|(last, _): &(Vec<u8>, _)| last.len() < out.len()) {
                    best = Some((out, now));
                }
                if good {
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

    fn write(&mut self, (width, height): (u32, u32), quality: u8) -> Result<Vec<u8>, Refusal> {
        self.tries += 1;
        let picture = self.source.resized_to(width, height).ok_or_else(super::broken)?;
        encode::write(&picture, self.kind, quality, self.icc.as_deref())
    }

    fn fits(&self, out: &[u8]) -> bool {
        out.len() as u64 <= self.most
    }

    fn fitted(&self, out: Vec<u8>, (width, height): (u32, u32)) -> FittedPicture {
        FittedPicture { kind: self.kind, bytes: out.into(), width, height }
    }

    fn too_large(&self) -> Refusal {
        Refusal::TooLarge(format!("The image cannot be reduced to {} bytes.", self.most))
    }
}

fn no_type(rules: &PictureRules<'_>) -> Refusal {
    let taken = rules.mime_types.join(", ");
    Refusal::Unsupported(format!("The image cannot be converted to an accepted type ({taken})."))
}
