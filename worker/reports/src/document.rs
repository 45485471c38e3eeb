//! The document: what a report says, as plain values.
//!
//! Every widget is a typed [`Table`], so that every format can show it, and a [`View`] that says how it is best drawn.
//! All texts come from users or platforms and are only ever text: a writer escapes them for its format. They may be
//! empty, may be of any script and direction, and may contain any Unicode character, controls included.
//!
//! Bounds, which the builder of the document keeps: 30 widgets, 10,000 rows in all tables together, 24 columns in a
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
    /// The brand's time zone (`Europe/Berlin`). All days and times of the document are in it.
    pub timezone: String,
    /// When the values were read.
    pub created_at: NaiveDateTime,
    pub widgets: Vec<Widget>,
}

/// Days, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub start: NaiveDate,
    pub end: NaiveDate,
}

impl Period {
    /// Returns it for people: `1–31 October 2026`.
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
    /// A sentence about the values, to be shown below them: why there are none (`No posts were published in this
    /// period.`), or what was left out. Where the table has no rows, there is always one.
    pub remark: Option<String>,
}

/// How a widget is drawn where the format can draw.
#[derive(Clone, Debug, PartialEq)]
pub enum View {
    /// Large figures side by side. The table has the columns `metric` (text), `value` (count), `previous` (count: of
    /// the period of the same length before) and `change` (percent), one row for each figure.
    Figures,
    /// A chart, and its values as a table below or beside it.
    Chart(Chart),
    /// The table alone.
    Table,
    /// Paragraphs. The table has one column, `text`, and one row; line breaks are meant.
    Text,
}

/// A chart over the days of the first column, one mark for each row.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    pub chart_type: ChartType,
    /// The columns (from 0) that are its series; they are counts. Their labels are the legend.
    pub series: Vec<usize>,
    /// What its axis counts: `Posts`.
    pub unit: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartType {
    /// For sums: upright columns, one on top of the other if there are several series.
    Columns,
    /// For states: a line for each series. An empty cell is a gap.
    Lines,
}

/// Rows of typed cells. Every row has as many cells as there are columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
    /// A row of sums, to be shown below the rows and set apart; not in machine-readable formats.
    pub totals: Option<Vec<Cell>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// For programs, unique in its table: `published_at`.
    pub key: String,
    /// For people: `Published`.
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
    /// An address; only `http` and `https`.
    Link,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Not known: no platform gave a value. Never shown as 0.
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
    /// Whether its cells are numbers, which are aligned to the right and never cut.
    pub const fn is_number(self) -> bool {
        matches!(self, Self::Count | Self::Percent)
    }
}
