//! HTML as a row of tags and texts, read by the tokenizer of html5ever: in time in proportion to its length, whatever it is.
//! (A tree is not: a few kilobytes of `<p><b a><b b>…` make one of gigabytes.) What stands in scripts, styles and their like
//! is left out.

use std::cell::{Cell, RefCell};

use html5ever::tokenizer::states::{RawKind, Rawtext, Rcdata, ScriptData};
use html5ever::tokenizer::{BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};

/// A piece of HTML.
#[derive(Debug)]
pub enum Piece<'a> {
    Open(&'a str, Attributes<'a>),
    Close(&'a str),
    /// With its references resolved.
    Text(&'a str),
}

/// A tag's attributes.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a>(&'a Tag);

impl Attributes<'_> {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.attrs.iter().find(|a| &*a.name.local == name).map(|a| &*a.value)
    }
}

/// Gives each piece of at most the first `limit` bytes to `each`.
pub fn walk(html: &str, limit: usize, each: impl FnMut(Piece<'_>)) {
    let sink = Sink { each: RefCell::new(each), hidden: Cell::new(None) };
    let input = BufferQueue::default();
    input.push_back(html[..html.floor_char_boundary(limit)].into());
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    let _ = tokenizer.feed(&input);
    tokenizer.end();
}

struct Sink<F> {
    each: RefCell<F>,
    /// The element whose text is left out, until its end.
    hidden: Cell<Option<&'static str>>,
}

/// How the text in an element is to be read that is not shown; `None` for all others.
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

impl<F: FnMut(Piece<'_>)> TokenSink for Sink<F> {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut each = self.each.borrow_mut();
        match token {
            Token::TagToken(tag) if tag.kind == TagKind::EndTag => {
                if self.hidden.get() == Some(&*tag.name) {
                    self.hidden.set(None);
                } else if self.hidden.get().is_none() {
                    each(Piece::Close(&tag.name));
                }
            }
            Token::TagToken(tag) => {
                if let Some((name, kind)) = hidden(&tag.name) {
                    self.hidden.set(Some(name));
                    return TokenSinkResult::RawData(kind);
                }
                each(Piece::Open(&tag.name, Attributes(&tag)));
            }
            Token::CharacterTokens(text) if self.hidden.get().is_none() => each(Piece::Text(&text)),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_in_order_and_hidden_ones_do_not() {
        let mut seen = String::new();
        let html =
            "a&amp;<b x=1 x=2>b</b><script>if (a<b) '</b>'</script><title>t</title>c<!-- d --><img src='i&#47;'>";
        walk(html, html.len(), |piece| match piece {
            Piece::Open(name, attributes) => {
                seen += &format!("<{name} {:?}>", attributes.get("src").or(attributes.get("x")))
            }
            Piece::Close(name) => seen += &format!("</{name}>"),
            Piece::Text(text) => seen += text,
        });
        assert_eq!(seen, "a&<b Some(\"1\")>b</b>c<img Some(\"i/\")>");
        let mut count = 0;
        walk("ééé", 3, |_| count += 1);
        assert_eq!(count, 1, "cut between two characters");
    }
}
