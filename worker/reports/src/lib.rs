//! Writes reports to files. A report is a [`Document`]: plain values that the worker has read from the database. Each
//! format has a writer in its own file, which does not depend on the source of the values.
//!
//! **To add a format:** its line in `for_each_report_format!` (`common/domain/src/report.rs`), and a module here with its
//! name and `pub fn write(document: &Document, out: &mut dyn Write) -> Result<(), WriteError>`.
//!
//! **To add a widget:** its line in `WidgetType`, its columns in [`columns`], and a function in
//! `worker/src/jobs/export_report` that reads its table. The writers draw any [`Widget`] by its [`View`].

use std::io::Write;

use crier_domain::for_each_report_format;
use crier_domain::report::ReportFormat;

pub mod columns;
mod csv;
pub mod document;
mod json;
mod palette;
#[cfg(feature = "pdf")]
mod pdf;
#[cfg(not(feature = "pdf"))]
#[path = "without_pdf.rs"]
mod pdf;
mod pptx;
pub mod sample;
mod text;
mod xlsx;

pub use document::{Cell, Chart, ChartType, Column, ColumnType, Document, Period, Table, View, Widget};

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the file could not be written: {0}")]
    Io(#[from] std::io::Error),
    /// An error in a writer or in a library that it uses, with a message for the operator.
    #[error("the report could not be written as {format}: {message}")]
    Format { format: ReportFormat, message: String },
}

impl WriteError {
    fn of(format: ReportFormat, error: impl std::fmt::Display) -> Self {
        Self::Format { format, message: error.to_string() }
    }
}

/// Generates [`write`].
macro_rules! declare_writers {
    ($($format:ident = $name:ident $media_type:tt),+ $(,)?) => {
        /// Writes the document to `out` in a format. Takes up to several seconds of processor time, so call it on a
        /// thread for blocking work.
        pub fn write(document: &Document, format: ReportFormat, out: &mut dyn Write) -> Result<(), WriteError> {
            match format { $(ReportFormat::$format => $name::write(document, out)),+ }
        }
    };
}

for_each_report_format!(declare_writers);

pub use pdf::missing_characters;
