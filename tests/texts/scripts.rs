//! The visible texts in scripts: the literals that begin like a text. `${…}` is shown as `{}`.

use std::sync::LazyLock;

use regex::Regex;

/// Comments have apostrophes, so they are matched too.
static LITERAL: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?s)//[^\n]*|/\*.*?\*/|'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`"#;
    Regex::new(pattern).expect("a pattern")
});
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$\{[^{}]*\}").expect("a pattern"));
/// The characters that separate a name from the text around it.
static ISOLATE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\\u20[0-9A-Fa-f]{2}").expect("a pattern"));

/// Returns the visible texts of a script, in their order.
pub fn texts(source: &str) -> Vec<String> {
    let literal = |found: regex::Captures<'_>| {
        let text = PLACEHOLDER.replace_all(found.iter().skip(1).flatten().next()?.as_str(), "{}");
        let text = ISOLATE.replace_all(&text, "").into_owned();
        Some(text).filter(|text| is_visible(text))
    };
    LITERAL.captures_iter(source).filter_map(literal).collect()
}

/// Returns whether a literal is shown: others are names of elements, events, fields and headers.
fn is_visible(text: &str) -> bool {
    let is_word = text.len() > 3 && text.chars().skip(1).all(|c| c.is_ascii_lowercase());
    let has_words = text.contains(' ') && text.replace("{}", "").chars().any(char::is_alphabetic);
    (is_word || has_words) && text.starts_with(|first: char| first.is_uppercase() || first == '{')
}

#[test]
fn texts_are_told_from_other_literals() {
    let script = "// It's a comment.\n\
                  say('The image is now first.', \"it's\");\n\
                  button.textContent = `Upload of \\u2068${name}\\u2069`;\n\
                  find('form [name=media]', 'POST', 'X-CSRF-Token', `${a} ${b}`).className = 'notice bad';\n\
                  show('Paused'); /* 'Not this one.' */ tell(`${count} selected`);";
    assert_eq!(texts(script), ["The image is now first.", "Upload of {}", "Paused", "{} selected"]);
}
