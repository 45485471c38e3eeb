//! `crier-bench requests`.

use super::{MACHINE, Names, add, embedded, split};

const TINY: &[&str] = &["requests", "--seconds", "1", "--warm-up", "0", "--json"];

/// All figures, in the order of the output.
fn expected() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    for post in ["draft", "scheduled"] {
        for connections in [16, 64] {
            let figures = ["created", "p50", "p99"].map(|which| format!("{post}, {connections} connections, {which}"));
            of("requests", &figures.each_ref().map(String::as_str));
        }
    }
    of("requests", &["scheduled / draft, 16 connections", "scheduled / draft, 64 connections"]);
    for post in ["draft", "scheduled"] {
        let figures = ["p50", "p99"].map(|which| format!("{post}, at half load, {which}"));
        of("requests", &figures.each_ref().map(String::as_str));
    }
    all
}

#[tokio::test]
async fn embedded_requests_report_every_figure_and_clean_up() {
    embedded(TINY, &expected()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_requests_report_every_figure_and_clean_up() {
    split(TINY, &expected(), &["requests", "--only", "draft"]).await;
}
