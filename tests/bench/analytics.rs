//! `crier-bench analytics`.

use super::{MACHINE, Names, add, embedded, split};

const TINY: &[&str] = &["analytics", "--posts", "700", "--repeat", "2", "--json"];

/// All figures, in the order of the output.
fn expected() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    for series in ["a year by day", "best times", "one post"] {
        let figures = ["p50", "p95"].map(|which| format!("{series}, {which}"));
        of("series", &figures.each_ref().map(String::as_str));
    }
    all
}

#[tokio::test]
async fn embedded_analytics_report_every_figure_and_clean_up() {
    embedded(TINY, &expected()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_analytics_report_every_figure_and_clean_up() {
    split(TINY, &expected(), &["analytics", "--posts", "1000000"]).await;
}
