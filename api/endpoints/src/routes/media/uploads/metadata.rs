//! The header `Upload-Metadata`: pairs of a key and a value in base64, separated by commas.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde_json::{Map, Value};

use crate::error::Result;
use crate::tus::{UPLOAD_METADATA, invalid};

/// The maximum length of the header, in bytes.
const MAX_BYTES: usize = 4 << 10;
/// The keys that Crier knows. Clients also send others, such as `filetype` and `name`, which are ignored.
const KNOWN: [&str; 3] = ["filename", "asset_type", "alt_text"];

/// The metadata of a new upload.
#[derive(Debug, Default)]
pub struct Metadata {
    /// The header as the client sent it.
    pub raw: String,
    /// The values of the known keys.
    pub fields: Map<String, Value>,
}

impl Metadata {
    /// Reads the header. An omitted one has no values.
    pub fn of(headers: &HeaderMap) -> Result<Self> {
        let mut values = headers.get_all(UPLOAD_METADATA).iter();
        let Some(value) = values.next() else { return Ok(Self::default()) };
        if values.next().is_some() {
            return Err(invalid("Send `Upload-Metadata` only once."));
        }
        match value.to_str() {
            Ok(text) => Self::parse(text),
            Err(_) => Err(invalid("`Upload-Metadata` must be ASCII.")),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        if text.len() > MAX_BYTES {
            return Err(invalid(format!("`Upload-Metadata` must have at most {MAX_BYTES} bytes.")));
        }
        let (mut keys, mut fields) = (Vec::new(), Map::new());
        let pairs: Vec<&str> = if text.trim().is_empty() { Vec::new() } else { text.split(',').collect() };
        for pair in pairs {
            let (key, value) = pair.trim().split_once(' ').unwrap_or((pair.trim(), ""));
            if key.is_empty() || keys.contains(&key) {
                return Err(invalid("The keys of `Upload-Metadata` must not be empty, and each must occur only once."));
            }
            keys.push(key);
            let Ok(value) = STANDARD.decode(value) else {
                return Err(invalid("The values of `Upload-Metadata` must be base64."));
            };
            if KNOWN.contains(&key) {
                let Ok(value) = String::from_utf8(value) else {
                    return Err(invalid(format!("The value of `{key}` in `Upload-Metadata` must be UTF-8.")));
                };
                fields.insert(key.to_owned(), value.into());
            }
        }
        Ok(Self { raw: text.to_owned(), fields })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fields(text: &str) -> Option<Value> {
        Metadata::parse(text).ok().map(|metadata| metadata.fields.into())
    }

    #[test]
    fn known_keys_are_read_and_others_are_ignored() {
        for (text, expected) in [
            ("", json!({})),
            ("  ", json!({})),
            ("filename Y2F0Lm1wNA==", json!({ "filename": "cat.mp4" })),
            ("filename Y2F0Lm1wNA==,filetype dmlkZW8vbXA0, name Yg==", json!({ "filename": "cat.mp4" })),
            ("asset_type dmlkZW8=,alt_text w6Q=", json!({ "asset_type": "video", "alt_text": "ä" })),
            // A key may have no value.
            ("alt_text,is_confidential", json!({ "alt_text": "" })),
            ("alt_text ", json!({ "alt_text": "" })),
            // Only the value of a known key must be a text.
            ("thumbnail /w==", json!({})),
        ] {
            assert_eq!(fields(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn malformed_metadata_is_rejected() {
        let long = format!("filename {}", "YWFh".repeat(MAX_BYTES / 4));
        for text in [
            ",",
            "filename YQ==,",
            "filename YQ==,,alt_text YQ==",
            "filename YQ==,filename Yg==",
            "x YQ==,x YQ==",
            "filename YQ",
            "filename a_b=",
            "filename YQ== YQ==",
            "filename  YQ==",
            "filename /w==",
            &long,
        ] {
            assert_eq!(fields(text), None, "{text}");
        }
    }

    #[test]
    fn the_header_may_occur_only_once() {
        let mut headers = HeaderMap::new();
        assert!(Metadata::of(&headers).unwrap().fields.is_empty());
        headers.append(UPLOAD_METADATA, "filename YQ==".parse().unwrap());
        assert_eq!(Metadata::of(&headers).unwrap().fields["filename"], "a");
        headers.append(UPLOAD_METADATA, "alt_text YQ==".parse().unwrap());
        assert!(Metadata::of(&headers).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn what_a_client_encodes_is_read(
            values in proptest::collection::btree_map("[a-z]{1,8}|filename|alt_text", r"\PC{0,60}", 0..5)
        ) {
            let pair = |(key, value): (&String, &String)| format!("{key} {}", STANDARD.encode(value));
            let text = values.iter().map(pair).collect::<Vec<_>>().join(",");
            let expected: Map<String, Value> = values
                .iter()
                .filter(|(key, _)| KNOWN.contains(&key.as_str()))
                .map(|(key, value)| (key.clone(), value.as_str().into()))
                .collect();
            prop_assert_eq!(fields(&text), Some(expected.into()));
        }

        #[test]
        fn any_text_is_read_or_rejected(text in "[ -~]{0,200}") {
            if let Ok(metadata) = Metadata::parse(&text) {
                prop_assert!(metadata.fields.keys().all(|key| KNOWN.contains(&key.as_str())));
                prop_assert_eq!(metadata.raw, text);
            }
        }
    }
}
