//! Figures: how they are computed and printed.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::BenchError;
use super::database::describe_engine;
use super::environment::BenchEnvironment;

/// How often something was done, and in which time.
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

    /// Returns the time of each, if they were done one after the other.
    pub fn each(self) -> Duration {
        self.took / u32::try_from(self.count).unwrap_or(u32::MAX).max(1)
    }
}

/// One number (or word) of a measurement. Times are in milliseconds and sizes in bytes; only the printed table uses
/// other units.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub measurement: &'static str,
    pub figure: String,
    pub value: Value,
    pub unit: &'static str,
}

impl Figure {
    fn new(measurement: &'static str, figure: impl Into<String>, value: impl Into<Value>, unit: &'static str) -> Self {
        Self { measurement, figure: figure.into(), value: value.into(), unit }
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

    /// A total, divided by how often the operation was done.
    pub fn each(
        measurement: &'static str,
        figure: impl Into<String>,
        unit: &'static str,
        total: u64,
        times: u32,
    ) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "no count comes near 2^52")]
        let each = total as f64 / f64::from(times);
        Self::new(measurement, figure, round(each, 10.0), unit)
    }

    pub fn time(measurement: &'static str, figure: impl Into<String>, time: Duration) -> Self {
        Self::new(measurement, figure, round(time.as_secs_f64() * 1e3, 1e4), "ms")
    }

    pub fn ratio(measurement: &'static str, figure: impl Into<String>, of: Duration, to: Duration) -> Self {
        let ratio = of.as_secs_f64() / to.as_secs_f64().max(f64::MIN_POSITIVE);
        Self::new(measurement, figure, round(ratio, 1e3), "times")
    }

    /// The quotient of two rates.
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
            .map(|(which, percent)| Self::time(measurement, name(which), percentile(&times, percent)))
            .to_vec()
    }

    /// Returns the median and the 99th percentile.
    pub fn median_and_p99(measurement: &'static str, of: &str, times: Vec<Duration>) -> Vec<Self> {
        let mut figures = Self::spread(measurement, of, times);
        figures.truncate(2);
        figures
    }

    fn human(&self) -> String {
        match (&self.value, self.unit) {
            (Value::Number(number), unit) => quantity(number.as_f64().unwrap_or_default(), unit),
            (Value::String(word), _) => word.clone(),
            (other, _) => other.to_string(),
        }
    }
}

fn round(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

/// Returns the nearest-rank percentile of sorted times.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

pub fn median(times: Vec<Duration>) -> Duration {
    nth(times, 50)
}

/// Returns the nearest-rank percentile of unsorted times.
pub fn nth(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort_unstable();
    percentile(&times, percent)
}

fn quantity(value: f64, unit: &str) -> String {
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
        let again = index > 0 && figures[index - 1].measurement == figure.measurement;
        let measurement = if again { "" } else { figure.measurement };
        rows.push([measurement.to_owned(), figure.figure.clone(), figure.human()]);
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
        let of = |percent| percentile(&times, percent).as_millis();
        assert_eq!((of(50), of(99), of(100)), (100, 198, 200));
        assert_eq!(percentile(&times[..1], 50).as_millis(), 1);
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }

    #[test]
    fn quantities_use_readable_units() {
        let values =
            [(0.25, "ms"), (2.5, "ms"), (250.0, "ms"), (2_500.0, "ms"), (5.3e7, "bytes"), (12_345.6, "jobs/s")];
        let texts = values.map(|(value, unit)| quantity(value, unit));
        assert_eq!(texts, ["250 µs", "2.50 ms", "250 ms", "2.50 s", "53.0 MB", "12346 jobs/s"]);
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
