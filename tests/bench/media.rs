//! `crier-bench media`.

use super::{MACHINE, Names, add, embedded, split};

const TINY: &[&str] = &[
    "media",
    "--megapixels",
    "1",
    "--images",
    "4",
    "--concurrency",
    "3",
    "--large",
    "1",
    "--videos",
    "2",
    "--video-mib",
    "3",
    "--json",
];

/// All figures, in the order of the output.
fn expected() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    of("memory", &["a file", "before", "3 uploads at once, peak", "3 uploads at once, all answered after"]);
    of("uploads", &["a photograph"]);
    for clients in ["1 at once", "4 at once", "16 at once"] {
        let figures = ["images", "bytes", "p50", "p99", "max"].map(|figure| format!("{clients}, {figure}"));
        of("uploads", &figures.each_ref().map(String::as_str));
    }
    of("thumbnails", &["of 1-megapixel JPEGs"]);
    let together = ["peak", "all answered after", "bytes"].map(|figure| format!("2 uploads together, {figure}"));
    of("videos", &["a video", "before"]);
    of("videos", &together.each_ref().map(String::as_str));
    for when in ["a request alone", "a request during the uploads"] {
        of("videos", &["p50", "p99"].map(|figure| format!("{when}, {figure}")).each_ref().map(String::as_str));
    }
    of("videos", &["a request, p99 during the uploads / alone"]);
    let together = ["peak", "all published after", "bytes"].map(|figure| format!("2 posts together, {figure}"));
    of("video-posts", &["a video", "before"]);
    of("video-posts", &together.each_ref().map(String::as_str));
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
