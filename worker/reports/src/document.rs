//! The document: the content of a report, as plain values.
//!
//! Every widget has a typed [`Table`], so that every format can show it, and a [`View`] that defines how to draw it.
//! All texts come from users or platforms and are never markup: a writer escapes them for its format. They may be
//! empty, may have any script and direction, and may contain any Unicode character, including control characters.
//!
//! The builder of the document ensures these limits: 30 widgets, 10,000 rows in all tables together, 24 columns per
//! table, 65,535 characters in a note, 500 in any other cell, 120 in a title.

use chrono::{NaiveDate, NaiveDateTime};
use crier_domain::report::WidgetType;
use crier_domain::report_naming as naming;

/// A report over a period.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The report's name.
    pub title: String,
    pub brand: String,
    pub workspace: String,
    pub period: Period,
    /// The brand's time zone (`Europe/Berlin`), used for all days and times of the document.
    pub timezone: String,
    /// When the values were read.
    pub created_at: NaiveDateTime,
    pub widgets: Vec<Widget>,
}

/// A period of days. Both days are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub start: NaiveDate,
    pub end: NaiveDate,
}

impl Period {
    /// Returns the period as text: `1–31 October 2026`.
    pub fn words(self) -> String {
        naming::period(self.start, self.end)
    }
}

/// A part of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Widget {
    pub widget_type: WidgetType,
    pub title: String,
    pub view: View,
    pub table: Table,
    /// A sentence to show below the values: why there are none (`No posts were published in this period.`), or which
    /// are omitted. Never `None` if the table has no rows.
    pub remark: Option<String>,
}

/// How a widget is drawn in formats with graphics.
#[derive(Clone, Debug, PartialEq)]
pub enum View {
    /// Large numbers side by side. The table has the columns `metric` (text), `value` (count), `previous` (count, in
    /// the previous period of the same length) and `change` (percent), and one row per metric.
    Metrics,
    /// A chart, and its values as a table below or beside it.
    Chart(Chart),
    /// Only the table.
    Table,
    /// Paragraphs. The table has one column, `text`, and one row. Line breaks are significant.
    Text,
}

/// A chart over the days of the first column, with one point per row.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    pub chart_type: ChartType,
    /// The indexes of the columns that are the series. They are counts, and their labels are the legend.
    pub series: Vec<usize>,
    /// The unit of the axis: `Posts`.
    pub unit: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartType {
    /// Vertical columns, for sums. Stacked if there are several series.
    Columns,
    /// A line per series, for states. An empty cell is a gap.
    Lines,
}

/// Rows of typed cells. Every row has as many cells as there are columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
    /// A row of sums to show below the rows. Omitted in machine-readable formats.
    pub totals: Option<Vec<Cell>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name for programs, unique in its table: `published_at`.
    pub key: String,
    /// The name for readers: `Published`.
    pub label: String,
    pub column_type: ColumnType,
}

/// The type of a column's cells; any of them may be [`Cell::Empty`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    Text,
    Count,
    Percent,
    Date,
    Time,
    /// A URL with the scheme `http` or `https`.
    Link,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Unknown: no platform returned a value. Never shown as 0.
    Empty,
    Text(String),
    Count(i64),
    /// A change, in tenths of a percent.
    Percent(i64),
    Date(NaiveDate),
    Time(NaiveDateTime),
    Link(String),
}

impl ColumnType {
    /// Returns whether the cells are numbers, which are aligned to the right and never cut.
    pub const fn is_number(self) -> bool {
        matches!(self, Self::Count | Self::Percent)
    }
}
