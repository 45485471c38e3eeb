//! `crier-bench export`.

use serde_json::Value;

use super::{MACHINE, Names, add, check, end, split, start};

const TINY: &[&str] = &["export", "--posts", "1000", "--json"];
/// A page of 200 posts takes a statement for its ids, and those for its sizes, posts, accounts and files. A filter by
/// label takes one more. The beginning and the end of the file take a few more.
const MAX_STATEMENTS: f64 = 3.5;

/// All figures, in the order of the output.
fn expected() -> Names {
    let mut all = Vec::new();
    add(&mut all, "machine", MACHINE);
    for name in ["csv", "json", "label, csv"] {
        let figures = ["time", "memory before", "peak memory", "file", "statements per 100 posts"];
        let figures = figures.map(|figure| format!("{name}, 1000 posts, {figure}"));
        add(&mut all, "export", &figures.each_ref().map(String::as_str));
    }
    all
}

#[tokio::test]
async fn embedded_exports_take_few_statements_per_post_and_clean_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let (done, stdout, stderr) = end(start(dir.path(), &[TINY, &["--dir", "."]].concat(), &[])).await;
    assert!(done, "{stderr}");
    check(&stdout, &expected(), "embedded");
    let figures: Vec<Value> = serde_json::from_str(&stdout).expect("an array");
    for figure in figures.iter().filter(|figure| figure["unit"] == "statements") {
        assert!(figure["value"].as_f64().is_some_and(|statements| statements <= MAX_STATEMENTS), "{figure}");
    }
    let left = std::fs::read_dir(dir.path()).expect("a directory").count();
    assert_eq!(left, 0, "files are left");
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_exports_report_every_figure_and_clean_up() {
    split(TINY, &expected(), &["export", "--posts", "1000000"]).await;
}
