//! Generated videos: valid MP4 files whose frames are arbitrary bytes.

#![allow(dead_code, reason = "each test uses only a part")]

/// The content of a video.
#[derive(Clone, Copy, Debug)]
pub struct VideoSpec {
    /// In pixels, before the rotation.
    pub width: u16,
    /// In pixels, before the rotation.
    pub height: u16,
    pub duration_ms: u32,
    pub frames: u32,
    /// The number of bytes of all frames together.
    pub data: usize,
    /// Whether the index (`moov`) comes before the frames (`mdat`).
    pub index_first: bool,
    /// Clockwise, in degrees: 0, 90, 180 or 270.
    pub rotation: i32,
}

impl Default for VideoSpec {
    fn default() -> Self {
        Self { width: 720, height: 1_280, duration_ms: 5_000, frames: 150, data: 2_000, index_first: true, rotation: 0 }
    }
}

/// The number of frames in a chunk, so that a video has several chunks.
const FRAMES_PER_CHUNK: u32 = 40;
/// 1.0 as a fixed-point number with 16 bits after the point.
const ONE: i32 = 1 << 16;

/// Returns an MP4 file with one track of H.264 and no sound. Equal specifications produce equal files.
pub fn mp4(spec: VideoSpec) -> Vec<u8> {
    let head = atom(b"ftyp", &[&b"isom"[..], &512_u32.to_be_bytes(), b"isom", b"iso2", b"avc1", b"mp41"].concat());
    let frames = atom(b"mdat", &(0..spec.data).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    // The offsets in the index do not change its size.
    let index_size = if spec.index_first { moov(spec, 0).len() } else { 0 };
    let index = moov(spec, (head.len() + index_size + 8) as u32);
    match spec.index_first {
        true => [head, index, frames].concat(),
        false => [head, frames, index].concat(),
    }
}

/// The number of bytes that `tests/support/programs/cover` returns.
pub const COVER_BYTES: usize = 2_000;

/// Returns a video whose last [`COVER_BYTES`] are these bytes and zeros, for `tests/support/programs/cover`.
pub fn mp4_ending_with(end: &[u8]) -> Vec<u8> {
    let mut video = mp4(VideoSpec { data: COVER_BYTES, ..VideoSpec::default() });
    let start = video.len() - COVER_BYTES;
    video[start..].fill(0);
    video[start..start + end.len()].copy_from_slice(end);
    video
}

/// Returns the index. `at`: the offset of the first frame in the file.
fn moov(spec: VideoSpec, at: u32) -> Vec<u8> {
    let movie = full(
        b"mvhd",
        0,
        &words(&[0, 0, 1_000, spec.duration_ms, ONE as u32, 0x0100_0000, 0, 0])
            .into_iter()
            .chain(matrix(VideoSpec { rotation: 0, ..spec }))
            .chain([0; 24])
            .chain(words(&[2]))
            .collect::<Vec<_>>(),
    );
    let track = [track_header(spec), atom(b"mdia", &media(spec, at))].concat();
    atom(b"moov", &[movie, atom(b"trak", &track)].concat())
}

fn track_header(spec: VideoSpec) -> Vec<u8> {
    let sides = [spec.width, spec.height].map(|side| u32::from(side) << 16);
    // The track is enabled, and part of the movie.
    let content = [words(&[0, 0, 1, 0, spec.duration_ms, 0, 0, 0, 0]), matrix(spec), words(&sides)];
    full(b"tkhd", 3, &content.concat())
}

/// Returns the matrix that rotates the frames and moves them back to the origin.
fn matrix(VideoSpec { width, height, rotation, .. }: VideoSpec) -> Vec<u8> {
    let (width, height) = (i32::from(width) << 16, i32::from(height) << 16);
    let [a, b, c, d, x, y] = match rotation {
        90 => [0, ONE, -ONE, 0, height, 0],
        180 => [-ONE, 0, 0, -ONE, width, height],
        270 => [0, -ONE, ONE, 0, 0, width],
        _ => [ONE, 0, 0, ONE, 0, 0],
    };
    words(&[a, b, 0, c, d, 0, x, y, 1 << 30].map(|number| number as u32))
}

fn media(spec: VideoSpec, at: u32) -> Vec<u8> {
    // The language is `und`.
    let header = full(b"mdhd", 0, &words(&[0, 0, 1_000, spec.duration_ms, 0x55c4_0000]));
    let handler = full(b"hdlr", 0, &[words(&[0]), b"vide".to_vec(), vec![0; 12], b"video\0".to_vec()].concat());
    let reference = full(b"dref", 0, &[words(&[1]), full(b"url ", 1, &[])].concat());
    let information = [full(b"vmhd", 1, &[0; 8]), atom(b"dinf", &reference), atom(b"stbl", &tables(spec, at))];
    [header, handler, atom(b"minf", &information.concat())].concat()
}

/// Returns the tables that describe each frame.
fn tables(spec: VideoSpec, at: u32) -> Vec<u8> {
    let frames = spec.frames;
    let description = full(b"stsd", 0, &[words(&[1]), avc1(spec)].concat());
    // The rest of the duration is divided among the first frames.
    let (each, rest) = (spec.duration_ms.checked_div(frames).unwrap_or(0), spec.duration_ms.checked_rem(frames));
    let rest = rest.unwrap_or(0);
    let times: Vec<[u32; 2]> =
        [[rest, each + 1], [frames - rest, each]].into_iter().filter(|[count, _]| *count > 0).collect();
    let times = [words(&[times.len() as u32]), words(times.as_flattened())].concat();
    let sizes: Vec<u32> = (0..spec.frames).map(|frame| size_of_frame(spec, frame)).collect();
    let mut offset = at;
    let mut offsets = Vec::new();
    for chunk in sizes.chunks(FRAMES_PER_CHUNK as usize) {
        offsets.push(offset);
        offset += chunk.iter().sum::<u32>();
    }
    let last = frames % FRAMES_PER_CHUNK;
    let mut chunks = Vec::new();
    if frames >= FRAMES_PER_CHUNK {
        chunks.push([1, FRAMES_PER_CHUNK, 1]);
    }
    if last > 0 {
        chunks.push([frames / FRAMES_PER_CHUNK + 1, last, 1]);
    }
    let chunks = [words(&[chunks.len() as u32]), words(chunks.as_flattened())].concat();
    [
        description,
        full(b"stts", 0, &times),
        full(b"stsc", 0, &chunks),
        full(b"stsz", 0, &[words(&[0, frames]), words(&sizes)].concat()),
        full(b"stco", 0, &[words(&[offsets.len() as u32]), words(&offsets)].concat()),
    ]
    .concat()
}

/// Returns the size of a frame. The rest of the bytes is divided among the first frames.
fn size_of_frame(spec: VideoSpec, frame: u32) -> u32 {
    let data = spec.data as u32;
    data / spec.frames + u32::from(frame < data % spec.frames)
}

/// Returns the description of the codec, with a parameter set of the baseline profile.
fn avc1(spec: VideoSpec) -> Vec<u8> {
    const SEQUENCE: &[u8] = &[0x67, 0x42, 0xc0, 0x1e, 0xd9, 0x00, 0xa0, 0x47, 0xfe, 0xc8];
    const PICTURE: &[u8] = &[0x68, 0xce, 0x3c, 0x80];
    let mut configuration = vec![1, 0x42, 0xc0, 0x1e, 0xff, 0xe1, 0, SEQUENCE.len() as u8];
    configuration.extend_from_slice(SEQUENCE);
    configuration.extend_from_slice(&[1, 0, PICTURE.len() as u8]);
    configuration.extend_from_slice(PICTURE);
    let content = [
        // Reserved, and the number of the data reference.
        vec![0, 0, 0, 0, 0, 0, 0, 1],
        vec![0; 16],
        [spec.width.to_be_bytes(), spec.height.to_be_bytes()].concat(),
        // 72 dots per inch, and one frame per sample.
        words(&[0x0048_0000, 0x0048_0000, 0]),
        vec![0, 1],
        vec![0; 32],
        vec![0, 24, 0xff, 0xff],
        atom(b"avcC", &configuration),
    ];
    atom(b"avc1", &content.concat())
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn atom(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32 + 8).to_be_bytes()[..], name, content].concat()
}

/// Returns an atom with a version, which is 0, and flags.
fn full(name: &[u8; 4], flags: u32, content: &[u8]) -> Vec<u8> {
    atom(name, &[&flags.to_be_bytes(), content].concat())
}
