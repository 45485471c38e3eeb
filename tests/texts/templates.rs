//! The visible texts in templates: what is between tags, in attributes that are shown, and in calls of macros.

use std::sync::LazyLock;

use regex::Regex;

macro_rules! pattern {
    ($name:ident, $pattern:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($pattern).expect("a pattern"));
    };
}

pattern!(INVISIBLE, r"(?s)<(script|style|svg)\b.*?</(script|style|svg)>|\{#.*?#\}|<!--.*?-->");
pattern!(EXPRESSION, r"(?s)\{\{.*?\}\}");
pattern!(STATEMENT, r"(?s)\{%.*?%\}");
pattern!(INLINE, r"</?(b|a|code|em|strong|span|time|kbd|abbr|i|small)\b[^>]*>");
pattern!(TAG, r"(?s)<[^>]*>");
pattern!(ATTRIBUTE, r#"(?s)\b(?:placeholder|title|aria-label|alt|data-confirm|data-[a-z-]*text|content)="([^"]*)""#);
pattern!(LITERAL, r#""([^"]*)""#);

/// Returns the visible texts of an Askama template. An expression is shown as `{}`.
pub fn texts(source: &str) -> Vec<String> {
    let source = INVISIBLE.replace_all(source, "\n");
    let mut texts = Vec::new();
    for code in EXPRESSION.find_iter(&source).chain(STATEMENT.find_iter(&source)) {
        texts
            .extend(LITERAL.captures_iter(code.as_str()).map(|literal| literal[1].to_owned()).filter(|t| is_phrase(t)));
    }
    let source = EXPRESSION.replace_all(&source, "{}");
    let source = STATEMENT.replace_all(&source, "\n");
    texts.extend(ATTRIBUTE.captures_iter(&source).map(|attribute| attribute[1].to_owned()));
    let source = INLINE.replace_all(&source, "");
    texts.extend(TAG.replace_all(&source, "\n").lines().map(str::to_owned));
    let shown = |text: String| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        text.replace("{}", "").chars().any(char::is_alphabetic).then_some(text)
    };
    texts.into_iter().filter_map(shown).collect()
}

/// Returns whether an argument of a macro is shown: others are names of icons, paths and values.
fn is_phrase(text: &str) -> bool {
    text.contains(' ') && !text.contains(['/', '=']) || text.starts_with(char::is_uppercase)
}
