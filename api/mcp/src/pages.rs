//! Cuts long results. The cursor of the rest has a page and its size, which may be smaller than that of the page before
//! it, so that it begins with the first record that the result lacks.

use crier_endpoints::pagination::shorten_page;
use crier_endpoints::request::Pages;
use crier_store::PageRequest;
use serde_json::{Map, Value};

/// The parameters of the API's lists, in place of which a tool has a cursor and a limit.
pub const PAGE_PARAMETERS: [&str; 2] = Pages::NAMES;
pub const CURSOR: &str = "cursor";
pub const LIMIT: &str = "limit";
pub const DEFAULT_LIMIT: i64 = 20;
pub const MAX_LIMIT: i64 = 50;
/// The maximum size of the records in a result, in bytes of JSON, unless a single one is larger.
const MAX_BYTES: usize = 48 << 10;
/// The maximum size of a further part of a result, in bytes of JSON.
const MAX_PART_BYTES: usize = 32 << 10;

/// Reads the cursor and the limit of a call, and removes them. Returns the arguments that are invalid.
pub fn read(arguments: &mut Map<String, Value>) -> Result<PageRequest, &'static str> {
    let limit = match arguments.remove(LIMIT) {
        None | Some(Value::Null) => DEFAULT_LIMIT,
        Some(limit) => limit.as_i64().filter(|limit| (1..=MAX_LIMIT).contains(limit)).ok_or(LIMIT)?,
    };
    match arguments.remove(CURSOR) {
        None | Some(Value::Null) => Ok(PageRequest { page: 1, per_page: limit }),
        Some(cursor) => cursor.as_str().and_then(parse).ok_or(CURSOR),
    }
}

fn parse(cursor: &str) -> Option<PageRequest> {
    let (page, per_page) = cursor.split_once('.')?;
    let page = PageRequest { page: page.parse().ok()?, per_page: per_page.parse().ok()? };
    let is_valid = (1..=i64::from(u32::MAX)).contains(&page.page) && (1..=MAX_LIMIT).contains(&page.per_page);
    is_valid.then_some(page)
}

/// Removes the records at the end of a page that make a result too large. `has_more`: whether there are records after
/// the page. Returns the cursor of the records after those that remain.
pub fn cut(records: &mut Vec<Value>, page: PageRequest, has_more: bool) -> Option<String> {
    let mut bytes = 0;
    let fits = |record: &Value| {
        bytes += record.to_string().len();
        bytes <= MAX_BYTES
    };
    let fitting = records.iter().map(fits).take_while(|fits| *fits).count().max(1);
    let mut page = page;
    if fitting < records.len() {
        page = shorten_page(page, fitting);
        records.truncate(usize::try_from(page.per_page).unwrap_or(1));
    } else if !has_more {
        return None;
    }
    Some(format!("{}.{}", page.page + 1, page.per_page))
}

/// Returns a page of a list that is in memory, and whether there are records after it. If the newest record is last,
/// pages begin at the end.
pub fn slice(mut all: Vec<Value>, page: PageRequest, is_newest_last: bool) -> (Vec<Value>, bool) {
    if is_newest_last {
        all.reverse();
    }
    let offset = usize::try_from(page.offset()).unwrap_or(usize::MAX).min(all.len());
    let size = usize::try_from(page.per_page).unwrap_or(1);
    let has_more = all.len() - offset > size;
    (all.into_iter().skip(offset).take(size).collect(), has_more)
}

/// Returns whether a further part fits into a result.
pub fn fits_as_part(part: &Value) -> bool {
    part.to_string().len() <= MAX_PART_BYTES
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Reads a list page by page, as a client does.
    fn read_all(all: &[Value], limit: i64, is_newest_last: bool) -> Vec<Value> {
        let (mut read_records, mut cursor) = (Vec::new(), None);
        loop {
            let mut arguments = Map::from_iter([(LIMIT.to_owned(), limit.into())]);
            arguments.extend(cursor.map(|cursor: String| (CURSOR.to_owned(), cursor.into())));
            let page = read(&mut arguments).unwrap();
            let (mut records, has_more) = slice(all.to_vec(), page, is_newest_last);
            cursor = cut(&mut records, page, has_more);
            read_records.append(&mut records);
            if cursor.is_none() {
                return read_records;
            }
        }
    }

    #[test]
    fn each_record_is_on_one_page() {
        let sizes = [10, 20_000, 30_000, 60_000, 10, 10, 47_000, 1_000, 5, 5, 5, 49_000, 3];
        let all: Vec<Value> = sizes.iter().map(|size| json!("x".repeat(*size))).collect();
        for limit in [1, 2, 3, 5, 7, 20, 50] {
            assert_eq!(read_all(&all, limit, false), all, "{limit}");
            let reversed: Vec<Value> = all.iter().rev().cloned().collect();
            assert_eq!(read_all(&all, limit, true), reversed, "{limit}");
        }
        assert!(read_all(&[], 20, false).is_empty());
    }

    #[test]
    fn invalid_cursors_are_rejected() {
        for cursor in ["", "1", "0.5", "1.0", "1.51", "-1.5", "1.5.1", "99999999999.5", "a.b"] {
            let mut arguments = Map::from_iter([(CURSOR.to_owned(), cursor.into())]);
            assert_eq!(read(&mut arguments).err(), Some(CURSOR), "{cursor}");
        }
        for limit in [json!(0), json!(51), json!("5"), json!(1.5)] {
            let mut arguments = Map::from_iter([(LIMIT.to_owned(), limit)]);
            assert_eq!(read(&mut arguments).err(), Some(LIMIT));
        }
        let first = read(&mut Map::new()).unwrap();
        assert_eq!((first.page, first.per_page), (1, DEFAULT_LIMIT));
    }
}
