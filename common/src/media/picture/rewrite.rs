//! A file written anew from parts of itself: what is kept, what is put in another's place, and what is dropped.
//!
//! Nothing is dropped unseen: [`Rewrite::drop`] looks for signs of another format in it.

use std::ops::Range;

use bytes::Bytes;
use image::DynamicImage;
use image::metadata::Orientation;

use super::{Refusal, broken, cut, signs};

/// What a walk over the structure of a file found.
#[derive(Debug)]
pub struct Walked {
    /// The file without what is no part of the picture; its pixels are untouched.
    pub clean: Bytes,
    /// How the picture is to be turned; [`Self::clean`] does not say it any more.
    pub orientation: Orientation,
    /// The pictures of an animation, in order; none of a picture that stands still.
    pub frames: Vec<Frame>,
    /// The picture at a fraction of its size, as it is in the file, where that is enough for a thumbnail.
    pub small: Option<DynamicImage>,
}

/// One picture of an animation.
#[derive(Clone, Debug)]
pub struct Frame {
    pub width: u32,
    pub height: u32,
    /// Where it is in the file as it was given.
    pub parts: Vec<Range<usize>>,
}

#[derive(Debug)]
enum Piece {
    Kept(Range<usize>),
    New(Vec<u8>),
}

#[derive(Debug)]
pub struct Rewrite<'a> {
    source: &'a Bytes,
    pieces: Vec<Piece>,
}

impl<'a> Rewrite<'a> {
    pub fn of(source: &'a Bytes) -> Self {
        Self { source, pieces: Vec::new() }
    }

    pub fn keep(&mut self, range: Range<usize>) {
        match self.pieces.last_mut() {
            Some(Piece::Kept(last)) if last.end == range.start => last.end = range.end,
            _ => self.pieces.push(Piece::Kept(range)),
        }
    }

    /// Puts bytes in the place of others.
    pub fn replace(&mut self, range: Range<usize>, new: Vec<u8>) {
        if self.source.get(range.clone()) == Some(&new) { self.keep(range) } else { self.pieces.push(Piece::New(new)) }
    }

    /// # Errors
    /// A refusal where another format shows in it.
    pub fn drop(&self, range: Range<usize>) -> Result<(), Refusal> {
        signs::check(self.source.get(range).unwrap_or_default())
    }

    pub fn finish(self) -> Bytes {
        if let [Piece::Kept(all)] = &self.pieces[..] {
            return self.source.slice(all.clone());
        }
        let mut out = Vec::with_capacity(self.source.len());
        for piece in &self.pieces {
            match piece {
                Piece::Kept(range) => out.extend_from_slice(self.source.get(range.clone()).unwrap_or_default()),
                Piece::New(new) => out.extend_from_slice(new),
            }
        }
        out.into()
    }
}

/// The bytes of a file, read from its front.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// # Errors
    /// A refusal where the file ends before that.
    pub fn range(self, range: Range<usize>) -> Result<&'a [u8], Refusal> {
        self.0.get(range).ok_or_else(cut)
    }

    pub fn u8(self, at: usize) -> Result<u8, Refusal> {
        self.0.get(at).copied().ok_or_else(cut)
    }

    pub fn be16(self, at: usize) -> Result<usize, Refusal> {
        Ok(usize::from(self.u8(at)?) << 8 | usize::from(self.u8(at + 1)?))
    }

    pub fn le16(self, at: usize) -> Result<usize, Refusal> {
        Ok(usize::from(self.u8(at + 1)?) << 8 | usize::from(self.u8(at)?))
    }

    pub fn le24(self, at: usize) -> Result<usize, Refusal> {
        Ok(self.le16(at)? | usize::from(self.u8(at + 2)?) << 16)
    }

    pub fn be32(self, at: usize) -> Result<usize, Refusal> {
        Ok(self.be16(at)? << 16 | self.be16(at + 2)?)
    }

    pub fn le32(self, at: usize) -> Result<usize, Refusal> {
        Ok(self.le16(at + 2)? << 16 | self.le16(at)?)
    }
}

/// What follows the end of a picture may be padding, and nothing else.
pub fn only_padding(rest: &[u8]) -> Result<(), Refusal> {
    signs::check(rest)?;
    if is_padding(rest) { Ok(()) } else { Err(trailing()) }
}

pub fn is_padding(rest: &[u8]) -> bool {
    rest.iter().all(|byte| *byte == 0 || byte.is_ascii_whitespace())
}

pub fn trailing() -> Refusal {
    Refusal::Unsupported("The file goes on after the end of the picture; only plain pictures are taken.".to_owned())
}

/// A side of a picture; none is empty.
pub fn side(length: usize) -> Result<u32, Refusal> {
    u32::try_from(length).ok().filter(|n| *n > 0).ok_or_else(broken)
}

/// The orientation that a block of EXIF asks for; upright where it does not say or is broken.
pub fn orientation(exif: &[u8]) -> Orientation {
    let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    Orientation::from_exif_chunk(tiff).unwrap_or(Orientation::NoTransforms)
}
