//! Serves an MP4 or MOV file with its index before its frames, although it is stored after them. Some platforms accept
//! only such files. Nothing is encoded or stored again: the index moves, and the positions in it are corrected.
//!
//! ```text
//!  stored:   ftyp │ frames … │ moov │ rest
//!  served:   ftyp │ moov │ frames … │ rest        (ftyp and moov are the head; the others are segments of the stored file)
//! ```
//! Both have the same size.

use std::io::{BufRead, Seek};
use std::ops::Range;

use crier_domain::media::VideoType;

use super::boxes::{self, FileBox, Kind, children, word};
use super::mp4::{MAX_INDEX, no_index};
use super::{Rejection, damaged, first_bytes, sniff};

/// Maximum size of the box that names the type, in bytes.
const MAX_TYPE: u64 = 4 << 10;
/// Boxes whose positions are not corrected here (of items, encryption and fragments), and a compressed index.
const NOT_MOVABLE: [&Kind; 4] = [b"iloc", b"saio", b"mvex", b"cmov"];

/// How to serve a file with its index first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faststart {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The parts of the stored file that follow, in this order.
    pub segments: Vec<Range<u64>>,
    /// The size of the whole, in bytes.
    pub size: u64,
}

/// A part of a served range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// These bytes.
    Head(&'a [u8]),
    /// These bytes of the stored file.
    Stored(Range<u64>),
}

/// Plans how to serve a file with its index first. `None`: serve it as it is stored, because the index is first, the file
/// has no index that can move, or a corrected position is too large for its field.
pub fn plan(source: &mut (impl BufRead + Seek + ?Sized), size: u64) -> Result<Option<Faststart>, Rejection> {
    if !matches!(sniff(&first_bytes(source)?), Some(VideoType::Mp4 | VideoType::Mov)) {
        return Ok(None);
    }
    let found = boxes::of_file(source, size)?;
    let index = boxes::only(&found, b"moov")?.ok_or_else(no_index)?;
    let Some(head) = found.first().filter(|head| head.end <= MAX_TYPE && head.end <= index.start) else {
        return Ok(None);
    };
    let is_after_frames = found.iter().any(|found| found.kind == *b"mdat" && found.start < index.start);
    // Positions in these would become wrong.
    let is_movable = !found.iter().any(|found| matches!(&found.kind, b"moof" | b"mfra" | b"meta"));
    if !is_after_frames || !is_movable {
        return Ok(None);
    }
    let mut moved = boxes::read(source, index.start, index.end, MAX_INDEX)?;
    if NOT_MOVABLE.iter().any(|kind| moved.windows(4).any(|window| window == *kind))
        || !correct(&mut moved, head, &index)?
    {
        return Ok(None);
    }
    let mut bytes = boxes::read(source, 0, head.end, MAX_TYPE)?;
    bytes.append(&mut moved);
    let segments = [head.end..index.start, index.end..size].into_iter().filter(|segment| !segment.is_empty()).collect();
    Ok(Some(Faststart { head: bytes, segments, size }))
}

/// Corrects the index for its new place. Returns false if that is impossible.
fn correct(moved: &mut [u8], head: &FileBox, index: &FileBox) -> Result<bool, Rejection> {
    // A size of 0 means that the box ends with the file.
    if let Some(size) = moved.first_chunk_mut::<4>()
        && *size == [0; 4]
    {
        *size = u32::try_from(index.end - index.start).map_err(|_| damaged())?.to_be_bytes();
    }
    let header = usize::try_from(index.body - index.start).map_err(|_| damaged())?;
    let mut tables = Vec::new();
    find_tables(moved.get(header..).unwrap_or_default(), header, &TABLES, &mut tables)?;
    let by = index.end - index.start;
    for table in &tables {
        let bytes = moved.get_mut(table.entries.clone()).ok_or_else(damaged)?;
        for entry in bytes.chunks_exact_mut(table.width) {
            let position = entry.iter().fold(0, |position, byte| position << 8 | u64::from(*byte));
            let corrected = match position {
                // A position in the head or the index cannot be that of a frame.
                _ if position < head.end || (index.start..index.end).contains(&position) => return Ok(false),
                _ if position < index.start => position + by,
                _ => position,
            };
            let bytes = corrected.to_be_bytes();
            let (unused, bytes) = bytes.split_at(8 - table.width);
            if unused.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            entry.copy_from_slice(bytes);
        }
    }
    Ok(!tables.is_empty())
}

/// The path of the tables of positions in the index.
const TABLES: [&Kind; 4] = [b"trak", b"mdia", b"minf", b"stbl"];

/// A table of positions of frames in the file.
struct Table {
    /// The place of the entries in the index.
    entries: Range<usize>,
    /// The size of an entry, in bytes: 4 or 8.
    width: usize,
}

/// Adds the tables in a box whose content begins at `at` of the index. The depth is that of `path`.
fn find_tables(parent: &[u8], at: usize, path: &[&Kind], tables: &mut Vec<Table>) -> Result<(), Rejection> {
    for child in children(parent) {
        let child = child?;
        let body_at = at + child.at;
        match path.split_first() {
            Some((kind, rest)) if child.kind == **kind => find_tables(child.body, body_at, rest, tables)?,
            None if matches!(&child.kind, b"stco" | b"co64") => {
                let width = if child.kind == *b"stco" { 4 } else { 8 };
                let count = usize::try_from(word(child.body, 4)?).map_err(|_| damaged())?;
                let entries = child.body.get(8..).unwrap_or_default();
                if entries.len() / width < count {
                    return Err(damaged());
                }
                let start = body_at + 8;
                tables.push(Table { entries: start..start + count * width, width });
            }
            _ => {}
        }
    }
    Ok(())
}

impl Faststart {
    /// Returns the parts of a range of the served file, in their order. The range is limited to the size.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Part<'_>> {
        let head_size = self.head.len() as u64;
        let head = overlap(&range, &(0..head_size)).and_then(|part| {
            let (start, end) = (usize::try_from(part.start).ok()?, usize::try_from(part.end).ok()?);
            Some(Part::Head(self.head.get(start..end)?))
        });
        let mut next = head_size;
        let stored = self.segments.iter().filter_map(move |segment| {
            let start = next;
            next += segment.end.saturating_sub(segment.start);
            let part = overlap(&range, &(start..next))?;
            Some(Part::Stored(segment.start + (part.start - start)..segment.start + (part.end - start)))
        });
        head.into_iter().chain(stored)
    }
}

/// Returns what two ranges have in common, if it is not empty.
fn overlap(a: &Range<u64>, b: &Range<u64>) -> Option<Range<u64>> {
    let common = a.start.max(b.start)..a.end.min(b.end);
    (!common.is_empty()).then_some(common)
}
