//! CSV: all widgets in one table, for spreadsheets and for programs. It follows
//! [RFC 4180](https://www.rfc-editor.org/rfc/rfc4180), with CRLF, in UTF-8. The caller writes a byte order
//! mark before it, if it wants one.
//!
//! The first line names the columns: `widget` (the type: `posts_table`), `title`, the keys of all widgets' columns in
//! the order of their first appearance, and `remark`. Every row of a widget is one line, with values in the columns of
//! its own widget. Other columns and unknown values are empty. A widget's remark is a line after its rows. Counts are
//! plain digits, changes are percentages such as `-12.5`, dates `2026-10-01`, times `2026-10-01T09:30:00` (in the
//! document's time zone). Sums are omitted, so that they are not counted twice.
//!
//! A text that a spreadsheet program would evaluate as a formula is guarded ([`spreadsheet`]); a number never is.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;

use ::csv::{Terminator, WriterBuilder};
use crier_domain::report::ReportFormat;
use crier_domain::spreadsheet;

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

/// Returns a cleaned text in which no spreadsheet program finds a formula.
fn guarded(text: &str) -> Cow<'_, str> {
    match clean(text) {
        Cow::Borrowed(text) => spreadsheet::guarded(text),
        Cow::Owned(text) => Cow::Owned(spreadsheet::guarded(&text).into_owned()),
    }
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
    fn texts_are_cleaned_and_guarded() {
        for text in ["=1+1", "\u{1}=1", "\rx"] {
            assert!(guarded(text).starts_with('\''), "{text:?}");
        }
        assert_eq!(guarded("Plan:\r\n- one"), "Plan:\n'- one");
        assert_eq!(field(&Cell::Count(-4)), "-4");
    }
}
