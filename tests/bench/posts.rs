//! `crier-bench posts`.

use super::{MACHINE, Names, add, embedded, split};

const TINY: &[&str] = &["posts", "--posts", "300", "--repeat", "2", "--json"];

const FILTERS: &[&str] = &[
    "published",
    "with a label",
    "of an account",
    "of a month",
    "by scheduled time",
    "last published first",
    "with all filters",
];

/// The names of the lists, in their order.
fn lists() -> Vec<String> {
    let mut all = ["all", "all, in the middle", "all, the last page"].map(str::to_owned).to_vec();
    for filter in FILTERS {
        all.extend([(*filter).to_owned(), format!("{filter}, in the middle")]);
    }
    let searches = [
        "a word in half of the posts",
        "a word in 1 % of the posts",
        "a word in one of 10,000 posts",
        "a word that does not occur",
        "two frequent words",
        "a frequent and a rare word",
        "a prefix of one frequent word",
        "a prefix of three letters",
        "a prefix of two letters",
        "a frequent word and a prefix of two letters",
        "a word in half of the posts, in the middle",
        "a word in half of the posts, the last page",
    ];
    all.extend(searches.map(str::to_owned));
    for filter in FILTERS {
        all.extend([
            format!("a word in half of the posts, {filter}"),
            format!("a word in half of the posts, {filter}, in the middle"),
            format!("a word in 1 % of the posts, {filter}"),
            format!("a prefix of two letters, {filter}"),
        ]);
    }
    all.extend(["calendar, a month", "calendar, a month of an account"].map(str::to_owned));
    all
}

/// All figures, in the order of the output.
fn expected(measurements: &[&'static str]) -> Names {
    let mut all = Vec::new();
    add(&mut all, "machine", MACHINE);
    for &measurement in measurements {
        for list in lists() {
            let figures = ["p50", "p95", "max"].map(|which| format!("{list}, {which}"));
            add(&mut all, measurement, &figures.each_ref().map(String::as_str));
        }
    }
    all
}

#[tokio::test]
async fn embedded_posts_report_every_figure_and_clean_up() {
    embedded(TINY, &expected(&["lists"])).await;
}

#[tokio::test]
async fn split_posts_report_every_figure_and_clean_up() {
    split(TINY, &expected(&["never analyzed", "lists"]), &["posts", "--posts", "1000000"]).await;
}
