//! Reads WebM files, which are EBML (RFC 8794) with the elements of Matroska (RFC 9559).
//!
//! Each element has an ID that occurs in one kind of parent only. So the walk needs no stack: it goes from one header to
//! the next, enters the elements that have needed ones inside, and skips the others. So elements of unknown size, which
//! browsers write when they record, need no rule of their own. Only what [`Walk::value`] returns is kept, of which the
//! longest is 64 bytes.
//!
//! If the headers have the duration and the frame rate, the walk ends at the first frame. Otherwise it visits the headers
//! of all frames.

use std::io::{BufRead, Seek};

use super::{
    Found, MAX_TRACKS, Rejection, code, damaged, mean_rate, no_frames, no_video, seek_to, too_many_tracks, truncated,
};

/// Maximum number of elements to visit. A recording of 5 hours has fewer.
const MAX_ELEMENTS: u64 = 2_000_000;
/// Maximum size of a value, in bytes.
const MAX_VALUE: usize = 64;
/// Nanoseconds per millisecond.
const MILLISECOND: u64 = 1_000_000;

mod id {
    pub const EBML: u32 = 0x1a45_dfa3;
    pub const DOC_TYPE: u32 = 0x4282;
    pub const SEGMENT: u32 = 0x1853_8067;
    pub const INFO: u32 = 0x1549_a966;
    pub const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
    pub const DURATION: u32 = 0x4489;
    pub const TRACKS: u32 = 0x1654_ae6b;
    pub const TRACK_ENTRY: u32 = 0xae;
    pub const TRACK_NUMBER: u32 = 0xd7;
    pub const TRACK_TYPE: u32 = 0x83;
    pub const CODEC_ID: u32 = 0x86;
    pub const DEFAULT_DURATION: u32 = 0x23_e383;
    pub const VIDEO: u32 = 0xe0;
    pub const PIXEL_WIDTH: u32 = 0xb0;
    pub const PIXEL_HEIGHT: u32 = 0xba;
    pub const DISPLAY_WIDTH: u32 = 0x54b0;
    pub const DISPLAY_HEIGHT: u32 = 0x54ba;
    pub const CLUSTER: u32 = 0x1f43_b675;
    pub const TIMESTAMP: u32 = 0xe7;
    pub const SIMPLE_BLOCK: u32 = 0xa3;
    pub const BLOCK_GROUP: u32 = 0xa0;
    pub const BLOCK: u32 = 0xa1;
}

/// Returns whether these first bytes are those of a WebM file. Other files of Matroska are not.
pub fn is_webm(first: &[u8]) -> bool {
    let Some(mut rest) = first.strip_prefix(&id::EBML.to_be_bytes()) else { return false };
    let Some(header_size) = slice_number(&mut rest).flatten() else { return false };
    let end = usize::try_from(header_size).unwrap_or(usize::MAX).min(rest.len());
    let mut rest = rest.get(..end).unwrap_or_default();
    while let Some(id) = slice_id(&mut rest) {
        let size = slice_number(&mut rest).flatten().and_then(|size| usize::try_from(size).ok());
        let Some((value, after)) = size.and_then(|size| rest.split_at_checked(size)) else { return false };
        if id == id::DOC_TYPE {
            return value.strip_prefix(b"webm").is_some_and(|padding| padding.iter().all(|byte| *byte == 0));
        }
        rest = after;
    }
    false
}

/// Removes the ID of an element, with its marker of the length.
fn slice_id(bytes: &mut &[u8]) -> Option<u32> {
    let length = length_of(*bytes.first()?).filter(|length| *length <= 4)?;
    let (id, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(id.iter().fold(0, |id, byte| id << 8 | u32::from(*byte)))
}

/// Removes a number of variable length. `Some(None)`: it is the one for an unknown size.
fn slice_number(bytes: &mut &[u8]) -> Option<Option<u64>> {
    let (number, rest) = bytes.split_at_checked(length_of(*bytes.first()?)?)?;
    *bytes = rest;
    Some(number_of(number))
}

/// Returns the length in bytes of an ID or a number that begins with this byte.
fn length_of(first: u8) -> Option<usize> {
    let zeros = first.leading_zeros();
    (zeros < 8).then(|| zeros as usize + 1)
}

/// Returns a number of variable length without its marker of the length. `None`: it is the one for an unknown size.
fn number_of(bytes: &[u8]) -> Option<u64> {
    let bits = 7 * u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mask = 1_u64.checked_shl(bits).map_or(u64::MAX, |power| power - 1);
    let number = bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)) & mask;
    (number != mask).then_some(number)
}

/// The header of an element.
struct Element {
    id: u32,
    /// `None` if it is unknown.
    size: Option<u64>,
}

/// A position in a file.
struct Walk<'a, S: ?Sized> {
    source: &'a mut S,
    at: u64,
    /// The end of the segment, or of the file until the segment begins.
    end: u64,
    elements: u64,
}

impl<S: BufRead + Seek + ?Sized> Walk<'_, S> {
    /// Reads the header of the next element. `None` at the end.
    fn next(&mut self) -> Result<Option<Element>, Rejection> {
        if self.at >= self.end {
            return Ok(None);
        }
        self.elements += 1;
        let mut bytes = [0; 8];
        let id = self.variable(&mut bytes)?;
        let id = slice_id(&mut &*id).ok_or_else(damaged)?;
        let size = number_of(self.variable(&mut bytes)?);
        if size.is_some_and(|size| size > self.end.saturating_sub(self.at)) {
            return Err(truncated());
        }
        Ok(Some(Element { id, size }))
    }

    /// Reads the bytes of an ID or a number.
    fn variable<'b>(&mut self, bytes: &'b mut [u8; 8]) -> Result<&'b [u8], Rejection> {
        self.exact(&mut bytes[..1])?;
        let length = length_of(bytes[0]).ok_or_else(damaged)?;
        let bytes = bytes.get_mut(..length).ok_or_else(damaged)?;
        self.exact(bytes.get_mut(1..).unwrap_or_default())?;
        Ok(bytes)
    }

    fn exact(&mut self, bytes: &mut [u8]) -> Result<(), Rejection> {
        self.source.read_exact(bytes).map_err(|_| truncated())?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Skips the content of an element.
    fn skip(&mut self, element: &Element) -> Result<(), Rejection> {
        let size = element.size.ok_or_else(damaged)?;
        self.source.seek_relative(i64::try_from(size).map_err(|_| damaged())?).map_err(|_| truncated())?;
        self.at += size;
        Ok(())
    }

    /// Reads the content of an element that is a value.
    fn value(&mut self, element: &Element) -> Result<Vec<u8>, Rejection> {
        let size = element.size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size <= MAX_VALUE);
        let mut value = vec![0; size.ok_or_else(damaged)?];
        self.exact(&mut value)?;
        Ok(value)
    }

    fn unsigned(&mut self, element: &Element) -> Result<u64, Rejection> {
        let value = self.value(element)?;
        match value.len() <= 8 {
            true => Ok(value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))),
            false => Err(damaged()),
        }
    }

    fn float(&mut self, element: &Element) -> Result<f64, Rejection> {
        let value = self.value(element)?;
        match (value.first_chunk(), value.first_chunk()) {
            (_, Some(eight)) => Ok(f64::from_be_bytes(*eight)),
            (Some(four), None) => Ok(f32::from_be_bytes(*four).into()),
            (None, None) => Ok(0.0),
        }
    }
}

/// What the headers say about a track.
#[derive(Default)]
struct Track {
    number: u64,
    kind: u64,
    codec: Vec<u8>,
    /// In nanoseconds. 0 if it is unknown.
    frame_duration: u64,
    width: u64,
    height: u64,
    display: (u64, u64),
}

impl Track {
    const VIDEO: u64 = 1;
    const SOUND: u64 = 2;
}

/// What the walk has found so far.
struct Movie {
    /// Nanoseconds per unit of time.
    scale: u64,
    /// In units of time. 0 if it is unknown.
    duration: f64,
    tracks: Vec<Track>,
    /// The beginning of the current cluster, in units of time.
    cluster: u64,
    /// Frames of the video.
    frames: u64,
    /// The end of the last frame of all tracks, in nanoseconds.
    end: u64,
    /// Whether there are frames.
    has_frames: bool,
    /// Whether the tracks come before the frames.
    index_first: bool,
    /// Whether all frames were visited.
    is_complete: bool,
}

pub fn probe(source: &mut (impl BufRead + Seek + ?Sized), size: u64) -> Result<Found, Rejection> {
    seek_to(source, 0)?;
    let mut walk = Walk { source, at: 0, end: size, elements: 0 };
    let head = walk.next()?.ok_or_else(truncated)?;
    walk.skip(&head)?;
    let movie = read_segment(&mut walk)?;
    let of_kind = |kind| movie.tracks.iter().find(move |track| track.kind == kind);
    let (video, sound) = (of_kind(Track::VIDEO), of_kind(Track::SOUND));
    let video = video.ok_or_else(|| no_video(sound.is_some()))?;
    if !movie.has_frames {
        return Err(no_frames());
    }
    let duration_ms = movie.stated_duration().unwrap_or(if movie.is_complete { movie.end / MILLISECOND } else { 0 });
    let frame_rate = match video.frame_duration {
        0 if movie.is_complete => mean_rate(movie.frames, duration_ms, 1_000),
        0 => None,
        nanoseconds => Some(1_000.0 * MILLISECOND as f64 / nanoseconds as f64),
    };
    Ok(Found {
        width: video.width,
        height: video.height,
        pixel: pixel(video),
        // Players do not rotate WebM.
        rotation: 0,
        duration_ms,
        frame_rate,
        video_codec: codec(&video.codec),
        audio_codec: sound.map(|sound| codec(&sound.codec)),
        // The list of positions (`Cues`) is not needed to start.
        index_first: movie.index_first,
    })
}

/// Returns the shape of a pixel. The display sizes are lengths or a ratio, but always of the whole image.
fn pixel(video: &Track) -> (u64, u64) {
    let (width, height) = video.display;
    (width.saturating_mul(video.height), height.saturating_mul(video.width))
}

fn read_segment<S: BufRead + Seek + ?Sized>(walk: &mut Walk<'_, S>) -> Result<Movie, Rejection> {
    let mut movie = Movie {
        scale: MILLISECOND,
        duration: 0.0,
        tracks: Vec::new(),
        cluster: 0,
        frames: 0,
        end: 0,
        has_frames: false,
        index_first: false,
        is_complete: false,
    };
    let mut is_inside = false;
    while walk.elements < MAX_ELEMENTS {
        let Some(element) = walk.next()? else {
            movie.is_complete = true;
            break;
        };
        match element.id {
            id::SEGMENT if !is_inside => {
                is_inside = true;
                walk.end = element.size.map_or(walk.end, |size| walk.at.saturating_add(size).min(walk.end));
            }
            id::CLUSTER if is_inside => {
                movie.index_first |= !movie.has_frames && !movie.tracks.is_empty();
                movie.has_frames = true;
                if movie.has_all_properties() {
                    break;
                }
            }
            _ if is_inside => movie.read(walk, &element)?,
            _ => walk.skip(&element)?,
        }
    }
    Ok(movie)
}

impl Movie {
    /// Reads an element of the segment, or enters it.
    fn read<S: BufRead + Seek + ?Sized>(&mut self, walk: &mut Walk<'_, S>, element: &Element) -> Result<(), Rejection> {
        match element.id {
            id::INFO | id::TRACKS | id::VIDEO | id::BLOCK_GROUP => {}
            id::TIMESTAMP_SCALE => self.scale = walk.unsigned(element)?,
            id::DURATION => self.duration = walk.float(element)?,
            id::TRACK_ENTRY if self.tracks.len() == MAX_TRACKS => return Err(too_many_tracks()),
            id::TRACK_ENTRY => self.tracks.push(Track::default()),
            id::TIMESTAMP => self.cluster = walk.unsigned(element)?,
            id::SIMPLE_BLOCK | id::BLOCK => self.add_frame(walk, element)?,
            _ => match self.tracks.last_mut() {
                Some(track) => track.read(walk, element)?,
                None => walk.skip(element)?,
            },
        }
        Ok(())
    }

    /// Counts a frame, by the header of its block: the track and the time after the beginning of the cluster.
    fn add_frame<S: BufRead + Seek + ?Sized>(
        &mut self,
        walk: &mut Walk<'_, S>,
        element: &Element,
    ) -> Result<(), Rejection> {
        let end = walk.at.saturating_add(element.size.ok_or_else(damaged)?);
        let mut bytes = [0; 8];
        let number = number_of(walk.variable(&mut bytes)?).ok_or_else(damaged)?;
        let mut time = [0; 2];
        walk.exact(&mut time)?;
        let rest = end.checked_sub(walk.at).ok_or_else(damaged)?;
        walk.skip(&Element { id: element.id, size: Some(rest) })?;
        let Some(track) = self.tracks.iter().find(|track| track.number == number) else { return Ok(()) };
        let first_video = self.tracks.iter().find(|track| track.kind == Track::VIDEO);
        self.frames += u64::from(first_video.is_some_and(|video| video.number == number));
        let time = self.cluster.saturating_add_signed(i16::from_be_bytes(time).into());
        let time = time.saturating_mul(self.scale).saturating_add(track.frame_duration);
        self.end = self.end.max(time);
        Ok(())
    }

    /// Returns whether the headers before the first frame have everything that is needed.
    fn has_all_properties(&self) -> bool {
        let video = self.tracks.iter().find(|track| track.kind == Track::VIDEO);
        // Without a video, the frames are not needed either.
        let has_rate = !self.tracks.is_empty() && video.is_none_or(|video| video.frame_duration > 0);
        has_rate && self.stated_duration().is_some()
    }

    /// Returns the duration in the headers, in milliseconds.
    fn stated_duration(&self) -> Option<u64> {
        let milliseconds = (self.duration * self.scale as f64 / MILLISECOND as f64).round();
        // A greater number becomes the maximum of the type, which is more than 24 hours.
        (milliseconds.is_finite() && milliseconds >= 1.0).then_some(milliseconds as u64)
    }
}

impl Track {
    /// Reads an element of a track, or skips it.
    fn read<S: BufRead + Seek + ?Sized>(&mut self, walk: &mut Walk<'_, S>, element: &Element) -> Result<(), Rejection> {
        let number = match element.id {
            id::TRACK_NUMBER => &mut self.number,
            id::TRACK_TYPE => &mut self.kind,
            id::DEFAULT_DURATION => &mut self.frame_duration,
            id::PIXEL_WIDTH => &mut self.width,
            id::PIXEL_HEIGHT => &mut self.height,
            id::DISPLAY_WIDTH => &mut self.display.0,
            id::DISPLAY_HEIGHT => &mut self.display.1,
            id::CODEC_ID => {
                self.codec = walk.value(element)?;
                return Ok(());
            }
            _ => return walk.skip(element),
        };
        *number = walk.unsigned(element)?;
        Ok(())
    }
}

fn codec(id: &[u8]) -> String {
    let name = match id.split(|byte| *byte == 0).next().unwrap_or_default() {
        b"V_VP8" => "vp8",
        b"V_VP9" => "vp9",
        b"V_AV1" => "av1",
        b"V_MPEG4/ISO/AVC" => "h264",
        b"V_MPEGH/ISO/HEVC" => "hevc",
        b"A_OPUS" => "opus",
        b"A_VORBIS" => "vorbis",
        b"A_MPEG/L3" => "mp3",
        id if id.starts_with(b"A_AAC") => "aac",
        id => return code(id),
    };
    name.to_owned()
}
