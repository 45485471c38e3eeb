//! A table of texts, within limits.

use std::borrow::Cow;

use crier_domain::post_import::MAX_IMPORT_ROWS;

use crate::FileError;

/// The maximum number of columns.
pub const MAX_COLUMNS: usize = 100;
/// The maximum length of a cell, in characters.
pub const MAX_CELL_CHARS: usize = 65_535;
/// The maximum size of all cells, in bytes. A workbook stores a text once, however often it occurs.
pub const MAX_TEXT_BYTES: usize = 32 << 20;

#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The cells of the first row.
    pub headings: Vec<String>,
    pub rows: Vec<TableRow>,
    text_bytes: usize,
}

#[derive(Clone, Debug)]
pub struct TableRow {
    pub number: u32,
    /// Without the empty cells at the end.
    pub cells: Vec<String>,
}

impl TableRow {
    pub fn cell(&self, column: usize) -> &str {
        self.cells.get(column).map_or("", String::as_str)
    }
}

impl Table {
    /// Adds a row. The first one has the headings. An empty row is omitted.
    pub fn add<'a>(&mut self, number: u32, cells: impl Iterator<Item = Cow<'a, str>>) -> Result<(), FileError> {
        let mut row = Vec::new();
        // Empty cells are added with the next cell that is not empty, so that a row may end with any number of them.
        let mut empty = 0;
        for cell in cells {
            if cell.trim().is_empty() {
                empty += 1;
                continue;
            }
            if row.len() + empty >= MAX_COLUMNS {
                return Err(FileError::TooManyColumns(number));
            }
            // A text has at least as many bytes as characters.
            if cell.len() > MAX_CELL_CHARS && cell.chars().count() > MAX_CELL_CHARS {
                return Err(FileError::LongCell(number));
            }
            self.text_bytes += cell.len();
            if self.text_bytes > MAX_TEXT_BYTES {
                return Err(FileError::TooMuchText);
            }
            row.resize(row.len() + empty, String::new());
            empty = 0;
            row.push(cell.into_owned());
        }
        if row.is_empty() {
            return Ok(());
        }
        if self.headings.is_empty() {
            self.headings = row;
            return Ok(());
        }
        if self.rows.len() == MAX_IMPORT_ROWS {
            return Err(FileError::TooManyRows);
        }
        self.rows.push(TableRow { number, cells: row });
        Ok(())
    }

    /// Makes the first row one with a post, under these headings.
    pub fn with_headings(mut self, headings: &[&str]) -> Result<Self, FileError> {
        let cells = std::mem::replace(&mut self.headings, headings.iter().map(|name| (*name).to_owned()).collect());
        if self.rows.len() == MAX_IMPORT_ROWS {
            return Err(FileError::TooManyRows);
        }
        self.rows.insert(0, TableRow { number: 1, cells });
        Ok(self)
    }
}
