//! Hostile files, with the expected result of each.
//!
//! **To add one:** add a row to one of the lists.

use super::super::faststart::plan;
use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedResult {
    Unsupported,
    TooLarge,
    /// Accepted as the file without the hostile part.
    Unchanged,
}

use ExpectedResult::{TooLarge, Unchanged, Unsupported};

type Row = (&'static str, Vec<u8>, ExpectedResult);

fn check(original: &[u8], rows: Vec<Row>) {
    let accepted = probed(original).unwrap();
    for (name, bytes, expected) in rows {
        let found = match probed(&bytes) {
            Ok(video) => {
                assert_eq!(video, accepted, "{name}");
                Unchanged
            }
            Err(Rejection::TooLarge(_)) => TooLarge,
            Err(_) => Unsupported,
        };
        assert_eq!(found, expected, "{name}");
        // It may return a plan or not, but it does not panic.
        let _ = plan(&mut Cursor::new(&bytes), bytes.len() as u64);
    }
}

/// Returns the box at the front, the index, and the rest of a file whose index is first.
fn split(bytes: &[u8]) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let found = atoms(bytes);
    (found[0].to_vec(), found[1].to_vec(), found[2..].concat())
}

/// Returns a file with more boxes in its index.
fn with_in_index(bytes: &[u8], more: &[u8]) -> Vec<u8> {
    let (head, index, rest) = split(bytes);
    [head, atom(b"moov", &[&index[8..], more].concat()), rest].concat()
}

/// Returns this many boxes, each within the one before it.
fn nested(kind: &[u8; 4], depth: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for left in (1..=depth).rev() {
        bytes.extend_from_slice(&(left * 8).to_be_bytes());
        bytes.extend_from_slice(kind);
    }
    bytes
}

#[test]
fn boxes_of_wrong_sizes_are_rejected() {
    let whole = file("h264-aac-index-first.mp4");
    let (head, index, rest) = split(&whole);
    let sized = |size: &[u8]| [&head[..], size, &index[4..], &rest].concat();
    let appended = |more: &[u8]| [&whole[..], more].concat();
    let mut endless = rest.clone();
    let data = place(&rest, b"mdat") - 4;
    endless[data..data + 4].fill(0);
    let rows = vec![
        ("an index of 0 bytes, which means that it is the rest of the file", sized(&[0; 4]), Unsupported),
        ("an index of 7 bytes", sized(&[0, 0, 0, 7]), Unsupported),
        ("an index of 4 GiB", sized(&[0xff; 4]), Unsupported),
        ("an index that ends early", sized(&[0, 0, 1, 0]), Unsupported),
        ("frames up to the end of the file", [&head[..], &index, &endless].concat(), Unchanged),
        ("an index with a size of 64 bits", [&head[..], &large_atom(b"moov", &index[8..]), &rest].concat(), Unchanged),
        ("a box of 2^64 - 1 bytes", appended(&[&b"\0\0\0\x01free"[..], &[0xff; 8]].concat()), Unsupported),
        ("a box of 2^63 bytes", appended(b"\0\0\0\x01free\x80\0\0\0\0\0\0\0"), Unsupported),
        ("a box with a size of 64 bits below its header", appended(b"\0\0\0\x01free\0\0\0\0\0\0\0\x0f"), Unsupported),
        ("half of a header", appended(b"\0\0\0"), Unsupported),
        ("10,000 empty boxes", appended(&atom(b"free", &[]).repeat(10_000)), Unchanged),
        ("70,000 empty boxes", appended(&atom(b"free", &[]).repeat(70_000)), Unsupported),
        ("two indexes", appended(&index), Unsupported),
        ("no index", [&head[..], &rest].concat(), Unsupported),
        ("no frames", [&head[..], &index].concat(), Unsupported),
        ("only the first box", head.clone(), Unsupported),
    ];
    check(&whole, rows);
}

#[test]
fn indexes_of_wrong_contents_are_rejected() {
    let whole = file("h264-aac-index-first.mp4");
    let (_, index, _) = split(&whole);
    let track = place(&index, b"trak") - 4;
    let size = u32::from_be_bytes(*index[track..].first_chunk().unwrap()) as usize;
    let track = &index[track..track + size];
    let entry = with(&whole, b"stsd", 8, &[0xff, 0xff, 0xff, 0xff]);
    let rows = vec![
        ("10,000 empty boxes", with_in_index(&whole, &atom(b"free", &[]).repeat(10_000)), Unchanged),
        ("4 zeros at its end", with_in_index(&whole, &[0; 4]), Unchanged),
        ("an index within itself, 200,000 times", with_in_index(&whole, &nested(b"moov", 200_000)), Unchanged),
        ("a track within itself, 200,000 times", with_in_index(&whole, &nested(b"trak", 200_000)), Unsupported),
        ("a box larger than the index", with_in_index(&whole, b"\x7f\0\0\0free"), Unsupported),
        ("32 tracks", with_in_index(&whole, &track.repeat(30)), Unchanged),
        ("33 tracks", with_in_index(&whole, &track.repeat(31)), Unsupported),
        ("an empty track", with_in_index(&whole, &atom(b"trak", &[])), Unsupported),
        ("2^32 - 1 durations", with(&whole, b"stts", 4, &[0xff; 4]), Unsupported),
        ("a sample entry larger than its table", entry, Unsupported),
        ("an unknown version", with(&whole, b"tkhd", 0, &[9]), Unsupported),
        ("a duration of 0", with(&with(&whole, b"mvhd", 12, &[0; 8]), b"mdhd", 12, &[0; 8]), Unsupported),
        ("a duration of 25 hours", with(&whole, b"mvhd", 12, &words(&[1, 90_000])), TooLarge),
        ("a width of 0", with(&whole, b"stsd", 40, &[0; 2]), Unsupported),
        ("a width of 65,535", with(&whole, b"stsd", 40, &[0xff; 2]), TooLarge),
        ("a name of the handler that is not UTF-8", with(&whole, b"hdlr", 24, &[0xff; 4]), Unchanged),
        ("a name of the codec that is not UTF-8", with(&whole, b"stsd", 58, &[0xff; 32]), Unchanged),
    ];
    check(&whole, rows);
}

#[test]
fn pixels_of_wrong_shapes_are_rejected() {
    let whole = file("anamorphic.mp4");
    let shaped = |width: u32, height: u32| with(&whole, b"pasp", 0, &words(&[width, height]));
    let rows = vec![
        ("pixels that are 2^32 - 1 times wider", shaped(u32::MAX, 1), TooLarge),
        ("pixels that are 2^32 - 1 times higher", shaped(1, u32::MAX), Unsupported),
        ("pixels of 2^32 - 1 × 2^32 - 1, which is 1:1", shaped(u32::MAX, u32::MAX), Unchanged),
        ("pixels without a shape, which count as 1:1", shaped(0, 0), Unchanged),
    ];
    let square = shaped(1, 1);
    assert_eq!(probed(&square).unwrap().width, 96);
    check(&square, rows);
}

#[test]
fn fragments_of_wrong_contents_are_rejected() {
    let whole = file("fragmented.mp4");
    let run = |id: u32, count: u32| {
        let header = atom(b"tfhd", &words(&[0, id]));
        atom(b"moof", &atom(b"traf", &[header, atom(b"trun", &words(&[0, count]))].concat()))
    };
    let appended = |more: &[u8]| [&whole[..], more].concat();
    // The durations are in the headers of fragments, so the defaults of the index are set here.
    let timed = with(&whole, b"trex", 12, &words(&[512]));
    let rows = vec![
        ("a fragment of another track", appended(&run(9, u32::MAX)), Unchanged),
        ("2^32 - 1 frames", [&timed[..], &run(1, u32::MAX)].concat(), TooLarge),
        ("2^32 - 1 durations", with(&whole, b"trun", 4, &[0xff; 4]), Unsupported),
        ("a fragment without a track", appended(&atom(b"moof", &atom(b"traf", &[]))), Unsupported),
        ("a fragment's header of 2 MiB", appended(&atom(b"moof", &vec![0; 2 << 20])), TooLarge),
        ("headers of 40 MiB", appended(&atom(b"moof", &atom(b"free", &vec![0; 1 << 19])).repeat(80)), TooLarge),
        ("a fragment within itself", appended(&nested(b"moof", 100_000)), Unchanged),
    ];
    check(&whole, rows);
}

#[test]
fn large_indexes_are_not_read() {
    let head = file("h264-aac-index-first.mp4")[..32].to_vec();
    let size: u64 = 40 << 20;
    let index = [&u32::try_from(size - 48).unwrap().to_be_bytes()[..], b"moov"].concat();
    let frames = atom(b"mdat", &[0; 8]);
    let mut source = Sparse::reader(size, vec![(0, head), (32, index), (size - 16, frames)]);
    let text = "The index of the video is larger than 32 MiB. Export the video again, or shorten it.";
    assert_eq!(probe(&mut source, size), Err(Rejection::TooLarge(text.to_owned())));
}

/// The size that a caller states is a limit, but never a reason to allocate memory.
#[test]
fn a_wrong_size_of_the_file_is_rejected() {
    for name in ["h264-aac-index-last.mp4", "vp9-opus.webm", "fragmented.mp4"] {
        let whole = file(name);
        for size in [1, whole.len() as u64 - 1] {
            assert!(probe(&mut Cursor::new(&whole), size).is_err(), "{name}, {size} bytes");
        }
    }
    let whole = [&file("h264-aac-index-first.mp4")[..32], b"\x01\0\0\0moov"].concat();
    assert!(probe(&mut Cursor::new(&whole), u64::MAX).is_err());
}

#[test]
fn webm_of_wrong_contents_is_rejected() {
    let whole = file("vp9-opus.webm");
    let track = [&b"\xae\x89\xd7\x81\x03\x83\x81\x11\x86\x81x"[..]].concat();
    let cluster = place(&whole, b"\x1f\x43\xb6\x75");
    let live = file("live.webm");
    // In a segment of unknown size, more may follow anywhere.
    let live_cluster = place(&live, b"\x1f\x43\xb6\x75");
    let inserted = |more: &[u8]| [&live[..live_cluster], more, &live[live_cluster..]].concat();
    let endless = [0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let rows = vec![
        ("32 tracks", inserted(&track.repeat(30)), Unchanged),
        ("33 tracks", inserted(&track.repeat(31)), Unsupported),
        ("10,000 empty elements", inserted(&b"\xec\x80".repeat(10_000)), Unchanged),
        ("an element of unknown size", inserted(&[&b"\xec"[..], &endless].concat()), Unsupported),
        ("tags of unknown size", inserted(&[&b"\x12\x54\xc3\x67"[..], &endless].concat()), Unsupported),
        ("an element of 2^56 - 2 bytes", inserted(b"\xec\x01\xff\xff\xff\xff\xff\xff\xfe"), Unsupported),
        ("an ID that begins with 0", inserted(b"\0\x80"), Unsupported),
        ("an ID of 8 bytes", inserted(b"\x01\0\0\0\0\0\0\0\x80"), Unsupported),
        (
            "clusters within each other",
            inserted(&[&b"\x1f\x43\xb6\x75"[..], &endless].concat().repeat(10_000)),
            Unchanged,
        ),
        ("a number of 9 bytes", inserted(&[&b"\xb0\x89"[..], &[1; 9]].concat()), Unsupported),
        ("a codec of 100 bytes", inserted(&[&b"\x86\xe4"[..], &[b'x'; 100]].concat()), Unsupported),
        ("a block without a track", inserted(b"\xa3\x80"), Unsupported),
        ("no frames", live[..live_cluster].to_vec(), Unsupported),
        (
            "a time of 2^64 - 1",
            inserted(&[&b"\x1f\x43\xb6\x75\xff\xe7\x88"[..], &[0xff; 8], b"\xa3\x84\x81\0\0\0"].concat()),
            TooLarge,
        ),
    ];
    check(&live, rows);
    let rows = vec![
        ("a header of unknown size", with(&whole, b"\x1a\x45\xdf\xa3", 0, &[0xff]), Unsupported),
        ("another type of document", with(&whole, b"\x42\x82\x84", 0, b"wexm"), Unsupported),
        ("a segment larger than the file", with(&whole, b"\x18\x53\x80\x67\x01", 3, &[1]), Unsupported),
        ("a duration of 10^300 units", with(&whole, b"\x44\x89\x88", 0, &[0x7e, 0x37]), TooLarge),
        ("a width of 0", with(&whole, b"\xb0\x81", 0, &[0]), Unsupported),
        ("data after the segment", [&whole[..], b"\0\0\0"].concat(), Unchanged),
        ("only its headers", whole[..cluster].to_vec(), Unsupported),
    ];
    check(&whole, rows);
}

/// The frames of the file end after 1,007 ms.
#[test]
fn an_invalid_duration_of_webm_is_measured() {
    let whole = file("vp9-opus.webm");
    for (name, duration) in [
        ("no number", [0x7f, 0xf8, 0, 0, 0, 0, 0, 0]),
        ("negative", [0xc0, 0x8f, 0x80, 0, 0, 0, 0, 0]),
        ("infinite", [0x7f, 0xf0, 0, 0, 0, 0, 0, 0]),
        ("zero", [0; 8]),
    ] {
        let video = probed(&with(&whole, b"\x44\x89\x88", 0, &duration)).unwrap();
        assert_eq!(video.properties.duration_ms, 1_007, "{name}");
    }
}
