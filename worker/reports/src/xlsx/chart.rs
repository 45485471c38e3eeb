//! The charts of a sheet, and the workbook that is embedded in a chart of a presentation.

use chrono::NaiveDate;
use rust_xlsxwriter::{
    Chart as ExcelChart, ChartAxis, ChartAxisDateUnitType, ChartEmptyCells, ChartFont, ChartFormat,
    ChartLegendPosition, ChartLine, ChartMarker, ChartMarkerType, ChartSolidFill, ChartType as ExcelChartType, ColNum,
    RowNum, Workbook, XlsxError,
};

use super::cells::{Formats, Writer};
use super::sheet::HEADER_ROW;
use crate::palette::{self, LINE, MUTED};
use crate::text::{clip, single_line};
use crate::{Cell, Chart, ChartType, Table};

const WIDTH: u32 = 900;
const HEIGHT: u32 = 400;
/// The maximum number of points with markers. More markers would cover the lines.
pub const MAX_MARKED_POINTS: usize = 62;
const FONT_SIZE: u32 = 10;

/// The distance between two labels on the date axis, chosen for about eight labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateStep {
    Days(u32),
    Months(u32),
}

impl DateStep {
    /// Returns Excel's number format of the labels.
    pub fn number_format(self) -> &'static str {
        match self {
            Self::Days(_) => "d mmm",
            Self::Months(_) => "mmm yyyy",
        }
    }
}

/// Returns the distance between two labels for the days of a table's first column.
pub fn date_step(table: &Table) -> DateStep {
    let days = || table.rows.iter().filter_map(|row| first_day(row));
    let span = days().max().zip(days().min()).map_or(0, |(last, first)| (last - first).num_days());
    match span {
        0..=9 => DateStep::Days(1),
        10..=18 => DateStep::Days(2),
        19..=69 => DateStep::Days(7),
        70..=139 => DateStep::Days(14),
        _ => DateStep::Months((span / 300 + 1).min(1_200) as u32),
    }
}

/// Returns the day of a row.
pub fn first_day(row: &[Cell]) -> Option<NaiveDate> {
    match row.first() {
        Some(Cell::Date(date)) => Some(*date),
        Some(Cell::Time(time)) => Some(time.date()),
        _ => None,
    }
}

/// Returns the chart of a table that [`super::sheet`] writes to a sheet.
pub fn of_sheet(chart: &Chart, table: &Table, sheet: &str, title: &str) -> ExcelChart {
    let mut drawn = ExcelChart::new(match chart.chart_type {
        ChartType::Columns if chart.series.len() > 1 => ExcelChartType::ColumnStacked,
        ChartType::Columns => ExcelChartType::Column,
        ChartType::Lines => ExcelChartType::Line,
    });
    let (first, last) = (HEADER_ROW + 1, HEADER_ROW + table.rows.len() as RowNum);
    for (at, column) in chart.series.iter().map(|column| *column as ColNum).enumerate() {
        let series = drawn.add_series();
        series.set_name((sheet, HEADER_ROW, column));
        series.set_categories((sheet, first, 0, last, 0)).set_values((sheet, first, column, last, column));
        let color = palette::series(at);
        let mut format = ChartFormat::new();
        match chart.chart_type {
            ChartType::Columns => {
                format.set_solid_fill(ChartSolidFill::new().set_color(color));
                series.set_gap(40);
            }
            ChartType::Lines => {
                format.set_line(ChartLine::new().set_color(color).set_width(2.25));
                series.set_marker(&marker(color, table.rows.len()));
            }
        }
        series.set_format(&mut format);
    }
    let step = date_step(table);
    style_axis(drawn.x_axis(), table.columns.first().map_or("", |column| &column.label), step.number_format());
    let (unit, unit_type) = match step {
        DateStep::Days(days) => (days, ChartAxisDateUnitType::Days),
        DateStep::Months(months) => (months, ChartAxisDateUnitType::Months),
    };
    drawn.x_axis().set_date_axis(true).set_major_unit(unit).set_major_unit_date_type(unit_type);
    drawn.x_axis().set_format(ChartFormat::new().set_line(ChartLine::new().set_color(LINE)));
    style_axis(drawn.y_axis(), &chart.unit, "#,##0");
    drawn.y_axis().set_major_gridlines_line(ChartLine::new().set_color(LINE).set_width(0.75));
    drawn.y_axis().set_format(ChartFormat::new().set_no_line());
    drawn.title().set_hidden();
    if chart.series.len() > 1 {
        drawn.legend().set_position(ChartLegendPosition::Bottom).set_font(&font());
    } else {
        drawn.legend().set_hidden();
    }
    drawn.show_empty_cells_as(ChartEmptyCells::Gaps);
    drawn.set_width(WIDTH).set_height(HEIGHT).set_alt_text(clip(title, 200));
    drawn.chart_area().set_format(ChartFormat::new().set_no_border());
    drawn
}

fn marker(color: u32, points: usize) -> ChartMarker {
    let mut marker = ChartMarker::new();
    if points > MAX_MARKED_POINTS {
        marker.set_none();
        return marker;
    }
    let mut format = ChartFormat::new();
    format.set_solid_fill(ChartSolidFill::new().set_color(color)).set_no_line();
    marker.set_type(ChartMarkerType::Circle).set_size(5).set_format(&mut format);
    marker
}

fn font() -> ChartFont {
    let mut font = ChartFont::new();
    font.set_size(FONT_SIZE).set_color(MUTED).unset_bold();
    font
}

fn style_axis(axis: &mut ChartAxis, name: &str, number_format: &str) {
    let name = escape_range(&single_line(name));
    if !name.is_empty() {
        axis.set_name(clip(&name, 60).as_ref()).set_name_font(&font());
    }
    axis.set_font(&font()).set_num_format(number_format);
}

/// Returns a name that the library does not interpret as a range of cells, as it does with `=[x]` and `Sheet1!A1`.
fn escape_range(name: &str) -> String {
    let name = name.replace('!', "！");
    name.strip_prefix('=').map_or(name.clone(), |rest| format!("＝{rest}"))
}

/// Returns the name of a series for a chart of a presentation.
pub fn series_label(label: &str) -> String {
    clip(&single_line(label), 60).into_owned()
}

/// Returns a workbook with the data of a chart on `Sheet1`: its days in the first column, its series in the next ones.
pub fn chart_data(chart: &Chart, table: &Table) -> Result<Vec<u8>, XlsxError> {
    let formats = Formats::new();
    let mut workbook = Workbook::new();
    let properties = rust_xlsxwriter::DocProperties::new().set_creation_datetime(&chrono::DateTime::UNIX_EPOCH);
    workbook.set_properties(&properties);
    let mut writer = Writer::new(workbook.add_worksheet(), &formats);
    writer.sheet.set_column_range_width(0, chart.series.len() as ColNum, 16)?;
    let columns = || [0].into_iter().chain(chart.series.iter().copied()).enumerate();
    for (at, column) in columns() {
        let label = table.columns.get(column).map_or("", |column| &column.label);
        writer.text(0, at as ColNum, &series_label(label), &formats.data_header)?;
    }
    for (number, row) in table.rows.iter().enumerate() {
        for (at, column) in columns() {
            match row.get(column) {
                None | Some(Cell::Empty) => {}
                Some(cell) => writer.cell(number as RowNum + 1, at as ColNum, cell)?,
            }
        }
    }
    workbook.save_to_buffer()
}
