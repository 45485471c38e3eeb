//! The files of the corpus. The expected properties are those that `ffprobe` 5.1 returned (`tests/videos/README.md`).

use super::*;

/// A line of what `ffprobe` returned.
struct Expected {
    name: &'static str,
    kind: VideoType,
    /// As shown.
    sides: (u32, u32),
    rotation: i32,
    duration_ms: i64,
    frame_rate: f64,
    codecs: (&'static str, Option<&'static str>),
    index_first: bool,
}

const MP4: Expected = Expected {
    name: "",
    kind: VideoType::Mp4,
    sides: (96, 64),
    rotation: 0,
    duration_ms: 1_000,
    frame_rate: 25.0,
    codecs: ("h264", None),
    index_first: false,
};
const MOV: Expected = Expected { kind: VideoType::Mov, ..MP4 };
const WEBM: Expected = Expected { kind: VideoType::Webm, index_first: true, ..MP4 };

const FILES: [Expected; 15] = [
    Expected { name: "h264-aac-index-first.mp4", codecs: ("h264", Some("aac")), index_first: true, ..MP4 },
    Expected { name: "h264-aac-index-last.mp4", codecs: ("h264", Some("aac")), ..MP4 },
    // The sound is longer, of which the index of a fragmented file says nothing.
    Expected { name: "fragmented.mp4", codecs: ("h264", Some("aac")), index_first: true, ..MP4 },
    // 96 × 64 pixels that are 4:3.
    Expected { name: "anamorphic.mp4", sides: (128, 64), ..MP4 },
    Expected { name: "hevc.mp4", codecs: ("hevc", None), duration_ms: 1_001, frame_rate: 29.97, ..MP4 },
    Expected { name: "av1.mp4", codecs: ("av1", None), ..MP4 },
    Expected { name: "rotated-90.mov", sides: (64, 96), rotation: 90, ..MOV },
    Expected { name: "rotated-180.mov", rotation: 180, ..MOV },
    Expected { name: "rotated-270.mov", sides: (64, 96), rotation: 270, ..MOV },
    Expected { name: "mpeg4-mp3.mov", codecs: ("mpeg4", Some("mp3")), ..MOV },
    Expected { name: "prores.mov", codecs: ("prores", None), duration_ms: 160, ..MOV },
    Expected { name: "vp9-opus.webm", codecs: ("vp9", Some("opus")), duration_ms: 1_008, ..WEBM },
    Expected { name: "vp8-vorbis.webm", codecs: ("vp8", Some("vorbis")), duration_ms: 1_003, ..WEBM },
    Expected { name: "av1.webm", codecs: ("av1", None), ..WEBM },
    // `ffprobe` returned no duration. It is that of vp8-vorbis.webm, which has the same content.
    Expected { name: "live.webm", codecs: ("vp8", Some("vorbis")), duration_ms: 1_003, ..WEBM },
];

#[test]
fn the_properties_are_those_of_ffprobe() {
    for expected in FILES {
        let properties = VideoProperties {
            duration_ms: expected.duration_ms,
            rotation: expected.rotation,
            frame_rate: Some(expected.frame_rate),
            video_codec: expected.codecs.0.to_owned(),
            audio_codec: expected.codecs.1.map(str::to_owned),
            index_first: expected.index_first,
        };
        let (width, height) = expected.sides;
        let expected_video = ProbedVideo { kind: expected.kind, width, height, properties };
        assert_eq!(probed(&file(expected.name)), Ok(expected_video), "{}", expected.name);
    }
}

#[test]
fn files_without_a_video_are_rejected() {
    for name in ["sound-only.mp4", "sound-only.webm"] {
        let text = "The file contains only sound. Upload a video.".to_owned();
        assert_eq!(probed(&file(name)), Err(Rejection::Unsupported(text)), "{name}");
    }
    let text = "This file type is not supported. Upload an MP4, MOV or WebM video.".to_owned();
    for other in [file("matroska.mkv"), b"RIFF\0\0\0\0AVI LIST".to_vec(), b"\xff\xd8\xff\xe0".to_vec()] {
        assert_eq!(probed(&other), Err(Rejection::Unsupported(text.clone())));
    }
    assert_eq!(probed(&[]), Err(Rejection::Empty));
}

/// Makes the first element with this ID unknown, so that it is skipped.
fn hidden(bytes: &[u8], id: &[u8]) -> Vec<u8> {
    let mut other = id.to_vec();
    *other.last_mut().unwrap() ^= 1;
    let at = place(bytes, id);
    [&bytes[..at], &other, &bytes[at + id.len()..]].concat()
}

#[test]
fn webm_without_a_stated_rate_or_duration_is_measured_by_its_frames() {
    let whole = file("vp9-opus.webm");
    let unstated = hidden(&whole, b"\x23\xe3\x83");
    let video = probed(&unstated).unwrap();
    // 25 frames in 1,008 ms.
    assert_eq!((video.properties.frame_rate, video.properties.duration_ms), (Some(24.802), 1_008));
    let video = probed(&hidden(&unstated, b"\x44\x89")).unwrap();
    let duration = video.properties.duration_ms;
    assert!((960..=1_008).contains(&duration), "the last frame begins after 960 ms, and {duration} ms are returned");
    assert_eq!(video.properties.frame_rate, Some((25_000_000.0 / duration as f64).round() / 1_000.0));
}

#[test]
fn the_display_size_of_webm_is_the_shape_of_its_image() {
    let whole = file("av1.webm");
    // After the sides: whether it is interlaced, and the colors. In their place: 16:9, and an empty element.
    let after = b"\xb0\x81\x60\xba\x81\x40";
    let display = b"\x54\xb0\x81\x10\x54\xba\x81\x09\xec\x80";
    let video = probed(&with(&whole, after, 0, display)).unwrap();
    assert_eq!((video.width, video.height), (114, 64));
}

#[test]
fn the_default_rate_of_fragments_is_used() {
    let whole = file("fragmented.mp4");
    // The number of the first fragment's track becomes unknown, so its 10 frames are not counted.
    let video = probed(&with(&whole, b"tfhd", 4, &[0, 0, 0, 9])).unwrap();
    assert_eq!((video.properties.duration_ms, video.properties.frame_rate), (600, Some(25.0)));
}

#[test]
fn types_are_detected_from_the_first_bytes() {
    let named = |brand: &[u8], compatible: &[&[u8]]| {
        let brands = [brand, &[0; 4], &compatible.concat()].concat();
        sniff(&atom(b"ftyp", &brands))
    };
    for brand in ["isom", "iso2", "iso9", "mp41", "mp42", "M4V ", "avc1", "dash", "3gp4", "3g2a", "f4v ", "MSNV"] {
        assert_eq!(named(brand.as_bytes(), &[]), Some(VideoType::Mp4), "{brand}");
    }
    assert_eq!(named(b"qt  ", &[]), Some(VideoType::Mov));
    for brand in ["avif", "avis", "heic", "heix", "hevc", "mif1", "msf1", "crx ", "jp2 "] {
        assert_eq!(named(brand.as_bytes(), &[b"isom", b"mp42"]), None, "{brand}");
    }
    // The brand of a camera, with the formats that it is compatible with.
    assert_eq!(named(b"XAVC", &[b"XAVC", b"mp42"]), Some(VideoType::Mp4));
    assert_eq!(named(b"XXXX", &[b"mp42", b"heic"]), None);
    assert_eq!(named(b"XXXX", &[b"YYYY"]), None);
    // A version is no brand.
    assert_eq!(sniff(&atom(b"ftyp", b"XXXXmp42")), None);
    for (name, kind) in
        [("av1.webm", Some(VideoType::Webm)), ("live.webm", Some(VideoType::Webm)), ("matroska.mkv", None)]
    {
        assert_eq!(sniff(&file(name)[..SNIFFED]), kind, "{name}");
    }
    let whole = file("h264-aac-index-first.mp4");
    assert!((0..16).all(|end| sniff(&whole[..end.min(11)]).is_none()));
}
