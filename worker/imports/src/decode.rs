//! The encodings of text files: UTF-8 and UTF-16 with and without a byte order mark, and Windows-1252, in which older
//! programs of Western languages save.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

use crate::FileError;

/// How many bytes are searched for signs of UTF-16.
const SAMPLE: usize = 4_096;

pub fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, FileError> {
    let (encoding, bytes) = match Encoding::for_bom(bytes) {
        Some((encoding, mark)) => (encoding, bytes.get(mark..).unwrap_or_default()),
        None => (detect(bytes), bytes),
    };
    let text = encoding.decode_without_bom_handling_and_without_replacement(bytes);
    text.ok_or(FileError::UnknownEncoding)
}

fn detect(bytes: &[u8]) -> &'static Encoding {
    if let Some(encoding) = detect_utf_16(bytes) {
        return encoding;
    }
    if std::str::from_utf8(bytes).is_ok() { UTF_8 } else { WINDOWS_1252 }
}

/// Headings and separators are ASCII, so every second byte of many characters in UTF-16 is zero. No other text file has
/// zeros.
fn detect_utf_16(bytes: &[u8]) -> Option<&'static Encoding> {
    let sample = bytes.get(..SAMPLE).unwrap_or(bytes);
    let zeros = |odd: usize| sample.iter().skip(odd).step_by(2).filter(|byte| **byte == 0).count();
    let (even, odd) = (zeros(0), zeros(1));
    match bytes.len().is_multiple_of(2) && even + odd > sample.len() / 8 {
        true if odd > even => Some(UTF_16LE),
        true => Some(UTF_16BE),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "content,date\r\nBrötchen 🥐,2026-05-01\r\n";

    fn utf_16(text: &str, encode: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(encode).collect()
    }

    #[test]
    fn every_encoding_is_detected() {
        let (little, big) = (utf_16(TEXT, u16::to_le_bytes), utf_16(TEXT, u16::to_be_bytes));
        for bytes in [
            TEXT.as_bytes().to_vec(),
            [b"\xef\xbb\xbf", TEXT.as_bytes()].concat(),
            little.clone(),
            big.clone(),
            [b"\xff\xfe".to_vec(), little].concat(),
            [b"\xfe\xff".to_vec(), big].concat(),
        ] {
            assert_eq!(decode(&bytes).unwrap(), TEXT);
        }
        assert_eq!(decode(b"content\nBr\xf6tchen \x80 5\n").unwrap(), "content\nBrötchen € 5\n");
        assert_eq!(decode(b"").unwrap(), "");
    }

    #[test]
    fn half_a_character_is_rejected() {
        assert_eq!(decode(b"\xff\xfea\x00b"), Err(FileError::UnknownEncoding));
        assert_eq!(decode(b"\xef\xbb\xbf\xff"), Err(FileError::UnknownEncoding));
    }
}
