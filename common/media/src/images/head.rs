//! Reads the head of a file: its type, its width and height, and the memory needed to process it. No allocation depends
//! on untrusted sizes.

use std::io::{BufRead, Read, Seek, SeekFrom};

use crier_domain::media::ImageType;
use crier_jpeg::{ColorInfo, FrameHead};
use image::ImageFormat;
use image::metadata::Orientation;

use super::rewrite::{orientation, side};
use super::{Rejection, THUMBNAIL, broken, truncated_error, unknown, webp};

/// The parsed head of a file.
pub struct Head {
    pub kind: ImageType,
    pub width: u32,
    pub height: u32,
    /// In bytes.
    pub memory: u64,
}

/// The memory per pixel, in bytes.
struct Cost {
    /// For the decoded image.
    decoded: u64,
    /// For the decoder's other buffers.
    buffers: u64,
    /// Whether the image must be rotated.
    is_rotated: bool,
}

/// The memory for buffers of decoders and of the thumbnail, in bytes.
const FIXED: u64 = 8 << 20;
/// The bytes per row for the first of the two resize steps of a thumbnail, which keeps all rows.
const ROW: u64 = 400 * 4;

pub fn read(source: impl BufRead + Seek) -> Result<Head, Rejection> {
    let mut source = Source(source);
    let start = source.start()?;
    let (kind, (width, height, cost)) = match image::guess_format(&start) {
        Ok(ImageFormat::Jpeg) => (ImageType::Jpeg, source.jpeg()?),
        Ok(ImageFormat::Png) => (ImageType::Png, source.png()?),
        Ok(ImageFormat::Gif) => (ImageType::Gif, source.gif()?),
        Ok(ImageFormat::WebP) => (ImageType::Webp, source.webp()?),
        _ => return Err(unknown()),
    };
    let pixels = u64::from(width) * u64::from(height);
    // The rotated copy and its encoded form.
    let rotated = if cost.is_rotated { cost.decoded * 2 } else { 0 };
    let file = source.0.seek(SeekFrom::End(0)).map_err(|_| truncated_error())?;
    // Saturating, because a header may claim a width and height of 32 bits, and their limit is checked later.
    let memory = pixels
        .saturating_mul(cost.decoded + cost.buffers + rotated)
        .saturating_add(u64::from(height) * ROW)
        .saturating_add(file)
        .saturating_add(FIXED);
    Ok(Head { kind, width, height, memory })
}

struct Source<T>(T);

type Found = (u32, u32, Cost);

impl<T: BufRead + Seek> Source<T> {
    /// Reads the first 16 bytes, or fewer if the file is shorter.
    fn start(&mut self) -> Result<Vec<u8>, Rejection> {
        let mut start = Vec::with_capacity(16);
        self.0.by_ref().take(16).read_to_end(&mut start).map_err(|_| truncated_error())?;
        Ok(start)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Rejection> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).map_err(|_| truncated_error())?;
        Ok(bytes)
    }

    /// Reads up to `length` bytes, at most as many as a JPEG segment has.
    fn up_to(&mut self, length: u64) -> Result<Vec<u8>, Rejection> {
        let mut bytes = Vec::new();
        self.0.by_ref().take(length.min(1 << 16)).read_to_end(&mut bytes).map_err(|_| truncated_error())?;
        Ok(bytes)
    }

    fn skip(&mut self, length: u64) -> Result<(), Rejection> {
        let length = i64::try_from(length).map_err(|_| truncated_error())?;
        self.0.seek_relative(length).map_err(|_| truncated_error())
    }

    fn seek_to(&mut self, at: u64) -> Result<(), Rejection> {
        self.0.seek(SeekFrom::Start(at)).map(drop).map_err(|_| truncated_error())
    }

    fn jpeg(&mut self) -> Result<Found, Rejection> {
        self.seek_to(2)?;
        let (mut frame, mut is_rotated, mut colors) = (None, false, ColorInfo::default());
        loop {
            let code = self.marker()?;
            let length = u64::from(u16::from_be_bytes(self.bytes()?)).checked_sub(2).ok_or_else(broken)?;
            match code {
                0xc0..=0xcf if !matches!(code, 0xc4 | 0xc8 | 0xcc) => {
                    frame = Some(FrameHead::parse(code, &self.up_to(length)?)?);
                }
                0xe0 | 0xee => colors.note(code, &self.up_to(length)?),
                0xe1 => {
                    let body = self.up_to(length)?;
                    is_rotated |= body.starts_with(b"Exif") && orientation(&body) != Orientation::NoTransforms;
                }
                0xda => {
                    let [in_scan] = self.bytes()?;
                    let frame = frame.ok_or_else(broken)?;
                    let count = frame.component_count();
                    let has_one_scan = !frame.progressive && usize::from(in_scan) == count;
                    // If the image at an eighth of its size is sufficient, nothing is decoded. Otherwise, unless there
                    // is only one scan, all coefficients are buffered: 2 bytes per sample, and slightly more than a bit
                    // in our reader.
                    let (decoded, buffers) = match count {
                        _ if !is_rotated && frame.has_eighth(&colors, THUMBNAIL) => (0, 1),
                        1 => (1, if has_one_scan { 0 } else { 3 }),
                        _ => (3, if has_one_scan { 0 } else { 3 * count as u64 }),
                    };
                    return Ok((frame.width, frame.height, Cost { decoded, buffers, is_rotated }));
                }
                _ => self.skip(length)?,
            }
        }
    }

    /// Skips to the next marker that begins a segment.
    fn marker(&mut self) -> Result<u8, Rejection> {
        let mut last = 0;
        loop {
            let [byte] = self.bytes()?;
            if last == 0xff && !matches!(byte, 0x00 | 0x01 | 0xd0..=0xd7 | 0xff) {
                return if matches!(byte, 0xd8 | 0xd9) { Err(broken()) } else { Ok(byte) };
            }
            last = byte;
        }
    }

    fn png(&mut self) -> Result<Found, Rejection> {
        self.seek_to(8)?;
        let [length @ .., b'I', b'H', b'D', b'R'] = self.bytes::<8>()? else { return Err(broken()) };
        let header: [u8; 13] = self.bytes()?;
        if length != [0, 0, 0, 13] {
            return Err(broken());
        }
        let number = |at: usize| header[at..at + 4].iter().fold(0_usize, |n, byte| n << 8 | usize::from(*byte));
        let (width, height) = (side(number(0))?, side(number(4))?);
        let (mut channels, deep) = (
            match header[9] {
                0 => 1,
                4 => 2,
                6 => 4,
                _ => 3,
            },
            header[8] == 16,
        );
        let mut is_rotated = false;
        self.skip(4)?;
        // If the file is truncated, the walk reports it.
        while let Ok([a, b, c, d, name @ ..]) = self.bytes::<8>() {
            let mut length = u64::from(u32::from_be_bytes([a, b, c, d]));
            match &name {
                b"IEND" => break,
                b"tRNS" => channels += channels & 1,
                b"eXIf" => {
                    let body = self.up_to(length)?;
                    length -= body.len() as u64;
                    is_rotated |= orientation(&body) != Orientation::NoTransforms;
                }
                _ => {}
            }
            self.skip(length + 4)?;
        }
        // Images with 16 bits per channel are resized with 8.
        let (decoded, buffers) = if deep { (channels * 2, channels) } else { (channels, 0) };
        Ok((width, height, Cost { decoded, buffers, is_rotated }))
    }

    fn gif(&mut self) -> Result<Found, Rejection> {
        self.seek_to(6)?;
        let [a, b, c, d] = self.bytes()?;
        let number = |bytes| usize::from(u16::from_le_bytes(bytes));
        let (width, height) = (side(number([a, b]))?, side(number([c, d]))?);
        // A frame, and the canvas on which it is drawn.
        Ok((width, height, Cost { decoded: 4, buffers: 4, is_rotated: false }))
    }

    fn webp(&mut self) -> Result<Found, Rejection> {
        self.seek_to(12)?;
        let [a, b, c, d, _, _, _, _] = self.bytes::<8>()?;
        let name = [a, b, c, d];
        if &name == b"VP8X" {
            let [flags, _, _, _, size @ ..] = self.bytes::<10>()?;
            let number = |at: usize| 1 + size[at..at + 3].iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte));
            let is_animated = flags & webp::ANIMATION != 0;
            let (buffers, is_rotated) = (if is_animated { 8 } else { 6 }, flags & webp::EXIF != 0);
            return Ok((side(number(0))?, side(number(3))?, Cost { decoded: 4, buffers, is_rotated }));
        }
        if !matches!(&name, b"VP8 " | b"VP8L") {
            return Err(broken());
        }
        let (width, height) = webp::size(&name, &self.up_to(10)?)?;
        Ok((width, height, Cost { decoded: 4, buffers: 6, is_rotated: false }))
    }
}
