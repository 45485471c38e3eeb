//! `crier-bench webhooks`.

use super::{MACHINE, Names, add, embedded, split};

#[rustfmt::skip]
const TINY: &[&str] = &[
    "webhooks", "--messages", "20", "--endpoints", "1,5", "--pending", "20", "--seconds", "1", "--rounds", "1",
    "--warm-up", "0", "--json",
];

/// All figures, in the order of the output.
fn expected() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    of("machine", &["message"]);
    of("memory", &["idle", "20 deliveries pending", "while they run, peak"]);
    for endpoints in ["1 endpoint", "5 endpoints"] {
        for clients in ["1 client", "32 clients", "100 clients"] {
            let of_point = ["accepted", "delivered", "end to end, p50", "end to end, p99", "end to end, max"];
            let figures = of_point.map(|figure| format!("{endpoints}, {clients}, {figure}"));
            of("throughput", &figures.each_ref().map(String::as_str));
        }
    }
    of("backlog", &["1 endpoint", "5 endpoints"]);
    for part in ["request to answer", "request to delivery"] {
        let figures = ["p50", "p99", "max"].map(|which| format!("{part}, {which}"));
        of("latency", &figures.each_ref().map(String::as_str));
    }
    for fault in ["hangs", "refuses", "answers after 5 s"] {
        let times = ["alone before it, p50", "alone before it, p99", "p50", "p99", "ratio of p50", "ratio of p99"];
        let held = ["requests it held at most"];
        for figure in times.iter().chain(held.iter().filter(|_| fault != "refuses")) {
            of("isolation", &[&format!("beside one that {fault}, {figure}")]);
        }
    }
    all
}

#[tokio::test]
async fn embedded_webhooks_report_every_figure_and_clean_up() {
    embedded(TINY, &expected()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_webhooks_report_every_figure_and_clean_up() {
    split(TINY, &expected(), &["webhooks", "--only", "latency"]).await;
}
