//! WebP: chunks in a RIFF container.

use std::ops::Range;

use bytes::Bytes;
use image::metadata::Orientation;

use super::rewrite::{Frame, Input, Rewrite, WalkResult, only_padding, orientation, push_frame, side};
use super::{Rejection, broken, signs, truncated_error};

/// Flags of VP8X.
pub const ANIMATION: u8 = 0x02;
const XMP: u8 = 0x04;
pub const EXIF: u8 = 0x08;
const ALPHA: u8 = 0x10;
const ICC: u8 = 0x20;

/// A chunk: its name, its body, and the start of the next one.
struct Chunk<'a> {
    name: &'a [u8],
    body: Range<usize>,
    next: usize,
}

fn chunk(input: Input<'_>, at: usize, end: usize) -> Result<Chunk<'_>, Rejection> {
    let length = input.le32(at + 4)?;
    let body = at + 8..at + 8 + length;
    if body.end > end {
        return Err(truncated_error());
    }
    // The last chunk may lack its padding.
    let next = (body.end + (length & 1)).min(end);
    Ok(Chunk { name: input.range(at..at + 4)?, body, next })
}

#[derive(Default)]
struct State {
    /// Flags and size of the canvas, if the file has a VP8X chunk.
    canvas: Option<(u8, u32, u32)>,
    orientation: Option<Orientation>,
    icc: bool,
    alpha: bool,
    /// The size of the still image.
    image: Option<(u32, u32)>,
    frames: Vec<Frame>,
}

/// Walks the structure of the file.
///
/// # Errors
/// An error if it is incomplete, or also contains another format.
pub fn walk(source: &Bytes) -> Result<WalkResult, Rejection> {
    let input = Input(source);
    let end = input.le32(4)? + 8;
    only_padding(input.range(end..source.len())?)?;
    let mut state = State::default();
    let mut kept = Vec::new();
    let mut at = 12;
    while at < end {
        let found = chunk(input, at, end)?;
        let keeps = state.process_chunk(&found, input, kept.is_empty())?;
        if keeps {
            kept.push(at..found.next);
        } else {
            signs::check(input.range(found.body.clone())?)?;
        }
        at = found.next;
    }
    state.is_whole()?;
    let clean = state.written(source, &kept)?;
    let orientation = state.orientation.unwrap_or(Orientation::NoTransforms);
    Ok(WalkResult { clean, orientation, frames: state.frames, small: None })
}

impl State {
    fn process_chunk(&mut self, found: &Chunk<'_>, input: Input<'_>, first: bool) -> Result<bool, Rejection> {
        let body = || input.range(found.body.clone());
        let (start, extended) = (found.body.start, self.canvas.is_some());
        match found.name {
            b"VP8X" if first && found.body.len() == 10 => {
                let (width, height) = (input.le24(start + 4)? + 1, input.le24(start + 7)? + 1);
                self.canvas = Some((input.u8(start)?, side(width)?, side(height)?));
                Ok(true)
            }
            b"VP8X" => Err(broken()),
            b"VP8 " | b"VP8L" if self.image.is_some() || !(first || extended) => Err(broken()),
            b"VP8 " | b"VP8L" => {
                self.image = Some(size(found.name, body()?)?);
                Ok(true)
            }
            b"ALPH" if extended && self.image.is_none() && !self.alpha => {
                self.alpha = true;
                Ok(true)
            }
            b"ICCP" if extended && !self.icc && self.image.is_none() && self.frames.is_empty() => {
                signs::check(body()?)?;
                self.icc = true;
                Ok(true)
            }
            b"ANIM" if self.animated() && found.body.len() == 6 => Ok(true),
            b"ANMF" if self.animated() => {
                let frame = self.frame(input, found)?;
                push_frame(&mut self.frames, frame)?;
                Ok(true)
            }
            b"EXIF" => {
                // Without the flag, readers ignore EXIF, and `head.rs` has not counted the memory for the rotation.
                let flagged = self.canvas.is_some_and(|(flags, ..)| flags & EXIF != 0);
                self.orientation = self.orientation.or(if flagged { Some(orientation(body()?)) } else { None });
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    fn animated(&self) -> bool {
        self.canvas.is_some_and(|(flags, ..)| flags & ANIMATION != 0)
    }

    fn frame(&self, input: Input<'_>, found: &Chunk<'_>) -> Result<Frame, Rejection> {
        let start = found.body.start;
        let (x, y) = (input.le24(start)? * 2, input.le24(start + 3)? * 2);
        let (width, height) = (side(input.le24(start + 6)? + 1)?, side(input.le24(start + 9)? + 1)?);
        let fits = |(_, w, h): (u8, u32, u32)| x + width as usize <= w as usize && y + height as usize <= h as usize;
        if !self.canvas.is_some_and(fits) {
            return Err(broken());
        }
        let (mut parts, mut at, mut drawn) = (Vec::new(), start + 16, None);
        while at < found.body.end {
            let inner = chunk(input, at, found.body.end)?;
            match inner.name {
                b"ALPH" if parts.is_empty() => parts.push(at..inner.next),
                b"VP8 " | b"VP8L" if drawn.is_none() => {
                    drawn = Some(size(inner.name, input.range(inner.body.clone())?)?);
                    parts.push(at..inner.next);
                }
                // Other chunks in a frame would have to be removed from it.
                _ => return Err(broken()),
            }
            at = inner.next;
        }
        if drawn == Some((width, height)) { Ok(Frame { width, height, parts }) } else { Err(broken()) }
    }

    fn is_whole(&self) -> Result<(), Rejection> {
        let sound = match (self.canvas, self.image) {
            (None, image) => image.is_some(),
            (Some(_), None) => !self.frames.is_empty(),
            (Some((_, width, height)), Some(size)) => size == (width, height) && self.frames.is_empty(),
        };
        if sound { Ok(()) } else { Err(broken()) }
    }

    /// Writes the kept chunks to a new file, with its size and correct flags.
    fn written(&self, source: &Bytes, kept: &[Range<usize>]) -> Result<Bytes, Rejection> {
        let mut rewrite = Rewrite::of(source);
        let length: usize = kept.iter().map(|chunk| chunk.len() + (chunk.len() & 1)).sum();
        let mut head = b"RIFF".to_vec();
        head.extend_from_slice(&u32::try_from(length + 4).map_err(|_| broken())?.to_le_bytes());
        head.extend_from_slice(b"WEBP");
        rewrite.replace(0..12, head);
        for (n, chunk) in kept.iter().enumerate() {
            if let (0, Some((flags, ..))) = (n, self.canvas) {
                let icc = if self.icc { ICC } else { 0 };
                let mut new = Input(source).range(chunk.clone())?.to_vec();
                new[8] = flags & !(XMP | EXIF | ICC) & (ANIMATION | ALPHA) | icc;
                rewrite.replace(chunk.clone(), new);
            } else {
                rewrite.keep(chunk.clone());
            }
            if chunk.len() & 1 == 1 {
                rewrite.replace(chunk.end..chunk.end, vec![0]);
            }
        }
        Ok(rewrite.finish())
    }
}

/// Returns width and height, from the head of an image's data.
pub fn size(name: &[u8], body: &[u8]) -> Result<(u32, u32), Rejection> {
    let input = Input(body);
    let (width, height) = if name == b"VP8L" {
        let bits = input.le32(1)?;
        (1 + (bits & 0x3fff), 1 + (bits >> 14 & 0x3fff))
    } else {
        (input.le16(6)? & 0x3fff, input.le16(8)? & 0x3fff)
    };
    Ok((side(width)?, side(height)?))
}

/// Returns a frame as a separate file.
pub fn extract_frame(source: &[u8], frame: &Frame) -> Result<Vec<u8>, Rejection> {
    let input = Input(source);
    let mut body = b"WEBP".to_vec();
    let alpha = frame.parts.len() > 1;
    if alpha {
        body.extend_from_slice(b"VP8X\x0a\0\0\0");
        body.extend_from_slice(&[ALPHA, 0, 0, 0]);
        for side in [frame.width, frame.height] {
            body.extend_from_slice(&(side - 1).to_le_bytes()[..3]);
        }
    }
    for part in &frame.parts {
        body.extend_from_slice(input.range(part.clone())?);
        body.resize(body.len().next_multiple_of(2), 0);
    }
    let mut out = b"RIFF".to_vec();
    out.extend_from_slice(&u32::try_from(body.len()).map_err(|_| broken())?.to_le_bytes());
    out.append(&mut body);
    Ok(out)
}
