//! Writes documents and reads them back.

use std::fs;
use std::process::Command;

use crier_domain::report::ReportFormat;
use crier_reports::{Cell, Document, View, write};
use serde_json::Value;

pub fn bytes(document: &Document, format: ReportFormat) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(document, format, &mut bytes).unwrap_or_else(|error| panic!("{format}: {error}"));
    bytes
}

/// Writes each document in each format. Returns the results of reading the files, by `number.format`.
pub fn read_all(documents: &[Document], formats: &[ReportFormat]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, document) in documents.iter().enumerate() {
        for format in formats {
            fs::write(folder.path().join(format!("{number}.{format}")), bytes(document, *format)).expect("a file");
        }
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_back.py");
    let read = Command::new("python3").arg(script).arg(folder.path()).output().expect("python3 is installed");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    serde_json::from_slice(&read.stdout).expect("the script prints JSON")
}

/// Returns the result of reading one document in one format.
pub fn read(document: &Document, format: ReportFormat) -> Value {
    read_all(std::slice::from_ref(document), &[format])[format!("0.{format}")].take()
}

/// Returns a text as it is in office files.
pub fn shown(text: &str) -> String {
    let removed = |c: &char| match u32::from(*c) {
        0x09 | 0x0a => false,
        0..0x20 | 0xfffe | 0xffff | 0x202a..=0x202e | 0x2066..=0x2069 => true,
        _ => false,
    };
    text.replace("\r\n", "\n").replace('\r', "\n").chars().filter(|c| !removed(c)).collect()
}

pub fn on_one_line(text: &str) -> String {
    shown(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a cell as it is in JSON.
pub fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Empty => Value::Null,
        Cell::Text(text) | Cell::Link(text) => text.as_str().into(),
        Cell::Count(count) => (*count).into(),
        Cell::Percent(tenths) => (*tenths as f64 / 10.0).into(),
        Cell::Date(date) => date.to_string().into(),
        Cell::Time(time) => time.format("%Y-%m-%dT%H:%M:%S").to_string().into(),
    }
}

/// Texts that try to be interpreted as more than text.
pub const HOSTILE: [&str; 17] = [
    "=1+1",
    "bread;=1+1",
    "+SUM(A1:A9)",
    "-2+3",
    "=[Book.xlsx]Sheet1!A1",
    "Posts!A1",
    "@cmd|' /C calc'!A0",
    "\t=1",
    "＝1",
    " \u{feff}=HYPERLINK(\"https://evil.example\")",
    "<script>alert(1)</script>&amp;]]><![CDATA[",
    "\"quoted\", with; every\ttype of 'mark'",
    "a\0b\u{1}c\u{b}d\u{1b}e\u{7f}f\u{fffe}g\u{ffff}h",
    "\u{202e}gpj.exe\u{2066}x\u{2069}",
    "_x0041_ _x000D_",
    "line\r\nbreak\rand\nmore",
    "👨‍👩‍👧 e\u{301} 焼き خبز לחם \u{1F1E9}\u{1F1EA}",
];

/// Returns a document in which every text is hostile. Labels have a number, so that they differ.
pub fn hostile_document() -> Document {
    let mut document = crier_reports::sample::document(HOSTILE.len());
    let mut texts = HOSTILE.iter().cycle();
    let mut next = || (*texts.next().expect("a text")).to_owned();
    (document.title, document.brand, document.workspace, document.timezone) = (next(), next(), next(), next());
    for widget in &mut document.widgets {
        widget.title = next();
        if let View::Chart(chart) = &mut widget.view {
            chart.unit = next();
        }
        widget.remark = Some(next());
        for (number, column) in widget.table.columns.iter_mut().enumerate() {
            column.label = format!("{} {number}", next());
        }
        let cells = widget.table.rows.iter_mut().chain(&mut widget.table.totals).flatten();
        for cell in cells {
            match cell {
                Cell::Text(text) => *text = next(),
                Cell::Link(address) => *address = format!("javascript:alert(1)//{}", next()),
                Cell::Empty | Cell::Count(_) | Cell::Percent(_) | Cell::Date(_) | Cell::Time(_) => {}
            }
        }
    }
    document
}
