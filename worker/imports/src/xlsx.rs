//! Workbooks (XLSX): the first sheet. Cells are read one by one, because a reader of whole sheets allocates every cell
//! between the first and the last one.
//!
//! A workbook is a ZIP archive, which may inflate to a thousand times its size, so it is inflated once without keeping
//! anything before it is read. The reader copies the font and the borders of each cell format, so a small file with many
//! formats and long names could make it allocate much memory. Such a file is rejected.

use std::io::{self, Cursor, Read};

use calamine::{DataRef, ExcelDateTime, Reader, Xlsx};
use zip::ZipArchive;

use crate::FileError;
use crate::table::{MAX_CELL_CHARS, MAX_COLUMNS, Table};

/// The maximum size of a workbook after it is unpacked, in bytes.
pub const MAX_INFLATED_BYTES: u64 = 48 << 20;
/// The maximum number of files in the archive.
const MAX_ENTRIES: usize = 2_000;
/// The end of the name of the file with the formats of cells, and its maximum size in bytes.
const STYLES: &str = "styles.xml";
const MAX_STYLES_BYTES: u64 = 2 << 20;
/// The maximum number of cell formats: that of Excel.
const MAX_FORMATS: usize = 65_490;
/// The maximum memory for the copies of fonts, fills and borders, in bytes.
const MAX_COPIED_BYTES: usize = 64 << 20;
/// The maximum number of bytes of a character in UTF-8.
const MAX_CHAR_BYTES: usize = 4;
/// The number of copied names of a format.
const COPIES: usize = 4;

pub fn read(bytes: &[u8]) -> Result<Table, FileError> {
    check(bytes)?;
    let mut workbook: Xlsx<Cursor<&[u8]>> = Xlsx::new(Cursor::new(bytes)).map_err(broken)?;
    let name = workbook.sheet_names().into_iter().next().ok_or(FileError::BrokenWorkbook)?;
    let mut cells = workbook.worksheet_cells_reader(&name).map_err(broken)?;
    let (mut table, mut row, mut current) = (Table::default(), Vec::new(), 0);
    while let Some(cell) = cells.next_cell().map_err(broken)? {
        let (index, column) = cell.get_position();
        // Before the text is copied: a hundred cells may repeat a text of 48 MiB.
        if text_bytes(cell.get_value()) > MAX_CELL_CHARS * MAX_CHAR_BYTES {
            return Err(FileError::LongCell(number(index)));
        }
        let text = text_of(cell.get_value());
        if text.is_empty() {
            continue;
        }
        if index < current {
            return Err(FileError::BrokenWorkbook);
        }
        if index > current {
            add(&mut table, current, &mut row)?;
            current = index;
        }
        let column = usize::try_from(column).unwrap_or(usize::MAX);
        if column >= MAX_COLUMNS {
            return Err(FileError::TooManyColumns(number(index)));
        }
        if row.len() <= column {
            row.resize(column + 1, String::new());
        }
        if let Some(place) = row.get_mut(column) {
            *place = text;
        }
    }
    add(&mut table, current, &mut row)?;
    if table.headings.is_empty() { Err(FileError::Empty) } else { Ok(table) }
}

fn broken<E>(_: E) -> FileError {
    FileError::BrokenWorkbook
}

/// Returns the number of a row that a spreadsheet program shows.
const fn number(index: u32) -> u32 {
    index.saturating_add(1)
}

fn add(table: &mut Table, index: u32, row: &mut Vec<String>) -> Result<(), FileError> {
    table.add(number(index), std::mem::take(row).into_iter().map(Into::into))
}

/// Returns the size of the text in a cell, in bytes.
const fn text_bytes(value: &DataRef<'_>) -> usize {
    match value {
        DataRef::String(text) | DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => text.len(),
        DataRef::SharedString(text) => text.len(),
        DataRef::Int(_)
        | DataRef::Float(_)
        | DataRef::Bool(_)
        | DataRef::DateTime(_)
        | DataRef::Error(_)
        | DataRef::Empty => 0,
    }
}

/// Returns the text that a cell shows. Dates are in ISO 8601.
fn text_of(value: &DataRef<'_>) -> String {
    match value {
        DataRef::String(text) | DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => text.clone(),
        DataRef::SharedString(text) => (*text).to_owned(),
        DataRef::Int(number) => number.to_string(),
        DataRef::Float(number) => number.to_string(),
        DataRef::Bool(value) => value.to_string(),
        DataRef::DateTime(at) => time_text(at),
        DataRef::Error(_) | DataRef::Empty => String::new(),
    }
}

fn time_text(at: &ExcelDateTime) -> String {
    let (year, month, day, hour, minute, second, _) = at.to_ymd_hms_milli();
    let time = format!("{hour:02}:{minute:02}:{second:02}");
    let days = at.as_f64();
    if days < 1.0 {
        return time;
    }
    let date = format!("{year:04}-{month:02}-{day:02}");
    if days.fract() == 0.0 { date } else { format!("{date} {time}") }
}

/// Inflates the archive, and fails if it is too large.
fn check(bytes: &[u8]) -> Result<(), FileError> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(broken)?;
    if archive.len() > MAX_ENTRIES {
        return Err(FileError::TooLargeInside);
    }
    let mut left = MAX_INFLATED_BYTES;
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(broken)?;
        let size = if entry.name().map_err(broken)?.to_ascii_lowercase().ends_with(STYLES) {
            let mut styles = Vec::new();
            let size = entry.take(MAX_STYLES_BYTES + 1).read_to_end(&mut styles).map_err(broken)? as u64;
            if size > MAX_STYLES_BYTES || !is_harmless(&styles) {
                return Err(FileError::TooLargeInside);
            }
            size
        } else {
            io::copy(&mut entry.take(left + 1), &mut io::sink()).map_err(broken)?
        };
        left = left.checked_sub(size).ok_or(FileError::TooLargeInside)?;
    }
    Ok(())
}

/// Returns whether the formats of cells take little memory. A name is an attribute, so it is shorter than the longest tag.
fn is_harmless(styles: &[u8]) -> bool {
    let formats = styles.windows(2).filter(|pair| **pair == *b"xf").count();
    let longest = styles.split(|byte| *byte == b'<').map(<[u8]>::len).max().unwrap_or_default();
    formats <= MAX_FORMATS && formats.saturating_mul(longest).saturating_mul(COPIES) <= MAX_COPIED_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_formats_with_a_long_name_are_rejected() {
        let styles = |name: usize, formats: usize| {
            format!("<font><name val=\"{}\"/></font>{}", "x".repeat(name), "<xf fontId=\"0\"/>".repeat(formats))
        };
        assert!(is_harmless(styles(30, 3_000).as_bytes()));
        assert!(!is_harmless(styles(500_000, 3_000).as_bytes()));
        assert!(!is_harmless(styles(1, MAX_FORMATS + 1).as_bytes()));
    }

    #[test]
    fn an_archive_that_is_no_workbook_is_rejected() {
        assert_eq!(read(b"PK\x03\x04 not a workbook").unwrap_err(), FileError::BrokenWorkbook);
    }
}
