//! JSON, for programs. The shape, here on several lines:
//!
//! ```json
//! {
//!   "version": 1,
//!   "title": "Monthly report",
//!   "brand": "Sonnenaufgang",
//!   "workspace": "Agentur Müller",
//!   "period": {"start": "2026-10-01", "end": "2026-10-31"},
//!   "timezone": "Europe/Berlin",
//!   "created_at": "2026-11-01T09:00:04",
//!   "widgets": [
//!     {
//!       "type": "posts_table",
//!       "title": "All posts",
//!       "remark": null,
//!       "columns": [
//!         {"key": "published_at", "label": "Published", "type": "time"},
//!         {"key": "likes", "label": "Likes", "type": "count"}
//!       ],
//!       "rows": [{"published_at": "2026-10-01T09:30:00", "likes": null}]
//!     }
//!   ]
//! }
//! ```
//!
//! Both days of the period are included. Days and times, including `created_at`, are in `timezone`. A column's `type`
//! is `text`, `count` (an integer), `percent` (a number: 12.5 is 12.5 %), `date` (`2026-10-01`), `time`
//! (`2026-10-01T09:30:00`) or `link` (a URL, `http` or `https`). Every row has all keys of its columns; an unknown
//! value is `null`. Sums are omitted, because readers can compute them. `version` changes only if programs that read
//! this shape could no longer read a file; new members may be added without a change. Characters that change the
//! direction are escaped (`\u202e`), so that a file can be read in an editor; a parser returns them.

use std::io::{self, BufWriter, Write};

use crier_domain::report::{ReportFormat, WidgetType};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::ser::{CompactFormatter, Formatter};

use crate::text::is_direction;
use crate::{Cell, Column, ColumnType, Document, Table, Widget, WriteError};

const VERSION: u32 = 1;
const DATE: &str = "%Y-%m-%d";
const TIME: &str = "%Y-%m-%dT%H:%M:%S";

pub fn write(document: &Document, out: &mut dyn Write) -> Result<(), WriteError> {
    let mut out = BufWriter::new(out);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, EscapeDirections);
    JsonFile::from(document).serialize(&mut serializer).map_err(|error| match error.io_error_kind() {
        Some(kind) => WriteError::Io(io::Error::new(kind, error)),
        None => WriteError::of(ReportFormat::Json, error),
    })?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

#[derive(serde::Serialize)]
struct JsonFile<'a> {
    version: u32,
    title: &'a str,
    brand: &'a str,
    workspace: &'a str,
    period: JsonPeriod,
    timezone: &'a str,
    created_at: String,
    #[serde(serialize_with = "widgets")]
    widgets: &'a [Widget],
}

#[derive(serde::Serialize)]
struct JsonPeriod {
    start: String,
    end: String,
}

#[derive(serde::Serialize)]
struct JsonWidget<'a> {
    #[serde(rename = "type")]
    widget_type: WidgetType,
    title: &'a str,
    remark: Option<&'a str>,
    #[serde(serialize_with = "columns")]
    columns: &'a [Column],
    #[serde(serialize_with = "rows")]
    rows: &'a Table,
}

#[derive(serde::Serialize)]
struct JsonColumn<'a> {
    key: &'a str,
    label: &'a str,
    #[serde(rename = "type")]
    column_type: &'static str,
}

struct JsonRow<'a>(&'a [Column], &'a [Cell]);

struct JsonCell<'a>(&'a Cell);

impl<'a> From<&'a Document> for JsonFile<'a> {
    fn from(document: &'a Document) -> Self {
        Self {
            version: VERSION,
            title: &document.title,
            brand: &document.brand,
            workspace: &document.workspace,
            period: JsonPeriod {
                start: document.period.start.format(DATE).to_string(),
                end: document.period.end.format(DATE).to_string(),
            },
            timezone: &document.timezone,
            created_at: document.created_at.format(TIME).to_string(),
            widgets: &document.widgets,
        }
    }
}

fn widgets<S: Serializer>(widgets: &[Widget], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(widgets.iter().map(|widget| JsonWidget {
        widget_type: widget.widget_type,
        title: &widget.title,
        remark: widget.remark.as_deref(),
        columns: &widget.table.columns,
        rows: &widget.table,
    }))
}

fn columns<S: Serializer>(columns: &[Column], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(columns.iter().map(|column| JsonColumn {
        key: &column.key,
        label: &column.label,
        column_type: match column.column_type {
            ColumnType::Text => "text",
            ColumnType::Count => "count",
            ColumnType::Percent => "percent",
            ColumnType::Date => "date",
            ColumnType::Time => "time",
            ColumnType::Link => "link",
        },
    }))
}

fn rows<S: Serializer>(table: &Table, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(table.rows.iter().map(|row| JsonRow(&table.columns, row)))
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (column, cell) in self.0.iter().zip(self.1) {
            map.serialize_entry(&column.key, &JsonCell(cell))?;
        }
        map.end()
    }
}

impl Serialize for JsonCell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Cell::Empty => serializer.serialize_none(),
            Cell::Text(text) | Cell::Link(text) => serializer.serialize_str(text),
            Cell::Count(count) => serializer.serialize_i64(*count),
            Cell::Percent(tenths) => serializer.serialize_f64(*tenths as f64 / 10.0),
            Cell::Date(date) => serializer.collect_str(&date.format(DATE)),
            Cell::Time(time) => serializer.collect_str(&time.format(TIME)),
        }
    }
}

/// Writes compact JSON, in which characters that change the direction are escaped.
struct EscapeDirections;

impl Formatter for EscapeDirections {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(is_direction) {
            let (before, found) = rest.split_at(at);
            CompactFormatter.write_string_fragment(writer, before)?;
            let mut characters = found.chars();
            if let Some(c) = characters.next() {
                write!(writer, "\\u{:04x}", u32::from(c))?;
            }
            rest = characters.as_str();
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}
