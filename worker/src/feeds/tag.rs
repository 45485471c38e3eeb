//! Splits a start tag into name and attributes. The only module that uses `quick_xml`, which the parser uses too.
//!
//! Invalid attributes (a name without a value, an unquoted value, a name with a quote) are skipped. A rewritten tag
//! contains only the parsed attributes, so the parser sees exactly those that were checked here.

use std::borrow::Cow;

use quick_xml::events::attributes;

/// A start tag, from its `<` to its `>`.
#[derive(Clone, Copy, Debug)]
pub struct Tag<'a> {
    pub name: &'a str,
    /// Whether it is self-closing.
    pub is_empty: bool,
    /// The text between its name and its end.
    inside: &'a str,
}

impl<'a> Tag<'a> {
    /// Parses a tag; `text` begins with `<` and ends with `>`.
    pub fn new(text: &'a str) -> Self {
        let text = text.strip_prefix('<').unwrap_or(text);
        let text = text.strip_suffix('>').unwrap_or(text);
        let (text, is_empty) = text.strip_suffix('/').map_or((text, false), |text| (text, true));
        let ends_name = |c: char| c.is_whitespace() || matches!(c, '/' | '<' | '>' | '"' | '\'');
        let (name, inside) = text.split_at(text.find(ends_name).unwrap_or(text.len()));
        Self { name, is_empty, inside }
    }

    /// Returns names and values, unparsed, including references. A value does not contain both kinds of quotes.
    pub fn attributes(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut all = attributes::Attributes::new(self.inside, 0);
        // Duplicates are kept. For an invalid attribute, the iterator returns an error and continues after it.
        all.with_checks(false);
        all.flatten().filter_map(|attribute| {
            let name = attribute.key.into_inner().trim_start_matches('/');
            let Cow::Borrowed(value) = attribute.value else { return None };
            let valid = !name.is_empty() && !name.contains(['"', '\'', '<', '&', '/']);
            valid.then_some((name, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_keep_order_and_invalid_ones_are_skipped() {
        let read = |text: &str| {
            let tag = Tag::new(text);
            let all = tag.attributes().map(|(name, value)| format!(" {name}={value}"));
            format!("{}{}{}", tag.name, all.collect::<String>(), if tag.is_empty { "/" } else { "" })
        };
        for (text, right) in [
            ("<a>", "a"),
            ("<a/>", "a/"),
            ("<a:b\n c = '>' d\t=\"'\" />", "a:b c=> d='/"),
            ("<a b='1'c='2'>", "a b=1 c=2"),
            ("<a b='1' b='2'>", "a b=1 b=2"),
            ("<a b c='2' d=e f='3' = '4'>", "a c=2 f=3"),
            ("<a/b='1' / c='2'>", "a b=1 c=2"),
            ("<a b=x/y c='2'/>", "a c=2/"),
            ("<a b=\"1'>", "a"),
            ("<a\"b='1' c='2'>", "a c=2"),
            ("<a<b c='2'>", "a c=2"),
            ("<a é='ü' xml:base='x'>", "a é=ü xml:base=x"),
            ("<", ""),
        ] {
            assert_eq!(read(text), right, "{text}");
        }
    }

    /// Quadratic time would take minutes.
    #[test]
    fn tag_parsing_is_linear() {
        for piece in
            [" src=''", " a", " a=b", "=", " ='", " / ", " a \t\n", " a=\"'\"", "'", "\"b='' ", " xml:base='x'"]
        {
            let text = format!("<content{}>", piece.repeat(200_000));
            assert!(Tag::new(&text).attributes().count() <= text.len() / 4, "{piece}");
        }
    }
}
