//! Output of commands: a table for people, JSON for programs.
//!
//! Posts, names and errors are untrusted text. Characters that would control the terminal or reorder its text are printed
//! as escapes.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use crier_config::{Config, DEFAULT_DATA_DIR};
use serde::Serialize;
use serde_json::Value;

/// Prints a line to stdout and ignores errors.
pub fn print_line(text: impl std::fmt::Display) {
    // A closed pipe (`crier … | head`) is not an error.
    let _ = try_print_line(text);
}

/// Like [`print_line`], but returns the error.
pub fn try_print_line(text: impl std::fmt::Display) -> std::io::Result<()> {
    let text = escaped(&text.to_string(), |c| c.escape_unicode().to_string());
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Prints a note to stderr, so that stdout contains only results. Ignores errors.
pub fn print_note(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Asks a question on stderr, and returns whether the answer on stdin is yes.
pub fn confirm(question: impl std::fmt::Display) -> std::io::Result<bool> {
    let question = escaped(&question.to_string(), |c| c.escape_unicode().to_string());
    write!(std::io::stderr().lock(), "{question} [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Prints a single-use link, and a note that says how long it is valid.
pub fn print_link(url: impl std::fmt::Display, lifetime: TimeDelta) {
    print_line(url);
    let minutes = lifetime.num_minutes();
    print_note(format_args!("Open the link in a browser. It works once and expires after {minutes} minutes."));
}

/// Prints a JSON value on a line.
pub fn print_json(value: &Value) {
    print_line(json_text(value));
}

/// Returns a value as JSON, with escapes for characters that would control the terminal.
fn json_text(value: &Value) -> String {
    escaped(&value.to_string(), |c| format!("\\u{:04x}", u32::from(c)))
}

/// The maximum width of a table on a terminal, and the minimum width of its last column, in characters.
const MAX_WIDTH: usize = 100;
const MIN_LAST_COLUMN: usize = 12;

/// Prints rows as a JSON array of objects, or as a table with a header. On a terminal, the last column is cut if the table
/// would be too wide.
pub fn print_rows<T: Serialize>(rows: &[T], json: bool) {
    let values: Vec<Value> = rows.iter().filter_map(|row| serde_json::to_value(row).ok()).collect();
    if json {
        print_json(&Value::Array(values));
        return;
    }
    let Some(Value::Object(first)) = values.first() else {
        print_line("(none)");
        return;
    };
    let names: Vec<String> = first.keys().cloned().collect();
    let mut table = vec![names.iter().map(|n| n.to_uppercase()).collect::<Vec<_>>()];
    for value in &values {
        table.push(names.iter().map(|name| cell(&value[name.as_str()])).collect());
    }
    let mut widths: Vec<usize> =
        (0..names.len()).map(|i| table.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let excess = widths.iter().map(|width| width + 2).sum::<usize>().saturating_sub(MAX_WIDTH + 2);
    if let Some(last) = widths.last_mut() {
        *last = last.saturating_sub(excess).max(MIN_LAST_COLUMN.min(*last));
    }
    for mut row in table {
        if let (Some(cell), Some(width)) = (row.last_mut(), widths.last()) {
            *cell = shortened(cell, *width);
        }
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        print_line(cells.join("  ").trim_end());
    }
}

/// Returns a time for output. In a table, it has no fractions of a second.
pub fn output_time(at: DateTime<Utc>, json: bool) -> DateTime<Utc> {
    if json { at } else { at.trunc_subsecs(0) }
}

/// Returns a command as the operator can run it: with the program as it was started, and with the data directory if it is
/// not the default one.
pub fn command_line(config: &Config, arguments: &str) -> String {
    let program = std::env::args_os().next();
    let program = program.as_deref().map_or("crier".into(), |program| shell_word(Path::new(program)));
    if config.data_dir == Path::new(DEFAULT_DATA_DIR) {
        format!("{program} {arguments}")
    } else {
        format!("{program} {arguments} --data-dir {}", shell_word(&config.data_dir))
    }
}

/// Returns a path as a word for a shell, in quotes if it needs them.
fn shell_word(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = path.chars().all(|c| c.is_alphanumeric() || "/._-+,:@%".contains(c));
    if is_plain { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

/// Returns a text for a cell of a table: on a terminal its first line, with at most `max` characters, otherwise all of it,
/// because a program that reads the table has no width.
pub fn shortened(text: &str, max: usize) -> String {
    if std::io::stdout().is_terminal() { first_line(text, max) } else { text.to_owned() }
}

/// Returns the first line of a text, with at most `max` characters.
fn first_line(text: &str, max: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= max { line.to_owned() } else { line.chars().take(max - 1).chain(['…']).collect() }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        // A row is one line.
        Value::String(text) => escaped(&text.replace(['\n', '\t'], " "), |c| c.escape_unicode().to_string()),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Replaces characters that control a terminal, except for line feeds and tabs.
fn escaped(text: &str, escape: impl Fn(char) -> String) -> String {
    text.chars().map(|c| if is_shown(c) { c.to_string() } else { escape(c) }).collect()
}

const fn is_shown(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => false,
        // These reorder the text around them.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let hostile = "a\u{1b}]0;title\u{7}b\u{9b}31m\r\u{202e}c\n🥐\té";
        let plain = escaped(hostile, |c| c.escape_unicode().to_string());
        assert_eq!(plain, "a\\u{1b}]0;title\\u{7}b\\u{9b}31m\\u{d}\\u{202e}c\n🥐\té");
        assert_eq!(cell(&Value::from("a\nb\u{1b}[2J")), "a b\\u{1b}[2J");
    }

    #[test]
    fn long_texts_end_with_an_ellipsis() {
        assert_eq!(first_line("much longer\nsecond line", 11), "much longer");
        assert_eq!(first_line("much longer", 6), "much …");
        assert_eq!(first_line("", 6), "");
    }

    #[test]
    fn paths_are_words_of_a_shell() {
        for (path, word) in
            [("/var/lib/crier", "/var/lib/crier"), ("../my data", "'../my data'"), ("it's", r"'it'\''s'")]
        {
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }

    #[test]
    fn escaped_json_keeps_its_values() {
        let value = serde_json::json!([{ "text": "\u{1b}\u{9b}\u{202e}é" }]);
        let printed = json_text(&value);
        assert!(printed.chars().all(is_shown));
        assert_eq!(serde_json::from_str::<Value>(&printed).expect("JSON"), value);
    }
}
