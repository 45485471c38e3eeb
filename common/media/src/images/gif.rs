//! GIF: a logical screen descriptor, and blocks up to the trailer.

use std::ops::Range;

use bytes::Bytes;
use image::metadata::Orientation;

use super::rewrite::{Frame, Input, Rewrite, WalkResult, only_padding, push_frame, side};
use super::{Rejection, broken, signs};

/// The length of the signature and the screen descriptor.
const HEAD: usize = 13;

/// Walks the structure of the file.
///
/// # Errors
/// An error if it is incomplete, or also contains another format.
pub fn walk(source: &Bytes) -> Result<WalkResult, Rejection> {
    let input = Input(source);
    let mut rewrite = Rewrite::of(source);
    side(input.le16(6)?)?;
    side(input.le16(8)?)?;
    reject_script(source)?;
    let mut at = HEAD + palette(input.u8(10)?);
    rewrite.keep(0..at);
    let mut frames = Vec::new();
    // The graphic control extension of the next frame. It is kept only together with its frame.
    let mut control: Option<Range<usize>> = None;
    loop {
        match input.u8(at)? {
            0x3b => break,
            // Padding that some programs write between blocks.
            0 => at += 1,
            0x2c => {
                let frame = image(input, at)?;
                if let Some(control) = control.take() {
                    rewrite.keep(control);
                }
                let end = frame.parts.last().map_or(at, |part| part.end);
                rewrite.keep(at..end);
                at = end;
                push_frame(&mut frames, frame)?;
            }
            0x21 => {
                let end = blocks(input, at + 2)?;
                match extension(input, at, end)? {
                    Extension::Control => control = Some(at..end),
                    Extension::Kept => rewrite.keep(at..end),
                    Extension::Dropped => check_blocks(input, at + 2)?,
                }
                at = end;
            }
            _ => return Err(broken()),
        }
    }
    rewrite.keep(at..at + 1);
    only_padding(input.range(at + 1..source.len())?)?;
    if frames.is_empty() {
        return Err(broken());
    }
    Ok(WalkResult { clean: rewrite.finish(), orientation: Orientation::NoTransforms, frames, small: None })
}

enum Extension {
    Control,
    Kept,
    Dropped,
}

fn extension(input: Input<'_>, at: usize, end: usize) -> Result<Extension, Rejection> {
    let whole = input.range(at..end)?;
    Ok(match whole {
        [_, 0xf9, 4, _, _, _, _, 0] => Extension::Control,
        [_, 0xff, 11, name @ ..] if is_loop(name) => Extension::Kept,
        [_, 0xff, 11, name @ ..] if name.starts_with(b"ICCRGBG1012") => {
            check_blocks(input, at + 2)?;
            Extension::Kept
        }
        _ => Extension::Dropped,
    })
}

/// Returns whether an extension is the loop count of the animation.
fn is_loop(name: &[u8]) -> bool {
    (name.starts_with(b"NETSCAPE2.0") || name.starts_with(b"ANIMEXTS1.0"))
        && matches!(name.get(11..), Some([3, 1, _, _, 0]))
}

fn image(input: Input<'_>, at: usize) -> Result<Frame, Rejection> {
    let (width, height) = (side(input.le16(at + 5)?)?, side(input.le16(at + 7)?)?);
    let data = at + 10 + palette(input.u8(at + 9)?);
    let end = blocks(input, data + 1)?;
    Ok(Frame { width, height, parts: vec![at..data, data..end] })
}

/// Returns the length of a palette, given the byte with its flags.
fn palette(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

/// Returns the end of a sequence of sub-blocks. Each begins with its length, and the last has the length 0.
fn blocks(input: Input<'_>, mut at: usize) -> Result<usize, Rejection> {
    loop {
        let length = usize::from(input.u8(at)?);
        at += 1 + length;
        if length == 0 {
            return Ok(at);
        }
    }
}

/// Checks for signs in the joined sub-blocks, which readers see, and in the raw bytes.
fn check_blocks(input: Input<'_>, begin: usize) -> Result<(), Rejection> {
    let (mut text, mut at) = (Vec::new(), begin);
    while let length @ 1.. = usize::from(input.u8(at)?) {
        text.extend_from_slice(input.range(at + 1..at + 1 + length)?);
        at += 1 + length;
    }
    signs::check(&text)?;
    signs::check(input.range(begin..at)?)
}

/// Rejects `GIF89a=/*…*/` and similar files, in which the width of the screen begins a comment of a script.
fn reject_script(source: &[u8]) -> Result<(), Rejection> {
    let screen = source.get(6..10).unwrap_or_default();
    let opens = screen.starts_with(b"/*") || screen.starts_with(b"=/*") || screen.starts_with(b"=1/*");
    if opens && source.windows(2).any(|pair| pair == b"*/") { Err(signs::both("a script")) } else { Ok(()) }
}

/// Returns a frame as a separate file.
pub fn extract_frame(source: &[u8], frame: &Frame) -> Result<Vec<u8>, Rejection> {
    let input = Input(source);
    let flags = input.u8(10)?;
    let mut out = b"GIF89a".to_vec();
    let side = |n: u32| u16::try_from(n).unwrap_or(u16::MAX).to_le_bytes();
    out.extend_from_slice(&side(frame.width));
    out.extend_from_slice(&side(frame.height));
    out.extend_from_slice(input.range(10..HEAD + palette(flags))?);
    let begin = out.len();
    for part in &frame.parts {
        out.extend_from_slice(input.range(part.clone())?);
    }
    // Moves the frame to the top left corner.
    out.get_mut(begin + 1..begin + 5).ok_or_else(broken)?.fill(0);
    out.push(0x3b);
    Ok(out)
}
