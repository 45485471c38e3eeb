//! The visible texts in Rust sources: string literals that read like text, and the help in doc comments of commands.

use std::sync::LazyLock;

use regex::{Captures, Regex};

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
/// Attributes with visible texts.
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

/// The tokens of Rust that matter here. Others, and lifetimes, are skipped.
static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r##"(?xs)
        //[/!](?<doc>[^\n]*) | //[^\n]* | /\*.*?\*/
        | r\#\#"(?<raw2>.*?)"\#\# | r\#"(?<raw1>.*?)"\# | r"(?<raw>[^"]*)" 
        | b"(?:[^"\\]|\\.)*" | "(?<text>(?:[^"\\]|\\.)*)"
        | '(?:[^'\\]|\\[^u]|\\u\{[^}]*\}|\\x..)' | '\w+
        | (?<word>[\w&&[^0-9]]\w*) | (?<sign>[\#!;(){}\[\]])"##;
    Regex::new(pattern).expect("a pattern")
});

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Doc(String),
    Text(String),
    Word(String),
    Sign(char),
}

/// Returns the visible texts of a source file, in their order. `is_command_line`: doc comments are shown as help.
pub fn texts(source: &str, is_command_line: bool) -> Vec<String> {
    let tokens: Vec<Token> = TOKEN.captures_iter(source).filter_map(|found| token(&found)).collect();
    let mut texts = Vec::new();
    let mut at = 0;
    let mut last_word = "";
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            Token::Doc(text) if is_command_line => texts.extend(Some(one_line(text)).filter(|text| !text.is_empty())),
            Token::Text(text) => texts.extend(Some(one_line(text)).filter(|text| reads_like_text(text))),
            Token::Word(word) => last_word = word,
            Token::Sign('#') => at = after_attribute(&tokens, at),
            Token::Sign('(' | '[') if NOT_VISIBLE.contains(&last_word) => at = end_of_group(&tokens, at),
            Token::Sign('(' | '[' | '{') => last_word = "",
            Token::Doc(_) | Token::Sign(_) => {}
        }
    }
    texts
}

fn token(found: &Captures<'_>) -> Option<Token> {
    let text = |name| found.name(name).map(|text| text.as_str());
    if let Some(raw) = text("raw2").or(text("raw1")).or(text("raw")) {
        return Some(Token::Text(raw.to_owned()));
    }
    let escaped = text("text").map(|text| Token::Text(unescape(text)));
    escaped
        .or_else(|| text("doc").map(|text| Token::Doc(text.to_owned())))
        .or_else(|| text("word").map(|text| Token::Word(text.to_owned())))
        .or_else(|| text("sign").and_then(|text| text.chars().next()).map(Token::Sign))
}

/// Returns the place after an attribute whose `#` is before `at`, and after the item that it keeps for tests. Returns the
/// place of its contents if they are visible.
fn after_attribute(tokens: &[Token], mut at: usize) -> usize {
    at += usize::from(tokens.get(at) == Some(&Token::Sign('!')));
    if tokens.get(at) != Some(&Token::Sign('[')) {
        return at;
    }
    let end = end_of_group(tokens, at + 1);
    match tokens.get(at + 1..end) {
        Some([Token::Word(cfg), _, Token::Word(test), ..]) if cfg == "cfg" && test == "test" => {
            end_of_item(tokens, end)
        }
        Some([Token::Word(name), ..]) if VISIBLE_ATTRIBUTES.contains(&name.as_str()) => at + 1,
        _ => end,
    }
}

/// Returns the place after the bracket that closes the group which was opened before `at`.
fn end_of_group(tokens: &[Token], mut at: usize) -> usize {
    let mut open = 1;
    while open > 0 && at < tokens.len() {
        match tokens[at] {
            Token::Sign('(' | '[' | '{') => open += 1,
            Token::Sign(')' | ']' | '}') => open -= 1,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Returns the place after an item: after its block or its semicolon.
fn end_of_item(tokens: &[Token], mut at: usize) -> usize {
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            Token::Sign('{') => return end_of_group(tokens, at),
            Token::Sign(';') => return at,
            Token::Sign('(' | '[') => at = end_of_group(tokens, at),
            _ => {}
        }
    }
    at
}

fn unescape(literal: &str) -> String {
    let mut text = String::new();
    let mut chars = literal.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('n' | 't') => text.push(' '),
            // The indentation of the next line is no part of the literal.
            Some('\n') => while chars.next_if(|next| next.is_whitespace()).is_some() {},
            Some('u') => {
                let code: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                text.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
            }
            escaped => text.extend(escaped),
        }
    }
    text
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
