//! Output of commands: a table for people, JSON for programs.

use std::io::Write as _;

use serde::Serialize;
use serde_json::Value;

/// Prints a line to stdout and ignores errors.
pub fn line(text: impl std::fmt::Display) {
    // A closed pipe (`crier … | head`) is not an error.
    let _ = try_line(text);
}

/// Like [`line`], but returns the error.
pub fn try_line(text: impl std::fmt::Display) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Prints rows as a JSON array of objects, or as a table with a header.
pub fn rows<T: Serialize>(rows: &[T], json: bool) {
    let values: Vec<Value> = rows.iter().filter_map(|row| serde_json::to_value(row).ok()).collect();
    if json {
        line(Value::Array(values));
        return;
    }
    let Some(Value::Object(first)) = values.first() else {
        line("(none)");
        return;
    };
    let names: Vec<String> = first.keys().cloned().collect();
    let mut table = vec![names.iter().map(|n| n.to_uppercase()).collect::<Vec<_>>()];
    for value in &values {
        table.push(names.iter().map(|name| cell(&value[name.as_str()])).collect());
    }
    let widths: Vec<usize> =
        (0..names.len()).map(|i| table.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    for row in table {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        line(cells.join("  ").trim_end());
    }
}

/// Returns the first line of a text, with at most `max` characters.
pub fn shortened(text: &str, max: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= max { line.to_owned() } else { line.chars().take(max - 1).chain(['…']).collect() }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}
