use crier_domain::report::ReportFormat;
use crier_reports::{ColumnType, Document, sample};
use serde_json::{Map, Value, json};

use crate::support::{hostile_document, read, value};

fn expected(document: &Document) -> Value {
    let widget = |widget: &crier_reports::Widget| {
        let column = |column: &crier_reports::Column| {
            let column_type = match column.column_type {
                ColumnType::Text => "text",
                ColumnType::Count => "count",
                ColumnType::Percent => "percent",
                ColumnType::Date => "date",
                ColumnType::Time => "time",
                ColumnType::Link => "link",
            };
            json!({"key": column.key, "label": column.label, "type": column_type})
        };
        let row = |row: &Vec<crier_reports::Cell>| -> Map<String, Value> {
            widget.table.columns.iter().zip(row).map(|(column, cell)| (column.key.clone(), value(cell))).collect()
        };
        json!({
            "type": widget.widget_type.as_str(),
            "title": widget.title,
            "remark": widget.remark,
            "columns": widget.table.columns.iter().map(column).collect::<Vec<_>>(),
            "rows": widget.table.rows.iter().map(row).collect::<Vec<_>>(),
        })
    };
    json!({
        "version": 1,
        "title": document.title,
        "brand": document.brand,
        "workspace": document.workspace,
        "period": {"start": document.period.start.to_string(), "end": document.period.end.to_string()},
        "timezone": document.timezone,
        "created_at": document.created_at.format("%Y-%m-%dT%H:%M:%S").to_string(),
        "widgets": document.widgets.iter().map(widget).collect::<Vec<_>>(),
    })
}

pub fn says(document: &Document, read: &Value) {
    assert_eq!(read["report"], expected(document));
    let text = read["text"].as_str().expect("a text");
    assert!(
        !text.contains(|c| matches!(u32::from(c), 0x202a..=0x202e | 0x2066..=0x2069)),
        "a direction is not escaped"
    );
    assert_eq!(text.find('\n'), Some(text.len() - 1));
}

#[test]
fn every_value_is_read_back_and_has_the_shape() {
    for document in [sample::document(60), sample::empty_document()] {
        let read = read(&document, ReportFormat::Json);
        says(&document, &read);
    }
    let read = read(&sample::document(60), ReportFormat::Json);
    assert_eq!(read["report"]["created_at"], "2026-11-01T09:00:04");
    assert_eq!(read["report"]["widgets"][7]["rows"][1]["impressions"], Value::Null);
}

#[test]
fn hostile_texts_are_whole() {
    let document = hostile_document();
    let read = read(&document, ReportFormat::Json);
    says(&document, &read);
    assert!(read["text"].as_str().is_some_and(|text| text.contains("\\u202egpj.exe\\u2066x\\u2069")));
}
