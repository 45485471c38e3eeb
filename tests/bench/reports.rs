//! `crier-bench reports`.

use super::{MACHINE, Names, add, embedded};

const TINY: &[&str] = &["reports", "--posts", "3", "--json"];

/// All figures, in the order of the output.
fn expected() -> Names {
    let mut all = Vec::new();
    add(&mut all, "machine", MACHINE);
    for format in ["pdf", "csv", "json", "pptx", "xlsx"] {
        let figures = ["time", "peak memory", "file"].map(|figure| format!("{format}, 3 posts, {figure}"));
        add(&mut all, "reports", &figures.each_ref().map(String::as_str));
    }
    all
}

#[tokio::test]
async fn embedded_reports_report_every_figure_and_clean_up() {
    embedded(TINY, &expected()).await;
}
