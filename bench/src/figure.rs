//! Figures: their computation and their output.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::BenchError;
use super::database::describe_engine;
use super::environment::BenchEnvironment;

/// A number of items, and the time that all of them took.
#[derive(Debug, Clone, Copy)]
pub struct Throughput {
    pub count: usize,
    pub took: Duration,
}

impl Throughput {
    pub fn per_second(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "no count comes near 2^52")]
        let count = self.count as f64;
        count / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Returns the average time of one item, if they were processed one after the other.
    pub fn time_per_item(self) -> Duration {
        self.took / u32::try_from(self.count).unwrap_or(u32::MAX).max(1)
    }
}

/// One number or word of a measurement. Times are in milliseconds, sizes in bytes. Only the printed table uses other
/// units.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub measurement: &'static str,
    pub figure: String,
    pub value: Value,
    pub unit: &'static str,
    /// The value must be less, in the same unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<f64>,
}

impl Figure {
    fn new(measurement: &'static str, figure: impl Into<String>, value: impl Into<Value>, unit: &'static str) -> Self {
        Self { measurement, figure: figure.into(), value: value.into(), unit, goal: None }
    }

    pub fn word(measurement: &'static str, figure: impl Into<String>, word: impl Into<String>) -> Self {
        Self::new(measurement, figure, word.into(), "")
    }

    pub fn rate(
        measurement: &'static str,
        figure: impl Into<String>,
        unit: &'static str,
        count: usize,
        took: Duration,
    ) -> Self {
        let rate = Throughput { count, took }.per_second();
        Self::new(measurement, figure, round(rate, 10.0), unit)
    }

    pub fn count(measurement: &'static str, figure: impl Into<String>, unit: &'static str, count: usize) -> Self {
        Self::new(measurement, figure, count, unit)
    }

    /// Returns the average of a total over the runs of an operation.
    pub fn average(
        measurement: &'static str,
        figure: impl Into<String>,
        unit: &'static str,
        total: u64,
        runs: u32,
    ) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "no count comes near 2^52")]
        let average = total as f64 / f64::from(runs);
        Self::new(measurement, figure, round(average, 10.0), unit)
    }

    pub fn time(measurement: &'static str, figure: impl Into<String>, time: Duration) -> Self {
        Self::new(measurement, figure, round(time.as_secs_f64() * 1e3, 1e4), "ms")
    }

    /// Sets the goal of a time.
    pub fn with_goal(self, goal: Duration) -> Self {
        Self { goal: Some(goal.as_secs_f64() * 1e3), ..self }
    }

    pub fn ratio(measurement: &'static str, figure: impl Into<String>, of: Duration, to: Duration) -> Self {
        let ratio = of.as_secs_f64() / to.as_secs_f64().max(f64::MIN_POSITIVE);
        Self::new(measurement, figure, round(ratio, 1e3), "times")
    }

    /// Returns the quotient of two rates.
    pub fn ratio_of_rates(
        measurement: &'static str,
        figure: impl Into<String>,
        of: Throughput,
        to: Throughput,
    ) -> Self {
        let ratio = of.per_second() / to.per_second().max(f64::MIN_POSITIVE);
        Self::new(measurement, figure, round(ratio, 1e3), "times")
    }

    /// Returns `None` if the system does not report the size.
    pub fn size(measurement: &'static str, figure: impl Into<String>, bytes: Option<u64>) -> Option<Self> {
        bytes.map(|bytes| Self::new(measurement, figure, bytes, "bytes"))
    }

    /// Returns the median, the 99th percentile and the maximum.
    pub fn spread(measurement: &'static str, of: &str, mut times: Vec<Duration>) -> Vec<Self> {
        times.sort_unstable();
        let name = |which: &str| format!("{of}{}{which}", if of.is_empty() { "" } else { ", " });
        [("p50", 50), ("p99", 99), ("max", 100)]
            .map(|(which, percent)| Self::time(measurement, name(which), percentile_of_sorted(&times, percent)))
            .to_vec()
    }

    /// Returns the median and the 99th percentile.
    pub fn median_and_p99(measurement: &'static str, of: &str, times: Vec<Duration>) -> Vec<Self> {
        let mut figures = Self::spread(measurement, of, times);
        figures.truncate(2);
        figures
    }

    fn formatted(&self) -> String {
        match (&self.value, self.unit) {
            (Value::Number(number), unit) => {
                let value = number.as_f64().unwrap_or_default();
                let missed = self.goal.filter(|goal| value >= *goal);
                let note = missed.map(|goal| format!(" (misses the goal of {})", format_quantity(goal, unit)));
                format_quantity(value, unit) + &note.unwrap_or_default()
            }
            (Value::String(word), _) => word.clone(),
            (other, _) => other.to_string(),
        }
    }
}

fn round(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

/// Returns the nearest-rank percentile of sorted times.
fn percentile_of_sorted(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

pub fn median(times: Vec<Duration>) -> Duration {
    percentile(times, 50)
}

/// Returns the nearest-rank percentile of unsorted times.
pub fn percentile(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort_unstable();
    percentile_of_sorted(&times, percent)
}

fn format_quantity(value: f64, unit: &str) -> String {
    match unit {
        "ms" if value < 1.0 => format!("{:.0} µs", value * 1e3),
        "ms" if value < 10.0 => format!("{value:.2} ms"),
        "ms" if value < 1e3 => format!("{value:.0} ms"),
        "ms" => format!("{:.2} s", value / 1e3),
        "bytes" if value < 1e5 => format!("{:.1} kB", value / 1e3),
        "bytes" => format!("{:.1} MB", value / 1e6),
        "times" => format!("{value:.2} ×"),
        "" => format!("{value}"),
        "connections" => format!("{value} {unit}"),
        unit if value < 100.0 => format!("{value:.1} {unit}"),
        unit => format!("{value:.0} {unit}"),
    }
}

/// Returns the description of this machine, build and database.
pub async fn machine_figures(environment: &BenchEnvironment) -> Result<Vec<Figure>, BenchError> {
    let (engine, durability) = describe_engine(environment.api().db()).await?;
    let build = if cfg!(debug_assertions) { "debug: not for comparison" } else { "release" };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let machine = |figure: &str, word: String| Figure::word("machine", figure, word);
    Ok(vec![
        machine("form", environment.form().to_owned()),
        machine("version", format!("crier {}, {build}", env!("CARGO_PKG_VERSION"))),
        machine("cores", cores.to_string()),
        machine("database", engine),
        machine("durability", durability),
    ])
}

/// Prints figures as a JSON array, or as a table with readable units.
pub fn print(figures: &[Figure], json: bool) {
    let text = if json { serde_json::to_string(figures).unwrap_or_default() } else { table(figures) };
    // A closed pipe (`crier-bench … | head`) is not an error.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

fn table(figures: &[Figure]) -> String {
    let mut rows = vec![["MEASUREMENT", "FIGURE", "VALUE"].map(str::to_owned)];
    for (index, figure) in figures.iter().enumerate() {
        // Print the name of a measurement only in its first row.
        let is_repeated = index > 0 && figures[index - 1].measurement == figure.measurement;
        let measurement = if is_repeated { "" } else { figure.measurement };
        rows.push([measurement.to_owned(), figure.figure.clone(), figure.formatted()]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let (first, second) = (width(0), width(1));
    let lines =
        rows.iter().map(|[measurement, figure, value]| format!("{measurement:first$}  {figure:second$}  {value}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_observed_durations() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        let of = |percent| percentile_of_sorted(&times, percent).as_millis();
        assert_eq!((of(50), of(99), of(100)), (100, 198, 200));
        assert_eq!(percentile_of_sorted(&times[..1], 50).as_millis(), 1);
        assert_eq!(percentile_of_sorted(&[], 99), Duration::ZERO);
    }

    #[test]
    fn quantities_use_readable_units() {
        let values =
            [(0.25, "ms"), (2.5, "ms"), (250.0, "ms"), (2_500.0, "ms"), (5.3e7, "bytes"), (12_345.6, "jobs/s")];
        let texts = values.map(|(value, unit)| format_quantity(value, unit));
        assert_eq!(texts, ["250 µs", "2.50 ms", "250 ms", "2.50 s", "53.0 MB", "12346 jobs/s"]);
    }

    #[test]
    fn missed_goals_are_marked() {
        let goal = Duration::from_millis(50);
        let texts =
            [49, 50].map(|ms| Figure::time("posts", "p95", Duration::from_millis(ms)).with_goal(goal).formatted());
        assert_eq!(texts, ["49 ms", "50 ms (misses the goal of 50 ms)"]);
    }

    #[test]
    fn a_table_names_each_measurement_once() {
        let figures = ["p50", "max"].map(|figure| Figure::time("pickup", figure, Duration::from_millis(20)));
        assert_eq!(
            table(&figures),
            "MEASUREMENT  FIGURE  VALUE\n\
             pickup       p50     20 ms\n             max     20 ms"
        );
    }
}
