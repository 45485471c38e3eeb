//! `crier-bench media`.

use super::{MACHINE, Names, add, embedded, split};

const TINY: &[&str] = &["media", "--megapixels", "1", "--pictures", "4", "--at-once", "3", "--large", "1", "--json"];

/// All figures, in the order of the output.
fn expected() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    of("memory", &["a file", "before", "3 uploads at once, peak", "3 uploads at once, all answered after"]);
    of("uploads", &["a photograph"]);
    for clients in ["1 at once", "4 at once", "16 at once"] {
        let figures = ["pictures", "bytes", "p50", "p99", "max"].map(|figure| format!("{clients}, {figure}"));
        of("uploads", &figures.each_ref().map(String::as_str));
    }
    of("thumbnails", &["of 1-megapixel JPEGs"]);
    all
}

#[tokio::test]
async fn embedded_media_reports_every_figure_and_cleans_up() {
    embedded(TINY, &expected()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_media_reports_every_figure_and_cleans_up() {
    split(TINY, &expected(), &["media", "--only", "uploads", "--megapixels", "1"]).await;
}
