//! The formats of cells, and the writing of values into cells.

use chrono::{Datelike, NaiveDate};
use rust_xlsxwriter::{ColNum, Format, FormatAlign, FormatBorder, FormatUnderline, RowNum, Url, Worksheet, XlsxError};

use crate::palette::{ACCENT, INK, LINE, MUTED, SURFACE, WHITE};
use crate::text::{clean, link_target, utf16_parts};
use crate::{Cell, Column};

/// Excel's limit for the text of a cell, in UTF-16 code units.
pub const MAX_TEXT: usize = 32_767;
/// Excel's limit for the length of a link.
const MAX_LINK: usize = 2_079;
/// Excel's limit for the number of links per sheet.
const MAX_LINKS: usize = 65_530;
/// The largest number that Excel stores exactly: it keeps 15 digits. A larger count is written as text.
const MAX_NUMBER: u64 = 999_999_999_999_999;

pub struct Formats {
    pub title: Format,
    pub subtitle: Format,
    pub remark: Format,
    pub label: Format,
    pub text: Format,
    pub link: Format,
    pub contents: Format,
    pub data_header: Format,
    pub note: Format,
    header: Format,
    count_header: Format,
    count: Format,
    percent: Format,
    date: Format,
    time: Format,
    total: Format,
    total_count: Format,
}

impl Formats {
    pub fn new() -> Self {
        let plain = Format::new().set_font_color(INK).set_align(FormatAlign::Top);
        let cell = plain.clone().set_border_bottom(FormatBorder::Thin).set_border_bottom_color(LINE);
        let header = Format::new()
            .set_bold()
            .set_font_color(WHITE)
            .set_background_color(ACCENT)
            .set_align(FormatAlign::VerticalCenter)
            .set_text_wrap();
        let total = plain.clone().set_bold().set_background_color(SURFACE).set_border_top(FormatBorder::Thin);
        let total = total.set_border_top_color(ACCENT);
        let left = |format: &Format| format.clone().set_align(FormatAlign::Left);
        let right = |format: &Format| format.clone().set_align(FormatAlign::Right);
        let muted = plain.clone().set_font_color(MUTED);
        Self {
            title: Format::new().set_bold().set_font_size(16).set_font_color(ACCENT),
            subtitle: muted.clone(),
            remark: muted.clone(),
            label: muted,
            data_header: plain.clone().set_bold(),
            contents: plain.clone().set_font_color(ACCENT),
            note: plain.clone().set_text_wrap(),
            text: cell.clone().set_text_wrap(),
            link: cell.clone().set_indent(1).set_font_color(ACCENT).set_underline(FormatUnderline::Single),
            count_header: right(&header),
            header,
            count: right(&cell).set_num_format("#,##0"),
            percent: right(&cell).set_num_format("+#,##0.0%;-#,##0.0%;0%"),
            date: left(&cell).set_num_format("yyyy-mm-dd"),
            time: left(&cell).set_num_format("yyyy-mm-dd hh:mm"),
            total_count: right(&total).set_num_format("#,##0"),
            total,
        }
    }

    pub fn header(&self, column: &Column) -> &Format {
        if column.column_type.is_number() { &self.count_header } else { &self.header }
    }
}

/// Writes values to a sheet, and counts its links.
pub struct Writer<'a> {
    pub sheet: &'a mut Worksheet,
    pub formats: &'a Formats,
    links: usize,
}

impl<'a> Writer<'a> {
    pub fn new(sheet: &'a mut Worksheet, formats: &'a Formats) -> Self {
        Self { sheet, formats, links: 0 }
    }

    /// Writes a text. Cuts it after [`MAX_TEXT`].
    pub fn text(&mut self, row: RowNum, column: ColNum, text: &str, format: &Format) -> Result<(), XlsxError> {
        let text = clean(text);
        self.sheet.write_string_with_format(row, column, utf16_parts(&text, MAX_TEXT)[0], format)?;
        Ok(())
    }

    pub fn cell(&mut self, row: RowNum, column: ColNum, cell: &Cell) -> Result<(), XlsxError> {
        let formats = self.formats;
        match cell {
            Cell::Empty => self.sheet.write_blank(row, column, &formats.text)?,
            Cell::Text(text) => return self.text(row, column, text, &formats.text),
            Cell::Count(count) => return self.count(row, column, *count, &formats.count),
            Cell::Percent(tenths) => {
                self.sheet.write_number_with_format(row, column, *tenths as f64 / 1_000.0, &formats.percent)?
            }
            Cell::Date(date) if is_supported(*date) => {
                self.sheet.write_with_format(row, column, date, &formats.date)?
            }
            Cell::Time(time) if is_supported(time.date()) => {
                self.sheet.write_with_format(row, column, time, &formats.time)?
            }
            Cell::Date(date) => return self.text(row, column, &date.to_string(), &formats.text),
            Cell::Time(time) => return self.text(row, column, &time.to_string(), &formats.text),
            Cell::Link(url) => return self.link(row, column, url),
        };
        Ok(())
    }

    /// Writes a cell of the row of sums.
    pub fn total(&mut self, row: RowNum, column: ColNum, cell: &Cell) -> Result<(), XlsxError> {
        let formats = self.formats;
        match cell {
            Cell::Count(count) => self.count(row, column, *count, &formats.total_count),
            Cell::Empty => self.text(row, column, "", &formats.total),
            other => self.text(row, column, &crate::text::cell(other), &formats.total),
        }
    }

    fn count(&mut self, row: RowNum, column: ColNum, count: i64, format: &Format) -> Result<(), XlsxError> {
        if count.unsigned_abs() > MAX_NUMBER {
            return self.text(row, column, &count.to_string(), format);
        }
        self.sheet.write_number_with_format(row, column, count as f64, format)?;
        Ok(())
    }

    /// Writes a URL as a link if Excel supports it, else as text.
    fn link(&mut self, row: RowNum, column: ColNum, url: &str) -> Result<(), XlsxError> {
        let formats = self.formats;
        let target = link_target(url).filter(|target| target.len() <= MAX_LINK && self.links < MAX_LINKS);
        let Some(target) = target else { return self.text(row, column, url, &formats.text) };
        self.links += 1;
        self.sheet.write_url_with_options(row, column, Url::new(target), clean(url), "", Some(&formats.link))?;
        Ok(())
    }
}

/// Returns whether Excel supports the day.
fn is_supported(date: NaiveDate) -> bool {
    (1900..=9999).contains(&date.year())
}
