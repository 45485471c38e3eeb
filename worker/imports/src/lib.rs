//! Files with posts, from bytes to rows that can become posts.
//!
//! 1. The bytes say what the file is: a ZIP archive is a workbook (XLSX); a text that begins with a bracket or a brace is
//!    JSON; any other text is CSV. The name of the file is not used.
//! 2. A reader per format makes a [`table`] of texts: the headings and the rows with their numbers.
//! 3. The headings decide what a column is ([`columns`]), and the cells of a row become a [`RowPost`], or problems that
//!    name the row and the column.
//!
//! The file comes from outside. Its size, the inflated size of a workbook, the number of rows and columns, the length of
//! a cell and that of all cells together are limited before anything is stored.
//!
//! **To add a format:** a file here that returns a `table::Table`, and its branch in `read_table`. **To add the files
//! of another tool:** its headings in `columns.rs`, and their row in `docs/planning.md`.

use std::collections::HashMap;

use chrono_tz::Tz;
use crier_domain::post_import::{DateFormat, MAX_IMPORT_BYTES, MAX_IMPORT_ROWS, PostColumn};

use crate::columns::Columns;
use crate::table::{MAX_CELL_CHARS, MAX_COLUMNS, MAX_TEXT_BYTES, Table};

mod columns;
mod csv;
mod dates;
mod decode;
mod json;
mod row;
mod table;
mod xlsx;

pub use row::{AccountName, RowMedia, RowPost};
pub use xlsx::MAX_INFLATED_BYTES;

/// How the cells of a file are read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// The time zone of times without an offset.
    pub zone: Tz,
    pub date_format: DateFormat,
}

/// A file that was read.
#[derive(Clone, Debug)]
pub struct PostFile {
    pub rows: Vec<Row>,
    /// The problems of the headings, which are row 1.
    pub problems: Vec<RowProblem>,
    headings: HashMap<PostColumn, String>,
}

impl PostFile {
    /// Returns the file's own name of a column, or else Crier's.
    pub fn column_name(&self, column: PostColumn) -> &str {
        match self.headings.get(&column) {
            Some(heading) => heading,
            // A time may have the word, too.
            None if column == PostColumn::Schedule => self.column_name(PostColumn::ScheduledAt),
            None => column.as_str(),
        }
    }
}

/// A row of a file.
#[derive(Clone, Debug)]
pub struct Row {
    /// The number that a spreadsheet program shows. Row 1 has the headings. Empty lines of a CSV file do not count.
    pub number: u32,
    pub post: Result<RowPost, Vec<RowProblem>>,
}

/// A problem of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowProblem {
    pub row: u32,
    /// The heading of the column.
    pub column: String,
    pub message: String,
}

/// Why a file cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("The file is empty.")]
    Empty,
    #[error("The file is larger than {max} MiB. Split it into several files.", max = MAX_IMPORT_BYTES >> 20)]
    TooLarge,
    #[error("The file has more than {max} rows. Split it into several files.", max = MAX_IMPORT_ROWS)]
    TooManyRows,
    #[error("Row {0} has more than {max} columns. Remove those that are not imported.", max = MAX_COLUMNS)]
    TooManyColumns(u32),
    #[error("A cell of row {0} has more than {max} characters.", max = MAX_CELL_CHARS)]
    LongCell(u32),
    #[error("The cells have more than {max} MiB of text in total. Split the file into several files.", max = MAX_TEXT_BYTES >> 20)]
    TooMuchText,
    #[error("The workbook is larger than {max} MiB when it is unpacked. Save only the sheet with the posts.", max = MAX_INFLATED_BYTES >> 20)]
    TooLargeInside,
    #[error("This is a workbook of an old version of Excel (.xls). Save it as .xlsx or as CSV.")]
    OldWorkbook,
    #[error("The workbook could not be read. Save it again as .xlsx, or as CSV.")]
    BrokenWorkbook,
    #[error("The file is not valid JSON: {0}.")]
    BrokenJson(String),
    #[error("The CSV file could not be read: {0}.")]
    BrokenCsv(String),
    #[error("The encoding of the file is unknown. Save it in UTF-8.")]
    UnknownEncoding,
    #[error("The first row has no heading for texts or media. Name a column `content` or `media_urls`.")]
    NoHeadings,
}

/// Reads a file. Takes time: call it on a thread for such work.
pub fn read(bytes: &[u8], options: &ReadOptions) -> Result<PostFile, FileError> {
    if bytes.len() > MAX_IMPORT_BYTES {
        return Err(FileError::TooLarge);
    }
    let table = read_table(bytes)?;
    let (columns, table) = Columns::of(table, options)?;
    let problems = columns.problems(&table);
    Ok(PostFile { rows: row::read_all(&columns, &table, options), headings: columns.headings(), problems })
}

fn read_table(bytes: &[u8]) -> Result<Table, FileError> {
    /// The first bytes of a ZIP archive, and of an old workbook.
    const ZIP: &[u8] = b"PK\x03\x04";
    const COMPOUND_FILE: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";
    if bytes.starts_with(ZIP) {
        return xlsx::read(bytes);
    }
    if bytes.starts_with(COMPOUND_FILE) {
        return Err(FileError::OldWorkbook);
    }
    let text = decode::decode(bytes)?;
    match text.trim_start().chars().next() {
        None => Err(FileError::Empty),
        Some('[' | '{') => json::read(&text),
        Some(_) => csv::read(&text),
    }
}
