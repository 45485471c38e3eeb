//! Tables: the widths of their columns, and the contents of their cells. All rows of a table have the same height, and
//! every text is cut to its cell here. So the number of rows per page is known, and the typesetter does not have to
//! measure texts.

use std::ops::Range;

use crier_domain::report_naming as naming;
use typst::foundations::{Array, Dict, IntoValue, Value, dict};

use super::text::{self, Style, Texts};
use crate::document::{Cell, Column, ColumnType, Table};

/// The space on both sides of a cell's text.
const INSET: f64 = 5.0;
/// The font sizes, from the preferred one to the smallest legible one.
const SIZES: [f64; 4] = [8.0, 7.5, 7.0, 6.0];
const MIN_TEXT_WIDTH: f64 = 64.0;
/// The maximum length of a text, in characters. It is enough to identify a post.
const MAX_CHARS: usize = 120;
const LINK_TEXT: &str = "Open";

/// A column of the drawing: a column of the table, or an account's name with its platform below it.
struct DrawnColumn {
    /// The index of the column in the table.
    source: usize,
    /// The index of the column that is drawn below it.
    second: Option<usize>,
}

/// The layout of a table.
pub struct Layout<'a> {
    table: &'a Table,
    texts: &'a Texts<'a>,
    columns: Vec<DrawnColumn>,
    widths: Vec<f64>,
    size: f64,
    two_lines: bool,
}

impl<'a> Layout<'a> {
    pub fn new(table: &'a Table, width: f64, texts: &'a Texts<'a>) -> Self {
        let columns = merge_columns(&table.columns);
        let mut layout = Self { table, texts, columns, widths: Vec::new(), size: SIZES[0], two_lines: false };
        for size in SIZES {
            layout.size = size;
            layout.widths = layout.natural_widths();
            if layout.distribute(width) {
                break;
            }
        }
        layout.two_lines = layout.needs_two_lines();
        layout
    }

    pub fn row_height(&self) -> f64 {
        if self.two_lines { self.size * 2.0 + 10.0 } else { self.size * 0.72 + 11.0 }
    }

    pub fn head_height(&self) -> f64 {
        let two = self.heads().iter().any(|head| head.contains('\n'));
        if two { self.size * 2.0 + 10.0 } else { self.size * 0.72 + 13.0 }
    }

    /// Returns the number of cells of a row in the drawing.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Returns the input of the template for these rows, with a header.
    pub fn drawn(&self, rows: Range<usize>) -> Dict {
        let rows = &self.table.rows[rows];
        let cells: Array = rows.iter().flat_map(|row| self.cells(row)).collect();
        let heads: Array = self.heads().into_iter().map(text::directed).collect();
        let side = |column: &DrawnColumn| match self.column_type(column) {
            number if number.is_number() => "right".into_value(),
            _ => "left".into_value(),
        };
        dict! {
            "kind" => "table",
            "widths" => self.widths.iter().map(|width| width.into_value()).collect::<Array>(),
            "size" => self.size,
            "inset" => INSET,
            "head-height" => self.head_height(),
            "row-height" => self.row_height(),
            "sides" => self.columns.iter().map(side).collect::<Array>(),
            "heads" => heads,
            "cells" => cells,
        }
    }

    /// Returns the cells of the row of sums.
    pub fn totals(&self) -> Option<Array> {
        self.table.totals.as_ref().map(|row| self.cells(row).collect())
    }

    fn column_type(&self, column: &DrawnColumn) -> ColumnType {
        self.table.columns[column.source].column_type
    }

    fn style(&self) -> Style {
        Style { size: self.size, bold: false }
    }

    fn heads(&self) -> Vec<String> {
        let style = Style { size: self.size - 0.5, bold: true };
        let columns = self.columns.iter().zip(&self.widths);
        let head = |(column, width): (&DrawnColumn, &f64)| {
            self.texts.fit(&self.table.columns[column.source].label, MAX_CHARS, style, width - 2.0 * INSET, 2)
        };
        columns.map(head).collect()
    }

    /// Returns the width of each column without a limit, in points.
    fn natural_widths(&self) -> Vec<f64> {
        const SAMPLE: usize = 300;
        let width = |column: &DrawnColumn| {
            let label = &self.table.columns[column.source].label;
            let head = self.texts.width(label, Style { size: self.size - 0.5, bold: true });
            // All numbers are measured, because they are not cut.
            let rows = match self.column_type(column) {
                number if number.is_number() => self.table.rows.len(),
                _ => self.table.rows.len().min(SAMPLE),
            };
            let sources = || [Some(column.source), column.second].into_iter().flatten();
            let of_row = |row: &Vec<Cell>| sources().map(|source| self.width_of(row, source)).fold(0.0, f64::max);
            let rows = self.table.rows[..rows].iter().chain(&self.table.totals);
            rows.map(of_row).fold(head, f64::max) + 2.0 * INSET + 0.5
        };
        self.columns.iter().map(width).collect()
    }

    fn width_of(&self, row: &[Cell], source: usize) -> f64 {
        match row.get(source) {
            Some(Cell::Text(text)) => {
                text.chars().take(MAX_CHARS).map(|c| self.texts.fonts.width(c, false)).sum::<f64>() * self.size
            }
            Some(cell) => self.texts.width(&plain(cell), self.style()),
            None => 0.0,
        }
    }

    /// Distributes the width among the columns: texts get the space that the other columns leave, short ones first.
    /// Returns whether that is enough.
    fn distribute(&mut self, width: f64) -> bool {
        let is_text = |column: &DrawnColumn| self.column_type(column) == ColumnType::Text;
        let mut texts: Vec<usize> = (0..self.columns.len()).filter(|n| is_text(&self.columns[*n])).collect();
        let sum: f64 = self.widths.iter().sum();
        if sum <= width || texts.is_empty() {
            let more = (width - sum) / self.widths.len().max(1) as f64;
            self.widths.iter_mut().for_each(|all| *all = (*all + more).max(2.0 * INSET + 8.0));
            return sum <= width;
        }
        let mut remaining = width - sum + texts.iter().map(|n| self.widths[*n]).sum::<f64>();
        let is_enough = remaining >= texts.len() as f64 * MIN_TEXT_WIDTH;
        texts.sort_by(|a, b| self.widths[*a].total_cmp(&self.widths[*b]));
        let mut columns_left = texts.len();
        for n in texts {
            self.widths[n] = self.widths[n].min(remaining / columns_left as f64).max(8.0 + 2.0 * INSET);
            remaining -= self.widths[n];
            columns_left -= 1;
        }
        if !is_enough {
            let sum: f64 = self.widths.iter().sum();
            self.widths.iter_mut().for_each(|all| *all *= width / sum);
        }
        is_enough
    }

    fn needs_two_lines(&self) -> bool {
        let wide = |(column, width): (&DrawnColumn, &f64)| {
            column.second.is_some()
                || self.table.rows.iter().any(|row| self.width_of(row, column.source) > width - 2.0 * INSET)
        };
        self.columns.iter().zip(&self.widths).any(wide)
    }

    fn cells<'b>(&'b self, row: &'b [Cell]) -> impl Iterator<Item = Value> + 'b {
        self.columns.iter().zip(&self.widths).map(move |(column, width)| {
            let lines = if self.two_lines { 2 } else { 1 };
            let value = |source: usize, lines: usize| match row.get(source) {
                Some(Cell::Text(text)) => self.fitted(text, *width, lines),
                Some(cell) => self.fitted(&plain(cell), *width, lines),
                None => String::new(),
            };
            match (column.second, row.get(column.source)) {
                (Some(second), _) if row.get(second) != Some(&Cell::Empty) => {
                    let (first, second) = (text::directed(value(column.source, 1)), text::directed(value(second, 1)));
                    dict! { "first" => first, "second" => second }.into_value()
                }
                (_, Some(Cell::Link(url))) => match href(url) {
                    Some(href) => dict! { "href" => href, "text" => LINK_TEXT }.into_value(),
                    None => text::directed(self.fitted(url, *width, lines)),
                },
                _ => text::directed(value(column.source, lines)),
            }
        })
    }

    fn fitted(&self, text: &str, width: f64, lines: usize) -> String {
        self.texts.fit(text, MAX_CHARS, self.style(), width - 2.0 * INSET, lines)
    }
}

/// Returns the columns of the drawing, in which a platform is below the name of its account.
fn merge_columns(columns: &[Column]) -> Vec<DrawnColumn> {
    let is = |n: usize, key: &str| columns.get(n).is_some_and(|column| column.key == key);
    let pair = |n: usize| is(n, "account") && is(n + 1, "platform");
    let drawn = (0..columns.len()).filter(|n| !(*n > 0 && pair(*n - 1)));
    drawn.map(|n| DrawnColumn { source: n, second: pair(n).then_some(n + 1) }).collect()
}

/// Returns the number of cells of a row with these columns in the drawing.
pub fn drawn_columns(columns: &[Column]) -> usize {
    merge_columns(columns).len()
}

fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Empty => "–".to_owned(),
        Cell::Text(text) => text.clone(),
        Cell::Count(count) => naming::count(*count),
        Cell::Percent(tenths) => naming::percent(*tenths),
        Cell::Date(date) => crate::text::day(*date),
        Cell::Time(time) => crate::text::time(*time),
        Cell::Link(_) => LINK_TEXT.to_owned(),
    }
}

/// Returns a URL in ASCII, as PDF requires; `None` if a report must not link to it.
fn href(url: &str) -> Option<String> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase())?;
    let allowed = (scheme == "http" || scheme == "https") && url.len() <= 2_000;
    let byte = |byte: u8| if byte.is_ascii_graphic() { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    allowed.then(|| url.bytes().map(byte).collect())
}
