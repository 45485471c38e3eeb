//! Parses a start tag into name and attributes, in one pass.
//!
//! Invalid attributes (a name without a value, an unquoted value, anything that stops the parser) are skipped. A
//! rewritten tag contains only the parsed attributes, so the parser sees exactly those that were checked here.

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

    pub fn attributes(self) -> Attributes<'a> {
        Attributes { rest: self.inside }
    }
}

/// `name="value"`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    pub name: &'a str,
    /// Unparsed, including references. Does not contain `quote`.
    pub value: &'a str,
    pub quote: char,
}

/// Iterates over a tag's attributes. Looks at each byte at most twice.
#[derive(Debug)]
pub struct Attributes<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        loop {
            self.rest = self.rest.trim_start_matches(|c: char| is_space(c) || c == '/');
            if self.rest.is_empty() {
                return None;
            }
            let end = self.rest.find(|c: char| is_space(c) || matches!(c, '=' | '/')).unwrap_or(self.rest.len());
            let (name, after) = self.rest.split_at(end);
            let Some(value) = after.trim_start_matches(is_space).strip_prefix('=') else {
                self.rest = after;
                continue;
            };
            let value = value.trim_start_matches(is_space);
            let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
                self.rest = &value[value.find(is_space).unwrap_or(value.len())..];
                continue;
            };
            let Some((value, after)) = value[1..].split_once(quote) else {
                self.rest = "";
                return None;
            };
            self.rest = after;
            if !name.is_empty() && !name.contains(['"', '\'', '<', '&']) {
                return Some(Attribute { name, value, quote });
            }
        }
    }
}

/// Returns whether a character separates attributes. Called for every character outside of a value, so tests count
/// steps here.
fn is_space(c: char) -> bool {
    #[cfg(test)]
    tests::STEPS.set(tests::STEPS.get() + 1);
    c.is_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    std::thread_local! {
        pub static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn tag_parsing_is_linear() {
        let steps = |text: &str| {
            STEPS.set(0);
            let read = Tag::new(text).attributes().count();
            assert!(read <= text.len() / 4);
            STEPS.get()
        };
        for piece in
            [" src=''", " a", " a=b", "=", " ='", " / ", " a \t\n", " a=\"'\"", "'", "\"b='' ", " xml:base='x'"]
        {
            let tag = |n| format!("<content{}>", piece.repeat(n));
            let (once, twice) = (steps(&tag(1_000)), steps(&tag(2_000)));
            assert!(
                once <= 4 * tag(1_000).len() && twice <= 2 * once + 8,
                "{piece}: {once}, and {twice} of twice as many"
            );
        }
    }

    #[test]
    fn attributes_keep_order_and_invalid_ones_are_skipped() {
        let read = |text: &str| {
            let tag = Tag::new(text);
            let all = tag.attributes().map(|a| format!(" {}={}{}{}", a.name, a.quote, a.value, a.quote));
            format!("{}{}{}", tag.name, all.collect::<String>(), if tag.is_empty { "/" } else { "" })
        };
        for (text, right) in [
            ("<a>", "a"),
            ("<a/>", "a/"),
            ("<a:b\n c = '>' d\t=\"'\" />", "a:b c='>' d=\"'\"/"),
            ("<a b='1'c='2'>", "a b='1' c='2'"),
            ("<a b c='2' d=e f='3' = '4'>", "a c='2' f='3'"),
            ("<a/b='1' / c='2'>", "a b='1' c='2'"),
            ("<a b=x/y c='2'/>", "a c='2'/"),
            ("<a b=\"1'>", "a"),
            ("<a\"b='1' c='2'>", "a c='2'"),
            ("<a<b c='2'>", "a c='2'"),
            ("<a é='ü' xml:base='x'>", "a é='ü' xml:base='x'"),
            ("<", ""),
        ] {
            assert_eq!(read(text), right, "{text}");
        }
    }
}
