//! JPEG: marker segments and scans, from SOI to EOI.
//!
//! The codes of all blocks are read (`scans.rs`, `tables.rs`, `bits.rs`), which also yields the picture at an eighth of
//! its size (`eighth.rs`). Data that phones append after EOI is dropped: further pictures, videos, vendor trailers.
//!
//! The reader is our own because no decoder reports all missing data, or where the data of a scan ends (what follows it
//! up to the next marker is dropped here); `docs/media.md` has the measurements under "Why JPEGs are read by own code".

use std::ops::Range;

use bytes::Bytes;
use image::metadata::Orientation;

use super::rewrite::{Input, Rewrite, WalkResult, is_padding, orientation, side, trailing};
use super::{Refusal, broken, signs};

mod bits;
mod eighth;
mod scans;
mod tables;

use eighth::Means;
pub use eighth::{ColorInfo, is_enough};
use scans::Scans;
use tables::Tables;

/// Maximum number of scans of a picture; a photograph has about ten. Bounds the work.
const MAX_SCANS: usize = 100;

struct Walk<'a> {
    input: Input<'a>,
    rewrite: Rewrite<'a>,
    orientation: Option<Orientation>,
    jfif: bool,
    adobe: bool,
    marks: ColorInfo,
    scans: Option<Scans>,
    tables: Tables,
    scan_count: usize,
}

/// Walks the structure of the file.
///
/// # Errors
/// A refusal if it is incomplete, or also contains another format.
pub fn walk(source: &Bytes) -> Result<WalkResult, Refusal> {
    let mut walk = Walk {
        input: Input(source),
        rewrite: Rewrite::of(source),
        orientation: None,
        jfif: false,
        adobe: false,
        marks: ColorInfo::default(),
        scans: None,
        tables: Tables::default(),
        scan_count: 0,
    };
    walk.rewrite.keep(0..2);
    let mut at = 2;
    loop {
        let marker = next_marker(walk.input, at)?;
        walk.rewrite.drop(at..marker)?;
        let code = walk.input.u8(marker + 1)?;
        if code == 0xd9 {
            walk.scans.as_ref().ok_or_else(broken)?.check_complete()?;
            walk.rewrite.keep(marker..marker + 2);
            check_trailing(walk.input.range(marker + 2..source.len())?)?;
            break;
        }
        at = walk.segment(code, marker)?;
    }
    let orientation = walk.orientation.unwrap_or(Orientation::NoTransforms);
    let small = walk.scans.as_ref().and_then(Scans::small);
    Ok(WalkResult { clean: walk.rewrite.finish(), orientation, frames: Vec::new(), small })
}

/// Returns the position of the next marker with a meaning. Bytes before it are fill bytes or garbage.
fn next_marker(input: Input<'_>, mut at: usize) -> Result<usize, Refusal> {
    loop {
        // Of several FF bytes, the last one starts the marker.
        if input.u8(at)? == 0xff && !matches!(input.u8(at + 1)?, 0x00 | 0x01 | 0xd0..=0xd7 | 0xff) {
            return Ok(at);
        }
        at += 1;
    }
}

/// Returns the body of the segment at `marker`, without its length field.
fn body(input: Input<'_>, marker: usize) -> Result<Range<usize>, Refusal> {
    let length = input.be16(marker + 2)?;
    if length < 2 {
        return Err(broken());
    }
    let body = marker + 4..marker + 2 + length;
    input.range(body.clone())?;
    Ok(body)
}

impl Walk<'_> {
    /// Handles a segment; returns the position after it.
    fn segment(&mut self, code: u8, marker: usize) -> Result<usize, Refusal> {
        let body = body(self.input, marker)?;
        let bytes = self.input.range(body.clone())?;
        let whole = marker..body.end;
        self.marks.note(code, bytes);
        match code {
            0xc0..=0xc2 => self.frame(code, bytes)?,
            0xc4 => self.tables.define(bytes)?,
            0xdd => self.tables.restart = self.input.be16(body.start)?,
            0xdb => self.tables.quantize(bytes)?,
            0xda => return self.scan(whole),
            0xc3 | 0xc5..=0xcf => return Err(unusual()),
            // A nested picture, a height defined later (DNL), or a hierarchical JPEG.
            0xd8 | 0xdc | 0xde | 0xdf => return Err(broken()),
            0xe0 if bytes.starts_with(b"JFIF\0") && bytes.len() >= 14 && !self.jfif => {
                self.jfif = true;
                self.keep_head(whole, bytes, 12)?;
                return Ok(body.end);
            }
            0xee if bytes.starts_with(b"Adobe") && bytes.len() >= 12 && !self.adobe => {
                self.adobe = true;
                self.keep_head(whole, bytes, 12)?;
                return Ok(body.end);
            }
            0xe2 if bytes.starts_with(b"ICC_PROFILE\0") => signs::check(bytes)?,
            _ => {
                if code == 0xe1 && bytes.starts_with(b"Exif\0") && self.scan_count == 0 {
                    let exif = bytes.get(6..).unwrap_or_default();
                    self.orientation = self.orientation.or(Some(orientation(exif)));
                }
                self.rewrite.drop(body.clone())?;
                return Ok(body.end);
            }
        }
        self.rewrite.keep(whole);
        Ok(body.end)
    }

    /// Keeps the head of a segment and drops the rest, such as the thumbnail of JFIF.
    fn keep_head(&mut self, whole: Range<usize>, bytes: &[u8], length: usize) -> Result<(), Refusal> {
        signs::check(bytes.get(length..).unwrap_or_default())?;
        // The segment's length field would start a script comment.
        if self.input.range(whole.start + 2..whole.start + 4)? == b"/*" {
            return Err(signs::both("a script"));
        }
        let jfif = bytes.starts_with(b"JFIF");
        let code = self.input.u8(whole.start + 1)?;
        let head = bytes.get(..length).unwrap_or_default();
        let end: &[u8] = if jfif { &[0, 0] } else { &[] };
        let mut new = vec![0xff, code, 0, u8::try_from(2 + length + end.len()).unwrap_or_default()];
        new.extend_from_slice(head);
        new.extend_from_slice(end);
        self.rewrite.replace(whole, new);
        Ok(())
    }

    fn frame(&mut self, code: u8, bytes: &[u8]) -> Result<(), Refusal> {
        if self.scans.is_some() {
            return Err(broken());
        }
        self.scans = Some(Scans::new(frame(code, bytes)?));
        Ok(())
    }

    /// Reads a scan and its data.
    fn scan(&mut self, header: Range<usize>) -> Result<usize, Refusal> {
        self.scan_count += 1;
        if self.scan_count > MAX_SCANS {
            let text = format!("The JPEG has more than {MAX_SCANS} scans; save it anew.");
            return Err(Refusal::Unsupported(text));
        }
        let scans = self.scans.as_mut().ok_or_else(broken)?;
        if self.scan_count == 1 {
            scans.draw_small(&self.marks);
        }
        let bytes = self.input.range(header.start + 4..header.end)?;
        let data = self.input.range(header.end..self.input.0.len())?;
        let end = header.end + scans.read(bytes, data, &self.tables)?;
        self.rewrite.keep(header.start..end);
        Ok(end)
    }
}

/// The frame header.
#[derive(Debug)]
pub struct FrameHead {
    pub progressive: bool,
    pub width: u32,
    pub height: u32,
    pub components: Vec<Component>,
}

/// A component with its sampling factors.
#[derive(Debug)]
pub struct Component {
    id: u8,
    h: usize,
    v: usize,
    /// The index of its quantization table.
    table: usize,
    /// Whether a scan contained it (in a progressive picture: its first coefficient).
    seen: bool,
    /// Bit set of the coefficients of each block that are not zero so far; only for progressive pictures.
    history: Vec<u64>,
    /// Only filled if the one-eighth picture is wanted.
    means: Means,
}

/// Parses SOF, by its code and its body.
pub fn frame(code: u8, bytes: &[u8]) -> Result<FrameHead, Refusal> {
    let input = Input(bytes);
    if input.u8(0)? != 8 {
        return Err(unusual());
    }
    let (height, width, count) = (side(input.be16(1)?)?, side(input.be16(3)?)?, usize::from(input.u8(5)?));
    if !matches!(count, 1 | 3 | 4) || bytes.len() < 6 + 3 * count {
        return Err(broken());
    }
    let mut components = Vec::with_capacity(count);
    for n in 0..count {
        let (id, factors, table) = (input.u8(6 + 3 * n)?, input.u8(7 + 3 * n)?, input.u8(8 + 3 * n)?.into());
        let (h, v) = (usize::from(factors >> 4), usize::from(factors & 15));
        if !(1..=4).contains(&h) || !(1..=4).contains(&v) || table > 3 {
            return Err(broken());
        }
        components.push(Component { id, h, v, table, seen: false, history: Vec::new(), means: Means::default() });
    }
    Ok(FrameHead { progressive: code == 0xc2, width, height, components })
}

fn unusual() -> Refusal {
    Refusal::Unsupported(
        "This kind of JPEG is not taken; save it as a baseline or progressive one with 8 bits a channel.".to_owned(),
    )
}

/// Checks the data after the end: padding, further pictures, a video, or a phone vendor's trailer. All of it is
/// dropped.
fn check_trailing(rest: &[u8]) -> Result<(), Refusal> {
    signs::check(rest)?;
    if is_padding(rest) {
        return Ok(());
    }
    let padding = rest.iter().take_while(|byte| **byte == 0 || byte.is_ascii_whitespace()).count();
    let begins = rest.get(padding..).unwrap_or_default();
    // The length of a video's first box may itself begin with NULs.
    let film = (0..=padding).rev().take(4).any(|at| rest.get(at + 4..at + 8) == Some(b"ftyp"));
    if begins.starts_with(b"\xff\xd8\xff") || film || rest.ends_with(b"SEFT") { Ok(()) } else { Err(trailing()) }
}
