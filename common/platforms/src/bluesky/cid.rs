//! The content identifiers (CIDs) of records: `b`, and in base32 the version, the codec DAG-CBOR and the SHA-256 of the
//! encoded record.
//!
//! A reply names the CID of its parent, so the parts of a thread can be written in one call only if the CIDs are known
//! before. Only records that Crier built are encoded, and for them this is shorter than the four crates (`cid`,
//! `multihash`, `ipld-core`, `serde_ipld_dagcbor`) and the conversion of a JSON value to their type.
//!
//! Sources: AT Protocol specification, "Data Model" (`$link` is a CID; no floating-point numbers); IPLD, "DAG-CBOR"
//! (keys sorted by length, then by their bytes; the shortest form of each number; a link is the tag 42); multiformats,
//! "CIDv1". The tests use the vectors of the specification (`interop-test-files/data-model`).

use serde_json::Value;
use sha2::{Digest, Sha256};

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// CID version 1, DAG-CBOR, SHA-256, 32 bytes.
const PREFIX: [u8; 4] = [1, 0x71, 0x12, 32];

const NUMBER: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const LIST: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

/// Returns the CID of a record. `None` if it contains a floating-point number or a link that is not a CID.
pub(super) fn cid(record: &Value) -> Option<String> {
    let mut encoded = Vec::new();
    encode(record, &mut encoded)?;
    let mut cid = PREFIX.to_vec();
    cid.extend_from_slice(&Sha256::digest(&encoded)[..]);
    Some(format!("b{}", base32(&cid)))
}

/// Appends a value as DAG-CBOR.
fn encode(value: &Value, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(value) => out.push(if *value { 0xf5 } else { 0xf4 }),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => head(NUMBER, number, out),
            // -1 is encoded as 0, -2 as 1.
            (None, Some(number)) => head(NEGATIVE, !number as u64, out),
            (None, None) => return None,
        },
        Value::String(text) => string(TEXT, text.as_bytes(), out),
        Value::Array(list) => {
            head(LIST, list.len() as u64, out);
            list.iter().try_for_each(|one| encode(one, out))?;
        }
        Value::Object(map) => match map.get("$link") {
            Some(link) if map.len() == 1 => {
                let mut cid = vec![0];
                cid.extend(from_base32(link.as_str()?.strip_prefix('b')?)?);
                head(TAG, 42, out);
                string(BYTES, &cid, out);
            }
            _ => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(key, _)| (key.len(), *key));
                head(MAP, entries.len() as u64, out);
                for (key, value) in entries {
                    string(TEXT, key.as_bytes(), out);
                    encode(value, out)?;
                }
            }
        },
    }
    Some(())
}

fn string(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    head(kind, bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends the head of a value: its kind, and a number in the shortest form.
fn head(kind: u8, number: u64, out: &mut Vec<u8>) {
    let (kind, bytes) = (kind << 5, number.to_be_bytes());
    let (form, from) = match number {
        0..=23 => return out.push(kind | bytes[7]),
        24..=0xff => (24, 7),
        0x100..=0xffff => (25, 6),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 0),
    };
    out.push(kind | form);
    out.extend_from_slice(&bytes[from..]);
}

fn base32(bytes: &[u8]) -> String {
    let (mut out, mut buffer, mut bits) = (String::new(), 0_u32, 0);
    for byte in bytes {
        (buffer, bits) = ((buffer << 8) | u32::from(*byte), bits + 8);
        while bits >= 5 {
            bits -= 5;
            out.push(letter(buffer >> bits));
        }
    }
    if bits > 0 {
        out.push(letter(buffer << (5 - bits)));
    }
    out
}

/// Returns the letter for the lowest five bits.
fn letter(bits: u32) -> char {
    char::from(ALPHABET[(bits & 31) as usize])
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut buffer, mut bits) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == letter)?;
        (buffer, bits) = ((buffer << 5) | value as u32, bits + 5);
        if bits >= 8 {
            bits -= 8;
            out.push((buffer >> bits) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use crier_base::hexadecimal;
    use serde_json::json;

    use super::*;

    fn encoded(value: &Value) -> String {
        let mut out = Vec::new();
        encode(value, &mut out).unwrap();
        hexadecimal::encode(out)
    }

    #[test]
    fn the_vector_of_the_specification_has_its_cid() {
        let object = json!({ "string": "abc", "number": 123, "bool": true, "arr": ["abc", "def", "ghi"] });
        let record = json!({
            "string": "abc",
            "unicode": "a~öñ©⽘☎𓋓😀👨\u{200d}👩\u{200d}👧\u{200d}👧",
            "integer": 123,
            "bool": true,
            "null": null,
            "array": ["abc", "def", "ghi"],
            "object": object,
        });
        assert_eq!(cid(&record).unwrap(), "bafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esabwq");
    }

    #[test]
    fn links_and_blobs_are_encoded_as_in_the_specification() {
        let link = json!({ "$link": "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a" });
        let of_blob = json!({ "$link": "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity" });
        let blob = json!({ "$type": "blob", "ref": of_blob, "mimeType": "image/jpeg", "size": 10_000 });
        let bytes = "a26161d82a5825000171122065062a5a5a00fc16d73c6944237ccbc15b1c4a7234489336891d091741a239d0\
                     6163a463726566d82a582500015512204258cfff78f613697697563f926c91e5d3574d2ea25ae7ed92d6ebfc23a3889e\
                     6473697a6519271065247479706564626c6f62686d696d65547970656a696d6167652f6a706567";
        assert_eq!(encoded(&json!({ "a": link, "c": blob })), bytes);
    }

    #[test]
    fn numbers_have_the_shortest_form() {
        let numbers: [i64; 11] = [0, -1, 23, 24, 255, 256, 65_535, 65_536, 4_294_967_295, 4_294_967_296, -25];
        let bytes = "8b002017181818ff19010019ffff1a000100001affffffff1b00000001000000003818";
        assert_eq!(encoded(&json!(numbers)), bytes);
        assert_eq!(encoded(&json!([u64::MAX, i64::MIN])), "821bffffffffffffffff3b7fffffffffffffff");
    }

    #[test]
    fn what_has_no_encoding_has_no_cid() {
        for value in [json!(1.5), json!({ "$link": "Qmabc" }), json!({ "$link": 1 }), json!([{ "a": 0.1 }])] {
            assert_eq!(cid(&value), None, "{value}");
        }
        assert!(cid(&json!({ "$link": "text", "other": 1 })).is_some(), "not a link");
    }

    #[test]
    fn base32_is_read_as_it_is_written() {
        for (bytes, text) in [("", ""), ("f", "my"), ("fo", "mzxq"), ("foobar", "mzxw6ytboi")] {
            assert_eq!(base32(bytes.as_bytes()), text);
            assert_eq!(from_base32(text).unwrap(), bytes.as_bytes());
        }
    }
}
