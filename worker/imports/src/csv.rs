//! CSV, with the separators that spreadsheet programs use. Cells in quotation marks may have line breaks. Empty lines are
//! omitted and do not count.

use ::csv::ReaderBuilder;
use crier_domain::spreadsheet::unguarded;

use crate::FileError;
use crate::table::Table;

const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

pub fn read(text: &str) -> Result<Table, FileError> {
    let (separator, text) = separator(text);
    let mut reader =
        ReaderBuilder::new().has_headers(false).flexible(true).delimiter(separator).from_reader(text.as_bytes());
    let mut table = Table::default();
    for (number, record) in (1..).zip(reader.records()) {
        let record = record.map_err(|error| FileError::BrokenCsv(error.to_string()))?;
        // An export guards texts that look like formulas.
        table.add(number, record.iter().map(unguarded))?;
    }
    Ok(table)
}

/// Returns the separator, and the text after the line with which a program may name it.
fn separator(text: &str) -> (u8, &str) {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    if let Some([separator]) = first.trim_end().strip_prefix("sep=").map(str::as_bytes)
        && separator.is_ascii_punctuation()
    {
        return (*separator, rest);
    }
    let mut counts = [0_usize; SEPARATORS.len()];
    let mut is_quoted = false;
    for byte in text.bytes() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\n' if !is_quoted => break,
            _ if is_quoted => {}
            byte => {
                for (count, _) in counts.iter_mut().zip(SEPARATORS).filter(|(_, separator)| *separator == byte) {
                    *count += 1;
                }
            }
        }
    }
    // The first one of several that are equally frequent.
    let best = counts.iter().zip(SEPARATORS).rev().max_by_key(|(count, _)| **count);
    (best.map_or(b',', |(_, separator)| separator), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Vec<Vec<String>> {
        let table = read(text).unwrap();
        std::iter::once(table.headings).chain(table.rows.into_iter().map(|row| row.cells)).collect()
    }

    #[test]
    fn separators_are_detected() {
        for (text, expected) in [
            ("a,b\n1,2;3", vec![vec!["a", "b"], vec!["1", "2;3"]]),
            ("a;b\n1,5;2", vec![vec!["a", "b"], vec!["1,5", "2"]]),
            ("a\tb\n1\t2", vec![vec!["a", "b"], vec!["1", "2"]]),
            ("a|b\n1|2", vec![vec!["a", "b"], vec!["1", "2"]]),
            ("\"a,b,c\";b\n1;2", vec![vec!["a,b,c", "b"], vec!["1", "2"]]),
            ("sep=;\r\na;b\r\n1;2\r\n", vec![vec!["a", "b"], vec!["1", "2"]]),
            ("content\nOnly one", vec![vec!["content"], vec!["Only one"]]),
        ] {
            assert_eq!(cells(text), expected, "{text:?}");
        }
    }

    #[test]
    fn quoted_line_breaks_belong_to_the_cell() {
        let text = "a,b\r\n\"one\r\n\"\"two\"\"\",3\r\n\r\n,,\r\n4,5\r\n";
        assert_eq!(cells(text), [vec!["a", "b"], vec!["one\r\n\"two\"", "3"], vec!["4", "5"]]);
        let numbers: Vec<u32> = read(text).unwrap().rows.iter().map(|row| row.number).collect();
        assert_eq!(numbers, [2, 4], "the empty line does not count, the row of empty cells does");
    }
}
