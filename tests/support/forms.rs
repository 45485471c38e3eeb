//! Reads the multipart forms that a fake platform receives.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use wiremock::Request;

/// A part of a form.
#[derive(Debug, Clone)]
pub struct FormPart {
    pub name: String,
    pub filename: Option<String>,
    pub mime_type: Option<String>,
    pub bytes: Vec<u8>,
}

impl FormPart {
    pub fn text(&self) -> String {
        String::from_utf8(self.bytes.clone()).unwrap()
    }
}

/// Returns the parts of the form in their order.
pub fn form_parts(request: &Request) -> Vec<FormPart> {
    let kind = request.headers.get("content-type").unwrap().to_str().unwrap();
    let (_, boundary) = kind.split_once("boundary=").unwrap();
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    let mut rest = request.body.strip_prefix(format!("--{boundary}").as_bytes()).unwrap();
    let mut parts = Vec::new();
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let head_end = find(part, b"\r\n\r\n").unwrap();
        let (head, body) = (String::from_utf8(part[..head_end].to_vec()).unwrap(), &part[head_end + 4..]);
        let body_end = find(body, &delimiter).unwrap();
        parts.push(FormPart {
            name: between(&head, "name=\"", "\"").unwrap(),
            filename: between(&head, "filename=\"", "\""),
            mime_type: between(&format!("{head}\r\n"), "Content-Type: ", "\r\n"),
            bytes: body[..body_end].to_vec(),
        });
        rest = &body[body_end + delimiter.len()..];
    }
    assert_eq!(rest, b"--\r\n", "the end of the form");
    parts
}

/// Returns the part with this name.
pub fn form_part<'a>(parts: &'a [FormPart], name: &str) -> Option<&'a FormPart> {
    parts.iter().find(|part| part.name == name)
}

fn between(text: &str, before: &str, after: &str) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found.to_owned())
}

/// Looks for the first byte first, because files are large and the tests are not optimized.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut start = 0;
    loop {
        let at = start + bytes[start..].iter().position(|byte| *byte == wanted[0])?;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        start = at + 1;
    }
}
