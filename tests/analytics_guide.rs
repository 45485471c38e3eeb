//! The table of metrics in `docs/analytics.md`, which is generated from `metrics.rs`.

use crier_domain::analytics::Metric;
use crier_domain::catalogue;
use crier_domain::platform::Platform;
use crier_platforms::metrics::METRICS;

use crate::support::page;

fn names(platform: Platform, metric: Metric) -> String {
    let of = METRICS.iter().filter(|one| (one.platform, one.metric) == (platform, metric));
    let named = of.map(|one| {
        let name = one.name.trim_start_matches('/').replace('/', ".");
        match (one.from, one.until) {
            (_, Some(until)) => format!("`{name}` (until {until})"),
            (Some(from), None) => format!("`{name}` (from {from})"),
            (None, None) => format!("`{name}`"),
        }
    });
    match named.collect::<Vec<_>>().join(" + ") {
        none if none.is_empty() => "–".to_owned(),
        names => names,
    }
}

fn table() -> String {
    let metrics = Metric::ALL.iter().map(|metric| metric.as_str());
    let heads: Vec<&str> = ["Platform"].into_iter().chain(metrics).collect();
    let mut table = format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for descriptor in catalogue::all().iter().filter(|one| METRICS.iter().any(|metric| metric.platform == one.platform))
    {
        let cells: Vec<String> = Metric::ALL.iter().map(|metric| names(descriptor.platform, *metric)).collect();
        table += &format!("| {} | {} |\n", descriptor.name, cells.join(" | "));
    }
    table
}

#[test]
fn the_table_of_metrics_is_up_to_date() {
    page::assert_sections("docs/analytics.md", "analytics_guide", &[("metrics", table())]);
}

#[test]
fn each_platform_with_analytics_has_metrics() {
    for descriptor in catalogue::all() {
        let has_metrics = METRICS.iter().any(|metric| metric.platform == descriptor.platform);
        let is_sandbox = descriptor.platform == Platform::Sandbox;
        assert_eq!(descriptor.capabilities.analytics, has_metrics || is_sandbox, "{}", descriptor.platform);
    }
}
