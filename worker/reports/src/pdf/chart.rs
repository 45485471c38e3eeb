//! Charts: the position of each mark, tick and label, in points from the top left corner of the chart. The template
//! only draws them.

use chrono::{Datelike, NaiveDate};
use crier_domain::report_naming as naming;
use typst::foundations::{Array, Dict, IntoValue, Value, dict};

use super::text::{self, Style, Texts};
use crate::document::{Cell, Chart, ChartType, Table};

pub const HEIGHT: f64 = 176.0;
/// The space above the plot for half a tick label, and below it for the days.
const TOP: f64 = 6.0;
const BOTTOM: f64 = 20.0;
const LABEL: Style = Style { size: 7.5, bold: false };
/// The approximate number of grid lines.
const TICKS: f64 = 4.0;
/// The minimum distance between two day labels on the axis.
const DAY_LABEL_WIDTH: f64 = 44.0;
const MAX_COLUMN_WIDTH: f64 = 26.0;

/// The plot's rectangle, and the values at its top and bottom.
struct Plot {
    left: f64,
    width: f64,
    low: f64,
    high: f64,
    step: f64,
}

impl Plot {
    fn y(&self, value: f64) -> f64 {
        TOP + (self.high - value) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)
    }

    /// Returns the horizontal center of row `n` of `count`.
    fn x(&self, n: usize, count: usize) -> f64 {
        self.left + self.width * (n as f64 + 0.5) / count as f64
    }
}

/// Returns the input of the template for a chart.
pub fn drawn(chart: &Chart, table: &Table, width: f64, texts: &Texts) -> Dict {
    let series: Vec<Vec<Option<f64>>> = chart.series.iter().map(|column| values(table, *column)).collect();
    let (low, high) = match chart.chart_type {
        ChartType::Columns => stacked_range(&series, table.rows.len()),
        ChartType::Lines => line_range(&series),
    };
    let mut plot = scaled(low, high);
    let ticks = ticks(&plot);
    let label_width = ticks.iter().map(|tick| texts.width(&naming::count(*tick as i64), LABEL)).fold(0.0, f64::max);
    plot.left = label_width + 8.0;
    plot.width = width - plot.left;
    let marks = match chart.chart_type {
        ChartType::Columns => columns(&series, table.rows.len(), &plot),
        ChartType::Lines => lines(&series, &plot),
    };
    let tick = |value: &f64| dict! { "y" => plot.y(*value), "text" => naming::count(*value as i64) }.into_value();
    let ticks: Array = ticks.iter().map(tick).collect();
    dict! {
        "width" => width,
        "height" => HEIGHT,
        "left" => plot.left,
        "zero" => plot.y(0.0_f64.clamp(plot.low, plot.high)),
        "bottom" => HEIGHT - BOTTOM,
        "ticks" => ticks,
        "days" => days(table, &plot, texts),
        "marks" => marks,
        "legend" => legend(chart, table, texts),
        "unit" => text::directed(texts.line(&chart.unit, 120)),
        "alt" => alt(chart, table, &series, texts),
    }
}

fn values(table: &Table, column: usize) -> Vec<Option<f64>> {
    let value = |row: &Vec<Cell>| match row.get(column) {
        Some(Cell::Count(count)) => Some(*count as f64),
        _ => None,
    };
    table.rows.iter().map(value).collect()
}

fn stacked_range(series: &[Vec<Option<f64>>], rows: usize) -> (f64, f64) {
    let sums = (0..rows).map(|row| {
        let values = || series.iter().filter_map(move |all| all[row]);
        (values().filter(|v| *v < 0.0).sum::<f64>(), values().filter(|v| *v > 0.0).sum::<f64>())
    });
    sums.fold((0.0, 0.0), |(low, high): (f64, f64), (below, above)| (low.min(below), high.max(above)))
}

/// Returns the range of a line chart. It begins at zero, unless changes would then be too small to see.
fn line_range(series: &[Vec<Option<f64>>]) -> (f64, f64) {
    let values = || series.iter().flatten().flatten().copied();
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    match (low.is_finite(), low > 0.0 && low > high * 0.6) {
        (false, _) => (0.0, 0.0),
        (_, true) => (low, high),
        _ => (low.min(0.0), high.max(0.0)),
    }
}

/// Widens a range to round numbers: 1, 2 or 5 times a power of ten between two ticks.
fn scaled(low: f64, high: f64) -> Plot {
    let rough = ((high - low) / TICKS).max(1.0);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= rough);
    let step = step.unwrap_or(rough).round().max(1.0);
    let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
    Plot { left: 0.0, width: 0.0, low, high: if high > low { high } else { low + step }, step }
}

fn ticks(plot: &Plot) -> Vec<f64> {
    let count = ((plot.high - plot.low) / plot.step).round().clamp(1.0, 12.0) as usize;
    (0..=count).map(|n| plot.low + n as f64 * plot.step).collect()
}

/// Returns a shape per series: the rectangles of its values, stacked on those of the previous series.
fn columns(series: &[Vec<Option<f64>>], rows: usize, plot: &Plot) -> Array {
    let width = (plot.width / rows as f64 * 0.68).min(MAX_COLUMN_WIDTH);
    let mut above = vec![0.0; rows];
    let mut below = vec![0.0; rows];
    let mut shape = |values: &Vec<Option<f64>>| {
        let mut rectangles = Array::new();
        for (row, value) in values.iter().enumerate() {
            let Some(value) = value.filter(|value| *value != 0.0) else { continue };
            let from = if value > 0.0 { &mut above[row] } else { &mut below[row] };
            let (start, end) = (plot.y(*from), plot.y(*from + value));
            *from += value;
            let left = plot.x(row, rows) - width / 2.0;
            rectangles.push(numbers([left, start.min(end), width, (start - end).abs()]));
        }
        rectangles.into_value()
    };
    series.iter().map(|values| dict! { "rectangles" => shape(values) }.into_value()).collect()
}

/// Returns the lines of each series, one per run of values without a gap.
fn lines(series: &[Vec<Option<f64>>], plot: &Plot) -> Array {
    let shape = |values: &Vec<Option<f64>>| {
        let runs = values.iter().enumerate().collect::<Vec<_>>();
        let runs = runs.split(|(_, value)| value.is_none()).filter(|run| !run.is_empty());
        let point = |(row, value): &(usize, &Option<f64>)| {
            numbers([plot.x(*row, values.len()), plot.y(value.unwrap_or_default())])
        };
        let runs: Array = runs.map(|run| run.iter().map(point).collect::<Array>().into_value()).collect();
        dict! { "runs" => runs }.into_value()
    };
    series.iter().map(shape).collect()
}

fn numbers<const N: usize>(all: [f64; N]) -> Value {
    all.into_iter().map(IntoValue::into_value).collect::<Array>().into_value()
}

/// Returns the labels below the axis: days at a sufficient distance, or months if there are more than four.
fn days(table: &Table, plot: &Plot, texts: &Texts) -> Array {
    let count = table.rows.len();
    let date = |row: &Vec<Cell>| match row.first() {
        Some(Cell::Date(date)) => Some(*date),
        _ => None,
    };
    let dates: Vec<Option<NaiveDate>> = table.rows.iter().map(date).collect();
    let max_labels = (plot.width / DAY_LABEL_WIDTH).floor().max(1.0) as usize;
    let monthly = count > 124;
    let starts = dates.iter().flatten().filter(|date| date.day() == 1).count();
    let every = if monthly { starts.div_ceil(max_labels).max(1) } else { count.div_ceil(max_labels).max(1) };
    // Whole weeks are easier to read than similar distances.
    let every = if !monthly && (4..=7).contains(&every) { 7 } else { every };
    let mut seen = 0;
    let mut labels = Array::new();
    for (row, date) in dates.iter().enumerate() {
        let Some(date) = date.filter(|date| !monthly || date.day() == 1) else { continue };
        seen += 1;
        if (seen - 1) % every == 0 {
            let format = if !monthly {
                "%-d %b"
            } else if date.month() == 1 {
                "%b %Y"
            } else {
                "%b"
            };
            let label = date.format(format).to_string();
            let x = plot.x(row, count);
            // The outer labels must not extend beyond the chart.
            let half = texts.width(&label, LABEL) / 2.0;
            let middle = x.clamp(half, plot.left + plot.width - half);
            labels.push(dict! { "x" => x, "middle" => middle, "text" => label }.into_value());
        }
    }
    labels
}

/// Returns the names of the series; none for a single series, whose name is the chart's title.
fn legend(chart: &Chart, table: &Table, texts: &Texts) -> Array {
    let label = |column: &usize| {
        let label = table.columns.get(*column).map_or("", |column| column.label.as_str());
        text::directed(texts.fit(label, 60, Style { size: 8.0, bold: false }, 220.0, 1))
    };
    if chart.series.len() < 2 { Array::new() } else { chart.series.iter().map(label).collect() }
}

/// Returns the alternative text of the chart, for screen readers.
fn alt(chart: &Chart, table: &Table, series: &[Vec<Option<f64>>], texts: &Texts) -> String {
    let name = match chart.chart_type {
        ChartType::Columns => "Column chart",
        ChartType::Lines => "Line chart",
    };
    let day = |row: Option<&Vec<Cell>>| match row.and_then(|row| row.first()) {
        Some(Cell::Date(date)) => crate::text::day(*date),
        _ => String::new(),
    };
    let mut alt = format!("{name} from {} to {}.", day(table.rows.first()), day(table.rows.last()));
    for (column, values) in chart.series.iter().zip(series) {
        let label = table.columns.get(*column).map_or("", |column| column.label.as_str());
        let known = || values.iter().flatten().copied();
        let range = known().fold(None, |range: Option<(f64, f64)>, value| {
            Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        });
        let range = range.map_or("no data".to_owned(), |(low, high)| {
            format!("{} to {}", naming::count(low as i64), naming::count(high as i64))
        });
        alt.push_str(&format!(" {}: {range}.", texts.line(label, 120)));
    }
    alt
}
