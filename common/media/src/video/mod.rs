//! Reads what the headers of a video say about it: its type, sides, duration and codecs. Nothing is decoded.
//!
//! The type is detected from the bytes, never from a name or a header ([`sniff`]). A file that cannot be read is rejected
//! with a text for users.
//!
//! **MP4 and MOV** (`boxes.rs`, `mp4.rs`): this module finds the boxes itself, and `mp4-atom` decodes those of a fixed
//! layout. This was checked in the source of version 0.17.0:
//! - It has no unsafe code, and allocates only for bytes that are there.
//! - Its decoders of containers (`moov`, `stsd`, sample entries) accept any box inside any other, recursively and without
//!   a limit, so that a nested file overflows the stack and ends the process. They also reject a whole file for one
//!   unusual box. So they are not used.
//! - A decoded `trun` has 10 times the size of its bytes. So a fragment's header has a limit.
//!
//! **WebM** (`webm.rs`): the reader is our own. `symphonia-format-mkv` 0.6.1, as its source says, allocates only for bytes
//! that are there and limits the depth, but it does not return the frame rate, the display size or the duration of a
//! recording that does not state it. It reads text and binary elements of any size into memory, and its license (MPL-2.0)
//! is not one that `deny.toml` allows. `matroska` and `webm-iterable` are not known to be tested with hostile files.
//!
//! **Limits:** an index has at most 32 MiB, a file at most 32 tracks, and its boxes and elements have a maximum number.
//! Sizes and counts in a file only select bytes that are there. No function calls itself on what a file contains.
//!
//! **To add a format:** add its reader, a line to [`sniff`] and [`probe`], files to `tests/videos/corpus`, and rows to
//! `tests/corpus.rs` and `tests/hostile.rs`.

use std::io::{BufRead, Read, Seek, SeekFrom};

use crier_domain::media::{VideoProperties, VideoType};

use crate::images::Rejection;

mod boxes;
pub mod faststart;
mod mp4;
#[cfg(test)]
mod tests;
mod webm;

/// The number of bytes that [`sniff`] needs.
pub const SNIFFED: usize = 64;

/// Maximum number of tracks of all kinds.
const MAX_TRACKS: usize = 32;
/// Maximum length of a side, in pixels.
const MAX_SIDE: u64 = 16_384;
/// 24 hours, in milliseconds.
const MAX_DURATION: u64 = 24 * 60 * 60 * 1_000;
/// A greater number of frames per second is an error in the file.
const MAX_FRAME_RATE: f64 = 1_000.0;
/// Maximum length of the code of a codec, in characters.
const MAX_CODEC: usize = 32;

/// The result of [`probe`].
#[derive(Clone, Debug, PartialEq)]
pub struct ProbedVideo {
    pub kind: VideoType,
    /// As shown: after the rotation, and with square pixels.
    pub width: u32,
    /// As shown: after the rotation, and with square pixels.
    pub height: u32,
    pub properties: VideoProperties,
}

/// What a reader found, not yet checked.
struct Found {
    /// As stored.
    width: u64,
    /// As stored.
    height: u64,
    /// The width and the height of a pixel, or of another rectangle of the same shape.
    pixel: (u64, u64),
    /// Clockwise, in degrees.
    rotation: i32,
    duration_ms: u64,
    frame_rate: Option<f64>,
    video_codec: String,
    audio_codec: Option<String>,
    index_first: bool,
}

/// Detects the type of a video from its first [`SNIFFED`] bytes. `None`: it is another file, or a video of a type that is
/// not supported.
pub fn sniff(first_bytes: &[u8]) -> Option<VideoType> {
    mp4::type_of(first_bytes).or_else(|| webm::is_webm(first_bytes).then_some(VideoType::Webm))
}

/// Reads the headers of a video. `size` is that of the whole file, in bytes.
pub fn probe(source: &mut (impl BufRead + Seek + ?Sized), size: u64) -> Result<ProbedVideo, Rejection> {
    if size == 0 {
        return Err(Rejection::Empty);
    }
    let kind = sniff(&first_bytes(source)?).ok_or_else(unknown)?;
    let found = match kind {
        VideoType::Mp4 | VideoType::Mov => mp4::probe(source, size)?,
        VideoType::Webm => webm::probe(source, size)?,
    };
    check(kind, found)
}

fn check(kind: VideoType, found: Found) -> Result<ProbedVideo, Rejection> {
    let (width, height) = shown_sides(&found)?;
    if found.duration_ms == 0 {
        return Err(Rejection::Unsupported(
            "The duration of the video is unknown. Export the video again as an MP4 file.".to_owned(),
        ));
    }
    if found.duration_ms > MAX_DURATION {
        return Err(Rejection::TooLarge("The video is longer than 24 hours.".to_owned()));
    }
    let properties = VideoProperties {
        duration_ms: i64::try_from(found.duration_ms).map_err(|_| damaged())?,
        rotation: found.rotation,
        // Rounded first, because a rate of 0 is also one that is not known.
        frame_rate: found.frame_rate.map(rounded).filter(|rate| *rate > 0.0 && *rate <= MAX_FRAME_RATE),
        video_codec: found.video_codec,
        audio_codec: found.audio_codec,
        index_first: found.index_first,
    };
    Ok(ProbedVideo { kind, width, height, properties })
}

/// Returns the width and the height as shown. The height of a pixel is kept, and its width is adapted.
fn shown_sides(found: &Found) -> Result<(u32, u32), Rejection> {
    let (pixel_width, pixel_height) = found.pixel;
    let width = match pixel_width == 0 || pixel_height == 0 {
        true => found.width,
        false => ratio(found.width, pixel_width, pixel_height),
    };
    let (width, height) = match found.rotation {
        90 | 270 => (found.height, width),
        _ => (width, found.height),
    };
    if width == 0 || height == 0 {
        return Err(damaged());
    }
    let side = |side: u64| u32::try_from(side).ok().filter(|_| side <= MAX_SIDE);
    side(width).zip(side(height)).ok_or_else(|| {
        Rejection::TooLarge(format!(
            "The video has {width} × {height} pixels. The maximum for each side is {MAX_SIDE}."
        ))
    })
}

/// Returns `number * numerator / denominator`, rounded, and at most the maximum of the type. 0 if the denominator is 0.
fn ratio(number: u64, numerator: u64, denominator: u64) -> u64 {
    let product = u128::from(number) * u128::from(numerator) + u128::from(denominator / 2);
    product.checked_div(denominator.into()).map_or(0, |result| u64::try_from(result).unwrap_or(u64::MAX))
}

/// Returns the mean number of frames per second. `None` if the duration is 0.
fn mean_rate(frames: u64, duration: u64, units_per_second: u64) -> Option<f64> {
    (duration > 0).then(|| frames as f64 * units_per_second as f64 / duration as f64)
}

/// Rounds to 3 decimals, so that 30,000 / 1,001 is 29.97.
fn rounded(rate: f64) -> f64 {
    (rate * 1_000.0).round() / 1_000.0
}

/// Returns the code of a codec that has no other name here, without anything that cannot be shown.
fn code(bytes: &[u8]) -> String {
    let code: String =
        bytes.iter().filter(|byte| byte.is_ascii_graphic()).take(MAX_CODEC).map(|b| *b as char).collect();
    if code.is_empty() { "unknown".to_owned() } else { code }
}

/// Returns the first bytes of a file, for [`sniff`].
fn first_bytes(source: &mut (impl BufRead + Seek + ?Sized)) -> Result<Vec<u8>, Rejection> {
    seek_to(source, 0)?;
    let mut first = Vec::with_capacity(SNIFFED);
    source.take(SNIFFED as u64).read_to_end(&mut first).map_err(|_| truncated())?;
    Ok(first)
}

fn seek_to(source: &mut (impl Seek + ?Sized), at: u64) -> Result<(), Rejection> {
    source.seek(SeekFrom::Start(at)).map(drop).map_err(|_| truncated())
}

fn unknown() -> Rejection {
    Rejection::Unsupported("This file type is not supported. Upload an MP4, MOV or WebM video.".to_owned())
}

fn damaged() -> Rejection {
    Rejection::Unsupported("The video is damaged and cannot be read. Export it again.".to_owned())
}

fn truncated() -> Rejection {
    Rejection::Unsupported("The video is incomplete: the file ends too early. Upload the complete file.".to_owned())
}

fn no_video(has_sound: bool) -> Rejection {
    let text = match has_sound {
        true => "The file contains only sound. Upload a video.",
        false => "The file has no video track. Upload a video.",
    };
    Rejection::Unsupported(text.to_owned())
}

fn no_frames() -> Rejection {
    Rejection::Unsupported("The video is incomplete: it has no frames. Upload the complete file.".to_owned())
}

fn too_many_tracks() -> Rejection {
    Rejection::Unsupported(format!("The video has more than {MAX_TRACKS} tracks. Export it with fewer tracks."))
}
