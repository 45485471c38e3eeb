//! Reads HTML as a sequence of tags and texts with html5ever's tokenizer, in time linear to its length for any input.
//! (A tree parser is not linear: a few kilobytes of `<p><b a><b b>…` become a tree of gigabytes. Nor is the tokenizer
//! for a tag with thousands of attributes, because it compares all of them with each other: reading stops there.) The
//! content of scripts, styles and similar elements is skipped, and that of a `<title>` is separate from other text.

use std::cell::{Cell, RefCell};
use std::iter;
use std::ops::ControlFlow;

use html5ever::tokenizer::states::{RawKind, Rawtext, Rcdata, ScriptData};
use html5ever::tokenizer::{BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};

/// A tag or a text.
#[derive(Debug)]
pub enum HtmlToken<'a> {
    Open(&'a str, Attributes<'a>),
    Close(&'a str),
    /// With character references resolved.
    Text(&'a str),
    /// A part of the text of a `<title>`, with character references resolved.
    Title(&'a str),
}

/// The attributes of a tag.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a>(&'a Tag);

impl Attributes<'_> {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.attrs.iter().find(|a| &*a.name.local == name).map(|a| &*a.value)
    }
}

/// The number of bytes per call of the tokenizer.
const STEP: usize = 1 << 10;
/// Maximum number of spaces and slashes in a tag. Each of them may start an attribute.
const MAX_TAG_GAPS: usize = 500;

/// Calls `each` with every token of the first `limit` bytes, until it returns `Break`.
pub fn walk(html: &str, limit: usize, each: impl FnMut(HtmlToken<'_>) -> ControlFlow<()>) {
    let sink =
        Sink { each: RefCell::new(each), hidden: Cell::new(None), saw_token: Cell::new(false), done: Cell::new(false) };
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    // Comments are removed first, because they may be long and full of spaces.
    let mut parts = html[..html.floor_char_boundary(limit)].split("<!--");
    let first = parts.next().unwrap_or_default();
    let mut gaps = 0;
    for part in iter::once(first).chain(parts.map(|part| part.split_once("-->").map_or("", |(_, after)| after))) {
        let mut rest = part;
        while !rest.is_empty() {
            let (step, after) = rest.split_at(rest.floor_char_boundary(STEP));
            let input = BufferQueue::default();
            input.push_back(step.into());
            let _ = tokenizer.feed(&input);
            gaps = if tokenizer.sink.saw_token.take() { 0 } else { gaps + step.bytes().filter(is_gap).count() };
            if tokenizer.sink.done.get() || gaps > MAX_TAG_GAPS {
                return;
            }
            rest = after;
        }
    }
    tokenizer.end();
}

fn is_gap(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || *byte == b'/'
}

struct Sink<F> {
    each: RefCell<F>,
    /// The open element whose text is skipped.
    hidden: Cell<Option<&'static str>>,
    /// Whether a tag or text was seen since the last check.
    saw_token: Cell<bool>,
    done: Cell<bool>,
}

/// Returns the tokenizer state for an element whose text is skipped; `None` for all others.
fn hidden(name: &str) -> Option<(&'static str, RawKind)> {
    Some(match name {
        "script" => ("script", ScriptData),
        "style" => ("style", Rawtext),
        "iframe" => ("iframe", Rawtext),
        "noembed" => ("noembed", Rawtext),
        "noframes" => ("noframes", Rawtext),
        "xmp" => ("xmp", Rawtext),
        "title" => ("title", Rcdata),
        "textarea" => ("textarea", Rcdata),
        _ => return None,
    })
}

impl<F: FnMut(HtmlToken<'_>) -> ControlFlow<()>> Sink<F> {
    fn emit(&self, token: HtmlToken<'_>) {
        if !self.done.get() && (self.each.borrow_mut())(token).is_break() {
            self.done.set(true);
        }
    }
}

impl<F: FnMut(HtmlToken<'_>) -> ControlFlow<()>> TokenSink for Sink<F> {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        self.saw_token.set(self.saw_token.get() || matches!(token, Token::TagToken(_) | Token::CharacterTokens(_)));
        match token {
            Token::TagToken(tag) if tag.kind == TagKind::EndTag => {
                if self.hidden.get() == Some(&*tag.name) {
                    self.hidden.set(None);
                } else if self.hidden.get().is_none() {
                    self.emit(HtmlToken::Close(&tag.name));
                }
            }
            Token::TagToken(tag) => {
                if let Some((name, kind)) = hidden(&tag.name) {
                    self.hidden.set(Some(name));
                    return TokenSinkResult::RawData(kind);
                }
                self.emit(HtmlToken::Open(&tag.name, Attributes(&tag)));
            }
            Token::CharacterTokens(text) => match self.hidden.get() {
                None => self.emit(HtmlToken::Text(&text)),
                Some("title") => self.emit(HtmlToken::Title(&text)),
                Some(_) => {}
            },
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_ordered_and_hidden_text_is_skipped() {
        let mut seen = String::new();
        let html =
            "a&amp;<b x=1 x=2>b</b><script>if (a<b) '</b>'</script><title>t</title>c<!-- d --><img src='i&#47;'>";
        walk(html, html.len(), |token| {
            seen += &match token {
                HtmlToken::Open(name, attributes) => {
                    format!("<{name} {:?}>", attributes.get("src").or(attributes.get("x")))
                }
                HtmlToken::Close(name) => format!("</{name}>"),
                HtmlToken::Text(text) => text.to_owned(),
                HtmlToken::Title(text) => format!("[{text}]"),
            };
            ControlFlow::Continue(())
        });
        assert_eq!(seen, "a&<b Some(\"1\")>b</b>[t]c<img Some(\"i/\")>");
        let mut count = 0;
        let mut counted = |html: &str, limit| {
            count = 0;
            walk(html, limit, |_| {
                count += 1;
                if count < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            count
        };
        assert_eq!(counted("ééé", 3), 1, "cut between two characters");
        assert_eq!(counted(&"<b>".repeat(5_000), 50_000), 3, "until it is enough");
    }

    #[test]
    fn parsing_stops_at_an_unterminated_tag() {
        let text = |html: &str| {
            let mut out = String::new();
            walk(html, html.len(), |token| {
                if let HtmlToken::Text(text) = token {
                    out += text;
                }
                ControlFlow::Continue(())
            });
            out
        };
        let attributes: String = (0..5_000).map(|n| format!("a{n} ")).collect();
        assert_eq!(text(&format!("x<b {attributes}>y")), "x");
        for harmless in ["<!-- a / -->", "<img src='data:image/png;base64,AAAA/'>", "<b c=d>", "é "] {
            let html = format!("x{}y", harmless.repeat(2_000));
            assert!(text(&html).ends_with('y'), "{harmless}");
        }
        let comment = format!("x<!-- {attributes} -->y<!-- {attributes}");
        assert_eq!(text(&comment), "xy");
    }
}
