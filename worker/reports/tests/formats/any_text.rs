//! Tests that any Unicode text in any position stays text in every format. One process reads all cases, to save time.

use chrono::{Days, NaiveDate};
use crier_domain::report::{ReportFormat, WidgetType};
use crier_reports::{Cell, Chart, ChartType, Column, ColumnType, Document, Table, View, Widget, sample};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;

use crate::support::{HOSTILE, read_all};

/// Compares a document with the result of reading its file.
type Check = fn(&Document, &Value);

/// The comparison for each format.
const CHECKS: &[(ReportFormat, Check)] = &[
    (ReportFormat::Csv, crate::csv::says),
    (ReportFormat::Json, crate::json::says),
    (ReportFormat::Xlsx, crate::xlsx::says),
    (ReportFormat::Pptx, crate::pptx::says),
    (ReportFormat::Pdf, crate::pdf::says),
];
const CASES: usize = 24;
const ROWS: usize = 3;

/// Generates a text of up to 24 characters, often with characters that are special in a format.
fn text() -> impl Strategy<Value = String> {
    let special = prop::sample::select(
        "=+-@'\"<>&;,\\_x0041]\t\r\n\0\u{b}\u{85}\u{a0}\u{ad}\u{301}\u{2028}\u{202e}\u{fffe}\u{10ffff}"
            .chars()
            .collect::<Vec<_>>(),
    );
    let characters = prop_oneof![any::<char>(), special, prop::char::range(' ', '~')];
    let any_text = vec(characters, 0..24).prop_map(|characters| characters.into_iter().collect::<String>());
    prop_oneof![4 => any_text, 1 => prop::sample::select(HOSTILE.to_vec()).prop_map(str::to_owned)]
}

fn document() -> impl Strategy<Value = Document> {
    let table = (vec(text(), 3), vec((text(), text(), any::<i64>()), ROWS));
    let chart = (vec(text(), 3), vec((0_i64..1 << 40, prop::option::of(0_i64..1 << 40)), ROWS));
    (vec(text(), 4), text(), table, chart).prop_map(|(texts, note, (labels, rows), (series, points))| {
        let [title, table_title, note_title, chart_title] = texts.try_into().expect("four texts");
        let table_rows = rows
            .into_iter()
            .map(|(first, second, count)| vec![Cell::Text(first), Cell::Text(second), Cell::Count(count)]);
        let day = |at: usize| NaiveDate::from_ymd_opt(2026, 10, 1).expect("a day") + Days::new(at as u64);
        let chart_rows = points.into_iter().enumerate().map(|(at, (first, second))| {
            vec![Cell::Date(day(at)), Cell::Count(first), second.map_or(Cell::Empty, Cell::Count)]
        });
        let text_columns = [ColumnType::Text, ColumnType::Text, ColumnType::Count];
        let chart_columns = [ColumnType::Date, ColumnType::Count, ColumnType::Count];
        let drawn = Chart { chart_type: ChartType::Lines, series: vec![1, 2], unit: note.clone() };
        let widgets = vec![
            widget(
                WidgetType::PostsTable,
                table_title,
                View::Table,
                table_of("t", &labels, text_columns, table_rows.collect()),
            ),
            widget(
                WidgetType::Note,
                note_title,
                View::Text,
                table_of("n", &labels[..1], [ColumnType::Text; 3], vec![vec![Cell::Text(note)]]),
            ),
            widget(
                WidgetType::FollowersOverTime,
                chart_title,
                View::Chart(drawn),
                table_of("c", &series, chart_columns, chart_rows.collect()),
            ),
        ];
        Document { title, widgets, ..sample::document(1) }
    })
}

fn widget(widget_type: WidgetType, title: String, view: View, table: Table) -> Widget {
    Widget { widget_type, title, view, table, remark: None }
}

fn table_of(prefix: &str, labels: &[String], types: [ColumnType; 3], rows: Vec<Vec<Cell>>) -> Table {
    let column = |(at, label): (usize, &String)| Column {
        key: format!("{prefix}{at}"),
        label: label.clone(),
        column_type: types[at],
    };
    Table { columns: labels.iter().enumerate().map(column).collect(), rows, totals: None }
}

#[test]
fn any_text_is_read_back() {
    let mut runner = TestRunner::deterministic();
    let cases = document();
    let documents: Vec<Document> = (0..CASES).map(|_| cases.new_tree(&mut runner).expect("a case").current()).collect();
    let formats: Vec<ReportFormat> = CHECKS.iter().map(|(format, _)| *format).collect();
    let read = read_all(&documents, &formats);
    for (number, document) in documents.iter().enumerate() {
        for (format, says) in CHECKS {
            let case = &read[format!("{number}.{format}")];
            let told = std::panic::catch_unwind(|| says(document, case));
            assert!(told.is_ok(), "case {number} as {format}: {document:#?}");
        }
    }
}
