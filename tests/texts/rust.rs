//! The visible texts in Rust sources: string literals that read like text, and the help in doc comments of commands.

use std::iter::Peekable;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};

/// Texts in these macros and functions are for developers.
const NOT_VISIBLE: [&str; 18] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug",
    "debug_span",
    "expect",
    "expect_err",
    "info_span",
    "matches",
    "metric_name",
    "panic",
    "query",
    "query_as",
    "query_scalar",
    "sql",
    "todo",
    "trace",
    "unreachable",
];
/// Attributes with visible texts. `doc` has some if the file is one of the command line.
const VISIBLE_ATTRIBUTES: [&str; 4] = ["arg", "command", "error", "value"];
const SQL: [&str; 16] = [
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "WITH",
    "CREATE",
    "BEGIN",
    "PRAGMA",
    "SET",
    "AND",
    "WHERE",
    "FROM",
    "ORDER",
    "SAVEPOINT",
    "NOTIFY",
    "VACUUM",
];

/// Returns the visible texts of a source file, in their order.
pub fn texts(source: &str, is_command_line: bool) -> Vec<String> {
    let tokens: TokenStream = source.parse().expect("Rust source");
    let mut reader = Reader { is_command_line, texts: Vec::new() };
    reader.read(tokens);
    reader.texts
}

struct Reader {
    is_command_line: bool,
    texts: Vec<String>,
}

impl Reader {
    fn read(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        let mut last_word = String::new();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let Some(attribute) = next_attribute(&mut tokens) else { continue };
                    if attribute.to_string() == "cfg (test)" {
                        skip_item(&mut tokens);
                    } else {
                        self.read_attribute(attribute);
                    }
                }
                TokenTree::Ident(ident) => last_word = ident.to_string(),
                TokenTree::Group(group) => {
                    let is_call = group.delimiter() != Delimiter::Brace;
                    if !(is_call && NOT_VISIBLE.contains(&last_word.as_str())) {
                        self.read(group.stream());
                    }
                    last_word.clear();
                }
                TokenTree::Literal(literal) => {
                    self.texts.extend(text_of(&literal).filter(|text| reads_like_text(text)))
                }
                TokenTree::Punct(_) => {}
            }
        }
    }

    fn read_attribute(&mut self, attribute: TokenStream) {
        let name = attribute.clone().into_iter().next().map(|token| token.to_string()).unwrap_or_default();
        if VISIBLE_ATTRIBUTES.contains(&name.as_str()) {
            self.read(attribute);
        } else if self.is_command_line && name == "doc" {
            let text = attribute.into_iter().find_map(|token| match token {
                TokenTree::Literal(literal) => text_of(&literal),
                _ => None,
            });
            self.texts.extend(text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()));
        }
    }
}

/// Returns what is between the brackets of an attribute whose `#` was read.
fn next_attribute(tokens: &mut Peekable<IntoIter>) -> Option<TokenStream> {
    tokens.next_if(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == '!'));
    match tokens.next_if(|token| is_group(token, Delimiter::Bracket)) {
        Some(TokenTree::Group(group)) => Some(group.stream()),
        _ => None,
    }
}

/// Skips an item: to its block or its semicolon.
fn skip_item(tokens: &mut Peekable<IntoIter>) {
    tokens
        .find(|token| is_group(token, Delimiter::Brace) || matches!(token, TokenTree::Punct(p) if p.as_char() == ';'));
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if Group::delimiter(group) == delimiter)
}

/// Returns the value of a string literal, on one line.
fn text_of(literal: &Literal) -> Option<String> {
    let source = literal.to_string();
    if let Some(raw) = source.strip_prefix('r') {
        let inner = raw.trim_matches('#').strip_prefix('"')?.strip_suffix('"')?;
        return Some(one_line(inner));
    }
    let inner = source.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::new();
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                'n' | 't' => text.push(' '),
                // The indentation of the next line is no part of the literal.
                '\n' => while chars.next_if(|next| next.is_whitespace()).is_some() {},
                'u' => {
                    let code: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                    text.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
                }
                escaped => text.push(escaped),
            },
            c => text.push(c),
        }
    }
    Some(one_line(&text))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether a literal has two words beside each other, and is not SQL, HTML, JSON or a format of a document.
fn reads_like_text(text: &str) -> bool {
    let first = text.split(' ').next().unwrap_or_default();
    let is_word = |word: &&str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        word.len() > 1 && word.chars().all(|c| c.is_lowercase() || c == '-' || c == '\'')
    };
    let words = text.split(' ').filter(is_word).count();
    let is_code = SQL.iter().any(|word| text.split(' ').any(|w| w == *word))
        || text.contains(['<', '\u{1}'])
        || first.starts_with(['{', '%', '/']) && text.contains("\":")
        || text.contains("::")
        || text.contains(" = $")
        || text.starts_with("Mozilla/");
    words >= 1 && text.contains(' ') && !is_code
}
