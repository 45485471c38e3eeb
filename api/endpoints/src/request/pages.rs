//! The query parameters `page` and `per_page`.

use crier_store::PageRequest;
use schemars::{Schema, SchemaGenerator, json_schema};

use super::{Format, Request};
use crate::fields::{Fields, PatchField};

const DEFAULT_PER_PAGE: i64 = 20;
const MAX_PER_PAGE: i64 = 100;

/// The requested page of a list.
#[derive(Clone, Copy, Debug, Request)]
pub struct Pages {
    /// The page number, starting at 1. A page past the end is empty.
    #[field(positive(), default = 1)]
    pub page: i64,
    /// The number of records per page. Values above 100 are treated as 100.
    #[field(positive(), default = DEFAULT_PER_PAGE)]
    pub per_page: i64,
}

impl Default for Pages {
    fn default() -> Self {
        Self { page: 1, per_page: DEFAULT_PER_PAGE }
    }
}

impl Pages {
    /// The names of the parameters, which all lists share.
    pub const NAMES: [&str; 2] = ["page", "per_page"];

    /// Returns the size of a page of a query whose `per_page` is this text.
    pub fn requested_size(per_page: Option<&str>) -> Option<i64> {
        per_page.map_or(Some(DEFAULT_PER_PAGE), parse_positive).map(|size| size.min(MAX_PER_PAGE))
    }

    pub fn request(self) -> PageRequest {
        PageRequest { page: self.page, per_page: self.per_page.min(MAX_PER_PAGE) }
    }
}

/// A positive integer in a query. One that overflows becomes `i64::MAX`, a page past the end like any other.
struct Positive;

fn positive() -> Positive {
    Positive
}

impl Format for Positive {
    type Value = i64;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<i64> {
        fields.read(name, |value| {
            value.as_str().and_then(parse_positive).ok_or_else(|| "Must be a positive integer.".to_owned())
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1 })
    }
}

fn parse_positive(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = digits.then(|| text.parse().unwrap_or(i64::MAX))?;
    (number >= 1).then_some(number)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;
    use crate::fields::{Problems, ReadContext};

    #[test]
    fn invalid_page_parameters_are_reported() {
        for (pairs, page, per_page, invalid) in [
            (&[][..], 1, 20, ""),
            (&[("per_page", "1000"), ("page", "3")], 3, 100, ""),
            (&[("page", "99999999999999999999")], i64::MAX, 20, ""),
            (&[("page", "0"), ("per_page", "1.5")], 1, 20, "page per_page"),
            (&[("page", ""), ("per_page", "+1")], 1, 20, "page per_page"),
            (&[("page", "-1")], 1, 20, "page"),
        ] {
            let query: Map<String, Value> = pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect();
            let problems = Problems::default();
            let fields = Fields::new(&query, &problems, ReadContext::new("UTC", chrono::DateTime::UNIX_EPOCH).texts());
            let found = Pages::read(&fields).unwrap().request();
            assert_eq!((found.page, found.per_page), (page, per_page), "{pairs:?}");
            assert_eq!(problems.paths().join(" "), invalid, "{pairs:?}");
        }
    }
}
