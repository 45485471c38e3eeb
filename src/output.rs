//! Output of commands: a table for people, JSON for programs.

use std::io::Write as _;

use serde::Serialize;
use serde_json::Value;

/// Prints a line to stdout and ignores errors.
pub fn print_line(text: impl std::fmt::Display) {
    // A closed pipe (`crier … | head`) is not an error.
    let _ = try_print_line(text);
}

/// Like [`print_line`], but returns the error.
pub fn try_print_line(text: impl std::fmt::Display) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// The width of a table in characters, and what its last column has at least.
const MAX_WIDTH: usize = 100;
const MIN_LAST_COLUMN: usize = 12;

/// Prints rows as a JSON array of objects, or as a table with a header, whose last column is cut where the table would
/// be too wide.
pub fn print_rows<T: Serialize>(rows: &[T], json: bool) {
    let values: Vec<Value> = rows.iter().filter_map(|row| serde_json::to_value(row).ok()).collect();
    if json {
        print_line(Value::Array(values));
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
