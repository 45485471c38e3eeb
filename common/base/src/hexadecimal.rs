//! Hexadecimal text in lower case. Only this module uses the crate `hex`.

use sha2::{Digest, Sha256};

pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    hex::encode(bytes)
}

/// Decodes exactly `N` bytes; returns `None` for any other text, including upper case.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok().map(|()| bytes)
}

/// Returns the first `length` bytes (at most 32) of the text's SHA-256 as hexadecimal text.
pub fn sha256(text: impl AsRef<[u8]>, length: usize) -> String {
    encode(&Sha256::digest(text)[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lower_case_of_the_exact_length_is_decoded() {
        assert_eq!(decode(&encode([0, 0xaf])), Some([0, 0xaf]));
        for text in ["", "00", "00a", "00aff0", "00AF", "00ag", "+0af", "0é"] {
            assert_eq!(decode::<2>(text), None, "{text}");
        }
    }

    #[test]
    fn a_known_hash_is_cut_to_its_length() {
        assert_eq!(sha256("abc", 4), "ba7816bf");
    }
}
