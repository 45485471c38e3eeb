use crier_reports::{Cell, Document};
use serde_json::Value;

/// The minimum length of a compared word. Shorter words may be split at the end of a line or occur inside
/// other words.
const MIN_WORD: usize = 3;

/// Compares the ASCII words: a page does not contain the spaces and line breaks of a text, and characters that no font
/// has are replaced. The unit tests of the writer check the letters of all scripts.
pub fn says(document: &Document, read: &Value) {
    let page = letters(read.as_str().expect("text"));
    for widget in &document.widgets {
        let cells = widget.table.rows.iter().flatten();
        let texts = cells.filter_map(|cell| if let Cell::Text(text) = cell { Some(text) } else { None });
        for text in texts.chain([&widget.title]) {
            for word in text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() >= MIN_WORD) {
                assert!(page.contains(word), "{word} of {text:?}");
            }
        }
    }
}

fn letters(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect()
}
