//! `crier-bench inbox`.

use super::{MACHINE, Names, add, embedded, split};

const TINY: &[&str] = &["inbox", "--conversations", "200", "--messages", "600", "--repeat", "2", "--json"];

/// All figures, in the order of the output.
fn expected() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    for case in [
        "all",
        "all, the last page",
        "open",
        "unread direct messages",
        "assigned to a member, none",
        "with a tag",
        "a word in every conversation",
        "a word in every conversation, the last page",
        "a word in every conversation, unread",
        "a word in one of 10,000 conversations",
        "a beginning of two letters",
        "a beginning of three letters",
        "a frequent and a rare word",
        "two frequent words",
        "part of a Japanese sentence",
        "a word that is not there",
    ] {
        let figures = ["p50", "p95"].map(|which| format!("{case}, {which}"));
        of("lists", &figures.each_ref().map(String::as_str));
    }
    all
}

#[tokio::test]
async fn embedded_inbox_reports_every_figure_and_cleans_up() {
    embedded(TINY, &expected()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_inbox_reports_every_figure_and_cleans_up() {
    split(TINY, &expected(), &["inbox", "--conversations", "100000"]).await;
}
