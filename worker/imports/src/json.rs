//! JSON: an array of objects, or an object with such an array as `data` or `posts`, as an export has it. The names of the
//! fields are the headings. A value is a text, a number, a list of these, or an object with `content`. The first object is
//! row 2, as in a table with headings.

use std::collections::HashMap;
use std::fmt;

use crier_domain::post_import::{MAX_IMPORT_MESSAGE, MAX_IMPORT_ROWS};
use crier_domain::untrusted;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::FileError;
use crate::table::{MAX_COLUMNS, Table};

/// The names of the array within an object.
const LISTS: [&str; 2] = ["data", "posts"];

#[derive(Default)]
struct Objects {
    headings: Vec<String>,
    columns: HashMap<String, usize>,
    rows: Vec<Vec<String>>,
    /// The limit that the file exceeds.
    exceeded: Option<FileError>,
}

pub fn read(text: &str) -> Result<Table, FileError> {
    let mut objects = Objects::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = Document(&mut objects).deserialize(&mut deserializer).and_then(|()| deserializer.end());
    if let Some(exceeded) = objects.exceeded {
        return Err(exceeded);
    }
    // The error may contain a complete text of the file.
    read.map_err(|error| FileError::BrokenJson(shortened(&error.to_string())))?;
    let mut table = Table::default();
    for (number, row) in (1..).zip([objects.headings].into_iter().chain(objects.rows)) {
        table.add(number, row.into_iter().map(Into::into))?;
    }
    Ok(table)
}

/// Shortens an error. Its end names the place in the file.
fn shortened(error: &str) -> String {
    match error.rsplit_once(" at line ") {
        Some((problem, place)) => format!("{} at line {place}", untrusted::line(problem, MAX_IMPORT_MESSAGE)),
        None => untrusted::line(error, MAX_IMPORT_MESSAGE),
    }
}

impl Objects {
    /// Stores a limit that the file exceeds, and returns an error that ends the reading.
    fn exceed<E: Error>(&mut self, limit: FileError) -> E {
        let error = E::custom(&limit);
        self.exceeded = Some(limit);
        error
    }

    /// Returns the column of a field.
    fn column<E: Error>(&mut self, name: String) -> Result<usize, E> {
        if let Some(column) = self.columns.get(&name) {
            return Ok(*column);
        }
        let column = self.headings.len();
        if column == MAX_COLUMNS {
            let number = u32::try_from(self.rows.len()).unwrap_or(u32::MAX).saturating_add(2);
            return Err(self.exceed(FileError::TooManyColumns(number)));
        }
        self.headings.push(name.clone());
        self.columns.insert(name, column);
        Ok(column)
    }
}

struct Document<'a>(&'a mut Objects);

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of posts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Object(&mut *self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_list = false;
        while let Some(name) = map.next_key::<String>()? {
            if !has_list && LISTS.contains(&name.as_str()) {
                has_list = true;
                map.next_value_seed(List(&mut *self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if has_list { Ok(()) } else { Err(A::Error::custom("the object has no array `data` or `posts`")) }
    }
}

/// An array of objects.
struct List<'a>(&'a mut Objects);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(Document(self.0))
    }
}

/// A post.
struct Object<'a>(&'a mut Objects);

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the fields of a post")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.0.rows.len() == MAX_IMPORT_ROWS {
            return Err(self.0.exceed(FileError::TooManyRows));
        }
        let mut row = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let CellText(text) = map.next_value()?;
            let column = self.0.column(name)?;
            if row.len() <= column {
                row.resize(column + 1, String::new());
            }
            if let Some(cell) = row.get_mut(column) {
                *cell = text;
            }
        }
        self.0.rows.push(row);
        Ok(())
    }
}

/// A value as the text of a cell.
struct CellText(String);

impl<'de> Deserialize<'de> for CellText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CellVisitor)
    }
}

struct CellVisitor;

impl<'de> Visitor<'de> for CellVisitor {
    type Value = CellText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, or a list of these")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CellText, E> {
        Ok(CellText(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<CellText, E> {
        Ok(CellText(text))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<CellText, E> {
        Ok(CellText(value.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<CellText, E> {
        Ok(CellText(number.to_string()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<CellText, E> {
        Ok(CellText(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<CellText, E> {
        // `Display` writes all digits, so that a list of `1e308` would have fifty times the size of the file.
        let text = format!("{number:?}");
        Ok(CellText(text.strip_suffix(".0").unwrap_or(&text).to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<CellText, E> {
        Ok(CellText(String::new()))
    }

    /// Puts each entry on a line, so that an entry may contain the separators of lists.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<CellText, A::Error> {
        let mut text = String::new();
        while let Some(CellText(entry)) = list.next_element()? {
            text.push_str(&entry);
            text.push('\n');
        }
        Ok(CellText(text))
    }

    /// Reads a first comment as the API writes it.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CellText, A::Error> {
        let mut content = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == "content" {
                content = Some(map.next_value::<CellText>()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        content.ok_or_else(|| A::Error::custom("an object in a post must have `content`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Vec<Vec<String>> {
        let table = read(text).unwrap();
        std::iter::once(table.headings).chain(table.rows.into_iter().map(|row| row.cells)).collect()
    }

    #[test]
    fn objects_are_rows() {
        let posts = r#"[{"content": "a", "accounts": [1, "x,y"]}, {"labels": null, "content": "b", "first_comment": {"content": "c"}}]"#;
        let expected =
            [vec!["content", "accounts", "labels", "first_comment"], vec!["a", "1\nx,y\n"], vec!["b", "", "", "c"]];
        assert_eq!(cells(posts), expected);
        assert_eq!(cells(&format!(r#"{{"more": [1], "data": {posts}, "posts": 1}}"#)), expected);
    }

    #[test]
    fn numbers_take_about_as_much_memory_as_in_the_file() {
        let numbers = r#"[{"content": [1e308, -5e-324, 2.0, 1.5, 12345678901234567890]}]"#;
        assert_eq!(cells(numbers), [vec!["content"], vec!["1e308\n-5e-324\n2\n1.5\n12345678901234567890\n"]]);
    }

    #[test]
    fn other_documents_are_rejected() {
        for text in ["[1]", "{}", "[{\"content\": {\"text\": 1}}]", "[{}", "[] []", "{\"data\": {}}"] {
            assert!(matches!(read(text), Err(FileError::BrokenJson(_))), "{text}");
        }
        let deep = format!("[{{\"content\": {}", "[".repeat(100_000));
        assert!(matches!(read(&deep), Err(FileError::BrokenJson(_))));
        let long = format!("[\"{}\"]", "a".repeat(100_000));
        let error = read(&long).unwrap_err().to_string();
        assert!(error.len() < 700 && error.contains("at line 1 column "), "{error}");
        let rows = format!("[{}{{}}]", "{\"content\": 1},".repeat(MAX_IMPORT_ROWS));
        assert_eq!(read(&rows).unwrap_err(), FileError::TooManyRows);
        let fields: Vec<String> = (0..=MAX_COLUMNS).map(|n| format!("\"f{n}\": 1")).collect();
        let wide = format!("[{{{}}}]", fields.join(","));
        assert_eq!(read(&wide).unwrap_err(), FileError::TooManyColumns(2));
    }
}
