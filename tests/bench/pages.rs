//! `crier-bench pages`.

use super::{MACHINE, Names, add, embedded, split};

const TINY: &[&str] = &["pages", "--requests", "200", "--pages", "5", "--json"];

/// All figures, in the order of the output.
fn expected() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    of("page", &["the page, compressed"]);
    for measurement in ["page", "unchanged"] {
        for clients in ["1 at once", "32 at once"] {
            let figures = ["requests", "the server's processor, each", "p50", "p99", "max"];
            let figures = figures.map(|figure| format!("{clients}, {figure}"));
            of(measurement, &figures.each_ref().map(String::as_str));
        }
    }
    for visit in ["of all", "after two seconds"] {
        let figures = ["p50", "p99", "max"].map(|figure| format!("{visit}, {figure}"));
        of("first", &figures.each_ref().map(String::as_str));
    }
    of("counted", &["bots, not counted", "visitors", "all of them in the database after"]);
    all
}

#[tokio::test]
async fn embedded_pages_report_every_figure_and_clean_up() {
    embedded(TINY, &expected()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_pages_report_every_figure_and_clean_up() {
    split(TINY, &expected(), &["pages", "--only", "page", "--requests", "10000000"]).await;
}
