//! The structure of MP4 and MOV files: boxes with a size and a kind, in the file and in other boxes.

use std::io::{BufRead, Read, Seek};

use super::{Rejection, damaged, seek_to, truncated};

/// Maximum number of top-level boxes. A file of 24 hours in fragments of 4 seconds has fewer.
const MAX_BOXES: usize = 1 << 16;
/// Size of a header with a size of 32 bits.
const HEADER: u64 = 8;
/// Size of a header with a size of 64 bits.
const LARGE_HEADER: u64 = 16;

pub type Kind = [u8; 4];

/// A top-level box. Its range is within the file.
#[derive(Clone, Copy, Debug)]
pub struct FileBox {
    pub kind: Kind,
    /// Where its header begins.
    pub start: u64,
    /// Where its content begins.
    pub body: u64,
    pub end: u64,
}

/// Returns the top-level boxes of a file in their order. Only their headers are read.
pub fn of_file(source: &mut (impl BufRead + Seek + ?Sized), size: u64) -> Result<Vec<FileBox>, Rejection> {
    seek_to(source, 0)?;
    let mut found = Vec::new();
    let mut start = 0;
    while start < size {
        if found.len() == MAX_BOXES {
            return Err(Rejection::Unsupported(format!(
                "The video has more than {MAX_BOXES} parts. Export it again without fragments."
            )));
        }
        let header = read_header(source, start, size)?;
        // A relative seek, because an absolute one discards the buffer of a buffered file.
        let rest = i64::try_from(header.end - header.body).map_err(|_| truncated())?;
        source.seek_relative(rest).map_err(|_| truncated())?;
        start = header.end;
        found.push(header);
    }
    Ok(found)
}

/// Reads the header of the box that begins at `start`.
fn read_header(source: &mut (impl BufRead + ?Sized), start: u64, file_size: u64) -> Result<FileBox, Rejection> {
    let mut header = [0; HEADER as usize];
    source.read_exact(&mut header).map_err(|_| truncated())?;
    let [a, b, c, d, kind @ ..] = header;
    let (size, header) = match u32::from_be_bytes([a, b, c, d]) {
        0 => (file_size - start, HEADER),
        1 => {
            let mut size = [0; 8];
            source.read_exact(&mut size).map_err(|_| truncated())?;
            (u64::from_be_bytes(size), LARGE_HEADER)
        }
        size => (size.into(), HEADER),
    };
    if size < header {
        return Err(damaged());
    }
    let end = start.checked_add(size).filter(|end| *end <= file_size).ok_or_else(truncated)?;
    Ok(FileBox { kind, start, body: start + header, end })
}

/// Returns the only box of a kind. Fails if there are several.
pub fn only(boxes: &[FileBox], kind: &Kind) -> Result<Option<FileBox>, Rejection> {
    let mut found = boxes.iter().filter(|found| found.kind == *kind);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(damaged()),
        (first, None) => Ok(first.copied()),
    }
}

/// Reads a part of the file. The memory grows with the bytes that are there.
pub fn read(source: &mut (impl BufRead + Seek + ?Sized), start: u64, end: u64, max: u64) -> Result<Vec<u8>, Rejection> {
    let size = end.saturating_sub(start);
    if size > max {
        return Err(Rejection::TooLarge(format!(
            "The index of the video is larger than {} MiB. Export the video again, or shorten it.",
            max >> 20
        )));
    }
    seek_to(source, start)?;
    let mut bytes = Vec::new();
    source.take(size).read_to_end(&mut bytes).map_err(|_| truncated())?;
    match bytes.len() as u64 == size {
        true => Ok(bytes),
        false => Err(truncated()),
    }
}

/// A box in another one.
#[derive(Clone, Copy, Debug)]
pub struct ChildBox<'a> {
    pub kind: Kind,
    pub body: &'a [u8],
    /// Where the content begins in that of the other box.
    pub at: usize,
}

/// The boxes in another one. The iterator ends after an error.
#[derive(Clone, Debug)]
pub struct Children<'a> {
    parent: &'a [u8],
    at: usize,
}

/// Returns the boxes in the content of another one.
pub fn children(parent: &[u8]) -> Children<'_> {
    Children { parent, at: 0 }
}

impl<'a> Iterator for Children<'a> {
    type Item = Result<ChildBox<'a>, Rejection>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.parent.get(self.at..).unwrap_or_default();
        // QuickTime ends some boxes with 4 zeros.
        if rest.len() < HEADER as usize {
            return None;
        }
        let Some((kind, header, size)) = child_header(rest) else {
            self.at = self.parent.len();
            return Some(Err(damaged()));
        };
        let child = ChildBox { kind, body: rest.get(header..size).unwrap_or_default(), at: self.at + header };
        self.at += size;
        Some(Ok(child))
    }
}

/// Returns the kind, the size of the header, and the size of the first box in `bytes`. `None` if it is not within them.
fn child_header(bytes: &[u8]) -> Option<(Kind, usize, usize)> {
    let kind = *bytes.get(4..)?.first_chunk()?;
    let (header, size) = match u32::from_be_bytes(*bytes.first_chunk()?) {
        0 => (HEADER, bytes.len() as u64),
        1 => (LARGE_HEADER, u64::from_be_bytes(*bytes.get(8..)?.first_chunk()?)),
        size => (HEADER, size.into()),
    };
    let (header, size) = (usize::try_from(header).ok()?, usize::try_from(size).ok()?);
    (header <= size && size <= bytes.len()).then_some((kind, header, size))
}

/// Returns the content of the first box of a kind.
pub fn find<'a>(parent: &'a [u8], kind: &Kind) -> Result<Option<&'a [u8]>, Rejection> {
    for child in children(parent) {
        let child = child?;
        if child.kind == *kind {
            return Ok(Some(child.body));
        }
    }
    Ok(None)
}

/// Returns the content of the box at a path: the first box of each kind, inside the one before. Fails if there is none.
pub fn at_path<'a>(parent: &'a [u8], path: &[&Kind]) -> Result<&'a [u8], Rejection> {
    path.iter().try_fold(parent, |parent, kind| find(parent, kind)?.ok_or_else(damaged))
}

/// Returns 4 bytes as a number.
pub fn word(bytes: &[u8], at: usize) -> Result<u32, Rejection> {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map(|word| u32::from_be_bytes(*word)).ok_or_else(damaged)
}
