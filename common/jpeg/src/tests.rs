//! Reads the JPEGs in `tests/pictures`. Further tests are in `common/media/src/images/tests`: the similarity of the
//! image at an eighth of its size and the decoded image, and hostile files.

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn folder(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/pictures").join(name);
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<(String, Vec<u8>)> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "jpg"))
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap()))
        .collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

fn file(name: &str) -> Vec<u8> {
    folder("corpus").into_iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("there is no {name}")).1
}

/// Reads a file to its end.
fn read(file: &[u8], min_side: u32) -> Result<(Vec<Part>, Option<Eighth>), Error> {
    let mut reader = Reader::new(file, min_side)?;
    let mut parts = Vec::new();
    loop {
        let part = reader.read_part()?;
        let is_end = matches!(part, Part::End(_));
        parts.push(part);
        if is_end {
            return Ok((parts, reader.eighth()));
        }
    }
}

fn error_of(file: &[u8]) -> Option<Error> {
    read(file, 1).err()
}

/// Returns the positions of a marker.
fn markers(file: &[u8], code: u8) -> Vec<usize> {
    file.windows(2).enumerate().filter(|(_, pair)| *pair == [0xff, code]).map(|(at, _)| at).collect()
}

#[test]
fn parts_are_the_whole_file() {
    for (name, file) in folder("corpus").into_iter().chain(folder("large")) {
        let mut end = 2;
        for part in read(&file, 1).unwrap().0 {
            let range = match part {
                Part::Filler(range) => panic!("{name} has filler at {range:?}"),
                Part::Segment(segment) => segment.whole,
                Part::End(range) => range,
            };
            assert_eq!(range.start, end, "{name}");
            end = range.end;
        }
        assert_eq!(end, file.len(), "{name}");
    }
}

#[test]
fn text_after_the_data_of_a_scan_is_filler() {
    for (name, mut file) in folder("corpus") {
        let end = file.len() - 2;
        file.splice(end..end, *b"hidden");
        let (parts, _) = read(&file, 1).unwrap();
        assert!(parts.contains(&Part::Filler(end..end + 6)), "{name}: {parts:?}");
    }
}

#[test]
fn bytes_after_the_end_are_not_read() {
    let mut file = file("baseline-420.jpg");
    let whole = read(&file, 1).unwrap();
    file.extend_from_slice(b"\xff\xe0 and more");
    assert_eq!(read(&file, 1).unwrap(), whole);
}

#[test]
fn a_cut_file_is_truncated() {
    for (name, file) in folder("corpus") {
        for end in 2..file.len() {
            assert_eq!(error_of(&file[..end]), Some(Error::Truncated), "{name} cut after {end} bytes");
        }
    }
}

#[test]
fn the_frame_header_has_the_sides() {
    let file = file("progressive-420.jpg");
    let at = markers(&file, 0xc2)[0];
    let frame = FrameHead::parse(0xc2, &file[at + 4..]).unwrap();
    assert_eq!((frame.width, frame.height, frame.component_count(), frame.progressive), (61, 43, 3, true));
    assert_eq!(FrameHead::parse(0xc2, &file[at + 4..at + 6]).unwrap_err(), Error::Truncated);
    let mut no_height = file[at + 4..].to_vec();
    no_height[1..3].fill(0);
    assert_eq!(FrameHead::parse(0xc2, &no_height).unwrap_err(), Error::Invalid);
}

#[test]
fn each_kind_of_problem_has_its_error() {
    assert_eq!(error_of(b"\x89PNG\r\n\x1a\n"), Some(Error::Invalid));
    let baseline = file("baseline-420.jpg");
    let frame = markers(&baseline, 0xc0)[0];
    let with = |at: usize, byte: u8| {
        let mut file = baseline.clone();
        file[at] = byte;
        file
    };
    // A lossless one, and one with 12 bits per sample.
    assert_eq!(error_of(&with(frame + 1, 0xc3)), Some(Error::Unsupported));
    assert_eq!(error_of(&with(frame + 4, 12)), Some(Error::Unsupported));
    // A height that is defined later.
    assert_eq!(error_of(&with(frame + 1, 0xdc)), Some(Error::Invalid));
    // The first and the last coefficient of a scan, and both bit shifts.
    let scan = markers(&baseline, 0xda)[0];
    let after = scan + 5 + 2 * usize::from(baseline[scan + 4]);
    for (at, byte) in [(after, 64), (after + 1, 64), (after + 2, 0xe0), (after + 2, 0x0e)] {
        assert_eq!(error_of(&with(at, byte)), Some(Error::Invalid), "{byte:#x} at {at}");
    }
    let mut longer = baseline.clone();
    longer[scan + 3] += 1;
    longer.insert(after + 3, 0);
    assert_eq!(error_of(&longer), Some(Error::Invalid));
    // Data behind the components of a frame, and behind a restart interval.
    let mut longer = baseline.clone();
    longer[frame + 3] += 1;
    longer.insert(frame + 2 + usize::from(baseline[frame + 3]), 0);
    assert_eq!(error_of(&longer), Some(Error::Invalid));
    let with_segment = |segment: &[u8]| {
        let (image, end) = baseline.split_at(baseline.len() - 2);
        [image, segment, end].concat()
    };
    assert_eq!(error_of(&with_segment(b"\xff\xdd\0\x04\0\0")), None);
    assert_eq!(error_of(&with_segment(b"\xff\xdd\0\x05\0\0x")), Some(Error::Invalid));
    let progressive = file("progressive-420.jpg");
    let first = markers(&progressive, 0xda)[0];
    let after = markers(&progressive, 0xc4).into_iter().find(|at| *at > first).unwrap();
    let again = progressive[first..after].repeat(MAX_SCANS);
    let scans = [&progressive[..after], &again, &progressive[after..]].concat();
    assert_eq!(error_of(&scans), Some(Error::TooManyScans));
}

#[test]
fn an_eighth_has_a_sample_for_each_block() {
    for (name, file) in folder("large") {
        let (_, eighth) = read(&file, 400).unwrap();
        let luma = match eighth.unwrap() {
            Eighth::Gray(plane) => plane,
            Eighth::YCbCr([luma, blue, red]) => {
                assert_eq!((blue.width, blue.height), (red.width, red.height), "{name}");
                assert!(blue.width == luma.width || blue.width == luma.width.div_ceil(2), "{name}");
                assert_eq!(blue.samples.len(), (blue.width * blue.height) as usize, "{name}");
                luma
            }
        };
        assert_eq!((luma.width, luma.height, luma.samples.len()), (401, 4, 401 * 4), "{name}");
        assert_eq!(read(&file, 401).unwrap().1, None, "{name}: its longer side is 3201, of which an eighth is 400");
    }
}

#[test]
fn colors_are_those_of_jfif() {
    assert_eq!(ycbcr_to_rgb(128, 128, 128), [128; 3]);
    // Red, green and blue in JFIF 1.02.
    assert_eq!(ycbcr_to_rgb(76, 85, 255), [254, 0, 0]);
    assert_eq!(ycbcr_to_rgb(150, 44, 21), [0, 255, 1]);
    assert_eq!(ycbcr_to_rgb(29, 255, 107), [0, 0, 254]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_never_panic(
        whole in prop::sample::select(folder("corpus").into_iter().map(|(_, file)| file).collect::<Vec<_>>()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut file = whole;
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] ^= byte;
        }
        let _ = read(&file, 1);
    }
}
