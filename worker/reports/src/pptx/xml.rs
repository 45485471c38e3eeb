//! The XML of the presentation's parts, as text. Values from the document, and only those, are escaped with [`escape`]
//! or [`escape_value`].

use crate::text::clean;

pub const HEADER: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n";
/// The namespaces of slides and charts.
pub const NAMESPACES: &str = "xmlns:a=\"http://schemas.openxmlformats.org/drawingml/2006/main\" \
     xmlns:r=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships\"";

/// Returns a text for an element's content or an attribute in quotation marks.
pub fn escape(text: &str) -> String {
    let text = clean(text);
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Escapes a value of a chart. In its type (`ST_Xstring`), programs decode `_x0041_` to `A`, so the underscore of such
/// a sequence is encoded. The texts of slides are plain strings, for which [`escape`] is enough.
pub fn escape_value(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(at) = rest.find("_x") {
        let (before, found) = rest.split_at(at);
        escaped.push_str(&escape(before));
        let is_code =
            found.len() >= 7 && found.as_bytes()[2..6].iter().all(u8::is_ascii_hexdigit) && found.as_bytes()[6] == b'_';
        escaped.push_str(if is_code { "_x005F_" } else { "_" });
        rest = &found[1..];
    }
    escaped.push_str(&escape(rest));
    escaped
}

/// Returns a color as `RRGGBB`.
pub fn color(rgb: u32) -> String {
    format!("{rgb:06X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(escape("<b>&\"\u{0}'</b>"), "&lt;b&gt;&amp;&quot;'&lt;/b&gt;");
        assert_eq!(escape("_x0041_"), "_x0041_");
        assert_eq!(escape_value("_x0041_"), "_x005F_x0041_");
        assert_eq!(escape_value("a_x_x0041_x004G__x<"), "a_x_x005F_x0041_x004G__x&lt;");
        assert_eq!(escape_value("_xäöü_"), "_xäöü_");
    }
}
