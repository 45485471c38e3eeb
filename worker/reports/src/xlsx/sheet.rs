//! The sheet of a widget: its title, its table, its remark, and its chart beside the table.

use std::collections::HashSet;

use rust_xlsxwriter::{ColNum, RowNum, Table as ExcelTable, TableColumn, TableStyle, Worksheet, XlsxError};

use super::cells::{Formats, MAX_TEXT, Writer};
use super::chart;
use crate::text::{self, clean, single_line, utf16_parts, width};
use crate::{Cell, Column, ColumnType, Document, Table, View, Widget};

/// The row of the heads.
pub const HEAD: RowNum = 3;
/// Excel's limit of a table's column name is 255 characters; the rest is for a number.
const MAX_LABEL: usize = 240;
/// Rows whose texts are measured for the width of the columns.
const MEASURED_ROWS: usize = 500;
const MIN_WIDTH: usize = 9;
const MAX_WIDTH: usize = 52;
/// A longer label of counts is wrapped.
const MAX_COUNT_WIDTH: usize = 18;
const NOTE_WIDTH: usize = 100;
/// Of a line, in points; and Excel's limit of a row.
const LINE_HEIGHT: f64 = 15.0;
const MAX_HEIGHT: f64 = 405.0;

pub fn add(
    sheet: &mut Worksheet,
    document: &Document,
    widget: &Widget,
    name: &str,
    formats: &Formats,
) -> Result<(), XlsxError> {
    sheet.set_name(name)?.set_screen_gridlines(false).set_landscape().set_paper_size(9);
    sheet.set_print_fit_to_pages(1, 0).set_footer("&L&A&R&P / &N");
    let mut writer = Writer::new(sheet, formats);
    writer.text(0, 0, &single_line(&widget.title), &formats.title)?;
    let subtitle = format!("{}, {}", single_line(&document.brand), document.period.words());
    writer.text(1, 0, &subtitle, &formats.subtitle)?;
    let end = match &widget.view {
        View::Text => add_paragraphs(&mut writer, &widget.table)?,
        View::Figures | View::Chart(_) | View::Table => add_table(&mut writer, &widget.table)?,
    };
    if let Some(remark) = &widget.remark {
        // Not wrapped: it runs over the empty cells beside it, below a first column of any width.
        writer.text(end + 1, 0, &single_line(remark), &formats.remark)?;
    }
    if let View::Chart(chart) = &widget.view
        && !widget.table.rows.is_empty()
    {
        let place = widget.table.columns.len() as ColNum + 1;
        let drawn = chart::of_sheet(chart, &widget.table, name, &single_line(&widget.title));
        writer.sheet.insert_chart(HEAD, place, &drawn)?;
    }
    Ok(())
}

/// Writes the rows, with the sums below them, and returns the row after the last.
fn add_table(writer: &mut Writer<'_>, table: &Table) -> Result<RowNum, XlsxError> {
    let formats = writer.formats;
    let labels = labels(&table.columns);
    let mut widths = Vec::with_capacity(labels.len());
    for (at, (column, label)) in table.columns.iter().zip(&labels).enumerate() {
        writer.text(HEAD, at as ColNum, label, formats.head(column))?;
        widths.push(column_width(table, at, label));
        writer.sheet.set_column_width(at as ColNum, widths[at] as f64)?;
    }
    // The button of a filter takes room beside the label.
    let lines_of_head = labels.iter().zip(&widths).map(|(label, width)| lines(label, *width - 3));
    set_lines(writer, HEAD, lines_of_head.max().unwrap_or(1))?;
    let mut row = HEAD + 1;
    for cells in &table.rows {
        let mut most = 1;
        for (at, cell) in cells.iter().enumerate() {
            writer.cell(row, at as ColNum, cell)?;
            if let Cell::Text(text) = cell {
                most = most.max(lines(text, widths.get(at).copied().unwrap_or(MAX_WIDTH)));
            }
        }
        set_lines(writer, row, most)?;
        row += 1;
    }
    if !table.rows.is_empty() && !table.columns.is_empty() {
        let last = table.columns.len() as ColNum - 1;
        writer.sheet.set_freeze_panes(HEAD + 1, 0)?.set_repeat_rows(HEAD, HEAD)?;
        add_filter(writer, table, &labels, row - 1, last)?;
    }
    if let Some(totals) = &table.totals {
        for (at, cell) in totals.iter().enumerate() {
            writer.total(row, at as ColNum, cell)?;
        }
        row += 1;
    }
    Ok(row)
}

/// Makes a table of the rows, so that they can be sorted and filtered and keep their heads.
fn add_filter(
    writer: &mut Writer<'_>,
    table: &Table,
    labels: &[String],
    last_row: RowNum,
    last: ColNum,
) -> Result<(), XlsxError> {
    // The library escapes this in cells but not in the names of a table's columns, which must be the same.
    if labels.iter().any(|label| label.contains("_x")) {
        writer.sheet.autofilter(HEAD, 0, last_row, last)?;
        return Ok(());
    }
    let formats = writer.formats;
    let column = |(column, label): (&Column, &String)| {
        TableColumn::new().set_header(label).set_header_format(formats.head(column))
    };
    let columns: Vec<TableColumn> = table.columns.iter().zip(labels).map(column).collect();
    let excel = ExcelTable::new().set_style(TableStyle::None).set_columns(&columns);
    writer.sheet.add_table(HEAD, 0, last_row, last, &excel)?;
    Ok(())
}

/// Writes a note: a row for each of its paragraphs, of which a row's height is enough.
fn add_paragraphs(writer: &mut Writer<'_>, table: &Table) -> Result<RowNum, XlsxError> {
    let formats = writer.formats;
    writer.sheet.set_column_width(0, NOTE_WIDTH as f64)?;
    let mut row = HEAD;
    for cell in table.rows.iter().flatten() {
        let (Cell::Text(text) | Cell::Link(text)) = cell else { continue };
        for part in clean(text).split('\n').flat_map(|paragraph| utf16_parts(paragraph, MAX_TEXT)) {
            writer.text(row, 0, part, &formats.note)?;
            set_lines(writer, row, lines(part, NOTE_WIDTH))?;
            row += 1;
        }
    }
    Ok(row)
}

/// Returns about how many lines a text takes in a column.
fn lines(text: &str, column: usize) -> usize {
    text.lines().map(|line| width(line).div_ceil(column.max(1)).max(1)).sum::<usize>().max(1)
}

/// Sets a row's height where it is not that of one line. Not every program finds it out on its own.
fn set_lines(writer: &mut Writer<'_>, row: RowNum, lines: usize) -> Result<(), XlsxError> {
    if lines > 1 {
        writer.sheet.set_row_height(row, (lines as f64 * LINE_HEIGHT).min(MAX_HEIGHT))?;
    }
    Ok(())
}

/// Returns the labels of the columns as Excel's tables want them: on one line, not empty, unique without case.
fn labels(columns: &[Column]) -> Vec<String> {
    let mut taken = HashSet::new();
    let label = |column: &Column| {
        let label = single_line(&column.label);
        let label = if label.is_empty() { "Column" } else { utf16_parts(&label, MAX_LABEL)[0] };
        let numbered = (2..).map(|number| format!("{label} ({number})"));
        [label.to_owned()].into_iter().chain(numbered).find(|label| taken.insert(label.to_lowercase()))
    };
    columns.iter().filter_map(label).collect()
}

/// Returns the width of a column in digits, as Excel counts.
fn column_width(table: &Table, at: usize, label: &str) -> usize {
    let column_type = table.columns[at].column_type;
    let measured = table.rows.iter().take(MEASURED_ROWS).chain(&table.totals).filter_map(|row| row.get(at));
    let content = measured.map(|cell| match column_type {
        ColumnType::Time => 16,
        ColumnType::Date => 10,
        _ => text::cell(cell).lines().map(width).max().unwrap_or(0),
    });
    // A head has the button of its filter beside the label.
    let label = width(label) + 3;
    let label = if column_type.is_number() { label.min(MAX_COUNT_WIDTH) } else { label };
    let widest = content.max().unwrap_or(0).max(label);
    (widest + 1).clamp(MIN_WIDTH, MAX_WIDTH)
}
