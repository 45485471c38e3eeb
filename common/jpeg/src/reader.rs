//! Divides a file into its parts.

use std::ops::Range;

use crate::eighth::{ColorInfo, Eighth};
use crate::input::Input;
use crate::scans::Scans;
use crate::tables::Tables;
use crate::{Error, FrameHead};

/// Maximum number of scans of an image, which limits the work. A photograph has about ten.
pub const MAX_SCANS: usize = 100;

/// A part of a file, as a range of its bytes. The parts are in the order of the file, from the end of SOI to the end of
/// EOI, without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes without a meaning: fill bytes, or others that readers skip.
    Filler(Range<usize>),
    Segment(Segment),
    /// EOI. Bytes after it do not belong to the image and are not read.
    End(Range<usize>),
}

/// A marker segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The second byte of its marker, such as 0xe1 for APP1.
    pub code: u8,
    /// The whole segment, including its marker. For a scan, also its data up to the last code.
    pub whole: Range<usize>,
    /// The body, without the length field. For a scan, only its header.
    pub body: Range<usize>,
}

/// Reads the parts of a file, one after the other.
#[derive(Debug)]
pub struct Reader<'a> {
    input: Input<'a>,
    /// The end of the last part.
    at: usize,
    min_side: u32,
    colors: ColorInfo,
    scans: Option<Scans>,
    tables: Tables,
    scan_count: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader for a whole file. `min_side` is that of [`FrameHead::has_eighth`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the file does not begin with SOI.
    pub fn new(file: &'a [u8], min_side: u32) -> Result<Self, Error> {
        if !file.starts_with(b"\xff\xd8") {
            return Err(Error::Invalid);
        }
        Ok(Self {
            input: Input(file),
            at: 2,
            min_side,
            colors: ColorInfo::default(),
            scans: None,
            tables: Tables::default(),
            scan_count: 0,
        })
    }

    /// Reads the next part; after [`Part::End`], returns it again.
    ///
    /// # Errors
    /// Any error, if the file is not a complete JPEG of a supported kind.
    pub fn read_part(&mut self) -> Result<Part, Error> {
        let marker = next_marker(self.input, self.at)?;
        if marker > self.at {
            let filler = self.at..marker;
            self.at = marker;
            return Ok(Part::Filler(filler));
        }
        let code = self.input.u8(marker + 1)?;
        if code == 0xd9 {
            self.scans.as_ref().ok_or(Error::Invalid)?.check_complete()?;
            return Ok(Part::End(marker..marker + 2));
        }
        let segment = self.segment(code, marker)?;
        self.at = segment.whole.end;
        Ok(Part::Segment(segment))
    }

    /// Returns the image at an eighth of its size, if [`FrameHead::has_eighth`]. Call it after [`Part::End`].
    pub fn eighth(&self) -> Option<Eighth> {
        self.scans.as_ref()?.eighth()
    }

    fn segment(&mut self, code: u8, marker: usize) -> Result<Segment, Error> {
        let body = body(self.input, marker)?;
        let bytes = self.input.range(body.clone())?;
        self.colors.note(code, bytes);
        let mut end = body.end;
        match code {
            0xc0..=0xc2 => self.frame(code, bytes)?,
            0xc4 => self.tables.define(bytes)?,
            0xdd if bytes.len() == 2 => self.tables.restart = self.input.be16(body.start)?,
            0xdb => self.tables.quantize(bytes)?,
            0xda => end = self.scan(bytes, body.end)?,
            0xc3 | 0xc5..=0xcf => return Err(Error::Unsupported),
            // A nested image, a height that is defined later (DNL), a hierarchical JPEG, or data behind the restart
            // interval.
            0xd8 | 0xdc..=0xdf => return Err(Error::Invalid),
            _ => {}
        }
        Ok(Segment { code, whole: marker..end, body })
    }

    fn frame(&mut self, code: u8, bytes: &[u8]) -> Result<(), Error> {
        if self.scans.is_some() {
            return Err(Error::Invalid);
        }
        let head = FrameHead::parse(code, bytes)?;
        // The segment is kept, so nothing may be hidden behind its last component.
        if bytes.len() != 6 + 3 * head.component_count() {
            return Err(Error::Invalid);
        }
        self.scans = Some(Scans::new(head));
        Ok(())
    }

    /// Reads a scan, given its header and the start of its data; returns the end of the data.
    fn scan(&mut self, header: &[u8], start: usize) -> Result<usize, Error> {
        self.scan_count += 1;
        if self.scan_count > MAX_SCANS {
            return Err(Error::TooManyScans);
        }
        let scans = self.scans.as_mut().ok_or(Error::Invalid)?;
        if self.scan_count == 1 {
            scans.draw_eighth(&self.colors, self.min_side);
        }
        let data = self.input.range(start..self.input.0.len())?;
        Ok(start + scans.read(header, data, &self.tables)?)
    }
}

/// Returns the position of the next marker that begins a segment or EOI. Bytes before it are fill bytes or garbage.
fn next_marker(input: Input<'_>, mut at: usize) -> Result<usize, Error> {
    loop {
        // Of several FF bytes, the last one starts the marker.
        if input.u8(at)? == 0xff && !matches!(input.u8(at + 1)?, 0x00 | 0x01 | 0xd0..=0xd7 | 0xff) {
            return Ok(at);
        }
        at += 1;
    }
}

/// Returns the body of the segment at `marker`, without its length field.
fn body(input: Input<'_>, marker: usize) -> Result<Range<usize>, Error> {
    let length = input.be16(marker + 2)?;
    if length < 2 {
        return Err(Error::Invalid);
    }
    let body = marker + 4..marker + 2 + length;
    input.range(body.clone())?;
    Ok(body)
}
