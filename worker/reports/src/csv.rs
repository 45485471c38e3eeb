//! CSV: all widgets in one table, for spreadsheets and for programs. It follows
//! [RFC 4180](https://www.rfc-editor.org/rfc/rfc4180), with CRLF, in UTF-8 without a byte order mark.
//!
//! The first line names the columns: `widget` (the type: `posts_table`), `title`, the keys of all widgets' columns in
//! the order of their first appearance, and `remark`. Every row of a widget is one line, with values in the columns of
//! its own widget. Other columns and unknown values are empty. A widget's remark is a line after its rows. Counts are
//! plain digits, changes are percentages such as `-12.5`, dates `2026-10-01`, times `2026-10-01T09:30:00` (in the
//! document's time zone). Sums are omitted, so that they are not counted twice.
//!
//! Spreadsheet programs evaluate a cell that begins like a formula, so such a text gets a leading apostrophe
//! (<https://owasp.org/www-community/attacks/CSV_Injection>); a number never does. The same applies to each part of a
//! text after a semicolon, a tab or a line break: if a program uses the semicolon as the separator, as Excel does in
//! many languages, quotation marks in the middle of a line do not quote, so these characters begin a new cell.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;

use ::csv::{Terminator, WriterBuilder};
use crier_domain::report::ReportFormat;

use crate::text::clean;
use crate::{Cell, Document, Widget, WriteError};

/// The columns before those of the widgets.
const LEADING_COLUMNS: [&str; 2] = ["widget", "title"];
const REMARK: &str = "remark";

pub fn write(document: &Document, out: &mut dyn Write) -> Result<(), WriteError> {
    let keys = keys(document);
    let indexes: HashMap<&str, usize> =
        keys.iter().enumerate().map(|(at, key)| (*key, at + LEADING_COLUMNS.len())).collect();
    let mut csv = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(out);
    let head = LEADING_COLUMNS.into_iter().chain(keys.iter().copied()).chain([REMARK]);
    csv.write_record(head.map(|name| guarded(name).into_owned())).map_err(failed)?;

    let mut line: Vec<Cow<'_, str>> = vec![Cow::Borrowed(""); LEADING_COLUMNS.len() + keys.len() + 1];
    for widget in &document.widgets {
        line[0] = Cow::Borrowed(widget.widget_type.as_str());
        line[1] = guarded(&widget.title);
        for row in &widget.table.rows {
            fill(&mut line, widget, row, &indexes);
            csv.write_record(line.iter().map(|field| field.as_bytes())).map_err(failed)?;
            line[LEADING_COLUMNS.len()..].fill(Cow::Borrowed(""));
        }
        if let Some(remark) = &widget.remark {
            line[LEADING_COLUMNS.len() + keys.len()] = guarded(remark);
            csv.write_record(line.iter().map(|field| field.as_bytes())).map_err(failed)?;
            line[LEADING_COLUMNS.len()..].fill(Cow::Borrowed(""));
        }
    }
    csv.flush()?;
    Ok(())
}

/// Returns the keys of all columns, without duplicates.
fn keys(document: &Document) -> Vec<&str> {
    let mut keys = Vec::new();
    for column in document.widgets.iter().flat_map(|widget| &widget.table.columns) {
        if !keys.contains(&column.key.as_str()) {
            keys.push(column.key.as_str());
        }
    }
    keys
}

fn fill<'a>(line: &mut [Cow<'a, str>], widget: &'a Widget, row: &'a [Cell], indexes: &HashMap<&str, usize>) {
    for (column, cell) in widget.table.columns.iter().zip(row) {
        if let Some(index) = indexes.get(column.key.as_str()) {
            line[*index] = field(cell);
        }
    }
}

fn field(cell: &Cell) -> Cow<'_, str> {
    match cell {
        Cell::Empty => Cow::Borrowed(""),
        Cell::Text(text) | Cell::Link(text) => guarded(text),
        Cell::Count(count) => Cow::Owned(count.to_string()),
        Cell::Percent(tenths) => Cow::Owned(format!("{:.1}", *tenths as f64 / 10.0)),
        Cell::Date(date) => Cow::Owned(date.format("%Y-%m-%d").to_string()),
        Cell::Time(time) => Cow::Owned(time.format("%Y-%m-%dT%H:%M:%S").to_string()),
    }
}

/// Returns a text in which no spreadsheet program finds a formula.
fn guarded(text: &str) -> Cow<'_, str> {
    let text = clean(text);
    let invisible = |c: char| c.is_whitespace() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '"');
    let begins_formula = |c: char| matches!(c, '=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠');
    let separates = |c: char| matches!(c, ';' | '\t' | '\n');
    if !text.contains(begins_formula) && !text.starts_with(['\t', '\n']) {
        return text;
    }
    let mut guarded = String::with_capacity(text.len() + 8);
    if text.starts_with(['\t', '\n']) {
        guarded.push('\'');
    }
    // The position where the current cell begins, until its first visible character.
    let mut begin = guarded.is_empty().then_some(0);
    for c in text.chars() {
        if let Some(at) = begin.take_if(|_| begins_formula(c)) {
            guarded.insert(at, '\'');
        }
        guarded.push(c);
        if separates(c) {
            begin = Some(guarded.len());
        } else if !invisible(c) {
            begin = None;
        }
    }
    if guarded.len() == text.len() { text } else { Cow::Owned(guarded) }
}

fn failed(error: ::csv::Error) -> WriteError {
    match error.into_kind() {
        ::csv::ErrorKind::Io(error) => WriteError::Io(error),
        other => WriteError::of(ReportFormat::Csv, format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_begins_like_a_formula_is_guarded() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", " \u{a0}=1", "\u{feff}=1", "＝1", "\u{1}=1"] {
            assert!(guarded(text).starts_with('\''), "{text:?}");
        }
        for text in ["", "1+1", "a=b", "'", "https://brot.example/?a=b", "a; b=c; d-e", "one\n1-2", ";", "a;'=1"] {
            assert_eq!(guarded(text), text);
        }
        for (text, expected) in [
            ("a;=1+1", "a;'=1+1"),
            ("a; \u{a0}@x;b;-2;\"+3", "a;' \u{a0}@x;b;'-2;'\"+3"),
            ("Plan:\n- one\n-two", "Plan:\n'- one\n'-two"),
            ("a\t=1", "a\t'=1"),
            ("=1;=2", "'=1;'=2"),
            ("\t=1", "'\t'=1"),
            ("a;;\n=1", "a;;\n'=1"),
        ] {
            assert_eq!(guarded(text), expected, "{text:?}");
        }
        // In linear time.
        let long = "\n".repeat(64 << 10) + "=1";
        assert_eq!(guarded(&long).len(), long.len() + 2);
        assert_eq!(field(&Cell::Count(-4)), "-4");
    }
}
