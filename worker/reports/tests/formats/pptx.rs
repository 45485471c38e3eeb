use crier_domain::report::ReportFormat;
use crier_reports::{Cell, Document, View, Widget, sample};
use serde_json::{Value, json};

use crate::support::{hostile_document, on_one_line, read, shown};

/// Returns the slides of a presentation. The first one is the title slide.
fn slides(read: &Value) -> &[Value] {
    assert_eq!(read["size"], json!([12_192_000, 6_858_000]));
    read["slides"].as_array().expect("slides")
}

fn begins_with(slide: &Value, title: &str) {
    let of_slide = slide["title"].as_str().unwrap_or_default();
    assert!(of_slide.starts_with(title), "{of_slide:?} instead of {title:?}");
}

/// Compares documents whose texts are short enough for a cell and whose widgets have one slide each.
pub fn says(document: &Document, read: &Value) {
    let slides = slides(read);
    assert_eq!(slides.len(), document.widgets.len() + 1);
    begins_with(&slides[0], &on_one_line(&document.title));
    for (widget, slide) in document.widgets.iter().zip(&slides[1..]) {
        begins_with(slide, &on_one_line(&widget.title));
        match &widget.view {
            _ if widget.table.rows.is_empty() => {
                assert_eq!(slide["texts"][0], on_one_line(widget.remark.as_deref().unwrap_or_default()));
            }
            View::Table => says_table(widget, slide),
            View::Chart(_) => says_chart(widget, &slide["charts"][0]),
            View::Text => {
                let Cell::Text(text) = &widget.table.rows[0][0] else { panic!("a note is a text") };
                assert_eq!(slide["texts"][0], shown(text).trim_end_matches('\n'));
            }
            View::Metrics => {
                for (row, text) in widget.table.rows.iter().zip(slide["texts"].as_array().expect("cards")) {
                    let Cell::Text(metric) = &row[0] else { panic!("a metric is a text") };
                    let text = text.as_str().unwrap_or_default();
                    assert!(text.starts_with(&on_one_line(metric)), "{text:?}");
                }
            }
        }
    }
}

fn says_table(widget: &Widget, slide: &Value) {
    let read = slide["tables"][0].as_array().expect("a table");
    for (row, line) in widget.table.rows.iter().zip(&read[1..]) {
        for (cell, text) in row.iter().zip(line.as_array().expect("a row")) {
            match cell {
                Cell::Text(expected) => assert_eq!(*text, on_one_line(expected)),
                Cell::Count(count) => {
                    let digits = text.as_str().map(|text| text.replace(',', "").replace('−', "-"));
                    assert_eq!(digits, Some(count.to_string()));
                }
                Cell::Empty => assert_eq!(*text, "–"),
                Cell::Percent(_) | Cell::Date(_) | Cell::Time(_) | Cell::Link(_) => {}
            }
        }
    }
    let links: Vec<&str> = widget
        .table
        .rows
        .iter()
        .flatten()
        .filter_map(|cell| match cell {
            Cell::Link(address) if address.starts_with("https://") => Some(address.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(slide["links"], json!(links));
}

fn says_chart(widget: &Widget, chart: &Value) {
    let (table, series) = (&widget.table, chart["series"].as_array().expect("series"));
    assert_eq!(series.len(), table.columns.len() - 1);
    for (column, series) in series.iter().enumerate().map(|(at, series)| (at + 1, series)) {
        assert_eq!(series["name"], on_one_line(&table.columns[column].label));
        let values = table
            .rows
            .iter()
            .map(|row| if let Cell::Count(count) = row[column] { json!(count as f64) } else { Value::Null });
        assert_eq!(series["values"], json!(values.collect::<Vec<_>>()));
        let of_workbook = |row: usize| &chart["workbook"][row][column];
        assert_eq!(*of_workbook(0), series["name"]);
        for (at, row) in table.rows.iter().enumerate() {
            let expected = if let Cell::Count(count) = row[column] { json!(count) } else { Value::Null };
            assert_eq!(*of_workbook(at + 1), expected);
        }
    }
}

#[test]
fn every_widget_has_its_slide() {
    let document = sample::document(8);
    let read = read(&document, ReportFormat::Pptx);
    says(&document, &read);
    let slides = slides(&read);
    let chart = |slide: usize| &slides[slide]["charts"][0];
    assert_eq!(
        [chart(3), chart(4), chart(5)].map(|chart| &chart["type"]),
        ["COLUMN_CLUSTERED", "COLUMN_STACKED", "LINE_MARKERS"]
    );
    // Excel's number of 1 October 2026.
    assert_eq!(chart(3)["days"][0], "46296");
    assert_eq!(chart(3)["workbook"][1][0], "2026-10-01T00:00:00");
    assert_eq!(
        (&chart(4)["axis"], &chart(4)["unit"], &chart(4)["legend"]),
        (&json!("Date"), &json!("Interactions"), &json!(true))
    );
    assert_eq!(slides[1]["texts"][0], "Posts\n8\nPrevious period: 6 (+33.3%)");
    assert_eq!(slides[3]["texts"][0], "Total: Posts 8.");
    assert_eq!(slides[6]["tables"][0][1][0], "1 Oct 2026 00:00");
}

#[test]
fn nine_metrics_fit_on_a_slide() {
    let mut document = sample::document(8);
    let rows = &mut document.widgets[0].table.rows;
    rows.extend_from_within(..3);
    document.widgets[0].remark = Some("Nine metrics.".to_owned());
    let read = read(&document, ReportFormat::Pptx);
    says(&document, &read);
    assert_eq!(slides(&read)[1]["texts"][9], "Nine metrics.");
}

#[test]
fn a_report_without_values_says_why() {
    let document = sample::empty_document();
    says(&document, &read(&document, ReportFormat::Pptx));
}

#[test]
fn hostile_texts_are_text() {
    let document = hostile_document();
    let read = read(&document, ReportFormat::Pptx);
    for slide in slides(&read) {
        assert_eq!(slide["links"], json!([]));
    }
    let text = read.to_string();
    for part in ["<script>alert(1)</script>&amp;]]><![CDATA[", "_x0041_ _x000D_", "gpj.exex", "abcde\u{7f}fgh"] {
        let part = Value::from(part).to_string();
        assert!(text.contains(part.trim_matches('"')), "{part}");
    }
    let charts: Vec<(&Widget, &Value)> = document
        .widgets
        .iter()
        .filter(|widget| matches!(widget.view, View::Chart(_)))
        .zip(slides(&read).iter().flat_map(|slide| slide["charts"].as_array().into_iter().flatten()))
        .collect();
    assert_eq!(charts.len(), 3);
    for (widget, chart) in charts {
        says_chart(widget, chart);
    }
}

#[test]
fn what_does_not_fit_is_left_out_in_words() {
    let mut document = sample::document(3_000);
    document.widgets[1].table.rows = vec![vec![Cell::Text("Bread, and more. ".repeat(3_855))]];
    document.widgets[1].remark = Some("A long note.".to_owned());
    let read = read(&document, ReportFormat::Pptx);
    let of = |title: &str| {
        slides(&read)
            .iter()
            .filter(|slide| slide["title"].as_str().is_some_and(|of| of.starts_with(title)))
            .collect::<Vec<_>>()
    };
    let posts = of("All posts");
    assert_eq!(posts.len(), 20);
    let rows: usize = posts.iter().filter_map(|slide| slide["tables"][0].as_array()).map(|table| table.len() - 1).sum();
    let left_out = 3_000 - rows;
    assert!(left_out > 2_000);
    let sentence =
        format!("{},{:03} more rows are in the XLSX file of this report.", left_out / 1_000, left_out % 1_000);
    assert_eq!(posts[19]["texts"][0], sentence);
    assert_eq!(posts[19]["title"], "All posts   20 of 20");
    assert!(posts.iter().all(|slide| slide["tables"][0][0][0] == "Published"));
    let note = of("What we learned");
    assert_eq!(note.len(), 20);
    assert_eq!(note[19]["texts"][1], "A long note. The rest is in the XLSX file of this report.");
    assert!(note.iter().all(|slide| slide["texts"][0].as_str().is_some_and(|text| text.contains("Bread"))));
}
