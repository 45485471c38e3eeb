//! Paging.

use crier_endpoints::request;

use super::shared::Pages;
use super::visit::Visit;

/// The number of rows per page.
pub const PER_PAGE: i64 = 20;

/// Returns the page number in the query. 1 if it is missing or invalid.
pub fn number(visit: &Visit) -> i64 {
    visit.query.get("page").and_then(|text| text.parse().ok()).filter(|page| *page >= 1).unwrap_or(1)
}

/// Returns the page of a request to the API.
pub const fn pages(page: i64) -> request::Pages {
    request::Pages { page, per_page: PER_PAGE }
}

/// Returns the page links below a list. `href` returns the URL of a page.
pub fn links(page: i64, per_page: i64, shown: usize, total: i64, href: impl Fn(i64) -> String) -> Pages {
    let last = (total / per_page + i64::from(total % per_page > 0)).max(1);
    let shown = i64::try_from(shown).unwrap_or_default();
    let before = (page - 1).saturating_mul(per_page);
    Pages {
        from: if shown > 0 { before + 1 } else { 0 },
        to: if shown > 0 { before + shown } else { 0 },
        total,
        prev: (page > 1).then(|| href((page - 1).min(last))),
        next: (page < last).then(|| href(page + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_past_the_end_leads_back_to_the_last() {
        let pages = |page, shown| links(page, 20, shown, 45, |page| format!("?page={page}"));
        let of = |page, shown| {
            let p = pages(page, shown);
            (p.from, p.to, p.prev.unwrap_or_default(), p.next.unwrap_or_default())
        };
        assert_eq!(of(1, 20), (1, 20, String::new(), "?page=2".to_owned()));
        assert_eq!(of(3, 5), (41, 45, "?page=2".to_owned(), String::new()));
        assert_eq!(of(i64::MAX, 0), (0, 0, "?page=3".to_owned(), String::new()));
        assert_eq!(links(1, 20, 0, 0, |_| String::new()).next, None);
    }
}
