//! JPEG: marker segments and scans, from SOI to EOI.
//!
//! [`crier_jpeg`] divides the file into its parts, rejects it if data is missing, and extracts the image at an eighth
//! of its size. This module selects the segments that are kept. Bytes between segments and after the data of a scan are
//! dropped, and so is data that phones append after EOI: further images, videos, vendor trailers.

use std::ops::Range;

use bytes::Bytes;
use crier_jpeg::{Eighth, Error, MAX_SCANS, Part, Plane, Reader, Segment, ycbcr_to_rgb};
use image::metadata::Orientation;
use image::{DynamicImage, GrayImage, RgbImage};

use super::rewrite::{Input, Rewrite, WalkResult, is_padding, orientation, trailing};
use super::{Rejection, THUMBNAIL, broken, signs, truncated_error};

struct Walk<'a> {
    input: Input<'a>,
    rewrite: Rewrite<'a>,
    orientation: Option<Orientation>,
    jfif: bool,
    adobe: bool,
    /// Whether there was a scan.
    scanned: bool,
}

/// Walks the structure of the file.
///
/// # Errors
/// An error if it is incomplete, or also contains another format.
pub fn walk(source: &Bytes) -> Result<WalkResult, Rejection> {
    let mut reader = Reader::new(source, THUMBNAIL)?;
    let mut walk = Walk {
        input: Input(source),
        rewrite: Rewrite::of(source),
        orientation: None,
        jfif: false,
        adobe: false,
        scanned: false,
    };
    walk.rewrite.keep(0..2);
    loop {
        match reader.read_part()? {
            Part::Filler(range) => walk.rewrite.drop(range)?,
            Part::Segment(segment) => walk.segment(segment)?,
            Part::End(range) => {
                check_trailing(walk.input.range(range.end..source.len())?)?;
                walk.rewrite.keep(range);
                break;
            }
        }
    }
    let orientation = walk.orientation.unwrap_or(Orientation::NoTransforms);
    let small = reader.eighth().and_then(image_of);
    Ok(WalkResult { clean: walk.rewrite.finish(), orientation, frames: Vec::new(), small })
}

impl Walk<'_> {
    fn segment(&mut self, segment: Segment) -> Result<(), Rejection> {
        let Segment { code, whole, body } = segment;
        let bytes = self.input.range(body.clone())?;
        match code {
            // Decoders need these segments, and the reader has checked them.
            0xc0..=0xc2 | 0xc4 | 0xdb | 0xdd => {}
            0xda => self.scanned = true,
            0xe0 if bytes.starts_with(b"JFIF\0") && bytes.len() >= 14 && !self.jfif => {
                self.jfif = true;
                return self.keep_head(whole, bytes, 12);
            }
            0xee if bytes.starts_with(b"Adobe") && bytes.len() >= 12 && !self.adobe => {
                self.adobe = true;
                return self.keep_head(whole, bytes, 12);
            }
            0xe2 if bytes.starts_with(b"ICC_PROFILE\0") => signs::check(bytes)?,
            _ => {
                if code == 0xe1 && bytes.starts_with(b"Exif\0") && !self.scanned {
                    let exif = bytes.get(6..).unwrap_or_default();
                    self.orientation = self.orientation.or(Some(orientation(exif)));
                }
                return self.rewrite.drop(body);
            }
        }
        self.rewrite.keep(whole);
        Ok(())
    }

    /// Keeps the head of a segment and drops the rest, such as the thumbnail of JFIF.
    fn keep_head(&mut self, whole: Range<usize>, bytes: &[u8], length: usize) -> Result<(), Rejection> {
        signs::check(bytes.get(length..).unwrap_or_default())?;
        // The length field of the segment would begin a comment of a script.
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
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        match error {
            Error::Truncated => truncated_error(),
            Error::Invalid => broken(),
            Error::Unsupported => Self::Unsupported(
                "This kind of JPEG is not supported. Save it as a baseline or progressive JPEG with 8 bits per channel."
                    .to_owned(),
            ),
            Error::TooManyScans => {
                Self::Unsupported(format!("The JPEG has more than {MAX_SCANS} scans. Save it with fewer scans."))
            }
        }
    }
}

/// Checks the data after the end, which is dropped. It may be padding, further images, a video, or the trailer of a
/// phone vendor.
fn check_trailing(rest: &[u8]) -> Result<(), Rejection> {
    signs::check(rest)?;
    if is_padding(rest) {
        return Ok(());
    }
    let padding = rest.iter().take_while(|byte| **byte == 0 || byte.is_ascii_whitespace()).count();
    let begins = rest.get(padding..).unwrap_or_default();
    // The length of a video's first box may itself begin with NULs.
    let is_video = (0..=padding).rev().take(4).any(|at| rest.get(at + 4..at + 8) == Some(b"ftyp"));
    if begins.starts_with(b"\xff\xd8\xff") || is_video || rest.ends_with(b"SEFT") { Ok(()) } else { Err(trailing()) }
}

/// Returns the planes as one image; `None` if that fails.
fn image_of(eighth: Eighth) -> Option<DynamicImage> {
    let [luma, blue, red] = match eighth {
        Eighth::Gray(plane) => return Some(gray(plane)?.into()),
        Eighth::YCbCr(planes) => planes,
    };
    let (width, height) = (luma.width, luma.height);
    let full_size = |plane: Plane| {
        let mut source = crier_resize::SourceImage::new(gray(plane)?.into());
        Some(source.resized_to(width, height)?.into_owned().into_luma8())
    };
    let (blue, red) = (full_size(blue)?, full_size(red)?);
    let pixels = luma.samples.iter().zip(blue.pixels().zip(red.pixels()));
    let bytes = pixels.flat_map(|(y, (cb, cr))| ycbcr_to_rgb(*y, cb.0[0], cr.0[0])).collect();
    Some(RgbImage::from_raw(width, height, bytes)?.into())
}

fn gray(plane: Plane) -> Option<GrayImage> {
    GrayImage::from_raw(plane.width, plane.height, plane.samples)
}
