//! Paginated lists, in the format of Laravel's length-aware paginator.
//!
//! A response has at most [`MAX_BYTES`] of records. A page with more ends early: it becomes the page of a smaller
//! `per_page` that begins at the same record, and its `meta` and `links` are those of that page.

use crier_store::PageRequest;
use serde::Serialize;

use crate::context::{Context, Query};
use crate::error::{ApiError, Result};
use crate::request::Pages;
use crate::response::Listed;

/// The maximum size of a page's serialized records, in bytes.
pub const MAX_BYTES: usize = 2 << 20;
/// The number of pages that the pager shows on each side of the current one.
const PAGES_EACH_SIDE: i64 = 3;

/// Returns the body of a page. It ends early if its records are larger than [`MAX_BYTES`].
pub fn serialize<T: Serialize>(cx: &Context, listed: &Listed<T>) -> Result<Vec<u8>> {
    let mut records = Records::new();
    records.write(&listed.rows, MAX_BYTES)?;
    let page = records.shorten(listed.page, MAX_BYTES);
    let path = format!("{}{}", cx.app.public_url, cx.path());
    let position = Position::new(&path, &cx.query, page, records.count(), listed.total);
    records.finish(&position)
}

/// The beginning of a page's JSON, up to its last record.
struct Records {
    json: Vec<u8>,
    /// The end of each record in it.
    ends: Vec<usize>,
}

impl Records {
    fn new() -> Self {
        Self { json: b"{\"data\":[".to_vec(), ends: Vec::new() }
    }

    fn count(&self) -> usize {
        self.ends.len()
    }

    /// Writes rows until there are none left, or more than `max_bytes` are written.
    fn write(&mut self, rows: impl IntoIterator<Item = impl Serialize>, max_bytes: usize) -> Result<()> {
        for row in rows {
            if self.json.len() > max_bytes {
                break;
            }
            if !self.ends.is_empty() {
                self.json.push(b',');
            }
            serde_json::to_writer(&mut self.json, &row).map_err(serialization_error)?;
            self.ends.push(self.json.len());
        }
        Ok(())
    }

    /// Removes the records that do not fit into `max_bytes`, but never the first. Returns the page that has exactly the
    /// others.
    fn shorten(&mut self, page: PageRequest, max_bytes: usize) -> PageRequest {
        if self.json.len() <= max_bytes {
            return page;
        }
        let page = shorten_page(page, self.ends.partition_point(|end| *end <= max_bytes).max(1));
        self.ends.truncate(usize::try_from(page.per_page).unwrap_or(1));
        self.json.truncate(self.ends.last().copied().unwrap_or_default());
        page
    }

    fn finish(mut self, position: &Position) -> Result<Vec<u8>> {
        let position = serde_json::to_vec(position).map_err(serialization_error)?;
        self.json.extend_from_slice(b"],");
        self.json.extend_from_slice(position.strip_prefix(b"{").unwrap_or(&position));
        Ok(self.json)
    }
}

fn serialization_error(error: serde_json::Error) -> ApiError {
    ApiError::bug(format!("failed to serialize a page: {error}"))
}

/// Returns a page that begins where `page` does and has at most `rows` records: the largest one whose size divides that
/// of `page`.
pub fn shorten_page(page: PageRequest, rows: usize) -> PageRequest {
    let max = i64::try_from(rows).unwrap_or(page.per_page).clamp(1, page.per_page);
    let per_page = (1..=max).rev().find(|size| page.per_page % size == 0).unwrap_or(1);
    PageRequest { page: page.offset() / per_page + 1, per_page }
}

/// The position of a page in its list.
#[derive(Serialize, Debug)]
struct Position {
    links: Links,
    meta: Meta,
}

#[derive(Serialize, Debug)]
struct Links {
    first: String,
    last: String,
    prev: Option<String>,
    next: Option<String>,
}

#[derive(Serialize, Debug)]
struct Meta {
    current_page: i64,
    from: Option<i64>,
    last_page: i64,
    links: Vec<Link>,
    path: String,
    per_page: i64,
    to: Option<i64>,
    total: i64,
}

#[derive(Serialize, Debug, PartialEq, Eq, Clone)]
struct Link {
    url: Option<String>,
    label: String,
    active: bool,
}

impl Position {
    /// `count`: the number of records on the page. `total`: the number in the list.
    fn new(path: &str, query: &Query, page: PageRequest, count: usize, total: i64) -> Self {
        let last = last_page(total, page.per_page);
        let other_parameters = match Pages::requested_size(query.get("per_page")) == Some(page.per_page) {
            true => query.without(&["page"]),
            false => format!("{}per_page={}&", query.without(&["page", "per_page"]), page.per_page),
        };
        let url = |n: i64| format!("{path}?{other_parameters}page={n}");
        let prev = (page.page > 1).then(|| url(page.page - 1));
        let next = (page.page < last).then(|| url(page.page + 1));
        let count = i64::try_from(count).unwrap_or(0);
        let from = (count > 0).then(|| page.offset() + 1);
        let link =
            |url: &Option<String>, label: &str| Link { url: url.clone(), label: label.to_owned(), active: false };
        let mut links = vec![link(&prev, "&laquo; Previous")];
        links.extend(window(page.page, last).into_iter().map(|slot| match slot {
            Some(n) => Link { url: Some(url(n)), label: n.to_string(), active: n == page.page },
            None => Link { url: None, label: "...".to_owned(), active: false },
        }));
        links.push(link(&next, "Next &raquo;"));
        Self {
            links: Links { first: url(1), last: url(last), prev, next },
            meta: Meta {
                current_page: page.page,
                from,
                last_page: last,
                links,
                path: path.to_owned(),
                per_page: page.per_page,
                to: from.map(|from| from + count - 1),
                total,
            },
        }
    }
}

fn last_page(total: i64, per_page: i64) -> i64 {
    (total.max(0) / per_page + i64::from(total % per_page > 0)).max(1)
}

/// Returns the page numbers that the pager shows; `None` is `...`. The same as Laravel's `UrlWindow`.
fn window(current: i64, last: i64) -> Vec<Option<i64>> {
    let pages = |from: i64, to: i64| (from..=to).map(Some);
    let near = PAGES_EACH_SIDE + 4;
    if last < PAGES_EACH_SIDE * 2 + 8 {
        pages(1, last).collect()
    } else if current <= near {
        pages(1, near + PAGES_EACH_SIDE).chain([None]).chain(pages(last - 1, last)).collect()
    } else if current > last - near {
        pages(1, 2).chain([None]).chain(pages(last - (near + PAGES_EACH_SIDE - 1), last)).collect()
    } else {
        let middle = pages(current - PAGES_EACH_SIDE, current + PAGES_EACH_SIDE);
        pages(1, 2).chain([None]).chain(middle).chain([None]).chain(pages(last - 1, last)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(current: i64, last: i64) -> String {
        let text = |slot: Option<i64>| slot.map_or("...".to_owned(), |n| n.to_string());
        window(current, last).into_iter().map(text).collect::<Vec<_>>().join(" ")
    }

    /// The expected labels are those of `LengthAwarePaginator::linkCollection`.
    #[test]
    fn page_window_matches_laravel() {
        assert_eq!(labels(1, 1), "1");
        assert_eq!(labels(13, 13), "1 2 3 4 5 6 7 8 9 10 11 12 13");
        assert_eq!(labels(1, 14), "1 2 3 4 5 6 7 8 9 10 ... 13 14");
        assert_eq!(labels(7, 14), "1 2 3 4 5 6 7 8 9 10 ... 13 14");
        assert_eq!(labels(8, 14), "1 2 ... 5 6 7 8 9 10 11 12 13 14");
        assert_eq!(labels(8, 45), "1 2 ... 5 6 7 8 9 10 11 ... 44 45");
        assert_eq!(labels(38, 45), "1 2 ... 35 36 37 38 39 40 41 ... 44 45");
        assert_eq!(labels(39, 45), "1 2 ... 36 37 38 39 40 41 42 43 44 45");
        assert_eq!(labels(45, 45), "1 2 ... 36 37 38 39 40 41 42 43 44 45");
    }

    #[test]
    fn a_page_reports_its_position() {
        let query = Query::parse("per_page=2&status=draft&page=2");
        let page = PageRequest { page: 2, per_page: 2 };
        let position = Position::new("http://x/p", &query, page, 2, 5);
        let json = serde_json::to_value(position).unwrap();
        assert_eq!(json["links"]["prev"], "http://x/p?per_page=2&status=draft&page=1");
        assert_eq!(json["links"]["next"], "http://x/p?per_page=2&status=draft&page=3");
        assert_eq!((&json["meta"]["from"], &json["meta"]["to"]), (&3.into(), &4.into()));
        assert_eq!((&json["meta"]["last_page"], &json["meta"]["total"]), (&3.into(), &5.into()));
    }

    #[test]
    fn pages_past_the_end_are_empty_and_link_to_the_previous() {
        let page = PageRequest { page: 9, per_page: 20 };
        let position = Position::new("http://x/p", &Query::parse(""), page, 0, 45);
        assert_eq!((position.links.next, position.meta.from, position.meta.to), (None, None, None));
        assert_eq!(position.links.prev.as_deref(), Some("http://x/p?page=8"));
    }

    #[test]
    fn a_page_over_the_limit_ends_early_and_the_next_one_continues() {
        let rows = ["0006", "0007", "0008", "0009", "0010", "0011"];
        let written = |page: i64, max_bytes: usize| {
            let mut records = Records::new();
            records.write(rows, max_bytes).unwrap();
            let page = records.shorten(PageRequest { page, per_page: 6 }, max_bytes);
            (page, records)
        };
        // Seven bytes each behind the first nine: four of the six fit, and three divides six.
        let (page, records) = written(2, 9 + 4 * 7);
        assert_eq!((page.page, page.per_page, records.count()), (3, 3, 3));
        let position = Position::new("http://x/p", &Query::parse("per_page=6&page=2"), page, records.count(), 60);
        let json: serde_json::Value = serde_json::from_slice(&records.finish(&position).unwrap()).unwrap();
        assert_eq!(json["data"], serde_json::json!(["0006", "0007", "0008"]));
        assert_eq!(json["links"]["next"], "http://x/p?per_page=3&page=4");
        assert_eq!((&json["meta"]["from"], &json["meta"]["to"]), (&7.into(), &9.into()));
        assert_eq!(json["meta"]["last_page"], 20);
        // One record is always shown.
        let (page, records) = written(1, 9);
        assert_eq!((page.page, page.per_page, records.count()), (1, 1, 1));
        let (page, records) = written(1, 9 + 6 * 7);
        assert_eq!((page.page, page.per_page, records.count()), (1, 6, 6));
    }

    proptest! {
        /// A shortened page begins at the same record and ends within the rows that fit.
        #[test]
        fn a_shortened_page_begins_at_the_same_record(page in 1_i64..1_000, per_page in 1_i64..=100, rows in 1_usize..=100) {
            let page = PageRequest { page, per_page };
            let short = shorten_page(page, rows);
            prop_assert_eq!(short.offset(), page.offset());
            prop_assert!(short.per_page >= 1 && short.per_page <= per_page.min(rows as i64));
        }

        /// Both ends and the current page are shown, in order, and a gap appears only where pages are omitted.
        #[test]
        fn page_window_is_ascending(current in 1_i64..300, last in 1_i64..300) {
            let slots = window(current, last);
            let numbers: Vec<i64> = slots.iter().flatten().copied().collect();
            prop_assert!(numbers.windows(2).all(|w| w[0] < w[1]));
            prop_assert_eq!((numbers.first(), numbers.last()), (Some(&1), Some(&last)));
            prop_assert!(current > last || numbers.contains(&current));
            prop_assert!(slots.len() <= 15);
            for w in slots.windows(3) {
                if let [Some(a), None, Some(b)] = w {
                    prop_assert!(b - a > 1);
                }
            }
        }
    }
}
