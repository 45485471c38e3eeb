use crier_domain::report::ReportFormat;
use crier_reports::{Cell, Document, View, Widget, sample};
use serde_json::{Value, json};

use crate::support::{hostile_document, on_one_line, read, shown, value};

/// The index of the header row.
const HEADER_ROW: usize = 3;

/// Returns a cell as openpyxl returns it.
fn typed(cell: &Cell) -> Value {
    match cell {
        Cell::Text(text) | Cell::Link(text) if shown(text).is_empty() => Value::Null,
        Cell::Text(text) | Cell::Link(text) => shown(text).into(),
        Cell::Count(count) if count.unsigned_abs() > 999_999_999_999_999 => count.to_string().into(),
        Cell::Percent(tenths) => (*tenths as f64 / 1_000.0).into(),
        Cell::Date(date) => format!("{date}T00:00:00").into(),
        other => value(other),
    }
}

pub fn says(document: &Document, read: &Value) {
    let sheets = read["sheets"].as_array().expect("sheets");
    assert_eq!(sheets.len(), document.widgets.len() + 1);
    let names: Vec<String> = sheets.iter().filter_map(|sheet| sheet["name"].as_str()).map(str::to_lowercase).collect();
    for (at, name) in names.iter().enumerate() {
        assert!(name.encode_utf16().count() <= 31 && !name.contains(['[', ']', ':', '*', '?', '/', '\\']), "{name}");
        assert!(!names[at + 1..].contains(name), "{name} is there twice");
    }
    for (widget, sheet) in document.widgets.iter().zip(&sheets[1..]) {
        assert_eq!(sheet["formulas"], json!([]));
        if widget.view == View::Text {
            says_note(widget, sheet);
        } else {
            says_table(widget, sheet);
        }
    }
}

fn says_table(widget: &Widget, sheet: &Value) {
    let table = &widget.table;
    assert_eq!(sheet["cells"][0][0].as_str().unwrap_or_default(), on_one_line(&widget.title));
    for (at, row) in table.rows.iter().enumerate() {
        let line = sheet["cells"][HEADER_ROW + 1 + at].as_array().expect("a row");
        let expected: Vec<Value> = row.iter().map(typed).collect();
        assert_eq!(line[..row.len()], expected, "{}, row {at}", widget.title);
    }
    let mut end = HEADER_ROW + 1 + table.rows.len();
    if let Some(totals) = &table.totals {
        let line = sheet["cells"][end].as_array().expect("a row");
        assert_eq!(line[..totals.len()], totals.iter().map(typed).collect::<Vec<_>>());
        end += 1;
    }
    if let Some(remark) = widget.remark.as_deref().map(on_one_line).filter(|remark| !remark.is_empty()) {
        assert_eq!(sheet["cells"][end + 1][0], remark);
    }
    let is_filtered = sheet["tables"] != json!([]) || sheet["filter"] != Value::Null;
    assert_eq!(is_filtered, !table.rows.is_empty(), "{}", widget.title);
    assert_eq!(sheet["frozen"], if table.rows.is_empty() { Value::Null } else { json!("A5") });
}

fn says_note(widget: &Widget, sheet: &Value) {
    let cells = widget.table.rows.iter().flatten();
    let lines: Vec<String> = cells
        .flat_map(|cell| match cell {
            Cell::Text(text) => shown(text).split('\n').map(str::to_owned).collect(),
            _ => Vec::new(),
        })
        .collect();
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(sheet["cells"][HEADER_ROW + at][0].as_str().unwrap_or_default(), line);
    }
}

#[test]
fn every_value_is_read_back_with_its_type() {
    let document = sample::document(60);
    let read = read(&document, ReportFormat::Xlsx);
    says(&document, &read);
    assert_eq!(read["title"], "Monthly report");
    // 9:00:04 in Berlin.
    assert_eq!(read["created"], "2026-11-01T08:00:04");
    let summary = &read["sheets"][1];
    assert_eq!(
        (&summary["cells"][HEADER_ROW][3], &summary["cells"][HEADER_ROW + 1][3]),
        (&json!("Change"), &json!(0.25))
    );
    assert_eq!(summary["formats"]["D5"], "+#,##0.0%;-#,##0.0%;0%");
    assert_eq!(read["sheets"][0]["pages"], json!([1, 1]), "the cover is printed on one page");
    assert_eq!(read["sheets"][8]["pages"], json!([1, 0]), "a table on as many as it needs");
    let posts = &read["sheets"][3];
    assert_eq!(posts["name"], "Posts");
    assert_eq!((&posts["formats"]["A5"], &posts["formats"]["B5"]), (&json!("yyyy-mm-dd"), &json!("#,##0")));
    assert_eq!(posts["tables"][0]["columns"], json!(["Date", "Posts"]));
    assert_eq!(read["sheets"][8]["links"]["E5"], "https://brot.example/posts/0");
    assert_eq!(read["charts"][0], json!(["Posts!$B$5:$B$35"]));
    assert_eq!(read["charts"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_report_without_values_says_why() {
    let document = sample::empty_document();
    let read = read(&document, ReportFormat::Xlsx);
    says(&document, &read);
    assert_eq!(read["charts"], json!([]));
}

#[test]
fn hostile_texts_are_text() {
    let document = hostile_document();
    let read = read(&document, ReportFormat::Xlsx);
    says(&document, &read);
    // A URL with another scheme is not a link.
    assert_eq!(read["sheets"][8]["links"], json!({}));
}

#[test]
fn values_beyond_the_limits_of_excel_are_kept() {
    let mut document = sample::document(2);
    let long = "🥕".repeat(32_768);
    document.widgets[1].table.rows = vec![vec![Cell::Text(format!("{long}\n{}", "b".repeat(32_766)))]];
    let address = format!("https://brot.example/{}", "a".repeat(2_100));
    document.widgets[7].table.rows[0][4] = Cell::Link(address.clone());
    document.widgets[7].table.rows[1][5] = Cell::Count(i64::MAX);
    document.widgets[7].table.rows[1][0] = Cell::Time(chrono::NaiveDateTime::MIN);
    let read = read(&document, ReportFormat::Xlsx);
    let note: Vec<&str> =
        (HEADER_ROW..HEADER_ROW + 4).filter_map(|row| read["sheets"][2]["cells"][row][0].as_str()).collect();
    assert!(note.iter().all(|part| part.encode_utf16().count() <= 32_767));
    assert_eq!(note[..3].concat(), long);
    assert_eq!(note[3].len(), 32_766);
    let posts = &read["sheets"][8];
    assert_eq!(posts["cells"][HEADER_ROW + 1][4], address);
    assert_eq!(posts["links"].as_object().map(|links| links.len()), Some(1));
    assert_eq!(posts["cells"][HEADER_ROW + 2][5], i64::MAX.to_string());
    assert!(posts["cells"][HEADER_ROW + 2][0].is_string());
}
