//! Detects signs of another format outside of the image data, in files that are also a page, a script or an archive to
//! another program.
//!
//! **To add a sign:** add one line to [`MARKUP`], [`BINARY`] or [`AT_THE_START`]. A sign that is found anywhere needs
//! at least five bytes, because shorter ones occur by chance in images that are appended to a photograph.

use std::cell::LazyCell;

use super::Rejection;

/// Signs that are found anywhere, case-insensitive.
const MARKUP: &[(&[u8], &str)] = &[
    (b"<script", "a script"),
    (b"<html", "HTML"),
    (b"<!doctype html", "HTML"),
    (b"<body", "HTML"),
    (b"<iframe", "HTML"),
    (b"<object", "HTML"),
    (b"<embed", "HTML"),
    (b"<img ", "HTML"),
    (b"<svg ", "SVG"),
    (b"<svg>", "SVG"),
    (b"<svg:", "SVG"),
    (b"<svg/", "SVG"),
    (b"<?php", "PHP"),
    (b"javascript:", "a script"),
];

/// Signs that are found anywhere, case-sensitive.
const BINARY: &[(&[u8], &str)] = &[
    (b"%PDF-", "PDF"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x7fELF\x01\x01\x01", "a program"),
    (b"\x7fELF\x02\x01\x01", "a program"),
    (b"This program cannot be run in DOS mode", "a program"),
];

/// Signs that are only found at the start of a part.
const AT_THE_START: &[(&[u8], &str)] = &[
    (b"#!", "a script"),
    (b"<?=", "PHP"),
    (b"*/", "a script"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b\x08", "an archive"),
    (b"BZh", "an archive"),
    (b"\xfd7zXZ", "an archive"),
    (b"\x7fELF", "a program"),
];

/// Checks a part for signs.
///
/// # Errors
/// An error that names the other format.
pub fn check(part: &[u8]) -> Result<(), Rejection> {
    match find(part) {
        Some(what) => Err(both(what)),
        None => Ok(()),
    }
}

pub fn both(what: &str) -> Rejection {
    Rejection::Unsupported(format!("The file contains both an image and {what}. Use a plain image file."))
}

fn find(part: &[u8]) -> Option<&'static str> {
    // Searched for at most once, because a part may contain millions of end records.
    let has_zip_entry =
        LazyCell::new(|| part.windows(4).any(|window| window == b"PK\x01\x02" || window == b"PK\x03\x04"));
    if let Some((_, what)) = AT_THE_START.iter().find(|(sign, _)| part.starts_with(sign)) {
        return Some(what);
    }
    for (at, byte) in part.iter().enumerate() {
        // The first bytes of all signs; other positions are skipped.
        if !matches!(byte, b'<' | b'%' | b'R' | b'7' | 0x7f | b'T' | b'P' | b'j' | b'J') {
            continue;
        }
        let rest = part.get(at..).unwrap_or_default();
        let markup =
            MARKUP.iter().find(|(sign, _)| rest.get(..sign.len()).is_some_and(|r| r.eq_ignore_ascii_case(sign)));
        let found = markup.or_else(|| BINARY.iter().find(|(sign, _)| rest.starts_with(sign)));
        if let Some((_, what)) = found {
            return Some(what);
        }
        if zip_end(rest).is_some_and(|is_empty| is_empty || *has_zip_entry) {
            return Some("a ZIP archive");
        }
    }
    None
}

/// Returns whether the ZIP archive whose end record begins here is empty; `None` if no end record begins here.
fn zip_end(rest: &[u8]) -> Option<bool> {
    let record = rest.get(..22).filter(|record| record.starts_with(b"PK\x05\x06"))?;
    Some(record.get(8..12) == Some(&[0; 4]))
}
