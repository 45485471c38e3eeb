//! Videos of any size that need little memory: a valid MP4 header, followed by zeros as the frames.

use bytes::Bytes;

/// The size of the pieces of a body, in bytes. The zeros of all bodies are in the same memory.
const PIECE: usize = 1 << 20;
const WIDTH: u32 = 720;
const HEIGHT: u32 = 1_280;
const FRAMES: u32 = 600;
const DURATION_MS: u32 = 20_000;
/// 1.0 as a fixed-point number with 16 bits after the point.
const ONE: u32 = 1 << 16;
/// The configuration of an H.264 decoder, with a parameter set of the baseline profile.
const CODEC: [u8; 25] = [
    1, 0x42, 0xc0, 0x1e, 0xff, 0xe1, 0, 10, 0x67, 0x42, 0xc0, 0x1e, 0xd9, 0, 0xa0, 0x47, 0xfe, 0xc8, 1, 0, 4, 0x68,
    0xce, 0x3c, 0x80,
];

/// Videos of one size.
pub struct Videos {
    pub count: u32,
    mib: u32,
    zeros: Bytes,
}

impl Videos {
    pub fn new(count: u32, mib: u32) -> Self {
        Self { count, mib, zeros: vec![0_u8; PIECE].into() }
    }

    /// Returns the size of each video in bytes.
    pub fn size(&self) -> u64 {
        u64::from(self.mib) << 20
    }

    /// Returns a video in pieces. Another seed makes a different file.
    pub fn pieces(&self, seed: u64) -> Vec<Bytes> {
        let head = head(u32::try_from(self.size()).unwrap_or(u32::MAX), seed);
        let mut left = usize::try_from(self.size()).unwrap_or(usize::MAX).saturating_sub(head.len());
        let mut pieces = vec![Bytes::from(head)];
        while left > 0 {
            let length = left.min(PIECE);
            pieces.push(self.zeros.slice(..length));
            left -= length;
        }
        pieces
    }
}

/// Returns everything before the frames of a video with this size, and its first eight bytes of frames.
fn head(size: u32, seed: u64) -> Vec<u8> {
    let brands = [b"isom".to_vec(), words(&[512]), b"isomiso2avc1mp41".to_vec()];
    let kind = atom(b"ftyp", &brands);
    // The numbers in the index do not change its size.
    let before = kind.len() + index(0, 0).len() + 8;
    let before = u32::try_from(before).unwrap_or(u32::MAX);
    let data = size.saturating_sub(before);
    let frames = [words(&[data + 8]), b"mdat".to_vec(), seed.to_be_bytes().to_vec()].concat();
    [kind, index(before, data / FRAMES), frames].concat()
}

/// Returns the index of a file whose frames begin at an offset and have the same size.
fn index(offset: u32, frame_size: u32) -> Vec<u8> {
    let matrix = words(&[ONE, 0, 0, 0, ONE, 0, 0, 0, 1 << 30]);
    let movie = words(&[0, 0, 0, 1_000, DURATION_MS, ONE, 0x0100_0000, 0, 0]);
    let movie = atom(b"mvhd", &[movie, matrix.clone(), vec![0; 24], words(&[2])]);
    let track = words(&[3, 0, 0, 1, 0, DURATION_MS, 0, 0, 0, 0]);
    let track = atom(b"tkhd", &[track, matrix, words(&[WIDTH << 16, HEIGHT << 16])]);
    let reference = atom(b"dref", &[words(&[0, 1]), atom(b"url ", &[words(&[1])])]);
    let information =
        [atom(b"vmhd", &[words(&[1, 0, 0])]), atom(b"dinf", &[reference]), atom(b"stbl", &tables(offset, frame_size))];
    let media = [
        atom(b"mdhd", &[words(&[0, 0, 0, 1_000, DURATION_MS, 0x55c4_0000])]),
        atom(b"hdlr", &[words(&[0, 0]), b"vide".to_vec(), vec![0; 12], b"video\0".to_vec()]),
        atom(b"minf", &information),
    ];
    atom(b"moov", &[movie, atom(b"trak", &[track, atom(b"mdia", &media)])])
}

/// Returns the tables that describe the frames, which are in one chunk.
fn tables(offset: u32, frame_size: u32) -> Vec<Vec<u8>> {
    let picture = words(&[(WIDTH << 16) | HEIGHT, 0x0048_0000, 0x0048_0000, 0]);
    let entry = [
        words(&[0, 1]),
        vec![0; 16],
        picture,
        vec![0, 1],
        vec![0; 32],
        vec![0, 24, 0xff, 0xff],
        atom(b"avcC", &[CODEC.to_vec()]),
    ];
    vec![
        atom(b"stsd", &[words(&[0, 1]), atom(b"avc1", &entry)]),
        atom(b"stts", &[words(&[0, 1, FRAMES, DURATION_MS / FRAMES])]),
        atom(b"stsc", &[words(&[0, 1, 1, FRAMES, 1])]),
        atom(b"stsz", &[words(&[0, frame_size, FRAMES])]),
        atom(b"stco", &[words(&[0, 1, offset])]),
    ]
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn atom(kind: &[u8; 4], content: &[Vec<u8>]) -> Vec<u8> {
    let content = content.concat();
    let size = u32::try_from(content.len() + 8).unwrap_or(u32::MAX);
    [words(&[size]), kind.to_vec(), content].concat()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn videos_are_valid_and_differ() {
        let videos = Videos::new(2, 3);
        let [one, two] = [1, 2].map(|seed| -> Vec<u8> { videos.pieces(seed).into_iter().flatten().collect() });
        assert_eq!((one.len() as u64, two.len() as u64), (videos.size(), videos.size()));
        assert_ne!(one, two);
        let probed = crier_media::video::probe(&mut Cursor::new(one), videos.size()).unwrap();
        assert_eq!((probed.width, probed.height, probed.properties.duration_ms), (WIDTH, HEIGHT, 20_000));
    }
}
