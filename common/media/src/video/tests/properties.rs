//! Arbitrary bytes: nothing panics, incomplete videos are rejected, and what is returned is within its limits.

use proptest::prelude::*;

use super::super::faststart::{Part, plan};
use super::*;

/// Files whose last part cannot be missing.
const WITH_A_KNOWN_END: [&str; 4] =
    ["h264-aac-index-first.mp4", "h264-aac-index-last.mp4", "rotated-90.mov", "av1.webm"];
const WITHOUT_A_KNOWN_END: [&str; 2] = ["fragmented.mp4", "live.webm"];

/// Reads a file, and checks the limits of the result.
fn read(bytes: &[u8]) -> bool {
    let size = bytes.len() as u64;
    if let Ok(Some(planned)) = plan(&mut Cursor::new(bytes), size) {
        assert_eq!(planned.size, size);
        let length = |part: Part<'_>| match part {
            Part::Head(bytes) => bytes.len() as u64,
            Part::Stored(range) => {
                assert!(range.end <= size);
                range.end - range.start
            }
        };
        assert_eq!(planned.parts(0..u64::MAX).map(length).sum::<u64>(), size);
    }
    let Ok(video) = probed(bytes) else { return false };
    let VideoProperties { duration_ms, rotation, frame_rate, video_codec, audio_codec, .. } = video.properties;
    assert!((1..=16_384).contains(&video.width) && (1..=16_384).contains(&video.height));
    assert!((1..=86_400_000).contains(&duration_ms));
    assert!(matches!(rotation, 0 | 90 | 180 | 270));
    assert!(frame_rate.is_none_or(|rate| (0.0..=1_000.0).contains(&rate)));
    for codec in [Some(video_codec), audio_codec].into_iter().flatten() {
        assert!((1..=32).contains(&codec.len()) && codec.bytes().all(|byte| byte.is_ascii_graphic()), "{codec:?}");
    }
    true
}

#[test]
fn a_truncated_video_is_rejected() {
    for name in WITH_A_KNOWN_END {
        let whole = file(name);
        assert!(read(&whole));
        for end in 0..whole.len() {
            assert!(!read(&whole[..end]), "{name} is accepted if it is cut after {end} bytes");
        }
    }
    for name in WITHOUT_A_KNOWN_END {
        let whole = file(name);
        let accepted = (0..whole.len()).filter(|end| read(&whole[..*end])).count();
        // Only between two elements.
        assert!(accepted < 200, "{name} is accepted if it is cut at {accepted} places");
    }
}

#[test]
fn any_changed_byte_of_the_headers_is_read_or_rejected() {
    for name in ["h264-aac-index-last.mp4", "mpeg4-mp3.mov", "fragmented.mp4", "anamorphic.mp4"] {
        let whole = file(name);
        let start = place(&whole, b"moov") - 4;
        let size = u32::from_be_bytes(*whole[start..].first_chunk().unwrap()) as usize;
        flip(&whole, start..start + size);
    }
    for name in ["vp9-opus.webm", "live.webm"] {
        let whole = file(name);
        let cluster = place(&whole, b"\x1f\x43\xb6\x75");
        flip(&whole, 0..cluster + 32);
    }
}

/// Changes each byte of a range in several ways.
fn flip(whole: &[u8], range: std::ops::Range<usize>) {
    let mut changed = whole.to_vec();
    for at in range {
        for by in [0x01, 0x80, 0xff] {
            changed[at] = whole[at] ^ by;
            read(&changed);
        }
        changed[at] = whole[at];
    }
}

fn any_file() -> impl Strategy<Value = Vec<u8>> {
    let names = [
        "h264-aac-index-first.mp4",
        "h264-aac-index-last.mp4",
        "fragmented.mp4",
        "rotated-90.mov",
        "mpeg4-mp3.mov",
        "live.webm",
        "vp9-opus.webm",
    ];
    prop::sample::select(names.map(file).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_read_or_rejected(start in 0..3_usize, bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let starts = [&b""[..], b"\0\0\0\x14ftypisom\0\0\0\0isom", b"\x1a\x45\xdf\xa3\x87\x42\x82\x84webm\x18\x53\x80\x67\xff"];
        read(&[starts[start], &bytes].concat());
    }

    #[test]
    fn changed_files_are_read_or_rejected(
        mut bytes in any_file(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
        inserted in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let cut = cut.index(bytes.len());
        bytes.splice(cut..cut, inserted);
        read(&bytes);
    }
}
