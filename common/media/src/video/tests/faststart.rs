//! The index of a served file is first, and finds the same samples as that of the stored file.

use mp4_atom::{Decode, Moov, Stbl, StszSamples};
use proptest::prelude::*;

use super::super::faststart::{Faststart, Part, plan};
use super::*;

fn planned(bytes: &[u8]) -> Option<Faststart> {
    plan(&mut Cursor::new(bytes), bytes.len() as u64).unwrap()
}

/// Returns a range of the served file.
fn served(plan: &Faststart, stored: &[u8], range: std::ops::Range<u64>) -> Vec<u8> {
    let part = |part: Part<'_>| match part {
        Part::Head(bytes) => bytes.to_vec(),
        Part::Stored(range) => stored[range.start as usize..range.end as usize].to_vec(),
    };
    plan.parts(range).flat_map(part).collect()
}

/// Returns all samples of a file, by a reader that has nothing to do with ours.
fn samples(bytes: &[u8]) -> Vec<Vec<u8>> {
    let index = atoms(bytes).into_iter().find(|atom| atom.get(4..8) == Some(b"moov".as_slice())).unwrap();
    let movie = Moov::decode(&mut &*index).unwrap();
    movie.trak.iter().flat_map(|track| samples_of(&track.mdia.minf.stbl, bytes)).collect()
}

fn samples_of(tables: &Stbl, bytes: &[u8]) -> Vec<Vec<u8>> {
    let offsets: Vec<u64> = match (&tables.stco, &tables.co64) {
        (Some(short), _) => short.entries.iter().map(|offset| u64::from(*offset)).collect(),
        (None, long) => long.as_ref().unwrap().entries.clone(),
    };
    let mut sizes = match &tables.stsz.samples {
        StszSamples::Identical { count, size } => vec![*size; *count as usize],
        StszSamples::Different { sizes } => sizes.clone(),
    }
    .into_iter();
    let mut found = Vec::new();
    for (chunk, offset) in (1..).zip(offsets) {
        let mut rows = tables.stsc.entries.iter();
        let count = rows.rfind(|row| row.first_chunk <= chunk).unwrap().samples_per_chunk;
        let mut at = offset as usize;
        for size in sizes.by_ref().take(count as usize) {
            found.push(bytes[at..at + size as usize].to_vec());
            at += size as usize;
        }
    }
    assert_eq!(sizes.next(), None);
    found
}

#[test]
fn the_served_file_has_the_same_samples_behind_its_index() {
    for name in ["h264-aac-index-last.mp4", "hevc.mp4", "rotated-90.mov", "mpeg4-mp3.mov", "prores.mov"] {
        let stored = file(name);
        let plan = planned(&stored).unwrap_or_else(|| panic!("{name} has no plan"));
        let whole = served(&plan, &stored, 0..plan.size);
        assert_eq!(whole.len(), stored.len(), "{name}");
        assert_eq!(samples(&whole), samples(&stored), "{name}");
        let (stored, whole) = (probed(&stored).unwrap(), probed(&whole).unwrap());
        assert!(!stored.properties.index_first && whole.properties.index_first, "{name}");
        let index_first = VideoProperties { index_first: true, ..stored.properties };
        assert_eq!(whole, ProbedVideo { properties: index_first, ..stored }, "{name}");
    }
}

#[test]
fn other_files_are_served_as_they_are_stored() {
    for name in ["h264-aac-index-first.mp4", "fragmented.mp4", "vp9-opus.webm", "matroska.mkv"] {
        assert_eq!(planned(&file(name)), None, "{name}");
    }
    let whole = file("h264-aac-index-last.mp4");
    // Positions that are not corrected, before and in the index.
    assert_eq!(planned(&[&whole[..32], &atom(b"meta", &[0; 8]), &whole[32..]].concat()), None);
    assert_eq!(planned(&with(&whole, b"udta", 0, b"\0\0\0\x08saio")), None);
    // A chunk in the index.
    assert_eq!(planned(&with(&whole, b"stco", 8, &words(&[whole.len() as u32 - 9]))), None);
}

#[test]
fn a_planned_file_is_planned_only_once() {
    let stored = file("h264-aac-index-last.mp4");
    let plan = planned(&stored).unwrap();
    assert_eq!(planned(&served(&plan, &stored, 0..plan.size)), None);
}

#[test]
fn wrong_tables_are_rejected() {
    let whole = with(&file("h264-aac-index-last.mp4"), b"stco", 4, &[0xff; 4]);
    assert!(plan(&mut Cursor::new(&whole), whole.len() as u64).is_err());
}

/// Returns an index with one track. Its samples are chunks of their own, at these offsets.
fn index(offsets: &[u64], sizes: &[u32], is_long: bool) -> Vec<u8> {
    let count = sizes.len() as u32;
    let table = match is_long {
        true => {
            let entries: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_be_bytes()).collect();
            atom(b"co64", &[words(&[0, count]), entries].concat())
        }
        false => {
            let entries: Vec<u32> = offsets.iter().map(|offset| u32::try_from(*offset).unwrap()).collect();
            atom(b"stco", &[words(&[0, count]), words(&entries)].concat())
        }
    };
    let tables = [
        atom(b"stsz", &[words(&[0, 0, count]), words(sizes)].concat()),
        atom(b"stsc", &words(&[0, 1, 1, 1, 1])),
        table,
    ];
    [b"stbl", b"minf", b"mdia", b"trak", b"moov"].into_iter().fold(tables.concat(), |inner, kind| atom(kind, &inner))
}

/// Returns the chunks of a file with an index of [`index`].
fn chunks(bytes: &[u8], sizes: &[u32], is_long: bool) -> Vec<Vec<u8>> {
    let (name, width) = if is_long { (b"co64", 8) } else { (b"stco", 4) };
    let entries = &bytes[place(bytes, name) + 12..][..sizes.len() * width];
    let offsets = entries.chunks(width).map(|entry| entry.iter().fold(0, |all, byte| all << 8 | usize::from(*byte)));
    offsets.zip(sizes).map(|(at, size)| bytes[at..at + *size as usize].to_vec()).collect()
}

/// A file with its index behind its frames.
#[derive(Debug)]
struct Stored {
    bytes: Vec<u8>,
    sizes: Vec<u32>,
    is_long: bool,
}

fn any_stored() -> impl Strategy<Value = Stored> {
    let chunks = prop::collection::vec(prop::collection::vec(128..=255_u8, 1..30), 1..20);
    (chunks, 0..40_usize, 0..40_usize, any::<[bool; 4]>()).prop_map(|(chunks, before, after, flags)| {
        let [is_long, is_large, has_frames_behind, is_endless] = flags;
        let head = [atom(b"ftyp", b"isom\0\0\0\0isom"), atom(b"free", &vec![0; before])].concat();
        let front = if has_frames_behind { chunks.len() / 2 } else { chunks.len() };
        let sizes: Vec<u32> = chunks.iter().map(|chunk| chunk.len() as u32).collect();
        let data = |part: &[Vec<u8>]| {
            if is_large { large_atom(b"mdat", &part.concat()) } else { atom(b"mdat", &part.concat()) }
        };
        let header = if is_large { 16 } else { 8 };
        let (first, second) = (data(&chunks[..front]), data(&chunks[front..]));
        let index_size = index(&vec![0; sizes.len()], &sizes, is_long).len();
        let mut offsets = Vec::new();
        let mut at = head.len() + header;
        for (number, size) in sizes.iter().enumerate() {
            if number == front {
                at += index_size + header;
            }
            offsets.push(at as u64);
            at += *size as usize;
        }
        let mut moved = index(&offsets, &sizes, is_long);
        let tail = match (has_frames_behind, is_endless) {
            (true, _) => [second, atom(b"free", &vec![0; after])].concat(),
            (false, true) => {
                // The index is the rest of the file.
                moved[..4].fill(0);
                Vec::new()
            }
            (false, false) => atom(b"free", &vec![0; after]),
        };
        Stored { bytes: [head, first, moved, tail].concat(), sizes, is_long }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chunks_are_found_at_their_corrected_positions(stored in any_stored()) {
        let Stored { bytes, sizes, is_long } = stored;
        let plan = planned(&bytes).expect("the index can move");
        let whole = served(&plan, &bytes, 0..plan.size);
        prop_assert_eq!(whole.len(), bytes.len());
        prop_assert_eq!(chunks(&whole, &sizes, is_long), chunks(&bytes, &sizes, is_long));
        prop_assert_eq!(place(&whole, b"moov"), 24);
    }

    #[test]
    fn ranges_make_up_the_whole(stored in any_stored(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let plan = planned(&stored.bytes).expect("the index can move");
        let whole = served(&plan, &stored.bytes, 0..plan.size);
        let mut cuts: Vec<u64> = cuts.iter().map(|cut| cut.index(whole.len() + 1) as u64).collect();
        cuts.extend([0, plan.size]);
        cuts.sort_unstable();
        let parts: Vec<u8> =
            cuts.windows(2).flat_map(|pair| served(&plan, &stored.bytes, pair[0]..pair[1])).collect();
        prop_assert_eq!(parts, whole);
        prop_assert_eq!(plan.parts(plan.size..u64::MAX).count(), 0);
    }
}

/// Returns the parts of a file of more than 4 GiB with one chunk, and its size.
fn large_file(chunk: u64, is_long: bool) -> (u64, Vec<(u64, Vec<u8>)>) {
    let head = [atom(b"ftyp", b"isom\0\0\0\0isom"), b"\0\0\0\x01mdat".to_vec(), (4_u64 << 30).to_be_bytes().to_vec()];
    let index = index(&[chunk], &[1], is_long);
    let at = 20 + (4 << 30);
    (at + index.len() as u64, vec![(0, head.concat()), (at, index)])
}

#[test]
fn a_position_that_needs_more_than_32_bits_leaves_the_file_as_it_is() {
    for (chunk, is_long, is_planned) in [
        (u64::from(u32::MAX), true, true),
        (u64::from(u32::MAX), false, false),
        (u64::from(u32::MAX) - 1_000, false, true),
    ] {
        let (size, parts) = large_file(chunk, is_long);
        let plan = plan(&mut Sparse::reader(size, parts), size).unwrap();
        assert_eq!(plan.is_some(), is_planned, "{chunk}, {is_long}");
    }
}
