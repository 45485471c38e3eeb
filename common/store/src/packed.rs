//! Compresses stored responses before they are encrypted: one is written with each write request, and a database cannot
//! compress encrypted data.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::{Result, StoreError};

/// The maximum size of an unpacked text, in bytes, which limits its memory. It is far more than the size of any
/// response.
const MAX_UNPACKED: u64 = 64 << 20;

/// Compresses a text. Takes about ten microseconds per kilobyte. The lowest compression level would save two of these,
/// but write a tenth more.
pub fn pack(text: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(64 + text.len() / 2), Compression::default());
    encoder.write_all(text).and_then(|()| encoder.finish()).map_err(broken)
}

pub fn unpack(packed: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    DeflateDecoder::new(packed).take(MAX_UNPACKED).read_to_end(&mut text).map_err(broken)?;
    Ok(text)
}

fn broken(error: impl std::fmt::Display) -> StoreError {
    StoreError::Decode(format!("a compressed text: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were() {
        let long = "\u{1f600} \u{0} x".repeat(10_000);
        for text in [&b""[..], b"{}", long.as_bytes()] {
            assert_eq!(unpack(&pack(text).unwrap()).unwrap(), text);
        }
        assert!(pack(long.as_bytes()).unwrap().len() < long.len() / 2);
    }

    #[test]
    fn what_is_not_packed_is_an_error() {
        for damaged in [&b"no such thing"[..], b""] {
            assert!(unpack(damaged).is_err());
        }
    }
}
