//! Compresses stored responses before they are encrypted: one is written with each write request, and a database cannot
//! compress encrypted data.
//!
//! A short response consists mostly of field names, so it is compressed with a dictionary of these. It can be
//! decompressed only with the same dictionary: to change the dictionary, add another one with its own number.

use std::io::{Read as _, Write as _};

use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use flate2::{Compress, Compression, Decompress};

use super::{Result, StoreError};

/// Texts that responses have in common, the most frequent last.
const DICTIONARY: &[u8] = include_bytes!("packed_dictionary.txt");
/// The maximum size of an unpacked text, in bytes, which limits its memory. It is far more than the size of any
/// response.
const MAX_UNPACKED: u64 = 64 << 20;

/// Compresses a text. Takes about ten microseconds per kilobyte. The lowest compression level would save two of these,
/// but write a tenth more.
pub fn pack(text: &[u8]) -> Result<Vec<u8>> {
    let mut deflate = Compress::new(Compression::default(), false);
    deflate.set_dictionary(DICTIONARY).map_err(broken)?;
    let mut encoder = ZlibEncoder::new_with_compress(Vec::with_capacity(64 + text.len() / 2), deflate);
    encoder.write_all(text).and_then(|()| encoder.finish()).map_err(broken)
}

pub fn unpack(packed: &[u8]) -> Result<Vec<u8>> {
    let mut inflate = Decompress::new(false);
    inflate.set_dictionary(DICTIONARY).map_err(broken)?;
    let decoder = ZlibDecoder::new_with_decompress(packed, inflate);
    let mut text = Vec::new();
    decoder.take(MAX_UNPACKED).read_to_end(&mut text).map_err(broken)?;
    Ok(text)
}

fn broken(error: impl std::fmt::Display) -> StoreError {
    StoreError::Decode(format!("a compressed text: {error}"))
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn texts_come_back_as_they_were() {
        for text in [&b""[..], b"{}", "\u{1f600} \u{0} x".repeat(10_000).as_bytes(), DICTIONARY] {
            assert_eq!(unpack(&pack(text).unwrap()).unwrap(), text);
        }
        let json = br#"{"data":{"id":17,"name":"Acme","description":null,"website":null,"timezone":"UTC"}}"#;
        assert!(pack(json).unwrap().len() < json.len() / 2);
    }

    #[test]
    fn what_is_not_packed_is_an_error() {
        for damaged in [&b"no such thing"[..], b""] {
            assert!(unpack(damaged).is_err());
        }
    }

    #[test]
    fn the_dictionary_stays_as_it_is() {
        let digest = Sha256::digest(DICTIONARY).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            digest, "f94ff23f16d4deef148762c688cb7c1a4d5ca9fdd8016d6a1c47b7a20ad94be4",
            "stored responses can be read only with it"
        );
    }
}
