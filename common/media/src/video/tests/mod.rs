//! Tests with videos of other encoders (`tests/videos/corpus`), with arbitrary bytes and with hostile files.

use std::io::{BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use crier_domain::media::{VideoProperties, VideoType};

use super::{Found, ProbedVideo, Rejection, SNIFFED, check, probe, sniff};

mod corpus;
mod faststart;
mod hostile;
mod properties;

/// Returns a file of the corpus.
fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/videos/corpus");
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn probed(bytes: &[u8]) -> Result<ProbedVideo, Rejection> {
    probe(&mut Cursor::new(bytes), bytes.len() as u64)
}

fn atom(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len() + 8).unwrap();
    [&size.to_be_bytes()[..], kind, content].concat()
}

/// Returns a box with a size of 64 bits.
fn large_atom(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let size = content.len() as u64 + 16;
    [&1_u32.to_be_bytes()[..], kind, &size.to_be_bytes(), content].concat()
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// Returns where these bytes first are.
fn place(bytes: &[u8], of: &[u8]) -> usize {
    bytes.windows(of.len()).position(|window| window == of).unwrap_or_else(|| panic!("there is no {of:?}"))
}

/// Returns a copy with other bytes at `offset` from the end of the first `name`.
fn with(bytes: &[u8], name: &[u8], offset: usize, new: &[u8]) -> Vec<u8> {
    let at = place(bytes, name) + name.len() + offset;
    [&bytes[..at], new, &bytes[at + new.len()..]].concat()
}

/// Returns the boxes of a file that are in no other box, with their headers.
fn atoms(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let Some(size) = bytes.first_chunk() {
        let (first, rest) = bytes.split_at(u32::from_be_bytes(*size) as usize);
        found.push(first);
        bytes = rest;
    }
    found
}

/// A large file that consists of zeros, except at some places.
struct Sparse {
    size: u64,
    at: u64,
    parts: Vec<(u64, Vec<u8>)>,
}

impl Sparse {
    fn reader(size: u64, parts: Vec<(u64, Vec<u8>)>) -> BufReader<Self> {
        BufReader::new(Self { size, at: 0, parts })
    }
}

impl Read for Sparse {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = (buffer.len() as u64).min(self.size.saturating_sub(self.at)) as usize;
        for (at, byte) in (self.at..).zip(&mut buffer[..length]) {
            let part = self.parts.iter().find(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&at));
            *byte = part.map_or(0, |(start, bytes)| bytes[(at - start) as usize]);
        }
        self.at += length as u64;
        Ok(length)
    }
}

impl Seek for Sparse {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self.at.checked_add_signed(by).ok_or(std::io::ErrorKind::InvalidInput)?,
            SeekFrom::End(by) => self.size.checked_add_signed(by).ok_or(std::io::ErrorKind::InvalidInput)?,
        };
        Ok(self.at)
    }
}

#[test]
fn absurd_frame_rates_are_unknown() {
    for (rate, expected) in [
        (Some(0.000_4), None),
        (Some(0.001), Some(0.001)),
        (Some(1_000.0), Some(1_000.0)),
        (Some(1_000.1), None),
        (Some(f64::INFINITY), None),
        (Some(f64::NAN), None),
        (Some(-30.0), None),
        (None, None),
    ] {
        let found = Found {
            width: 16,
            height: 9,
            pixel: (1, 1),
            rotation: 0,
            duration_ms: 1,
            frame_rate: rate,
            video_codec: "h264".to_owned(),
            audio_codec: None,
            index_first: true,
        };
        let checked = check(VideoType::Mp4, found).unwrap();
        assert_eq!(checked.properties.frame_rate, expected, "{rate:?}");
    }
}
