//! PNG: chunks with checksums, from the signature to IEND.

use std::ops::Range;

use bytes::Bytes;
pub use crc32fast::hash as crc;
use image::metadata::Orientation;

use super::rewrite::{Frame, Input, Rewrite, WalkResult, only_padding, orientation, push_frame, side};
use super::{Rejection, broken, signs};

pub const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The ancillary chunks that are kept, with their maximum sizes. They affect colors, transparency, dimensions and
/// animation.
const KEPT_CHUNKS: &[(&[u8; 4], usize)] = &[
    (b"tRNS", 256),
    (b"gAMA", 4),
    (b"cHRM", 32),
    (b"sRGB", 1),
    (b"cICP", 4),
    (b"iCCP", 4 << 20),
    (b"pHYs", 9),
    (b"bKGD", 6),
    (b"sBIT", 4),
    (b"acTL", 8),
    (b"mDCV", 24),
    (b"cLLI", 8),
];

/// Maximum size of the palette, in bytes: 256 colors. It is decoded again with each frame of an animation.
const MAX_PALETTE: usize = 256 * 3;

#[derive(Default)]
struct State {
    width: u32,
    height: u32,
    orientation: Option<Orientation>,
    seen: Vec<[u8; 4]>,
    frames: Vec<Frame>,
    data: ChunkPosition,
}

/// The position of the walk relative to the image data.
#[derive(Default, PartialEq, Eq)]
enum ChunkPosition {
    #[default]
    Before,
    Within,
    After,
}

/// Walks the structure of the file.
///
/// # Errors
/// An error if it is incomplete, or also contains another format.
pub fn walk(source: &Bytes) -> Result<WalkResult, Rejection> {
    let input = Input(source);
    let mut rewrite = Rewrite::of(source);
    let mut state = State::default();
    let mut at = SIGNATURE.len();
    rewrite.keep(0..at);
    loop {
        let length = input.be32(at)?;
        let name: [u8; 4] = input.range(at + 4..at + 8)?.try_into().map_err(|_| broken())?;
        let (body, end) = (at + 8..at + 8 + length, at + 12 + length);
        let sum = input.be32(end.saturating_sub(4))?;
        if u32::try_from(sum) != Ok(crc(input.range(at + 4..body.end)?)) {
            return Err(broken());
        }
        if state.process_chunk(&name, input, &body)? {
            rewrite.keep(at..end);
        } else {
            rewrite.drop(body)?;
        }
        at = end;
        if &name == b"IEND" {
            break;
        }
    }
    only_padding(input.range(at..source.len())?)?;
    let whole = !state.frames.is_empty() && !state.seen.contains(b"acTL");
    if state.data == ChunkPosition::Before || whole {
        return Err(broken());
    }
    let orientation = state.orientation.unwrap_or(Orientation::NoTransforms);
    Ok(WalkResult { clean: rewrite.finish(), orientation, frames: state.frames, small: None })
}

impl State {
    fn process_chunk(&mut self, name: &[u8; 4], input: Input<'_>, body: &Range<usize>) -> Result<bool, Rejection> {
        let first = self.seen.is_empty();
        if first != (name == b"IHDR") {
            return Err(broken());
        }
        let again = self.seen.contains(name);
        // Other names are not remembered, because a file may contain millions of them.
        let is_remembered =
            name[0].is_ascii_uppercase() || name == b"eXIf" || KEPT_CHUNKS.iter().any(|(kept, _)| *kept == name);
        if !again && is_remembered {
            self.seen.push(*name);
        }
        if name == b"IDAT" {
            if self.data == ChunkPosition::After {
                return Err(broken());
            }
            self.data = ChunkPosition::Within;
            return Ok(true);
        }
        if self.data == ChunkPosition::Within {
            self.data = ChunkPosition::After;
        }
        match name {
            b"IHDR" => {
                (self.width, self.height) = (side(input.be32(body.start)?)?, side(input.be32(body.start + 4)?)?);
                if body.len() == 13 { Ok(true) } else { Err(broken()) }
            }
            b"PLTE" if again || self.data != ChunkPosition::Before || body.len() > MAX_PALETTE => Err(broken()),
            b"PLTE" => Ok(true),
            b"IEND" if !body.is_empty() => Err(broken()),
            b"IEND" => Ok(true),
            b"eXIf" => {
                if !again {
                    self.orientation = Some(orientation(input.range(body.clone())?));
                }
                Ok(false)
            }
            b"fcTL" => self.frame(input, body),
            b"fdAT" => self.frame_data(body),
            // An unknown critical chunk.
            _ if name[0].is_ascii_uppercase() => Err(broken()),
            _ => self.process_ancillary_chunk(name, again, input, body),
        }
    }

    /// Returns whether an ancillary chunk is kept: if it is known, valid and in the right place.
    fn process_ancillary_chunk(
        &self,
        name: &[u8; 4],
        again: bool,
        input: Input<'_>,
        body: &Range<usize>,
    ) -> Result<bool, Rejection> {
        let known = KEPT_CHUNKS.iter().any(|(kept, max)| *kept == name && body.len() <= *max);
        let keeps = known && !again && self.data == ChunkPosition::Before;
        if keeps {
            signs::check(input.range(body.clone())?)?;
        }
        Ok(keeps)
    }

    fn frame(&mut self, input: Input<'_>, body: &Range<usize>) -> Result<bool, Rejection> {
        if body.len() != 26 || !self.seen.contains(b"acTL") {
            return Err(broken());
        }
        let number = |at: usize| input.be32(body.start + at);
        let (width, height, x, y) = (number(4)?, number(8)?, number(12)?, number(16)?);
        if x + width > self.width as usize || y + height > self.height as usize {
            return Err(broken());
        }
        let frame = Frame { width: side(width)?, height: side(height)?, parts: Vec::new() };
        push_frame(&mut self.frames, frame)?;
        Ok(true)
    }

    fn frame_data(&mut self, body: &Range<usize>) -> Result<bool, Rejection> {
        let frame = self
            .frames
            .last_mut()
            .filter(|_| self.data == ChunkPosition::After && body.len() > 4)
            .ok_or_else(broken)?;
        // Without the sequence number.
        frame.parts.push(body.start + 4..body.end);
        Ok(true)
    }
}

/// Returns the file without its color profile. Call it only with the output of [`walk`].
pub fn without_profile(clean: &Bytes) -> Result<Bytes, Rejection> {
    let (input, mut rewrite, mut at) = (Input(clean), Rewrite::of(clean), SIGNATURE.len());
    rewrite.keep(0..at);
    while at < clean.len() {
        let (name, end) = (input.range(at + 4..at + 8)?, at + 12 + input.be32(at)?);
        if name != b"iCCP" {
            rewrite.keep(at..end);
        }
        at = end;
    }
    Ok(rewrite.finish())
}

/// Returns the palette of an image and its transparency, as chunks. Call it only with the output of [`walk`], which has at
/// most one of each and few other chunks. The original may have millions.
pub fn palette(clean: &[u8]) -> Result<Vec<u8>, Rejection> {
    let (input, mut at, mut found) = (Input(clean), SIGNATURE.len(), Vec::new());
    loop {
        let (name, end) = (input.range(at + 4..at + 8)?, at + 12 + input.be32(at)?);
        match name {
            b"IDAT" | b"IEND" => return Ok(found),
            b"PLTE" | b"tRNS" => found.extend_from_slice(input.range(at..end)?),
            _ => {}
        }
        at = end;
    }
}

/// Returns a frame of an animation as a separate file; `None` if it is the default image. `palette` is that of the image.
pub fn extract_frame(source: &[u8], palette: &[u8], frame: &Frame) -> Result<Option<Vec<u8>>, Rejection> {
    if frame.parts.is_empty() {
        return Ok(None);
    }
    let input = Input(source);
    let mut header = input.range(16..29)?.to_vec();
    header[..4].copy_from_slice(&frame.width.to_be_bytes());
    header[4..8].copy_from_slice(&frame.height.to_be_bytes());
    let mut out = SIGNATURE.to_vec();
    chunk(&mut out, b"IHDR", &[&header]);
    out.extend_from_slice(palette);
    let parts = frame.parts.iter().map(|part| input.range(part.clone())).collect::<Result<Vec<_>, _>>()?;
    chunk(&mut out, b"IDAT", &parts);
    chunk(&mut out, b"IEND", &[]);
    Ok(Some(out))
}

fn chunk(out: &mut Vec<u8>, name: &[u8; 4], parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    let begin = out.len();
    out.extend_from_slice(name);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    let sum = crc(out.get(begin..).unwrap_or_default());
    out.extend_from_slice(&sum.to_be_bytes());
}
