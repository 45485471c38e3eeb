//! Charts. The drawing is an SVG without text that is stretched to the available space. Texts are HTML around it, so
//! that they stay readable on every screen.
//!
//! The drawing has 1000 by 100 units. Lines keep their width when it is stretched (`vector-effect`).

use crate::numbers::number;

/// The size of the drawing, in its units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;
/// The maximum number of lines in a chart; more cannot be distinguished.
pub const MAX_LINES: usize = 6;
/// The maximum number of series in the table of a chart, so that a page is smaller than 100 kB.
pub const MAX_COLUMNS: usize = 12;
/// The maximum number of points in a chart, so that a page is smaller than 100 kB.
pub const MAX_POINTS: usize = 45;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChartKind {
    #[default]
    Bars,
    Lines,
}

#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The ID of the heading in the page.
    pub id: String,
    pub title: String,
    /// "Engagements by the day on which posts were published."
    pub text: String,
    pub kind: ChartKind,
    /// The heading of the first column: "Day", "Week".
    pub unit: String,
    /// The labels of the points, in order: "24 Nov".
    pub labels: Vec<String>,
    /// A bar chart shows the first series, a line chart the first [`MAX_LINES`], and the table the first
    /// [`MAX_COLUMNS`].
    pub series: Vec<Series>,
}

#[derive(Clone, Debug, Default)]
pub struct Series {
    pub name: String,
    /// A value for each label, at most [`MAX_POINTS`]. `None` if no platform returned the metric.
    pub values: Vec<Option<i64>>,
}

/// A bar, in the units of the drawing.
#[derive(Clone, Debug)]
pub struct Bar {
    pub x: String,
    pub y: String,
    pub width: String,
    pub height: String,
    pub title: String,
}

impl Chart {
    fn drawn(&self) -> &[Series] {
        let count = if self.kind == ChartKind::Bars { 1 } else { MAX_LINES };
        self.series.get(..count.min(self.series.len())).unwrap_or_default()
    }

    pub fn is_bars(&self) -> bool {
        self.kind == ChartKind::Bars
    }

    /// Returns whether any value is known.
    pub fn has_values(&self) -> bool {
        self.series.iter().flat_map(|series| &series.values).any(Option::is_some)
    }

    /// Returns the largest drawn value.
    fn max_drawn(&self) -> i64 {
        self.drawn().iter().flat_map(|series| series.values.iter().flatten()).copied().max().unwrap_or(0)
    }

    /// Returns the value at the top of the drawing.
    pub fn top(&self) -> i64 {
        round_up(self.max_drawn())
    }

    /// Returns the value at the bottom of the drawing: 0, or a value near the smallest one if all lines are far above
    /// 0, so that changes are visible.
    pub fn bottom(&self) -> i64 {
        if self.is_bars() {
            return 0;
        }
        let least = self.drawn().iter().flat_map(|series| series.values.iter().flatten()).copied().min().unwrap_or(0);
        if least > self.max_drawn() / 2 { round_up(least) / 10 * 8 } else { 0 }
    }

    fn y(&self, value: i64) -> f64 {
        let (top, bottom) = (self.top() as f64, self.bottom() as f64);
        HEIGHT - (value as f64 - bottom).clamp(0.0, top - bottom) / (top - bottom).max(1.0) * HEIGHT
    }

    pub fn bars(&self) -> Vec<Bar> {
        let Some(series) = self.drawn().first() else { return Vec::new() };
        let step = WIDTH / series.values.len().max(1) as f64;
        let bar = |(i, (label, value)): (usize, (&String, &Option<i64>))| {
            let value = (*value)?;
            let y = self.y(value);
            Some(Bar {
                x: format!("{:.1}", i as f64 * step + step * 0.1),
                y: format!("{y:.1}"),
                width: format!("{:.1}", step * 0.8),
                height: format!("{:.1}", HEIGHT - y),
                title: format!("{label}: {}", number(value)),
            })
        };
        self.labels.iter().zip(&series.values).enumerate().filter_map(bar).collect()
    }

    /// Returns the index of each drawn series and the points of its lines. A missing value is a gap between two lines.
    pub fn lines(&self) -> Vec<(usize, Vec<String>)> {
        let step = WIDTH / (self.labels.len().max(2) - 1) as f64;
        let of = |series: &Series| {
            let mut parts: Vec<Vec<String>> = vec![Vec::new()];
            for (i, value) in series.values.iter().enumerate() {
                match value {
                    Some(value) => {
                        let point = format!("{:.1},{:.1}", i as f64 * step, self.y(*value));
                        if let Some(part) = parts.last_mut() {
                            part.push(point);
                        }
                    }
                    None => parts.push(Vec::new()),
                }
            }
            // A single point is drawn as a dot: a line of length 0 with round ends.
            let doubled = |part: Vec<String>| if part.len() == 1 { [part.clone(), part].concat() } else { part };
            parts.into_iter().filter(|part| !part.is_empty()).map(|part| doubled(part).join(" ")).collect()
        };
        self.drawn().iter().map(of).enumerate().collect()
    }

    pub fn names(&self) -> Vec<&str> {
        self.drawn().iter().map(|series| series.name.as_str()).collect()
    }

    /// Returns the number of series that only the table shows.
    pub fn left_out(&self) -> usize {
        if self.is_bars() { 0 } else { self.series.len().min(MAX_COLUMNS).saturating_sub(MAX_LINES) }
    }

    /// Returns the names of the columns of the table.
    pub fn columns(&self) -> Vec<&str> {
        self.series.iter().take(MAX_COLUMNS).map(|series| series.name.as_str()).collect()
    }

    pub fn first(&self) -> &str {
        self.labels.first().map_or("", String::as_str)
    }

    pub fn last(&self) -> &str {
        self.labels.last().map_or("", String::as_str)
    }

    /// Returns the label in the middle. Empty if there are fewer than five labels.
    pub fn middle(&self) -> &str {
        if self.labels.len() < 5 { "" } else { self.labels.get(self.labels.len() / 2).map_or("", String::as_str) }
    }

    /// Returns a description of the drawing, for screen readers.
    pub fn summary(&self) -> String {
        let of = |series: &Series| {
            let known: Vec<i64> = series.values.iter().flatten().copied().collect();
            match (known.iter().min(), known.iter().max(), known.last()) {
                (Some(min), Some(max), Some(last)) => {
                    format!("{}: from {} to {}, latest {}", series.name, number(*min), number(*max), number(*last))
                }
                _ => format!("{}: no data", series.name),
            }
        };
        format!("{}. {}.", self.title, self.drawn().iter().map(of).collect::<Vec<_>>().join("; "))
    }

    /// Returns the rows of the table, newest first.
    pub fn rows(&self) -> Vec<(&str, Vec<String>)> {
        let cell = |series: &Series, i: usize| metric(series.values.get(i).copied().flatten());
        let row = |i| self.series.iter().take(MAX_COLUMNS).map(|series| cell(series, i)).collect();
        self.labels.iter().enumerate().map(|(i, label)| (label.as_str(), row(i))).rev().collect()
    }
}

/// Rounds up to two significant digits, and to at least 4.
fn round_up(value: i64) -> i64 {
    if value <= 4 {
        return 4;
    }
    let mut power = 1_i64;
    while value / power >= 100 {
        power = power.saturating_mul(10);
    }
    value.saturating_add(power - 1) / power * power
}

/// Formats a metric for a table. A dash if it is not known.
pub fn metric(value: Option<i64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(kind: ChartKind, values: &[Option<i64>]) -> Chart {
        Chart {
            kind,
            labels: (1..=values.len()).map(|day| day.to_string()).collect(),
            series: vec![Series { name: "Likes".to_owned(), values: values.to_vec() }],
            ..Chart::default()
        }
    }

    #[test]
    fn an_unknown_metric_is_a_dash() {
        assert_eq!((metric(Some(1_000)), metric(None)), ("1,000".to_owned(), "–".to_owned()));
    }

    #[test]
    fn bars_begin_at_zero_and_leave_out_what_is_not_known() {
        let chart = chart(ChartKind::Bars, &[Some(0), None, Some(403)]);
        let heights: Vec<_> = chart.bars().into_iter().map(|bar| (bar.title, bar.height)).collect();
        assert_eq!((chart.top(), chart.bottom()), (410, 0));
        assert_eq!(heights, [("1: 0".to_owned(), "0.0".to_owned()), ("3: 403".to_owned(), "98.3".to_owned())]);
    }

    #[test]
    fn a_line_has_gaps_and_a_point_alone_is_drawn() {
        let chart = chart(ChartKind::Lines, &[Some(1_000), Some(1_200), None, Some(1_100)]);
        assert_eq!((chart.top(), chart.bottom()), (1_200, 800));
        assert_eq!(chart.lines(), [(0, vec!["0.0,50.0 333.3,0.0".to_owned(), "1000.0,25.0 1000.0,25.0".to_owned()])]);
        assert_eq!(chart.rows()[1], ("3", vec!["–".to_owned()]));
    }

    #[test]
    fn a_chart_without_values_or_with_the_largest_ones_is_drawn() {
        for values in [&[][..], &[None], &[Some(i64::MAX), Some(0)], &[Some(i64::MAX)]] {
            for kind in [ChartKind::Bars, ChartKind::Lines] {
                let chart = chart(kind, values);
                let (bars, lines, text) = (chart.bars(), chart.lines(), chart.summary());
                assert!(!format!("{bars:?}{lines:?}{text}").contains("NaN"), "{values:?}");
                assert_eq!(chart.has_values(), values.iter().any(Option::is_some));
            }
        }
    }
}
