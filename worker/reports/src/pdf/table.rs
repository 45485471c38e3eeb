//! Tables: how wide their columns are, and what stands in their cells. All rows of a table are equally high, and every
//! text is cut to its cell here, so that it is known how many rows a page holds, and so that the typesetter need not
//! measure them.

use std::ops::Range;

use crier_domain::report_naming as naming;
use typst::foundations::{Array, Dict, IntoValue, Value, dict};

use super::text::{self, Style, Texts};
use crate::document::{Cell, Column, ColumnType, Table};

/// Space at both sides of a cell's text.
const INSET: f64 = 5.0;
/// The sizes of type, from the best to the least that can be read.
const SIZES: [f64; 4] = [8.0, 7.5, 7.0, 6.0];
const MIN_TEXT_WIDTH: f64 = 64.0;
/// A text longer than this is cut: the table shows which post it is, not all it says.
const MAX_CHARS: usize = 120;
const LINK_TEXT: &str = "Open";

/// A column of the drawing: one of the table, or an account's name with its platform below it.
struct DrawnColumn {
    source: usize,
    second: Option<usize>,
}

/// How a table is drawn.
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
        let columns = merged(&table.columns);
        let mut layout = Self { table, texts, columns, widths: Vec::new(), size: SIZES[0], two_lines: false };
        for size in SIZES {
            layout.size = size;
            layout.widths = layout.natural_widths();
            if layout.shared(width) {
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

    /// Returns how many cells a row has in the drawing.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Returns what the template draws: these rows, below a head.
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

    /// Returns how wide each column would be if there were space for all.
    fn natural_widths(&self) -> Vec<f64> {
        const SAMPLE: usize = 300;
        let width = |column: &DrawnColumn| {
            let label = &self.table.columns[column.source].label;
            let head = self.texts.width(label, Style { size: self.size - 0.5, bold: true });
            // Of numbers all are measured, because they are not cut.
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

    /// Shares the width between the columns: texts get what the others leave, the short ones first. Returns whether
    /// that is enough.
    fn shared(&mut self, width: f64) -> bool {
        let is_text = |column: &DrawnColumn| self.column_type(column) == ColumnType::Text;
        let mut texts: Vec<usize> = (0..self.columns.len()).filter(|n| is_text(&self.columns[*n])).collect();
        let sum: f64 = self.widths.iter().sum();
        if sum <= width || texts.is_empty() {
            let more = (width - sum) / self.widths.len().max(1) as f64;
            self.widths.iter_mut().for_each(|all| *all = (*all + more).max(2.0 * INSET + 8.0));
            return sum <= width;
        }
        let mut left = width - sum + texts.iter().map(|n| self.widths[*n]).sum::<f64>();
        let enough = left >= texts.len() as f64 * MIN_TEXT_WIDTH;
        texts.sort_by(|a, b| self.widths[*a].total_cmp(&self.widths[*b]));
        let mut waiting = texts.len();
        for n in texts {
            self.widths[n] = self.widths[n].min(left / waiting as f64).max(8.0 + 2.0 * INSET);
            left -= self.widths[n];
            waiting -= 1;
        }
        if !enough {
            let sum: f64 = self.widths.iter().sum();
            self.widths.iter_mut().for_each(|all| *all *= width / sum);
        }
        enough
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

/// Puts a platform below the name of its account.
fn merged(columns: &[Column]) -> Vec<DrawnColumn> {
    let is = |n: usize, key: &str| columns.get(n).is_some_and(|column| column.key == key);
    let pair = |n: usize| is(n, "account") && is(n + 1, "platform");
    let drawn = (0..columns.len()).filter(|n| !(*n > 0 && pair(*n - 1)));
    drawn.map(|n| DrawnColumn { source: n, second: pair(n).then_some(n + 1) }).collect()
}

/// Returns how many cells a row of such a table has in the drawing.
pub fn drawn_columns(columns: &[Column]) -> usize {
    merged(columns).len()
}

fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Empty => "–".to_owned(),
        Cell::Text(text) => text.clone(),
        Cell::Count(count) => naming::count(*count),
        Cell::Percent(tenths) => naming::percent(*tenths),
        Cell::Date(date) => crate::text::day(*date),
        Cell::Time(time) => crate::text::moment(*time),
        Cell::Link(_) => LINK_TEXT.to_owned(),
    }
}

/// Returns the address as a PDF holds it: in ASCII. `None` if it is not one that a report may link to.
fn href(url: &str) -> Option<String> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase())?;
    let allowed = (scheme == "http" || scheme == "https") && url.len() <= 2_000;
    let byte = |byte: u8| if byte.is_ascii_graphic() { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    allowed.then(|| url.bytes().map(byte).collect())
}
