//! Texts that are compressed before they are encrypted: a stored response is written with each request, and a database
//! cannot compress what is encrypted.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::{Result, StoreError};

/// Bounds the memory that an unpacked text takes: far more than what is packed.
const MAX_UNPACKED: u64 = 64 << 20;

/// Compresses with the lowest effort, which takes some twenty microseconds for a kilobyte.
pub fn pack(text: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(text.len() / 2), Compression::fast());
    encoder.write_all(text).and_then(|()| encoder.finish()).map_err(broken)
}

pub fn unpack(packed: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    DeflateDecoder::new(packed).take(MAX_UNPACKED).read_to_end(&mut text).map_err(broken)?;
    Ok(text)
}

fn broken(error: std::io::Error) -> StoreError {
    StoreError::Decode(format!("a compressed text: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were() {
        for text in [&b""[..], b"{}", "\u{1f600} \u{0} x".repeat(10_000).as_bytes()] {
            assert_eq!(unpack(&pack(text).unwrap()).unwrap(), text);
        }
        let json = br#"{"data":{"id":1,"name":"Acme","description":null,"website":null,"timezone":"UTC"}}"#.repeat(4);
        assert!(pack(&json).unwrap().len() < json.len() / 2);
    }

    #[test]
    fn what_is_not_packed_is_an_error() {
        assert!(unpack(b"no such thing").is_err());
    }
}
