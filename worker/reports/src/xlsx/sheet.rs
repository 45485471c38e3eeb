//! The sheet of a widget: its title, its table, its remark, and its chart beside the table.

use std::collections::HashSet;

use rust_xlsxwriter::{ColNum, RowNum, Table as ExcelTable, TableColumn, TableStyle, Worksheet, XlsxError};

use super::cells::{Formats, MAX_TEXT, Writer};
use super::chart;
use crate::text::{self, clean, single_line, utf16_parts, width};
use crate::{Cell, Column, ColumnType, Document, Table, View, Widget};

/// The row of the column headers.
pub const HEADER_ROW: RowNum = 3;
/// The maximum length of a label. Excel's limit for a column name is 255 characters; the rest is for a number.
const MAX_LABEL: usize = 240;
/// The number of rows whose texts are measured for the column widths.
const MEASURED_ROWS: usize = 500;
const MIN_WIDTH: usize = 9;
const MAX_WIDTH: usize = 52;
/// The maximum width of a column of counts due to its label. Longer labels are wrapped.
const MAX_COUNT_WIDTH: usize = 18;
const NOTE_WIDTH: usize = 100;
/// The height of a line, and Excel's limit for the height of a row, in points.
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
        View::Metrics | View::Chart(_) | View::Table => add_table(&mut writer, &widget.table)?,
    };
    if let Some(remark) = &widget.remark {
        // Not wrapped: it extends over the empty cells next to it, whatever the width of the first column.
        writer.text(end + 1, 0, &single_line(remark), &formats.remark)?;
    }
    if let View::Chart(chart) = &widget.view
        && !widget.table.rows.is_empty()
    {
        let column = widget.table.columns.len() as ColNum + 1;
        let drawn = chart::of_sheet(chart, &widget.table, name, &single_line(&widget.title));
        writer.sheet.insert_chart(HEADER_ROW, column, &drawn)?;
    }
    Ok(())
}

/// Writes the rows and the sums below them. Returns the index of the row after the last one.
fn add_table(writer: &mut Writer<'_>, table: &Table) -> Result<RowNum, XlsxError> {
    let formats = writer.formats;
    let labels = labels(&table.columns);
    let mut widths = Vec::with_capacity(labels.len());
    for (at, (column, label)) in table.columns.iter().zip(&labels).enumerate() {
        writer.text(HEADER_ROW, at as ColNum, label, formats.header(column))?;
        widths.push(column_width(table, at, label));
        writer.sheet.set_column_width(at as ColNum, widths[at] as f64)?;
    }
    // The filter button takes space next to the label.
    let header_lines = labels.iter().zip(&widths).map(|(label, width)| lines(label, *width - 3));
    set_lines(writer, HEADER_ROW, header_lines.max().unwrap_or(1))?;
    let mut row = HEADER_ROW + 1;
    for cells in &table.rows {
        let mut max_lines = 1;
        for (at, cell) in cells.iter().enumerate() {
            writer.cell(row, at as ColNum, cell)?;
            if let Cell::Text(text) = cell {
                max_lines = max_lines.max(lines(text, widths.get(at).copied().unwrap_or(MAX_WIDTH)));
            }
        }
        set_lines(writer, row, max_lines)?;
        row += 1;
    }
    if !table.rows.is_empty() && !table.columns.is_empty() {
        let last = table.columns.len() as ColNum - 1;
        writer.sheet.set_freeze_panes(HEADER_ROW + 1, 0)?.set_repeat_rows(HEADER_ROW, HEADER_ROW)?;
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

/// Adds an Excel table over the rows, so that they can be sorted and filtered.
fn add_filter(
    writer: &mut Writer<'_>,
    table: &Table,
    labels: &[String],
    last_row: RowNum,
    last: ColNum,
) -> Result<(), XlsxError> {
    // The library escapes `_x` in cells but not in a table's column names, which must be equal.
    if labels.iter().any(|label| label.contains("_x")) {
        writer.sheet.autofilter(HEADER_ROW, 0, last_row, last)?;
        return Ok(());
    }
    let formats = writer.formats;
    let column = |(column, label): (&Column, &String)| {
        TableColumn::new().set_header(label).set_header_format(formats.header(column))
    };
    let columns: Vec<TableColumn> = table.columns.iter().zip(labels).map(column).collect();
    let excel = ExcelTable::new().set_style(TableStyle::None).set_columns(&columns);
    writer.sheet.add_table(HEADER_ROW, 0, last_row, last, &excel)?;
    Ok(())
}

/// Writes a note with a row per paragraph, because the height of a row is limited.
fn add_paragraphs(writer: &mut Writer<'_>, table: &Table) -> Result<RowNum, XlsxError> {
    let formats = writer.formats;
    writer.sheet.set_column_width(0, NOTE_WIDTH as f64)?;
    let mut row = HEADER_ROW;
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

/// Returns the approximate number of lines of a text in a column.
fn lines(text: &str, column: usize) -> usize {
    text.lines().map(|line| width(line).div_ceil(column.max(1)).max(1)).sum::<usize>().max(1)
}

/// Sets the height of a row with several lines, because not every program computes it.
fn set_lines(writer: &mut Writer<'_>, row: RowNum, lines: usize) -> Result<(), XlsxError> {
    if lines > 1 {
        writer.sheet.set_row_height(row, (lines as f64 * LINE_HEIGHT).min(MAX_HEIGHT))?;
    }
    Ok(())
}

/// Returns the labels of the columns as Excel tables require them: on one line, not empty, unique regardless of case.
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

/// Returns the width of a column in digits, Excel's unit.
fn column_width(table: &Table, at: usize, label: &str) -> usize {
    let column_type = table.columns[at].column_type;
    let measured = table.rows.iter().take(MEASURED_ROWS).chain(&table.totals).filter_map(|row| row.get(at));
    let content = measured.map(|cell| match column_type {
        ColumnType::Time => 16,
        ColumnType::Date => 10,
        _ => text::cell(cell).lines().map(width).max().unwrap_or(0),
    });
    // The header has a filter button next to the label.
    let label = width(label) + 3;
    let label = if column_type.is_number() { label.min(MAX_COUNT_WIDTH) } else { label };
    let widest = content.max().unwrap_or(0).max(label);
    (widest + 1).clamp(MIN_WIDTH, MAX_WIDTH)
}
