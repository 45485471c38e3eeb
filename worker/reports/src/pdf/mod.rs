//! PDF: a report to read and to print, typeset with typst. Landscape A4: a cover, then the widgets in order.
//!
//! The values are prepared here (texts in [`text`], positions in [`chart`] and [`table`]), and `template.typ` draws
//! them. Texts from users and platforms are only values of the template, never parts of its source.
//!
//! A long document is typeset in pieces with a limited number of cells, because the typesetter needs 20 kB of memory
//! per cell. A table that is longer than a piece is split at the end of a page. The pages of all pieces become one
//! file. The footers, which contain the total number of pages, are typeset last.
//!
//! The same document results in the same bytes on machines with the same fonts.

mod chart;
mod fonts;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod world;

use std::io::Write;

use chrono::{Datelike, Timelike};
use crier_domain::report::ReportFormat;
use crier_domain::report_naming as naming;
use typst::ecow::EcoVec;
use typst::foundations::{Array, Datetime, Dict, IntoValue, Smart, Value, dict};
use typst::layout::Point;
use typst::model::DocumentInfo;
use typst::text::{Lang, Locale};
use typst_layout::{Page, PagedDocument};
use typst_pdf::PdfOptions;
use unicode_segmentation::UnicodeSegmentation as _;

use self::fonts::{Catalogue, Fonts};
use self::text::{Style, Texts};
use crate::WriteError;
use crate::document::{Cell, Document, Table, View, Widget};

/// Returns, for each text that cannot be drawn completely, its first character that no font of this machine has.
pub fn missing_characters(texts: &[String]) -> Vec<String> {
    let fonts = Fonts::new(fonts::system());
    let is_missing = |text: &str| {
        let texts = Texts::new(&fonts);
        texts.line(text, usize::MAX);
        texts.remark().is_some()
    };
    let missing = texts.iter().filter(|text| is_missing(text));
    missing.filter_map(|text| text.graphemes(true).find(|cluster| is_missing(cluster)).map(str::to_owned)).collect()
}

/// A4, landscape, in points: wide enough for the table of posts.
const PAGE_WIDTH: f64 = 841.89;
const PAGE_HEIGHT: f64 = 595.28;
const SIDE: f64 = 46.0;
const TOP: f64 = 42.0;
const BOTTOM: f64 = 50.0;
const WIDTH: f64 = PAGE_WIDTH - 2.0 * SIDE;
const HEIGHT: f64 = PAGE_HEIGHT - TOP - BOTTOM;

const TITLE: Style = Style { size: 18.0, bold: true };
const TITLE_HEIGHT: f64 = 30.0;
const TITLE_LINE_HEIGHT: f64 = 21.0;
const MAX_TITLE: usize = 120;

/// The maximum number of table cells per piece. A letter of a note counts as a fraction of a cell.
const MAX_PIECE_CELLS: usize = 2_000;
const LETTERS_PER_CELL: usize = 20;
/// The maximum number of cells in all tables of a report together: 3,000 posts. Each takes 7 kB of memory until the
/// file is written, and nobody reads a PDF with more pages.
const MAX_TOTAL_CELLS: usize = 30_000;
/// The maximum number of letters in all notes of a report together: nine of the longest notes. Each paragraph counts as
/// additional letters.
const MAX_TOTAL_LETTERS: usize = 600_000;
const LETTERS_PER_PARAGRAPH: usize = 100;

/// Writes the document as a PDF.
pub fn write(document: &Document, out: &mut dyn Write) -> Result<(), WriteError> {
    let (pages, info) = pages(document, fonts::system()).map_err(failed)?;
    let options = PdfOptions {
        ident: Smart::Custom(format!("{document:?}")),
        creator: Smart::Custom(Some("Crier".to_owned())),
        ..PdfOptions::default()
    };
    let file = typst_pdf::pdf(&PagedDocument::new(pages, info), &options);
    let file = file.map_err(|errors| failed(errors.first().map_or("", |error| error.message.as_str())));
    typst::comemo::evict(0);
    out.write_all(&file?)?;
    Ok(())
}

fn failed(message: impl std::fmt::Display) -> WriteError {
    WriteError::of(ReportFormat::Pdf, message)
}

/// Typesets all pages.
fn pages(document: &Document, catalogue: &'static Catalogue) -> Result<(EcoVec<Page>, DocumentInfo), String> {
    let fonts = Fonts::new(catalogue);
    let texts = Texts::new(&fonts);
    let families: Array = catalogue.families().into_iter().map(IntoValue::into_value).collect();
    let page = dict! {
        "width" => PAGE_WIDTH, "height" => PAGE_HEIGHT, "side" => SIDE, "top" => TOP, "bottom" => BOTTOM,
    };
    let base = dict! { "fonts" => families, "page" => page };
    let mut pieces = Pieces::new(base.clone(), &fonts);
    let notes = document.widgets.iter().filter(|widget| widget.view == View::Text).count();
    pieces.letters = MAX_TOTAL_LETTERS / notes.max(1);
    pieces.base.insert("cover".into(), cover(document, &texts).into_value());
    for (widget, rows) in document.widgets.iter().zip(shown_rows(document)) {
        add_widget(widget, rows, &texts, &mut pieces)?;
    }
    if let Some(remark) = texts.remark() {
        pieces.add(dict! { "kind" => "remark", "text" => remark }, 1)?;
    }
    pieces.flush()?;
    let Pieces { pages, number, .. } = pieces;
    Ok((with_footers(pages, number, base, document, &texts)?, info(document, &texts)))
}

/// The pages so far, and the parts that are not typeset yet.
struct Pieces<'a> {
    fonts: &'a Fonts,
    /// The inputs of every piece, and of the first one also the cover.
    base: Dict,
    open: Array,
    cells: usize,
    pages: EcoVec<Page>,
    number: usize,
    /// The maximum number of letters per note.
    letters: usize,
}

impl<'a> Pieces<'a> {
    fn new(base: Dict, fonts: &'a Fonts) -> Self {
        Self { fonts, base, open: Array::new(), cells: 0, pages: EcoVec::new(), number: 0, letters: MAX_TOTAL_LETTERS }
    }

    /// Adds a part that counts as `cells`. A part that does not fit into the piece begins a new page.
    fn add(&mut self, part: Dict, cells: usize) -> Result<(), String> {
        if self.cells > 0 && self.cells + cells > MAX_PIECE_CELLS {
            self.flush()?;
        }
        self.cells += cells;
        self.open.push(part.into_value());
        Ok(())
    }

    /// Typesets the parts that are not typeset yet. The next part begins a new page.
    fn flush(&mut self) -> Result<(), String> {
        let cover = self.base.contains("cover");
        if self.open.is_empty() && !cover {
            return Ok(());
        }
        let mut inputs = self.base.clone();
        inputs.insert("parts".into(), std::mem::take(&mut self.open).into_value());
        self.number += 1;
        let piece = world::typeset(self.number, inputs, self.fonts)?;
        self.pages.extend(piece.pages().iter().cloned());
        if cover {
            let _ = self.base.remove("cover".into(), None);
        }
        self.cells = 0;
        Ok(())
    }
}

/// Adds the footer with brand, period and page number to all pages except the cover.
fn with_footers(
    mut pages: EcoVec<Page>,
    number: usize,
    mut inputs: Dict,
    document: &Document,
    texts: &Texts,
) -> Result<EcoVec<Page>, String> {
    let total = pages.len();
    if total < 2 {
        return Ok(pages);
    }
    let brand = texts.fit(&document.brand, MAX_TITLE, Style { size: 8.0, bold: false }, 380.0, 1);
    let period = format!("  ·  {}", document.period.words());
    let footer = dict! {
        "from" => 2_i64, "to" => total as i64, "brand" => text::directed(brand), "period" => period,
    };
    inputs.insert("foot".into(), footer.into_value());
    let footers = world::typeset(number + 1, inputs, texts.fonts)?;
    for (page, footer) in pages.make_mut().iter_mut().skip(1).zip(footers.pages()) {
        page.frame.push_frame(Point::zero(), footer.frame.clone());
    }
    Ok(pages)
}

fn info(document: &Document, texts: &Texts) -> DocumentInfo {
    let (title, brand) = (texts.line(&document.title, MAX_TITLE), texts.line(&document.brand, MAX_TITLE));
    let at = document.created_at;
    let part = |value: u32| u8::try_from(value).unwrap_or_default();
    let date = Datetime::from_ymd_hms(
        at.year(),
        part(at.month()),
        part(at.day()),
        part(at.hour()),
        part(at.minute()),
        part(at.second()),
    );
    DocumentInfo {
        title: Some(format!("{title} – {brand}, {}", document.period.words()).into()),
        author: vec![texts.line(&document.workspace, MAX_TITLE).into()],
        date: Smart::Custom(date),
        locale: Smart::Custom(Locale { lang: Lang::ENGLISH, region: None }),
        ..DocumentInfo::default()
    }
}

fn cover(document: &Document, texts: &Texts) -> Dict {
    let line = |text: &str| text::directed(texts.fit(text, 120, Style { size: 11.0, bold: false }, 340.0, 2));
    let created = format!("{} ({})", crate::text::time(document.created_at), document.timezone);
    let fact = |name: &str, value: Value| [name.into_value(), value].into_iter().collect::<Array>().into_value();
    let facts: Array =
        [fact("WORKSPACE", line(&document.workspace)), fact("CREATED", line(&created))].into_iter().collect();
    dict! {
        "title" => text::directed(texts.fit(&document.title, MAX_TITLE, Style { size: 54.0, bold: true }, 640.0, 4)),
        "brand" => text::directed(texts.fit(&document.brand, 120, Style { size: 17.0, bold: false }, 620.0, 2)),
        "period" => document.period.words(),
        "facts" => facts,
    }
}

/// Returns the number of rows that are shown of each widget's table: all, unless the tables have more cells than the
/// maximum. In that case, short tables are shown completely and long ones share the rest.
fn shown_rows(document: &Document) -> Vec<usize> {
    let tables: Vec<&Table> = document.widgets.iter().map(|widget| &widget.table).collect();
    let mut shown: Vec<usize> = tables.iter().map(|table| table.rows.len()).collect();
    let is_table = |n: &usize| document.widgets[*n].view == View::Table;
    let mut by_size: Vec<usize> = (0..tables.len()).filter(is_table).collect();
    by_size.sort_by_key(|n| tables[*n].rows.len() * tables[*n].columns.len());
    let mut remaining = MAX_TOTAL_CELLS;
    for (done, n) in by_size.iter().enumerate() {
        let columns = table::drawn_columns(&tables[*n].columns).max(1);
        shown[*n] = shown[*n].min(remaining / (by_size.len() - done) / columns);
        remaining -= shown[*n] * columns;
    }
    shown
}

/// Adds the parts of a widget, usually one.
fn add_widget(widget: &Widget, rows: usize, texts: &Texts, pieces: &mut Pieces) -> Result<(), String> {
    let title = texts.fit(&widget.title, MAX_TITLE, TITLE, WIDTH, 2);
    let title_height = TITLE_HEIGHT + if title.contains('\n') { TITLE_LINE_HEIGHT } else { 0.0 };
    let remark = widget.remark.as_deref().map(|remark| text::directed(texts.sentence(remark, 500)));
    let heading = dict! { "title" => text::directed(title), "title-height" => title_height };
    let (mut part, cells) = match &widget.view {
        _ if widget.table.rows.is_empty() => {
            let text = remark.unwrap_or_else(|| "No data in this period.".into_value());
            return pieces.add(joined(heading, dict! { "kind" => "empty", "text" => text }), 10);
        }
        View::Metrics => metrics(&widget.table, texts),
        View::Chart(chart) => {
            let marks = widget.table.rows.len() * chart.series.len() / 4 + 40;
            (joined(dict! { "kind" => "chart" }, chart::drawn(chart, &widget.table, WIDTH, texts)), marks)
        }
        View::Text => paragraphs(&widget.table, pieces.letters, texts),
        View::Table => return add_table(&widget.table, rows, heading, remark, texts, pieces),
    };
    if let Some(remark) = remark {
        part.insert("remark".into(), remark);
    }
    pieces.add(joined(heading, part), cells)
}

/// Adds a table. Splits a long one at the ends of pages.
fn add_table(
    table: &Table,
    count: usize,
    heading: Dict,
    remark: Option<Value>,
    texts: &Texts,
    pieces: &mut Pieces,
) -> Result<(), String> {
    let layout = table::Layout::new(table, WIDTH, texts);
    let cells = |rows: usize| (rows + 1) * layout.columns();
    let all = table.rows.len();
    let cut = (count < all).then(|| {
        let (count, all) = (naming::count(count as i64), naming::count(all as i64));
        format!("The first {count} of {all} rows. The XLSX file contains all rows.").into_value()
    });
    let mut start = 0;
    if cells(count) > MAX_PIECE_CELLS {
        pieces.flush()?;
        let title_height = heading.get("title-height").ok().and_then(|height| height.clone().cast::<f64>().ok());
        let rows_in =
            |used: f64| ((HEIGHT - used - layout.head_height()) / layout.row_height()).floor().max(1.0) as usize;
        let (first, page) = (rows_in(title_height.unwrap_or(TITLE_HEIGHT)), rows_in(0.0));
        let pages = (MAX_PIECE_CELLS / cells(page)).max(1);
        while count - start > page * pages {
            let end = start + if start == 0 { first + page * (pages - 1) } else { page * pages };
            let part = layout.drawn(start..end);
            pieces.add(if start == 0 { joined(heading.clone(), part) } else { part }, cells(end - start))?;
            pieces.flush()?;
            start = end;
        }
    }
    let mut part = layout.drawn(start..count);
    if let Some(totals) = layout.totals() {
        part.insert("totals".into(), totals.into_value());
    }
    if let Some(cut) = cut {
        part.insert("cut".into(), cut);
    }
    if let Some(remark) = remark {
        part.insert("remark".into(), remark);
    }
    pieces.add(if start == 0 { joined(heading, part) } else { part }, cells(count - start))
}

fn joined(mut first: Dict, second: Dict) -> Dict {
    first.extend(second);
    first
}

fn paragraphs(table: &Table, letters: usize, texts: &Texts) -> (Dict, usize) {
    let texts_of = |row: &Vec<Cell>| match row.first() {
        Some(Cell::Text(text)) => texts.paragraphs(text),
        _ => Vec::new(),
    };
    let (mut shown, mut used, mut cut) = (Array::new(), 0, false);
    for text in table.rows.iter().flat_map(texts_of) {
        used += text.chars().count() + LETTERS_PER_PARAGRAPH;
        cut = used > letters;
        if cut {
            break;
        }
        shown.push(text::directed(text));
    }
    let mut part = dict! { "kind" => "text", "paragraphs" => shown };
    if cut {
        part.insert("cut".into(), "The rest of this text is not shown here. The JSON file contains it.".into_value());
    }
    (part, used.min(letters) / LETTERS_PER_CELL)
}

/// Returns the cards, at most six in a row, and the number of cells that they count as.
fn metrics(table: &Table, texts: &Texts) -> (Dict, usize) {
    let count = table.rows.len();
    let columns = count.div_ceil(count.div_ceil(6));
    let width = (WIDTH - 10.0 * (columns as f64 - 1.0)) / columns as f64 - 28.0;
    let cards: Array = table.rows.iter().map(|row| card(row, width, texts).into_value()).collect();
    let compared = table.rows.iter().any(|row| matches!(row.get(3), Some(Cell::Percent(_))));
    let note = if compared { "Changes compared with the previous period of the same length." } else { "" };
    (dict! { "kind" => "metrics", "columns" => columns as i64, "cards" => cards, "note" => note }, count * 5)
}

fn card(row: &[Cell], width: f64, texts: &Texts) -> Dict {
    let metric = match row.first() {
        Some(Cell::Text(metric)) => metric.as_str(),
        _ => "",
    };
    let value = row.get(1).map_or_else(|| "–".to_owned(), |value| crate::text::cell(value).into_owned());
    // The font is as large as the number fits.
    let wide = texts.width(&value, Style { size: 1.0, bold: true });
    let (change, direction) = change(row);
    dict! {
        "metric" => text::directed(texts.fit(metric, 60, Style { size: 9.0, bold: false }, width, 1)),
        "size" => (width / wide).min(24.0),
        "value" => value,
        "change" => change,
        "direction" => direction,
    }
}

/// Returns the change against the previous period, and its direction.
fn change(row: &[Cell]) -> (String, &'static str) {
    match (row.get(1), row.get(2), row.get(3)) {
        (_, _, Some(Cell::Percent(tenths))) => {
            let direction = match tenths.signum() {
                1 => "up",
                -1 => "down",
                _ => "",
            };
            (naming::percent(*tenths), direction)
        }
        (Some(Cell::Count(1..)), Some(Cell::Count(0)), _) => ("previously 0".to_owned(), ""),
        _ => (String::new(), ""),
    }
}
