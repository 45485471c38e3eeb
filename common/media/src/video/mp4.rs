//! Reads MP4 and MOV files. Their index (`moov`) describes the tracks. In a fragmented file, the samples are described in
//! the header of each fragment (`moof`).

use std::io::{BufRead, Seek};

use crier_domain::media::VideoType;
use mp4_atom::{Atom, Audio, Decode, Mdhd, Mehd, Mvhd, Pasp, Tfhd, Tkhd, Trex, Trun, TrunSamples, Visual};

use super::boxes::{self, FileBox, Kind, at_path, children, find, word};
use super::{Found, MAX_TRACKS, Rejection, code, damaged, mean_rate, no_frames, no_video, ratio, too_many_tracks};

/// Maximum size of the index, and of the headers of all fragments together, in bytes.
pub const MAX_INDEX: u64 = 32 << 20;
/// Maximum size of the header of a fragment, in bytes.
const MAX_FRAGMENT: u64 = 1 << 20;

/// The meaning of a brand, by which a file names its format.
enum Brand {
    Video(VideoType),
    /// An image format in the same structure.
    Image,
    Other,
}

fn brand(name: &[u8]) -> Brand {
    match name {
        b"qt  " => Brand::Video(VideoType::Mov),
        b"mp41" | b"mp42" | b"mp71" | b"isom" | b"avc1" | b"dash" | b"cmfc" | b"cmf2" | b"MSNV" | b"f4v " => {
            Brand::Video(VideoType::Mp4)
        }
        [b'i', b's', b'o', b'2'..=b'9' | b'a'..=b'c']
        | [b'M', b'4', b'V', _]
        // Sound, which is rejected with its own text.
        | [b'M', b'4', b'A' | b'B', b' ']
        | [b'3', b'g', b'p' | b'2' | b'r' | b's' | b'g' | b'e', _] => Brand::Video(VideoType::Mp4),
        b"avif" | b"avis" | b"crx " | b"heic" | b"heim" | b"heis" | b"heix" | b"hevc" | b"hevm" | b"hevs" | b"hevx"
        | b"jp2 " | b"jpx " | b"jxl " | b"miaf" | b"mif1" | b"mif2" | b"msf1" => Brand::Image,
        _ => Brand::Other,
    }
}

/// Returns the type of a file from its first bytes. If its own brand is unknown, the brands with which it is compatible
/// decide.
pub fn type_of(first: &[u8]) -> Option<VideoType> {
    let size = usize::try_from(u32::from_be_bytes(*first.first_chunk()?)).ok()?;
    let names = first.get(4..size.min(first.len()))?.strip_prefix(b"ftyp")?;
    let mut brands = names.chunks_exact(4).map(brand);
    match brands.next()? {
        Brand::Video(kind) => return Some(kind),
        Brand::Image => return None,
        Brand::Other => {}
    }
    let mut found = None;
    // The first four bytes after the main brand are a version.
    for brand in brands.skip(1) {
        match brand {
            Brand::Image => return None,
            Brand::Video(kind) => found = found.or(Some(kind)),
            Brand::Other => {}
        }
    }
    found
}

/// What the index says.
#[derive(Default)]
struct Movie {
    units_per_second: u64,
    /// 0 if it is unknown.
    duration: u64,
    /// The duration with all fragments. 0 if it is unknown.
    fragmented_duration: u64,
    is_fragmented: bool,
    /// The defaults for the samples of each track.
    defaults: Vec<Trex>,
    video: Option<VideoTrack>,
    audio_codec: Option<String>,
}

struct VideoTrack {
    id: u32,
    is_enabled: bool,
    rotation: i32,
    width: u16,
    height: u16,
    pixel: (u64, u64),
    codec: String,
    units_per_second: u64,
    duration: u64,
    samples: Samples,
}

/// The samples of a track.
#[derive(Clone, Copy, Default)]
struct Samples {
    count: u64,
    /// In the units of the track.
    duration: u64,
}

impl Samples {
    fn add(&mut self, count: u64, duration: u64) {
        self.count = self.count.saturating_add(count);
        self.duration = self.duration.saturating_add(duration);
    }
}

pub fn probe(source: &mut (impl BufRead + Seek + ?Sized), size: u64) -> Result<Found, Rejection> {
    let found = boxes::of_file(source, size)?;
    let index = boxes::only(&found, b"moov")?.ok_or_else(no_index)?;
    let frames = found.iter().find(|found| matches!(&found.kind, b"mdat" | b"moof")).ok_or_else(no_frames)?;
    let movie = read_movie(&boxes::read(source, index.body, index.end, MAX_INDEX)?)?;
    let Some(mut video) = movie.video else { return Err(no_video(movie.audio_codec.is_some())) };
    if movie.is_fragmented {
        let default = movie.defaults.iter().find(|default| default.track_id == video.id);
        add_fragments(source, &found, &mut video, default.map_or(0, |default| default.default_sample_duration))?;
    }
    let of_movie = |duration| ratio(duration, 1_000, movie.units_per_second);
    let of_track = |duration| ratio(duration, 1_000, video.units_per_second);
    let durations = match movie.is_fragmented {
        // The duration of the movie may cover only the samples before the fragments.
        true => [of_movie(movie.fragmented_duration), of_track(video.samples.duration), of_movie(movie.duration)],
        false => [of_movie(movie.duration), of_track(video.duration), of_track(video.samples.duration)],
    };
    Ok(Found {
        width: video.width.into(),
        height: video.height.into(),
        pixel: video.pixel,
        rotation: video.rotation,
        duration_ms: durations.into_iter().find(|duration| *duration > 0).unwrap_or(0),
        frame_rate: mean_rate(video.samples.count, video.samples.duration, video.units_per_second),
        video_codec: video.codec,
        audio_codec: movie.audio_codec,
        index_first: index.start < frames.start,
    })
}

fn read_movie(index: &[u8]) -> Result<Movie, Rejection> {
    let mut movie = Movie::default();
    let mut tracks = 0;
    for child in children(index) {
        let child = child?;
        match &child.kind {
            b"mvhd" => {
                let header: Mvhd = decode(child.body)?;
                movie.units_per_second = header.timescale.into();
                movie.duration = known(header.duration);
            }
            b"mvex" => read_defaults(child.body, &mut movie)?,
            b"trak" => {
                tracks += 1;
                if tracks > MAX_TRACKS {
                    return Err(too_many_tracks());
                }
                read_track(child.body, &mut movie)?;
            }
            _ => {}
        }
    }
    Ok(movie)
}

/// Reads what the index says about fragments.
fn read_defaults(extends: &[u8], movie: &mut Movie) -> Result<(), Rejection> {
    movie.is_fragmented = true;
    for child in children(extends) {
        let child = child?;
        match &child.kind {
            b"mehd" => movie.fragmented_duration = known(decode::<Mehd>(child.body)?.fragment_duration),
            b"trex" if movie.defaults.len() < MAX_TRACKS => movie.defaults.push(decode(child.body)?),
            _ => {}
        }
    }
    Ok(())
}

/// Reads a track if it is the video or the sound of the movie. The video is the first enabled video track, or else the
/// first one. The sound is the first audio track.
fn read_track(track: &[u8], movie: &mut Movie) -> Result<(), Rejection> {
    let handler = at_path(track, &[b"mdia", b"hdlr"])?;
    // Not decoded as a whole, because the name that follows is not always UTF-8.
    match handler.get(8..12) {
        Some(b"vide") if movie.video.as_ref().is_none_or(|video| !video.is_enabled) => {
            let video = read_video(track)?;
            if movie.video.is_none() || video.is_enabled {
                movie.video = Some(video);
            }
        }
        Some(b"soun") if movie.audio_codec.is_none() => {
            let (kind, entry) = sample_entry(at_path(track, &[b"mdia", b"minf", b"stbl"])?)?;
            movie.audio_codec = Some(audio_codec(&kind, entry));
        }
        _ => {}
    }
    Ok(())
}

fn read_video(track: &[u8]) -> Result<VideoTrack, Rejection> {
    let header: Tkhd = decode(at_path(track, &[b"tkhd"])?)?;
    let media: Mdhd = decode(at_path(track, &[b"mdia", b"mdhd"])?)?;
    let tables = at_path(track, &[b"mdia", b"minf", b"stbl"])?;
    let (kind, mut entry) = sample_entry(tables)?;
    let visual = Visual::decode(&mut entry).map_err(|_| damaged())?;
    // What follows in QuickTime files is not always a box.
    let pixel = children(entry).map_while(Result::ok).find(|child| child.kind == *b"pasp");
    let pixel = pixel.map(|pixel| decode::<Pasp>(pixel.body)).transpose()?.unwrap_or_default();
    Ok(VideoTrack {
        id: header.track_id,
        is_enabled: header.enabled,
        rotation: rotation(header.matrix.a, header.matrix.b),
        width: visual.width,
        height: visual.height,
        pixel: (pixel.h_spacing.into(), pixel.v_spacing.into()),
        codec: video_codec(&kind),
        units_per_second: media.timescale.into(),
        duration: known(media.duration),
        samples: find(tables, b"stts")?.map(read_samples).transpose()?.unwrap_or_default(),
    })
}

/// Returns the rotation of a track, clockwise in degrees, from the first two numbers of its matrix.
fn rotation(a: i32, b: i32) -> i32 {
    match (a.unsigned_abs() >= b.unsigned_abs(), a >= 0, b >= 0) {
        (true, true, _) => 0,
        (true, false, _) => 180,
        (false, _, true) => 90,
        (false, _, false) => 270,
    }
}

/// Returns the kind and the content of the first sample entry, which describes the codec.
fn sample_entry(tables: &[u8]) -> Result<(Kind, &[u8]), Rejection> {
    let description = at_path(tables, &[b"stsd"])?;
    // After the version and the number of entries.
    let entry = children(description.get(8..).unwrap_or_default()).next().ok_or_else(damaged)??;
    Ok((entry.kind, entry.body))
}

/// Adds up the durations of samples. It does not decode the table as a whole, so that it needs no memory.
fn read_samples(table: &[u8]) -> Result<Samples, Rejection> {
    let count = usize::try_from(word(table, 4)?).map_err(|_| damaged())?;
    let entries = table.get(8..).unwrap_or_default().chunks_exact(8);
    if entries.len() < count {
        return Err(damaged());
    }
    let mut samples = Samples::default();
    for entry in entries.take(count) {
        let (count, duration) = (u64::from(word(entry, 0)?), u64::from(word(entry, 4)?));
        samples.add(count, count.saturating_mul(duration));
    }
    Ok(samples)
}

/// Adds the samples of all fragments to those of a track.
fn add_fragments(
    source: &mut (impl BufRead + Seek + ?Sized),
    found: &[FileBox],
    video: &mut VideoTrack,
    default: u32,
) -> Result<(), Rejection> {
    let mut total = 0;
    for fragment in found.iter().filter(|found| found.kind == *b"moof") {
        total += fragment.end - fragment.body;
        if total > MAX_INDEX {
            return Err(Rejection::TooLarge(format!(
                "The headers of the video's fragments are larger than {} MiB. Export it again without fragments.",
                MAX_INDEX >> 20
            )));
        }
        let header = boxes::read(source, fragment.body, fragment.end, MAX_FRAGMENT)?;
        for part in children(&header) {
            let part = part?;
            if part.kind == *b"traf" {
                add_runs(part.body, video, default)?;
            }
        }
    }
    Ok(())
}

/// Adds the samples of a part of a fragment, which is of one track.
fn add_runs(part: &[u8], video: &mut VideoTrack, default: u32) -> Result<(), Rejection> {
    let header: Tfhd = decode(at_path(part, &[b"tfhd"])?)?;
    if header.track_id != video.id {
        return Ok(());
    }
    let default = header.default_sample_duration.unwrap_or(default);
    for run in children(part) {
        let run = run?;
        if run.kind != *b"trun" {
            continue;
        }
        match decode::<Trun>(run.body)?.samples {
            TrunSamples::Inherited { count, .. } => {
                video.samples.add(count.into(), u64::from(count).saturating_mul(default.into()));
            }
            TrunSamples::Explicit(samples) => {
                samples.iter().for_each(|sample| video.samples.add(1, sample.duration.unwrap_or(default).into()));
            }
        }
    }
    Ok(())
}

/// Decodes the content of a box of a fixed layout. More bytes may follow.
fn decode<T: Atom>(mut body: &[u8]) -> Result<T, Rejection> {
    T::decode_body(&mut body).map_err(|_| damaged())
}

/// Returns 0 for a duration that is unknown, which is all ones in 32 or in 64 bits.
fn known(duration: u64) -> u64 {
    if duration == u64::from(u32::MAX) || duration == u64::MAX { 0 } else { duration }
}

fn video_codec(kind: &Kind) -> String {
    let name = match kind {
        b"avc1" | b"avc2" | b"avc3" | b"avc4" | b"dva1" | b"dvav" => "h264",
        b"dvh1" | b"dvhe" | b"hev1" | b"hvc1" => "hevc",
        b"vp08" => "vp8",
        b"vp09" => "vp9",
        b"av01" => "av1",
        b"mp4v" => "mpeg4",
        b"apcn" | b"apch" | b"apcs" | b"apco" | b"ap4h" | b"ap4x" | b"aprh" | b"aprn" => "prores",
        _ => return code(kind),
    };
    name.to_owned()
}

fn audio_codec(kind: &Kind, entry: &[u8]) -> String {
    let name = match kind {
        b"mp4a" => mpeg_audio(entry),
        b".mp3" | b"ms\0\x55" => "mp3",
        b"Opus" => "opus",
        b"ac-3" => "ac3",
        b"ec-3" => "eac3",
        b"fLaC" => "flac",
        _ => return code(kind),
    };
    name.to_owned()
}

/// Returns the codec of a sample entry that names it in a descriptor. Nearly always it is AAC, so an entry that cannot be
/// read counts as that.
fn mpeg_audio(mut entry: &[u8]) -> &'static str {
    if Audio::decode(&mut entry).is_err() {
        return "aac";
    }
    let inside = |parent, kind: &Kind| children(parent).map_while(Result::ok).find(|child| child.kind == *kind);
    // QuickTime has it in another box.
    let descriptor = inside(entry, b"esds").or_else(|| inside(inside(entry, b"wave")?.body, b"esds"));
    match descriptor.and_then(|descriptor| object_type(descriptor.body.get(4..)?)) {
        Some(0x69 | 0x6b) => "mp3",
        Some(0xa5) => "ac3",
        Some(0xa6) => "eac3",
        Some(0xad) => "opus",
        Some(0xdd) => "vorbis",
        _ => "aac",
    }
}

/// Returns the number of the codec in a descriptor of a stream (ISO 14496-1). `mp4-atom` also reads it, but logs each
/// unknown part of it.
fn object_type(descriptor: &[u8]) -> Option<u8> {
    let stream = after_length(descriptor.strip_prefix(&[3])?)?;
    let flags = *stream.get(2)?;
    let mut rest = stream.get(3..)?;
    if flags & 0x80 != 0 {
        rest = rest.get(2..)?;
    }
    if flags & 0x40 != 0 {
        rest = rest.get(1 + usize::from(*rest.first()?)..)?;
    }
    if flags & 0x20 != 0 {
        rest = rest.get(2..)?;
    }
    after_length(rest.strip_prefix(&[4])?)?.first().copied()
}

/// Skips a length of 1 to 4 bytes. The last byte is the first one below 128.
fn after_length(bytes: &[u8]) -> Option<&[u8]> {
    let last = bytes.iter().take(4).position(|byte| byte & 0x80 == 0)?;
    bytes.get(last + 1..)
}

pub fn no_index() -> Rejection {
    Rejection::Unsupported(
        "The video is incomplete: it has no index. Finish the recording, or export it again.".to_owned(),
    )
}
