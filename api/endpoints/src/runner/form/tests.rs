//! Any complete form is parsed correctly, however its bytes are split. Any other bytes are rejected with an error.

use std::convert::Infallible;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const MAX_BYTES: u64 = 4_096;

/// A part of a form as a client sends it.
#[derive(Clone, Debug)]
struct Part {
    name: String,
    file: Option<String>,
    content: Vec<u8>,
}

fn texts() -> impl Strategy<Value = Vec<Part>> {
    let part = ("[a-z_]{1,12}", r"\PC{0,40}").prop_filter("is no file", |(name, _)| name != FILE_PART);
    vec(part.prop_map(|(name, text)| Part { name, file: None, content: text.into_bytes() }), 0..6)
}

fn file() -> impl Strategy<Value = Part> {
    (r"[a-z]{1,8}\.png", vec(any::<u8>(), 0..3_000)).prop_map(|(name, content)| Part {
        name: FILE_PART.to_owned(),
        file: Some(name),
        content,
    })
}

fn serialize_form(parts: &[Part], boundary: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        let file = part.file.as_ref().map(|name| format!("; filename=\"{name}\"")).unwrap_or_default();
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"{file}\r\n\r\n", part.name);
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&part.content);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    out
}

/// Parses bytes that arrive in chunks whose lengths cycle through `pieces`.
fn read(bytes: &[u8], boundary: &str, pieces: &[usize]) -> Result<Form> {
    let (mut rest, mut chunks, mut lengths) = (bytes, Vec::new(), pieces.iter().cycle());
    while !rest.is_empty() {
        let length = lengths.next().copied().unwrap_or(rest.len()).clamp(1, rest.len());
        let (chunk, after) = rest.split_at(length);
        chunks.push(Ok::<_, Infallible>(Bytes::copy_from_slice(chunk)));
        rest = after;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime
        .block_on(async { receive(stream::iter(chunks), boundary.to_owned(), limits(), spools(1 << 20).await).await })
}

fn limits() -> FileLimits {
    FileLimits { max_bytes: MAX_BYTES, max_video_bytes: MAX_BYTES, remaining_bytes: None, storage_mib: None }
}

/// Returns the spools of a form of unknown size.
async fn spools(bytes: u64) -> FileSpools {
    let image = Some(Spools::new(bytes).open(1, 0).await.unwrap());
    FileSpools { image, videos: Spools::new(bytes), workspace_id: 1, form_bytes: None }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_complete_form_is_parsed(
        mut parts in texts(),
        file in proptest::option::of(file()),
        place in any::<prop::sample::Index>(),
        pieces in vec(1usize..200, 1..8),
    ) {
        if let Some(file) = &file {
            parts.insert(place.index(parts.len() + 1), file.clone());
        }
        let boundary = "a-boundary-that-stands-in-no-part";
        let form = read(&serialize_form(&parts, boundary), boundary, &pieces).unwrap();
        for part in parts.iter().filter(|part| part.file.is_none()) {
            let last = parts.iter().rev().find(|other| other.name == part.name).unwrap();
            prop_assert_eq!(form.texts[&part.name].as_str().unwrap().as_bytes(), &last.content[..]);
        }
        let got = form.file.map(|f| (f.name, f.bytes.bytes().unwrap().to_vec()));
        prop_assert_eq!(got, file.map(|f| (f.file, f.content)));
        // The digest does not depend on the boundary or the chunks.
        let same = read(&serialize_form(&parts, "another"), "another", &[4_096]).unwrap();
        prop_assert_eq!(same.digest, form.digest);
    }

    #[test]
    fn different_forms_have_different_digests(parts in texts(), file in file(), at in any::<prop::sample::Index>()) {
        let mut all = parts;
        all.push(file);
        let whole = read(&serialize_form(&all, "boundary"), "boundary", &[64]).unwrap().digest;
        let mut other = all.clone();
        let changed = at.index(other.len());
        other[changed].content.push(b'!');
        prop_assert_ne!(&read(&serialize_form(&other, "boundary"), "boundary", &[64]).unwrap().digest, &whole);
        other.remove(changed);
        prop_assert_ne!(&read(&serialize_form(&other, "boundary"), "boundary", &[64]).unwrap().digest, &whole);
    }

    #[test]
    fn a_truncated_form_is_rejected(parts in texts(), file in file(), cut in any::<prop::sample::Index>()) {
        let mut all = parts;
        all.push(file);
        let bytes = serialize_form(&all, "boundary");
        // The line break after the last boundary may be missing.
        let cut = cut.index(bytes.len() - "--\r\n".len());
        let error = read(&bytes[..cut], "boundary", &[64]).err().unwrap();
        prop_assert_eq!(error.code, ErrorCode::InvalidJson);
    }

    #[test]
    fn arbitrary_bytes_are_parsed_or_rejected(mut bytes in vec(any::<u8>(), 0..6_000), form in any::<bool>()) {
        if form {
            bytes.splice(0..0, *b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n");
            bytes.extend_from_slice(b"\r\n--b--\r\n");
        }
        match read(&bytes, "b", &[100, 1, 7]) {
            Ok(form) => prop_assert!(form.file.is_none_or(|f| f.bytes.size() <= MAX_BYTES)),
            Err(error) => prop_assert!(matches!(
                error.code,
                ErrorCode::InvalidJson | ErrorCode::PayloadTooLarge | ErrorCode::ValidationFailed
            )),
        }
    }
}

/// The first bytes of an MP4.
const VIDEO: &[u8] = b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2avc1mp41\0\0\0\x08free";

/// Returns a form with a file of `size` bytes that begins like a video, and a text part before or after it.
fn form_with_video(size: usize, before: Option<&str>, after: Option<&str>) -> Vec<u8> {
    let text = |text: &str| Part { name: TYPE_PART.to_owned(), file: None, content: text.as_bytes().to_vec() };
    let mut content = VIDEO.to_vec();
    content.resize(size, 7);
    let file = Part { name: FILE_PART.to_owned(), file: Some("a.mp4".to_owned()), content };
    serialize_form(&before.map(text).into_iter().chain([file]).chain(after.map(text)).collect::<Vec<_>>(), "b")
}

/// Parses a form with a limit for videos that is twice that for images.
fn read_form(form: &[u8], piece: usize) -> Result<Form> {
    let chunks: Vec<_> = form.chunks(piece).map(|chunk| Ok::<_, Infallible>(Bytes::copy_from_slice(chunk))).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let limits = FileLimits { max_video_bytes: 2 * MAX_BYTES, ..limits() };
        receive(stream::iter(chunks), "b".to_owned(), limits, spools(1 << 20).await).await
    })
}

#[test]
fn the_type_before_a_video_allows_its_size() {
    let size = usize::try_from(MAX_BYTES).unwrap() + 1;
    for piece in [1, 500, 100_000] {
        let form = read_form(&form_with_video(size, Some("video"), None), piece).unwrap();
        assert!(form.file.is_some_and(|file| file.is_video && file.bytes.size() == MAX_BYTES + 1), "{piece}");
        let small = read_form(&form_with_video(100, None, Some("video")), piece).unwrap();
        assert!(small.file.is_some_and(|file| file.is_video));
        for form in [
            form_with_video(size, None, Some("video")),
            form_with_video(size, Some("image"), None),
            form_with_video(100, Some("logo"), None),
        ] {
            let error = read_form(&form, piece).err().unwrap();
            assert_eq!(error.code, ErrorCode::UnsupportedMediaType, "{piece}");
            assert!(error.message.contains("`asset_type`"), "{error:?}");
        }
        let error = read_form(&form_with_video(2 * size, Some("video"), None), piece).err().unwrap();
        assert_eq!(error.code, ErrorCode::PayloadTooLarge, "{piece}");
    }
}

#[test]
fn a_file_that_is_no_video_is_rejected_when_its_first_bytes_have_arrived() {
    let head =
        [&b"--b\r\nContent-Disposition: form-data; name=\"asset_type\"\r\n\r\nvideo\r\n"[..], FILE_HEAD].concat();
    let limits = FileLimits { max_video_bytes: 1 << 30, ..limits() };
    let (chunks_read, error) = endless(&head, &[7; 4_096], limits);
    assert_eq!(error.code, ErrorCode::UnsupportedMediaType, "{error:?}");
    assert!(chunks_read <= 8, "{chunks_read}");
}

#[test]
fn the_file_size_limit_is_inclusive() {
    let of =
        |size: u64| Part { name: FILE_PART.to_owned(), file: None, content: vec![7; usize::try_from(size).unwrap()] };
    let form = read(&serialize_form(&[of(MAX_BYTES)], "b"), "b", &[500]).unwrap();
    assert_eq!(form.file.map(|f| f.bytes.size()), Some(MAX_BYTES));
    let error = read(&serialize_form(&[of(MAX_BYTES + 1)], "b"), "b", &[500]).err().unwrap();
    assert_eq!(error.code, ErrorCode::PayloadTooLarge);
}

/// Returns the number of chunks of an endless body that are read before it is rejected, and the error.
fn endless(head: &[u8], piece: &'static [u8], limits: FileLimits) -> (usize, ApiError) {
    let chunks_read = Arc::new(AtomicUsize::new(0));
    let (count, head) = (chunks_read.clone(), Bytes::copy_from_slice(head));
    let pieces = stream::iter(std::iter::once(head).chain(std::iter::repeat_with(move || {
        count.fetch_add(1, Ordering::Relaxed);
        Bytes::from_static(piece)
    })));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let error = runtime.block_on(async {
        let spools = spools(64 << 20).await;
        receive(pieces.map(Ok::<_, Infallible>), "b".to_owned(), limits, spools).await.err().unwrap()
    });
    (chunks_read.load(Ordering::Relaxed), error)
}

const FILE_HEAD: &[u8] = b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";

#[test]
fn an_endless_part_head_is_rejected_early() {
    let limits = FileLimits { max_bytes: 25 << 20, ..limits() };
    for begins in [&b"--b\r\nContent-Disposition: form-data; name=\"file"[..], b"no form", b"--b\r\nX-Y: "] {
        let (chunks_read, error) = endless(begins, b"x", limits);
        assert_eq!(error.code, ErrorCode::InvalidJson, "{error:?}");
        assert!(chunks_read <= MAX_HEAD + 2, "{chunks_read}");
        let (chunks_read, error) = endless(begins, &[b'x'; 4_096], limits);
        assert!(error.message.contains("the headers of a part"), "{error:?}");
        assert!(chunks_read <= 8, "{chunks_read}");
    }
}

#[test]
fn a_file_over_the_quota_is_rejected_while_streaming() {
    const PIECE: &[u8] = &[7; 16 << 10];
    let limits = FileLimits { max_bytes: 25 << 20, remaining_bytes: Some(1 << 20), storage_mib: Some(500), ..limits() };
    let (chunks_read, error) = endless(FILE_HEAD, PIECE, limits);
    assert_eq!(error.code, ErrorCode::StorageLimitExceeded);
    assert!(chunks_read as u64 * (PIECE.len() as u64) <= (1 << 20) + 2 * MAX_NON_FILE_BYTES, "{chunks_read}");
    let (_, error) = endless(FILE_HEAD, PIECE, FileLimits { remaining_bytes: None, ..limits });
    assert_eq!(error.code, ErrorCode::PayloadTooLarge);
}

#[test]
fn a_part_head_is_found_for_any_chunk_size() {
    for size in [1, HEAD_CHUNK, MAX_HEAD, 40 << 10] {
        let file = Part { name: FILE_PART.to_owned(), file: None, content: vec![7; 3_000] };
        let text = Part { name: "alt_text".to_owned(), file: None, content: vec![b'x'; 30 << 10] };
        let bytes = serialize_form(&[text.clone(), file.clone(), text], "b");
        let form = read(&bytes, "b", &[size]).unwrap_or_else(|error| panic!("{size}: {error:?}"));
        assert_eq!(form.file.map(|f| f.bytes.size()), Some(3_000), "{size}");
    }
}
