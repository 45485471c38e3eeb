use crier_domain::report::ReportFormat;
use crier_reports::{Document, sample};
use serde_json::{Value, json};

use crate::support::{HOSTILE, hostile_document, read, shown, value};

/// Returns the expected lines of a document, with an apostrophe before texts that a spreadsheet would evaluate.
pub fn expected(document: &Document) -> Vec<Vec<String>> {
    let mut keys: Vec<&str> = Vec::new();
    for column in document.widgets.iter().flat_map(|widget| &widget.table.columns) {
        if !keys.contains(&column.key.as_str()) {
            keys.push(&column.key);
        }
    }
    let head = ["widget", "title"].into_iter().chain(keys.iter().copied()).chain(["remark"]);
    let mut lines = vec![head.map(str::to_owned).collect::<Vec<_>>()];
    for widget in &document.widgets {
        let first = [widget.widget_type.to_string(), guarded(&widget.title)];
        for row in &widget.table.rows {
            let field = |key: &&str| match widget.table.columns.iter().position(|column| column.key == **key) {
                None => String::new(),
                Some(at) => match value(&row[at]) {
                    Value::Null => String::new(),
                    Value::String(text) => guarded(&text),
                    other => other.to_string(),
                },
            };
            lines.push(first.iter().cloned().chain(keys.iter().map(field)).chain([String::new()]).collect());
        }
        if let Some(remark) = &widget.remark {
            let empty = keys.iter().map(|_| String::new());
            lines.push(first.iter().cloned().chain(empty).chain([guarded(remark)]).collect());
        }
    }
    lines
}

/// Splits a text where a program could begin a new cell, and guards each part.
fn guarded(text: &str) -> String {
    let text = shown(text);
    let visible = |c: char| !c.is_whitespace() && !matches!(u32::from(c), 0x200b..=0x200f | 0x2060 | 0xfeff | 0x22);
    let dangerous = |part: &str| part.chars().find(|c| visible(*c)).is_some_and(|c| "=+-@＝＋－＠".contains(c));
    let guard = |part: &str| if dangerous(part) { format!("'{part}") } else { part.to_owned() };
    let parts: String = text.split_inclusive([';', '\t', '\n']).map(guard).collect();
    if text.starts_with(['\t', '\n']) { format!("'{parts}") } else { parts }
}

pub fn says(document: &Document, read: &Value) {
    assert_eq!(*read, json!(expected(document)));
}

#[test]
fn every_value_is_read_back() {
    let document = sample::document(60);
    let read = read(&document, ReportFormat::Csv);
    says(&document, &read);
    let lines = read.as_array().expect("lines");
    let rows: usize = document.widgets.iter().map(|widget| widget.table.rows.len()).sum();
    assert_eq!(lines.len(), rows + 1);
    assert_eq!(lines[0][0], "widget");
    assert_eq!(lines[0][2], "metric");
}

#[test]
fn a_widget_without_rows_has_a_line_with_its_remark() {
    let document = sample::empty_document();
    let read = read(&document, ReportFormat::Csv);
    says(&document, &read);
    let last = read.as_array().and_then(|lines| lines.last()).and_then(Value::as_array).expect("a line");
    assert_eq!(last.last(), Some(&json!("No posts were published in this period.")));
    assert_eq!(last[0], "posts_table");
}

#[test]
fn no_text_is_a_formula() {
    let document = hostile_document();
    let read = read(&document, ReportFormat::Csv);
    says(&document, &read);
    let fields: Vec<&str> =
        read.as_array().into_iter().flatten().filter_map(Value::as_array).flatten().filter_map(Value::as_str).collect();
    let mut texts = fields.iter().filter(|field| field.parse::<f64>().is_err());
    assert!(texts.all(|field| !field.trim_start().starts_with(['=', '+', '@', '＝', '-'])));
    assert!(fields.contains(&format!("'{}", HOSTILE[0]).as_str()));
    assert!(fields.contains(&"bread;'=1+1"));
}
