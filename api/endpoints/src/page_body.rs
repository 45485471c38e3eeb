//! A response body that is sent often. It is compressed and hashed once, and shared by all responses.

use std::io::Write as _;

use bytes::Bytes;
use crier_base::hexadecimal;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use salvo::Response;
use salvo::http::ResBody;

use crate::file::is_known;

#[derive(Debug)]
pub struct PageBody {
    plain: Bytes,
    compressed: Bytes,
    /// Weak, because it covers both encodings.
    tag: HeaderValue,
}

impl PageBody {
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        let text = text.into();
        let tag = HeaderValue::try_from(format!("W/\"{}\"", hexadecimal::sha256(&text, 12)))
            .unwrap_or(HeaderValue::from_static("W/\"\""));
        // Drop the spare capacity, because the body stays in memory.
        let shrunk = |bytes: Vec<u8>| Bytes::from(bytes.into_boxed_slice());
        Self { compressed: shrunk(compress(&text)), plain: shrunk(text), tag }
    }

    pub fn plain(&self) -> &[u8] {
        &self.plain
    }

    pub fn compressed(&self) -> &[u8] {
        &self.compressed
    }

    /// Returns the size in memory, in bytes.
    pub fn size(&self) -> usize {
        self.plain.len() + self.compressed.len()
    }

    /// Sends the body, or a 304 if the client's ETag matches.
    pub fn send(&self, request_headers: &HeaderMap, res: &mut Response) {
        let headers = res.headers_mut();
        headers.insert(ETAG, self.tag.clone());
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if is_known(request_headers, &self.tag) {
            res.status_code(StatusCode::NOT_MODIFIED);
            return;
        }
        let compressed = accepts_gzip(request_headers);
        if compressed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let body = if compressed { &self.compressed } else { &self.plain };
        // A response to HEAD also has the length, although it has no body.
        headers.insert(CONTENT_LENGTH, body.len().into());
        res.status_code(StatusCode::OK);
        res.body(ResBody::Once(body.clone()));
    }
}

/// Compresses the text. Writing to a `Vec` cannot fail.
fn compress(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let _ = encoder.write_all(text);
    encoder.finish().unwrap_or_default()
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let names = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    names.flat_map(|names| names.split(',')).any(|name| {
        let (name, weight) = name.split_once(';').unwrap_or((name, ""));
        let weight = weight.trim().strip_prefix("q=").map(|q| q.parse::<f32>().unwrap_or_default());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_none_or(|q| q > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn gzip_is_sent_only_if_accepted() {
        for (value, accepts) in [
            ("gzip, deflate, br, zstd", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("gzip ; q=0.001", true),
            ("gzip;q=0", false),
            ("gzip;q=0.000, br", false),
            ("gzip;q=x", false),
            ("identity", false),
            ("br, zgzip", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            assert_eq!(accepts_gzip(&headers), accepts, "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn a_compressed_body_decompresses_to_the_original() {
        let (one, other) = (PageBody::new("a page ".repeat(500)), PageBody::new("another"));
        let mut decompressed = String::new();
        flate2::read::GzDecoder::new(one.compressed.as_ref()).read_to_string(&mut decompressed).unwrap();
        assert_eq!(decompressed.as_bytes(), one.plain);
        assert!(one.compressed.len() < 100 && one.size() > 3_500);
        assert_ne!(one.tag, other.tag);
    }
}
