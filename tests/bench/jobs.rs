//! `crier-bench jobs`.

use super::{MACHINE, Names, add, embedded, split};

const TINY: &[&str] = &["jobs", "--jobs", "20", "--rows", "2000", "--posts", "20", "--json"];

/// All figures, in the order of the output.
fn expected() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    of("memory", &["idle", "20 jobs pending", "while they run, peak"]);
    of("throughput", &["enqueue, 1 at once", "enqueue, 10 at once", "enqueue, 100 at once"]);
    of("throughput", &["process, 1 at once", "process, 10 at once", "process, 100 at once"]);
    of("throughput", &["enqueue and process, 100 at once"]);
    of("pickup", &["commit to start, p50", "commit to start, p99", "commit to start, max"]);
    of("pickup", &["call to start, p50", "call to start, p99", "call to start, max"]);
    let late = ["p50", "p99", "max"].map(|which| format!("20 jobs for one moment, {which}"));
    of("lateness", &late.each_ref().map(String::as_str));
    of("lateness", &["memory before", "memory, peak", "memory after"]);
    for cost in ["each of 1 due", "each of 10 due", "each of 100 due", "task measure", "task rescue", "task renotify"] {
        let figures = ["1000 rows", "2000 rows", "ratio"].map(|which| format!("{cost}, {which}"));
        of("dispatch", &figures.each_ref().map(String::as_str));
    }
    of("publish", &["20 posts, all begun after", "20 posts, all ended after", "rate"]);
    of("publish", &["lateness, p50", "lateness, p99", "lateness, max", "memory, peak"]);
    all
}

#[tokio::test]
async fn embedded_jobs_report_every_figure_and_clean_up() {
    embedded(TINY, &expected()).await;
}

#[tokio::test]
async fn split_jobs_report_every_figure_and_clean_up() {
    split(TINY, &expected(), &["jobs", "--only", "pickup"]).await;
}
