//! `crier-bench recurring`.

use super::{MACHINE, Names, add, embedded, split};

const TINY: &[&str] = &["recurring", "--brands", "10", "--rules", "3", "--repeat", "2", "--json"];

/// All figures, in the order of the output.
fn expected() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    for rules in [3, 30] {
        let figures = ["a tick with nothing due", "enqueuing a rule", "work per day"];
        let figures = figures.map(|figure| format!("{rules} rules, {figure}"));
        of("scheduler", &figures.each_ref().map(String::as_str));
    }
    all
}

#[tokio::test]
async fn embedded_recurring_posts_report_every_figure_and_clean_up() {
    embedded(TINY, &expected()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_recurring_posts_report_every_figure_and_clean_up() {
    split(TINY, &expected(), &["recurring", "--brands", "100000"]).await;
}
