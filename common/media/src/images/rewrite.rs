//! Rewrites a file: each of its parts is kept, replaced or dropped.
//!
//! Dropped parts are always checked: [`Rewrite::drop`] searches them for signs of another format.
//!
//! The walks over PNG, WebP and JPEG do not use the crate img-parts (0.4). Of a JPEG, it reads only the segments before
//! the first scan and keeps all bytes after them. It ignores data after the image. It keeps a value per chunk in memory
//! (126 MB for a PNG of 24 MB with two million empty chunks, which takes 24 MB here). And the walks mostly consist of
//! the rules about parts that are kept, dropped or rejected, which it does not have.

use std::ops::Range;

use bytes::Bytes;
use image::DynamicImage;
use image::metadata::Orientation;

use super::{Rejection, broken, signs, truncated_error};

/// The result of a walk over a file's structure.
#[derive(Debug)]
pub struct WalkResult {
    /// The file without parts that do not belong to the image. Its pixels are unchanged.
    pub clean: Bytes,
    /// The orientation of the image, which [`Self::clean`] does not contain.
    pub orientation: Orientation,
    /// The frames of an animation, in order; empty for a still image.
    pub frames: Vec<Frame>,
    /// The image at a fraction of its size, not rotated, if that is sufficient for a thumbnail.
    pub small: Option<DynamicImage>,
}

/// One frame of an animation.
#[derive(Clone, Debug)]
pub struct Frame {
    pub width: u32,
    pub height: u32,
    /// The ranges of its data in the original file.
    pub parts: Vec<Range<usize>>,
}

/// Maximum number of frames of an animation.
const MAX_FRAMES: usize = 10_000;

/// Adds a frame.
///
/// # Errors
/// An error if there are too many.
pub fn push_frame(frames: &mut Vec<Frame>, frame: Frame) -> Result<(), Rejection> {
    if frames.len() == MAX_FRAMES {
        return Err(Rejection::TooLarge(format!("The animation has more than {MAX_FRAMES} frames.")));
    }
    frames.push(frame);
    Ok(())
}

#[derive(Debug)]
enum Segment {
    Kept(Range<usize>),
    New(Vec<u8>),
}

#[derive(Debug)]
pub struct Rewrite<'a> {
    source: &'a Bytes,
    pieces: Vec<Segment>,
}

impl<'a> Rewrite<'a> {
    pub fn of(source: &'a Bytes) -> Self {
        Self { source, pieces: Vec::new() }
    }

    pub fn keep(&mut self, range: Range<usize>) {
        match self.pieces.last_mut() {
            Some(Segment::Kept(last)) if last.end == range.start => last.end = range.end,
            _ => self.pieces.push(Segment::Kept(range)),
        }
    }

    /// Replaces a range with other bytes.
    pub fn replace(&mut self, range: Range<usize>, new: Vec<u8>) {
        if self.source.get(range.clone()) == Some(&new) {
            self.keep(range)
        } else {
            self.pieces.push(Segment::New(new))
        }
    }

    /// Checks a range and drops it.
    ///
    /// # Errors
    /// An error if it contains another format.
    pub fn drop(&self, range: Range<usize>) -> Result<(), Rejection> {
        signs::check(self.source.get(range).unwrap_or_default())
    }

    pub fn finish(self) -> Bytes {
        if let [Segment::Kept(all)] = &self.pieces[..] {
            return self.source.slice(all.clone());
        }
        let mut out = Vec::with_capacity(self.source.len());
        for piece in &self.pieces {
            match piece {
                Segment::Kept(range) => out.extend_from_slice(self.source.get(range.clone()).unwrap_or_default()),
                Segment::New(new) => out.extend_from_slice(new),
            }
        }
        out.into()
    }
}

/// Random access to the bytes of a file.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Returns a range of bytes.
    ///
    /// # Errors
    /// An error if the file ends before the range does.
    pub fn range(self, range: Range<usize>) -> Result<&'a [u8], Rejection> {
        self.0.get(range).ok_or_else(truncated_error)
    }

    pub fn u8(self, at: usize) -> Result<u8, Rejection> {
        self.0.get(at).copied().ok_or_else(truncated_error)
    }

    pub fn be16(self, at: usize) -> Result<usize, Rejection> {
        Ok(usize::from(self.u8(at)?) << 8 | usize::from(self.u8(at + 1)?))
    }

    pub fn le16(self, at: usize) -> Result<usize, Rejection> {
        Ok(usize::from(self.u8(at + 1)?) << 8 | usize::from(self.u8(at)?))
    }

    pub fn le24(self, at: usize) -> Result<usize, Rejection> {
        Ok(self.le16(at)? | usize::from(self.u8(at + 2)?) << 16)
    }

    pub fn be32(self, at: usize) -> Result<usize, Rejection> {
        Ok(self.be16(at)? << 16 | self.be16(at + 2)?)
    }

    pub fn le32(self, at: usize) -> Result<usize, Rejection> {
        Ok(self.le16(at + 2)? << 16 | self.le16(at)?)
    }
}

/// Checks that there is only padding after the end of an image.
pub fn only_padding(rest: &[u8]) -> Result<(), Rejection> {
    signs::check(rest)?;
    if is_padding(rest) { Ok(()) } else { Err(trailing()) }
}

pub fn is_padding(rest: &[u8]) -> bool {
    rest.iter().all(|byte| *byte == 0 || byte.is_ascii_whitespace())
}

pub fn trailing() -> Rejection {
    Rejection::Unsupported("The file contains data after the end of the image. Use a plain image file.".to_owned())
}

/// Converts a width or height; 0 is invalid.
pub fn side(length: usize) -> Result<u32, Rejection> {
    u32::try_from(length).ok().filter(|n| *n > 0).ok_or_else(broken)
}

/// Returns the orientation in an EXIF block; `NoTransforms` if it is missing or invalid.
pub fn orientation(exif: &[u8]) -> Orientation {
    let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    Orientation::from_exif_chunk(tiff).unwrap_or(Orientation::NoTransforms)
}
