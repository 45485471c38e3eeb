//! Decodes bytes to text: by byte-order mark, then UTF-8 validity, then declaration. Declarations are often wrong, so
//! valid UTF-8 is treated as UTF-8 regardless of the declaration.

use encoding_rs::{Encoding, ISO_2022_JP, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// The number of bytes that are searched for an XML declaration.
const HEAD_BYTES: usize = 200;
/// The number of bytes that are searched for the `charset` of a `<meta>`, as in browsers.
const META_BYTES: usize = 1_024;

/// Returns the text without a byte-order mark and without characters that are invalid in XML.
pub fn decode(bytes: &[u8], content_type: Option<&str>) -> String {
    let (encoding, bytes) = match Encoding::for_bom(bytes) {
        Some((encoding, length)) => (encoding, &bytes[length..]),
        None => (guess(bytes, content_type), bytes),
    };
    let (text, _) = encoding.decode_without_bom_handling(bytes);
    let allowed = |c: char| !matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}');
    if text.chars().all(allowed) { text.into_owned() } else { text.chars().filter(|c| allowed(*c)).collect() }
}

fn guess(bytes: &[u8], content_type: Option<&str>) -> &'static Encoding {
    match bytes {
        [0, b'<' | b'{', ..] => return UTF_16BE,
        [b'<' | b'{', 0, ..] => return UTF_16LE,
        _ => {}
    }
    let declared =
        declared_in_xml(bytes).or_else(|| content_type.and_then(charset)).or_else(|| declared_in_meta(bytes));
    // The only encoding in use whose bytes are all ASCII, and therefore valid UTF-8.
    if declared == Some(ISO_2022_JP) {
        return ISO_2022_JP;
    }
    if std::str::from_utf8(bytes).is_ok() {
        return UTF_8;
    }
    match declared {
        // UTF-8 and UTF-16 are ruled out: the bytes are invalid UTF-8, and the declaration was readable as ASCII.
        Some(encoding) if encoding != UTF_8 && encoding != UTF_16BE && encoding != UTF_16LE => encoding,
        _ => utf8_or_western(bytes),
    }
}

/// Decides between UTF-8 with incomplete characters and Windows-1252.
fn utf8_or_western(bytes: &[u8]) -> &'static Encoding {
    let text = String::from_utf8_lossy(bytes);
    let broken = text.chars().filter(|c| *c == '\u{fffd}').count();
    let valid = text.chars().filter(|c| !c.is_ascii() && *c != '\u{fffd}').count();
    if broken <= valid { UTF_8 } else { WINDOWS_1252 }
}

/// Returns the encoding in `<?xml … encoding="…"?>`.
fn declared_in_xml(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(HEAD_BYTES)]);
    let declaration = head.trim_start().strip_prefix("<?xml")?.split("?>").next()?.split("encoding").nth(1)?;
    let value = declaration.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    Encoding::for_label(value[1..].split(quote).next()?.as_bytes())
}

/// Returns the encoding in `<meta charset="…">` or `<meta … content="text/html; charset=…">`.
fn declared_in_meta(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(META_BYTES)]).to_ascii_lowercase();
    let value = head.split("<meta").skip(1).find_map(|tag| tag.split('>').next()?.split("charset=").nth(1))?;
    let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, '"' | '\'' | ';' | '/');
    Encoding::for_label(value.trim_start_matches(['"', '\'']).split(is_end).next()?.as_bytes())
}

/// Returns the charset parameter of a `Content-Type`.
fn charset(content_type: &str) -> Option<&'static Encoding> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("charset").then(|| Encoding::for_label(value.as_bytes()))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_and_actual_encodings_are_handled() {
        let western = b"<?xml version='1.0' encoding = 'iso-8859-1'?><a>caf\xe9 \x80</a>";
        assert!(decode(western, None).ends_with("<a>café €</a>"));
        let wrong = "<?xml version=\"1.0\" encoding=\"windows-1252\"?><a>café €</a>".as_bytes();
        assert!(decode(wrong, Some("text/xml; charset=us-ascii")).ends_with("<a>café €</a>"), "it is UTF-8");
        assert_eq!(decode(b"<a>caf\xe9</a>", Some("text/xml; Charset=\"latin1\"")), "<a>café</a>");
        assert_eq!(decode(b"<a>\x82\xb1</a>", Some("text/xml;charset=shift_jis")), "<a>こ</a>");
        assert_eq!(decode(b"<a>\x1b$B$3\x1b(B</a>", Some("text/xml;charset=iso-2022-jp")), "<a>こ</a>");
        assert_eq!(decode(b"<a>caf\xe9</a>", Some("text/xml; charset=utf-8")), "<a>café</a>", "it is not UTF-8");
        assert_eq!(decode("<a>é è ü".as_bytes().split_last().unwrap().1, None), "<a>é è \u{fffd}", "it was cut");
        assert_eq!(decode(b"<a>x</a>", Some("text/xml; charset=no-such")), "<a>x</a>");
        for meta in
            ["<meta charset=shift_jis>", "<META content='text/html; Charset=Shift_JIS'>", "<meta charset=\"sjis\"/>"]
        {
            let page = [meta.as_bytes(), b"\x82\xb1"].concat();
            assert!(decode(&page, Some("text/html")).ends_with('こ'), "{meta}");
        }
    }

    #[test]
    fn bom_and_utf16_are_decoded() {
        assert_eq!(decode(b"\xef\xbb\xbf<a/>", None), "<a/>");
        let wide = |order: fn(u16) -> [u8; 2], mark: bool| {
            let text = if mark { "\u{feff}<a>é😀</a>" } else { "<a>é😀</a>" };
            text.encode_utf16().flat_map(order).collect::<Vec<u8>>()
        };
        for mark in [true, false] {
            assert_eq!(decode(&wide(u16::to_le_bytes, mark), None), "<a>é😀</a>");
            assert_eq!(decode(&wide(u16::to_be_bytes, mark), None), "<a>é😀</a>");
        }
        assert_eq!(decode(b"<a>x\0y\x07\tz\n</a>", None), "<a>xy\tz\n</a>");
        assert_eq!(decode(b"", None), "");
    }
}
