//! Tables: as many rows per slide as fit, with the header on every slide, and numbers aligned to the right.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use crier_domain::report_naming as naming;

use super::package::Relation;
use super::slide::{Align, CONTENT, POINT, Rect, Slide, Text};
use super::xml::color;
use super::{Deck, MAX_SLIDES, sentences, title};

use crate::palette::{ACCENT, INK, LINE, SURFACE};
use crate::text::{cell, clip, link_target, single_line, width};
use crate::{Cell, Column, ColumnType, Table, Widget};

/// A cell's margins, in points.
const MARGIN_X: i64 = 5;
const MARGIN_Y: i64 = 3;
const MAX_TEXT: usize = 160;
/// The maximum width of a column of texts, in digits. Longer texts are wrapped.
const MAX_TEXT_WIDTH: usize = 70;
/// The number of letters that are as wide as a hundred times their height. Letters are a little narrower than digits.
const LETTERS: i64 = 212;
const MAX_LINES: usize = 6;
/// The number of rows whose texts are measured for the column widths.
const MEASURED_ROWS: usize = 300;
/// The font size, in points, and the line width, in digits, of the sentences below the table.
const SENTENCE_SIZE: i64 = 12;
const SENTENCE_WIDTH: usize = 130;

pub fn add(deck: &mut Deck, widget: &Widget) {
    let drawing = Drawing::of(&widget.table);
    let sentences_with = |omitted: usize| {
        let more = format!("{} more rows are in the XLSX file of this report.", naming::count(omitted as i64));
        sentences(widget, (omitted > 0).then_some(more))
    };
    let pages_with = |sentences: &str| drawing.pages((CONTENT.height - sentences_height(sentences)) / POINT);
    let mut pages = pages_with(&sentences_with(0));
    if pages.last().is_some_and(|page| page.end < widget.table.rows.len()) {
        // With the longest possible sentences.
        pages = pages_with(&sentences_with(widget.table.rows.len()));
    }
    let shown = pages.last().map_or(0, |page| page.end);
    for (number, page) in pages.iter().enumerate() {
        let mut slide = Slide::with_title(&title(widget), (pages.len() > 1).then_some((number + 1, pages.len())));
        let is_last = number + 1 == pages.len();
        drawing.draw(&mut slide, page.clone(), is_last);
        let sentences = sentences_with(widget.table.rows.len() - shown);
        if is_last && !sentences.is_empty() {
            let height = sentences_height(&sentences);
            let rect = Rect { y: CONTENT.y + CONTENT.height - height, height, ..CONTENT };
            slide.text_box("Remark", rect, None, "b", &Text::muted(&sentences, SENTENCE_SIZE).xml());
        }
        deck.push(slide);
    }
}

fn sentences_height(text: &str) -> i64 {
    if text.is_empty() {
        return 0;
    }
    (width(text).div_ceil(SENTENCE_WIDTH) as i64 + 1) * SENTENCE_SIZE * POINT * 5 / 4
}

/// A table and its layout.
struct Drawing<'a> {
    table: &'a Table,
    /// The font size, in points.
    size: i64,
    /// The widths of the columns, in points, including margins.
    widths: Vec<i64>,
}

impl<'a> Drawing<'a> {
    fn of(table: &'a Table) -> Self {
        let size = match table.columns.len() {
            0..=7 => 14,
            8..=12 => 10,
            13..=16 => 9,
            _ => 8,
        };
        let all = CONTENT.width / POINT;
        let margins = 2 * MARGIN_X * table.columns.len() as i64;
        let digits = ((all - margins).max(0) * LETTERS / (size * 100)) as usize;
        let points = |digits: f64| (digits * (size * 100) as f64 / LETTERS as f64) as i64 + 2 * MARGIN_X;
        let widths = distribute(digits, &column_widths(table)).into_iter().map(points).collect();
        Self { table, size, widths }
    }

    /// Returns the number of digits that fit into a line of a column.
    fn digits(&self, column: usize) -> usize {
        let width = self.widths.get(column).copied().unwrap_or(0) - 2 * MARGIN_X;
        (width * LETTERS / (self.size * 100)).max(1) as usize
    }

    /// Returns the displayed text of a cell, and its link.
    fn shown<'b>(&self, column: usize, value: &'b Cell) -> (Cow<'b, str>, Option<String>) {
        if let Cell::Link(url) = value
            && let Some(target) = link_target(url)
        {
            return (Cow::Borrowed("Open"), Some(target));
        }
        let text = match value {
            Cell::Text(_) | Cell::Link(_) => Cow::Owned(self.fitted(column, &single_line(&cell(value)))),
            other => cell(other),
        };
        (text, None)
    }

    fn fitted(&self, column: usize, text: &str) -> String {
        let max = (self.digits(column) * MAX_LINES).min(MAX_TEXT);
        let text = clip(text, max);
        // Wide letters are as wide as two digits.
        if width(&text) > max { clip(&text, max.div_ceil(2)).into_owned() } else { text.into_owned() }
    }

    /// Returns the height of a row, in points.
    fn height<'b>(&self, texts: impl Iterator<Item = Cow<'b, str>>) -> i64 {
        let lines = texts.enumerate().map(|(at, text)| width(&text).div_ceil(self.digits(at)));
        let lines = lines.max().unwrap_or(1).max(1) as i64;
        lines * self.size * 6 / 5 + 2 * MARGIN_Y + 1
    }

    fn row_height(&self, row: &[Cell]) -> i64 {
        self.height(row.iter().enumerate().map(|(at, cell)| self.shown(at, cell).0))
    }

    fn header_height(&self) -> i64 {
        self.height(self.labels().map(Cow::Owned))
    }

    fn labels(&self) -> impl Iterator<Item = String> + '_ {
        self.table.columns.iter().enumerate().map(|(at, column)| self.fitted(at, &single_line(&column.label)))
    }

    /// Returns the rows of each slide.
    fn pages(&self, height: i64) -> Vec<Range<usize>> {
        // One line is kept free, because rows may be a little higher than computed.
        let header = self.header_height() + self.size;
        let total = self.table.totals.as_ref().map_or(0, |totals| self.row_height(totals));
        let mut pages = Vec::new();
        let (mut start, mut used) = (0, header + total);
        for (at, row) in self.table.rows.iter().enumerate() {
            let row = self.row_height(row);
            if at > start && used + row > height {
                pages.push(start..at);
                (start, used) = (at, header + total);
                if pages.len() == MAX_SLIDES {
                    return pages;
                }
            }
            used += row;
        }
        pages.push(start..self.table.rows.len());
        pages
    }

    fn draw(&self, slide: &mut Slide, rows: Range<usize>, with_totals: bool) {
        let mut height = self.header_height();
        let labels: Vec<String> = self.labels().collect();
        let cells = labels.iter().enumerate().map(|(at, label)| {
            let text = Text { align: self.align(at), color: ACCENT, ..Text::new(label, self.size).bold() };
            cell_xml(&text, ACCENT, None)
        });
        let mut xml = row_xml(height, cells);
        for row in &self.table.rows[rows] {
            let row_height = self.row_height(row);
            height += row_height;
            let cells = row.iter().enumerate().map(|(at, value)| {
                let (text, link) = self.shown(at, value);
                let link = link.map(|target| slide.relate(Relation::Link(target)));
                let color = if link.is_some() { ACCENT } else { INK };
                let text = Text { align: self.align(at), link, color, ..Text::new(&text, self.size) };
                cell_xml(&text, LINE, None)
            });
            xml += &row_xml(row_height, cells);
        }
        if let Some(totals) = self.table.totals.as_ref().filter(|_| with_totals) {
            let row_height = self.row_height(totals);
            height += row_height;
            let cells = totals.iter().enumerate().map(|(at, value)| {
                let text = if *value == Cell::Empty { Cow::Borrowed("") } else { self.shown(at, value).0 };
                let text = Text { align: self.align(at), ..Text::new(&text, self.size).bold() };
                cell_xml(&text, LINE, Some(SURFACE))
            });
            xml += &row_xml(row_height, cells);
        }
        let columns: String = self.widths.iter().map(|width| format!("<a:gridCol w=\"{}\"/>", width * POINT)).collect();
        let table = format!("<a:tbl><a:tblPr firstRow=\"1\"/><a:tblGrid>{columns}</a:tblGrid>{xml}</a:tbl>");
        let width = self.widths.iter().sum::<i64>() * POINT;
        slide.frame("Table", Rect { width, height: height * POINT, ..CONTENT }, "table", &table);
    }

    fn align(&self, column: usize) -> Align {
        let is_count = self.table.columns.get(column).is_some_and(|column| column.column_type.is_number());
        if is_count { Align::Right } else { Align::Left }
    }
}

/// The preferred and the minimum width of a column, in digits.
struct ColumnWidth {
    preferred: usize,
    min: usize,
}

fn column_widths(table: &Table) -> Vec<ColumnWidth> {
    let column_width = |(at, column): (usize, &Column)| {
        let rows = table.rows.iter().take(MEASURED_ROWS).chain(&table.totals).filter_map(|row| row.get(at));
        // A label can be wrapped between words. Bold letters are wider.
        let label = longest_word(&column.label) * 9 / 8;
        let (mut content, mut word) = (0, 0);
        for value in rows {
            let text = if matches!(value, Cell::Link(_)) { Cow::Borrowed("Open") } else { cell(value) };
            content = content.max(width(&text));
            word = word.max(longest_word(&text));
        }
        if column.column_type == ColumnType::Text {
            let preferred = (content.min(MAX_TEXT_WIDTH) * 9 / 8).max(label.min(16)).max(3) + 1;
            ColumnWidth { preferred, min: (word * 9 / 8).max(label).clamp(8, 30).min(preferred) }
        } else {
            let width = content.min(26).max(label.min(14)).max(3) + 1;
            ColumnWidth { preferred: width, min: width }
        }
    };
    table.columns.iter().enumerate().map(column_width).collect()
}

fn longest_word(text: &str) -> usize {
    text.split_whitespace().map(width).max().unwrap_or(0)
}

/// Distributes a width among columns. If the preferred widths do not fit, columns are narrowed towards their minimum,
/// which is smaller for texts that can be wrapped.
fn distribute(width: usize, columns: &[ColumnWidth]) -> Vec<f64> {
    let preferred = columns.iter().map(|column| column.preferred).sum::<usize>();
    let min = columns.iter().map(|column| column.min).sum::<usize>();
    if preferred > width && min <= width {
        let share = (width - min) as f64 / (preferred - min) as f64;
        let fitted = |column: &ColumnWidth| column.min as f64 + share * (column.preferred - column.min) as f64;
        return columns.iter().map(fitted).collect();
    }
    let factor = width as f64 / preferred.max(1) as f64;
    columns.iter().map(|column| column.preferred as f64 * factor).collect()
}

fn row_xml(height: i64, cells: impl Iterator<Item = String>) -> String {
    let mut xml = format!("<a:tr h=\"{}\">", height * POINT);
    xml.extend(cells);
    xml.push_str("</a:tr>");
    xml
}

fn cell_xml(text: &Text<'_>, line: u32, fill: Option<u32>) -> String {
    let mut xml = format!("<a:tc><a:txBody><a:bodyPr/><a:lstStyle/>{}</a:txBody>", text.xml());
    let (x, y) = (MARGIN_X * POINT, MARGIN_Y * POINT);
    let _ = write!(xml, "<a:tcPr marL=\"{x}\" marR=\"{x}\" marT=\"{y}\" marB=\"{y}\">");
    for side in ["L", "R", "T"] {
        let _ = write!(xml, "<a:ln{side} w=\"0\"><a:noFill/></a:ln{side}>");
    }
    let line = color(line);
    let _ = write!(xml, "<a:lnB w=\"9525\"><a:solidFill><a:srgbClr val=\"{line}\"/></a:solidFill></a:lnB>");
    match fill {
        Some(fill) => {
            let _ = write!(xml, "<a:solidFill><a:srgbClr val=\"{}\"/></a:solidFill>", color(fill));
        }
        None => xml.push_str("<a:noFill/>"),
    }
    xml.push_str("</a:tcPr></a:tc>");
    xml
}
