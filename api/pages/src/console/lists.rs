//! Paging for lists with filters, and for lists that are read completely.

use super::paging::{self, PER_PAGE};
use super::shared::Pages;
use super::visit::Visit;

/// Returns the page links of a list at this path. They keep the filters that are not empty.
pub fn links(path: &str, filters: &[(&str, &str)], page: i64, shown: usize, total: i64) -> Pages {
    paging::links(page, PER_PAGE, shown, total, |page| {
        let filled = filters.iter().filter(|(_, value)| !value.is_empty());
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(filled).append_pair("page", &page.to_string());
        format!("{path}?{}", query.finish())
    })
}

/// Returns the requested page of a list that was read completely.
pub fn paginate<T>(visit: &Visit, path: &str, all: Vec<T>) -> (Vec<T>, Pages) {
    let page = paging::number(visit);
    let total = i64::try_from(all.len()).unwrap_or(i64::MAX);
    let before = usize::try_from((page - 1).saturating_mul(PER_PAGE)).unwrap_or(usize::MAX);
    let max = usize::try_from(PER_PAGE).unwrap_or_default();
    let rows: Vec<T> = all.into_iter().skip(before).take(max).collect();
    let pages = links(path, &[], page, rows.len(), total);
    (rows, pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_the_filters_that_are_set() {
        let pages = links("/x", &[("status", "a b"), ("event", "")], 2, 20, 45);
        assert_eq!(pages.prev.as_deref(), Some("/x?status=a+b&page=1"));
        assert_eq!(pages.next.as_deref(), Some("/x?status=a+b&page=3"));
    }
}
