//! Hostile files, with the expected result of each. The table in `docs/media.md` is generated here:
//! `CRIER_TEST_UPDATE=1 cargo test -p crier-media hostile` updates it.
//!
//! **To add one:** add a row to one of the lists.

use std::io::Write;

use super::accepted::jpeg_with;
use super::*;

/// The default limits of Crier.
const LIMITS: Limits = Limits { max_bytes: 25 << 20, max_pixels: 100_000_000 };
/// A text in data that must be dropped. The result must not contain it.
const SECRET: &[u8] = b"secret-place";

struct HostileFile {
    name: &'static str,
    bytes: Bytes,
    expected: ExpectedResult,
}

#[derive(Debug, PartialEq, Eq)]
enum ExpectedResult {
    Unsupported,
    TooLarge,
    /// Accepted, without the hostile part.
    Cleaned,
}

use ExpectedResult::{Cleaned, TooLarge, Unsupported};

fn row(name: &'static str, bytes: impl Into<Bytes>, expected: ExpectedResult) -> HostileFile {
    HostileFile { name, bytes: bytes.into(), expected }
}

fn join(parts: &[&[u8]]) -> Bytes {
    parts.concat().into()
}

fn zlib(size: usize) -> Vec<u8> {
    let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    (0..size >> 16).for_each(|_| out.write_all(&[0; 1 << 16]).unwrap());
    out.finish().unwrap()
}

fn chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(name);
    out.extend_from_slice(body);
    out.extend_from_slice(&[0; 4]);
    out
}

/// Returns a PNG with another chunk after its header.
fn png_with(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let png = file("grey.png");
    let mut out = [&png[..33], &chunk(name, body), &png[33..]].concat();
    forged::sum_up(&mut out);
    out
}

/// Returns a PNG whose header claims this width and height.
fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut png = file("rgb.png").to_vec();
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    forged::sum_up(&mut png);
    png
}

fn others() -> Vec<HostileFile> {
    vec![
        row("an SVG", &b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"[..], Unsupported),
        row("an HTML page", &b"<!doctype html><script>alert(1)</script>"[..], Unsupported),
        row("a PDF", &b"%PDF-1.7\n1 0 obj"[..], Unsupported),
        row("a ZIP", &b"PK\x03\x04\x14\0\0\0"[..], Unsupported),
        row("a text file", &b"hello"[..], Unsupported),
        row("a BMP", &b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0"[..], Unsupported),
        row("a TIFF", &b"II*\0\x08\0\0\0"[..], Unsupported),
        row("a HEIC", &b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"[..], Unsupported),
        row("a RIFF file with sound", &b"RIFF\x24\0\0\0WAVEfmt "[..], Unsupported),
    ]
}

fn pngs() -> Vec<HostileFile> {
    let png = file("rgb.png");
    let end = png.len();
    let mut damaged = png.to_vec();
    damaged[end - 30] ^= 1;
    let mut early = png_with(b"tEXt", b"a\0b");
    let data = early.windows(4).position(|window| window == b"IDAT").unwrap();
    early[data + 12..data + 40].fill(0);
    forged::sum_up(&mut early);
    let profile = |size| [&b"icc\0\0"[..], &zlib(size)].concat();
    vec![
        row("PNG: only the header", png.slice(..33), Unsupported),
        row("PNG: truncated", png.slice(..end / 2), Unsupported),
        row("PNG: without its end marker", png.slice(..end - 12), Unsupported),
        row("PNG: a wrong checksum", damaged, Unsupported),
        row("PNG: invalid image data with correct checksums", early, Unsupported),
        row("PNG: no pixels", png_of(0, 24), Unsupported),
        row("PNG: fewer rows than its header says", png_of(40, 240), Unsupported),
        row("PNG: a size of 65,535 × 65,535", png_of(65_535, 65_535), TooLarge),
        row("PNG: a size of 4,294,967,295 × 1", png_of(u32::MAX, 1), TooLarge),
        row("PNG: a size of 4,294,967,295 × 4,294,967,295", png_of(u32::MAX, u32::MAX), TooLarge),
        row("PNG: a size of 90,000,000 × 1", png_of(90_000_000, 1), TooLarge),
        row("PNG: a second header", png_with(b"IHDR", &png[16..29]), Unsupported),
        row("PNG: an unknown critical chunk", png_with(b"EVIL", b"x"), Unsupported),
        row("PNG: a palette of 257 colors", png_with(b"PLTE", &[0; 257 * 3]), Unsupported),
        row("PNG: HTML in a text chunk", png_with(b"tEXt", b"Comment\0<HTML><body>"), Unsupported),
        row("PNG: PHP in a text chunk", png_with(b"tEXt", b"Comment\0<?php system($_GET[0]);"), Unsupported),
        row("PNG: a text of 64 MiB in 64 KiB", png_with(b"zTXt", &profile(64 << 20)), Cleaned),
        row("PNG: a color profile of 64 MiB in 64 KiB", png_with(b"iCCP", &profile(64 << 20)), Cleaned),
        row("PNG: a location in a text chunk", png_with(b"tEXt", b"Comment\0secret-place"), Cleaned),
        row("PNG: followed by a ZIP archive", join(&[&png, b"PK\x03\x04x", b"PK\x05\x06", &[0; 18]]), Unsupported),
        row("PNG: followed by HTML", join(&[&png, b"<script>alert(1)</script>"]), Unsupported),
        row("PNG: followed by other bytes", join(&[&png, b"data"]), Unsupported),
        row("PNG: followed by a second PNG", join(&[&png, &png]), Unsupported),
    ]
}

/// Returns a GIF with extra bytes before its trailer.
fn gif_with(part: &[u8]) -> Bytes {
    let gif = file("interlaced.gif");
    join(&[&gif[..gif.len() - 1], part, b";"])
}

/// Returns an empty image block with this width and height.
fn image(width: u16, height: u16) -> Vec<u8> {
    let sides = [width.to_le_bytes(), height.to_le_bytes()].concat();
    [&b"\x2c\0\0\0\0"[..], &sides, &[0, 2, 1, 0x2c, 0]].concat()
}

fn gifs() -> Vec<HostileFile> {
    let gif = file("interlaced.gif");
    let end = gif.len();
    let screen = |sides: &[u8]| join(&[&gif[..6], sides, &gif[10..]]);
    let polyglot = join(&[b"GIF89a/*", &gif[8..end - 1], b"\x21\xfe\x0e*/=1;alert(1)//\0;"]);
    let comment = |text: &[u8]| [&[0x21, 0xfe, u8::try_from(text.len()).unwrap()], text, &[0]].concat();
    vec![
        row("GIF: only the header", gif.slice(..13), Unsupported),
        row("GIF: truncated", gif.slice(..end / 2), Unsupported),
        row("GIF: without its trailer", gif.slice(..end - 1), Unsupported),
        row("GIF: no pixels", screen(&[0; 4]), Unsupported),
        row("GIF: a screen of 65,535 × 65,535", screen(&[0xff; 4]), TooLarge),
        row("GIF: a frame of 65,535 × 65,535 on a small screen", gif_with(&image(u16::MAX, u16::MAX)), TooLarge),
        row("GIF: 10,001 frames", gif_with(&image(1, 1).repeat(10_001)), TooLarge),
        row("GIF: a frame without data", gif_with(&image(20, 20)), Unsupported),
        row("GIF: no frame", join(&[&gif[..10], &[0, 0, 0, b';']]), Unsupported),
        row("GIF: a script that begins at its first byte", polyglot, Unsupported),
        row("GIF: HTML in a comment", gif_with(&comment(b"<html>")), Unsupported),
        row("GIF: a script across two blocks", gif_with(b"\x21\xfe\x04<scr\x04ipt>\0"), Unsupported),
        row("GIF: a location in a comment", gif_with(&comment(SECRET)), Cleaned),
        row("GIF: followed by PHP", join(&[&gif, b"<?php phpinfo();"]), Unsupported),
    ]
}

fn jpegs() -> Vec<HostileFile> {
    let jpeg = file("baseline-420.jpg");
    let end = jpeg.len();
    let frame = jpeg.windows(2).position(|pair| pair == b"\xff\xc0").unwrap();
    let scan = jpeg.windows(2).position(|pair| pair == b"\xff\xda").unwrap();
    let coded = |code: u8| join(&[&jpeg[..=frame], &[code], &jpeg[frame + 2..]]);
    let sides = |sides: &[u8]| join(&[&jpeg[..frame + 5], sides, &jpeg[frame + 9..]]);
    let script = [&b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"[..], &vec![b' '; 0x2f2a - 16]].concat();
    let script = join(&[b"\xff\xd8\xff\xe0\x2f\x2a", &script, &jpeg[20..end]]);
    let zip = [&b"PK\x03\x04file"[..], b"PK\x01\x02", &[0; 40], b"PK\x05\x06\0\0\0\0\x01\0\x01\0", &[0; 10]].concat();
    let comment = |text: &[u8]| jpeg_with(0xfe, text, &jpeg);
    let progressive = file("progressive-420.jpg");
    let first = progressive.windows(2).position(|pair| pair == b"\xff\xda").unwrap();
    let after = first + progressive[first..].windows(2).position(|pair| pair == b"\xff\xc4").unwrap();
    let scans = join(&[&progressive[..after], &progressive[first..after].repeat(100), &progressive[after..]]);
    vec![
        row("JPEG: truncated", jpeg.slice(..end / 2), Unsupported),
        row("JPEG: without its end marker", jpeg.slice(..end - 2), Unsupported),
        row("JPEG: half of its data, with an end marker", join(&[&jpeg[..(scan + end) / 2], b"\xff\xd9"]), Unsupported),
        row("JPEG: no scan", join(&[&jpeg[..scan], b"\xff\xd9"]), Unsupported),
        row("JPEG: more than 100 scans", scans, Unsupported),
        row("JPEG: no pixels", sides(&[0; 4]), Unsupported),
        row("JPEG: a size of 65,535 × 65,535", sides(&[0xff; 4]), TooLarge),
        row("JPEG: fewer rows than its header says", sides(&[0, 200, 0, 61]), Unsupported),
        row("JPEG: lossless", coded(0xc3), Unsupported),
        row("JPEG: arithmetic codes", coded(0xc9), Unsupported),
        row("JPEG: two headers", join(&[&jpeg[..scan], &jpeg[frame..]]), Unsupported),
        row("JPEG: PHP in a comment", comment(b"<?php system($_GET[0]); __halt_compiler();"), Unsupported),
        row("JPEG: HTML in EXIF", jpeg_with(0xe1, b"Exif\0\0MM\0*<iframe src=x>", &jpeg), Unsupported),
        row(
            "JPEG: an SVG in XMP",
            jpeg_with(0xe1, b"http://ns.adobe.com/xap/1.0/\0<svg onload=x>", &jpeg),
            Unsupported,
        ),
        row("JPEG: a script that begins at its first byte", script, Unsupported),
        row("JPEG: a location in EXIF", jpeg_with(0xe1, b"Exif\0\0MM\0*secret-place", &jpeg), Cleaned),
        row(
            "JPEG: a location between its data and its end marker",
            join(&[&jpeg[..end - 2], SECRET, b"\xff\xd9"]),
            Cleaned,
        ),
        row("JPEG: followed by a video", join(&[&jpeg, b"\0\0\0\x18ftypmp42", SECRET]), Cleaned),
        row("JPEG: followed by a second image", join(&[&jpeg, &jpeg_with(0xfe, SECRET, &jpeg)]), Cleaned),
        row("JPEG: followed by a ZIP archive", join(&[&jpeg, &zip]), Unsupported),
        row("JPEG: followed by a second image and a ZIP archive", join(&[&jpeg, &jpeg, &zip]), Unsupported),
        row("JPEG: followed by a RAR archive", join(&[&jpeg, b"Rar!\x1a\x07\x01\0"]), Unsupported),
        row("JPEG: a PDF in a comment", comment(b"\n%PDF-1.4\n1 0 obj"), Unsupported),
        row("JPEG: followed by a program", join(&[&jpeg, b"\x7fELF\x02\x01\x01\0"]), Unsupported),
        row("JPEG: followed by other bytes", join(&[&jpeg, b"data"]), Unsupported),
    ]
}

/// Returns a WebP of these chunks.
fn riff(chunks: &[u8]) -> Bytes {
    let size = u32::try_from(chunks.len() + 4).unwrap().to_le_bytes();
    join(&[b"RIFF", &size, b"WEBP", chunks])
}

fn webp_chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).unwrap().to_le_bytes();
    let padding: &[u8] = if body.len() % 2 == 1 { &[0] } else { &[] };
    [name, &size[..], body, padding].concat()
}

/// Returns the header chunk of an extended WebP.
fn canvas(flags: u8, width: u32, height: u32) -> Vec<u8> {
    let side = |side: u32| (side - 1).to_le_bytes()[..3].to_vec();
    webp_chunk(b"VP8X", &[vec![flags, 0, 0, 0], side(width), side(height)].concat())
}

fn webps() -> Vec<HostileFile> {
    let (webp, animated) = (file("lossy.webp"), file("animated.webp"));
    let end = webp.len();
    let image = &webp[12..];
    let with = |name: &[u8; 4], body: &[u8]| riff(&[&canvas(0, 40, 24), image, &webp_chunk(name, body)].concat());
    let frame = animated.windows(4).position(|window| window == b"ANMF").unwrap();
    let mut outside = animated.to_vec();
    outside[frame + 8] = 5;
    let mut longer = webp.to_vec();
    longer[4] += 40;
    let short = webp_chunk(b"VP8 ", &webp[20..end / 2]);
    let long_canvas = webp_chunk(b"VP8X", &[&canvas(0, 40, 24)[8..], SECRET].concat());
    vec![
        row("WebP: truncated", webp.slice(..end / 2), Unsupported),
        row("WebP: a length greater than the file", longer, Unsupported),
        row("WebP: half of its data, in a valid frame", riff(&short), Unsupported),
        row("WebP: a canvas of another size than its image", riff(&[&canvas(0, 41, 24), image].concat()), Unsupported),
        row("WebP: a canvas of 16,777,216 × 16,777,216", riff(&canvas(2, 1 << 24, 1 << 24)), TooLarge),
        row("WebP: an animation without frames", riff(&canvas(2, 40, 24)), Unsupported),
        row("WebP: a frame outside of the canvas", outside, Unsupported),
        row("WebP: two images", riff(&[&canvas(0, 40, 24), image, image].concat()), Unsupported),
        row("WebP: a text in its first chunk", riff(&[&long_canvas, image].concat()), Unsupported),
        row("WebP: HTML in XMP", with(b"XMP ", b"<x><iframe>"), Unsupported),
        row("WebP: a program in an unknown chunk", with(b"EVIL", b"\x7fELF\x01\x01\x01"), Unsupported),
        row("WebP: a location in EXIF", with(b"EXIF", SECRET), Cleaned),
        row("WebP: followed by a script", join(&[&webp, b"<script>alert(1)</script>"]), Unsupported),
    ]
}

fn check_row(row: &HostileFile) -> String {
    let (result, text) = match examine(row.bytes.clone(), &LIMITS) {
        Ok(image) => {
            assert!(!has(&image.bytes, SECRET) && !has(&image.thumbnail, SECRET), "{}: the location is kept", row.name);
            assert!(image.bytes.len() < 4096, "{}: {} bytes are kept", row.name, image.bytes.len());
            (Cleaned, "accepted, and that is removed".to_owned())
        }
        Err(Rejection::TooLarge(text)) => (TooLarge, format!("413: {text}")),
        Err(error) => (Unsupported, format!("415: {error}")),
    };
    assert_eq!(result, row.expected, "{} got: {text}", row.name);
    text
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own switch")]
fn hostile_files_match_the_table() {
    let rows: Vec<HostileFile> = [others(), pngs(), gifs(), jpegs(), webps()].into_iter().flatten().collect();
    let mut table = "| File | Result |\n|---|---|\n".to_owned();
    rows.iter().for_each(|row| table.push_str(&format!("| {} | {} |\n", row.name, check_row(row))));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/media.md");
    let was = std::fs::read_to_string(&page).unwrap();
    let begin = "<!-- hostile: made by common/media/src/images/tests/hostile.rs -->\n";
    let (before, rest) = was.split_once(begin).unwrap();
    let (_, after) = rest.split_once("<!-- end of hostile -->\n").unwrap();
    let is = format!("{before}{begin}{table}<!-- end of hostile -->\n{after}");
    if std::env::var("CRIER_TEST_UPDATE").is_ok() {
        std::fs::write(page, is).unwrap();
    } else {
        assert!(was == is, "docs/media.md is stale; run: CRIER_TEST_UPDATE=1 cargo test -p crier-media hostile");
    }
}
