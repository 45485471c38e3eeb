//! Creates tables and cells from stored values.

use crier_domain::analytics::PostMetrics;
use crier_domain::catalogue;
use crier_reports::columns::{self, columns};
use crier_reports::{Cell, Table};
use crier_store::report_metrics::PublishedPost;

use super::scope::ExportScope;

/// The maximum length of a cell's text, in characters.
pub const MAX_TEXT: usize = 500;

/// Returns a cell with a number; empty if it is unknown.
pub fn count(number: Option<i64>) -> Cell {
    number.map_or(Cell::Empty, Cell::Count)
}

/// Returns a cell with at most [`MAX_TEXT`] characters of a text, with an ellipsis if it is cut.
pub fn text(text: &str) -> Cell {
    match text.char_indices().nth(MAX_TEXT) {
        None => Cell::Text(text.to_owned()),
        Some(_) => {
            let cut: String = text.chars().take(MAX_TEXT - 1).collect();
            Cell::Text(format!("{}…", cut.trim_end()))
        }
    }
}

/// Returns a table of posts, with a row per account on which a post was published.
pub fn posts(scope: &ExportScope, posts: Vec<PublishedPost>) -> Table {
    let rows = posts.into_iter().map(|post| post_row(scope, post)).collect();
    Table { columns: columns(columns::POSTS), rows, totals: None }
}

fn post_row(scope: &ExportScope, post: PublishedPost) -> Vec<Cell> {
    let engagements = post.metrics.engagements();
    let PostMetrics { impressions, reach: _, likes, comments, shares, clicks } = post.metrics;
    let mut row = vec![
        Cell::Time(scope.local(post.published_at)),
        post.account.as_deref().map_or(Cell::Empty, text),
        Cell::Text(catalogue::descriptor(post.platform).name.to_owned()),
        text(&post.text),
        post.url.filter(|url| is_web_url(url)).map_or(Cell::Empty, Cell::Link),
    ];
    row.extend([impressions, likes, comments, shares, clicks, engagements].map(count));
    row
}

fn is_web_url(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_by_characters() {
        let exact = "é".repeat(MAX_TEXT);
        assert_eq!(text(&exact), Cell::Text(exact.clone()));
        let Cell::Text(cut) = text(&format!("{exact}!")) else { panic!("a text") };
        assert_eq!((cut.chars().count(), cut.ends_with('…')), (MAX_TEXT, true));
    }

    #[test]
    fn only_web_urls_are_links() {
        for (url, is_link) in
            [("https://x.example/1", true), ("http://x", true), ("javascript:alert(1)", false), ("", false)]
        {
            assert_eq!(is_web_url(url), is_link, "{url}");
        }
    }
}
