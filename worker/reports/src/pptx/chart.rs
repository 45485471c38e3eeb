//! Charts: a slide with a native chart and an embedded workbook with its data, so that it can be edited.

use std::fmt::Write as _;

use chrono::{Datelike, NaiveDate};

use super::package::{CHART, Relation};
use super::slide::{CONTENT, Rect, Slide, Text};
use super::xml::{HEADER, NAMESPACES, color, escape, escape_value};
use super::{Deck, failed, sentences, title};
use crate::palette::{self, LINE, MUTED};
use crate::text::{cell, clip, single_line};
use crate::xlsx::{DateStep, MAX_MARKED_POINTS, chart_data, date_step, first_day, series_label};
use crate::{Cell, Chart, ChartType, Table, Widget, WriteError};

const NAMESPACE: &str = "xmlns:c=\"http://schemas.openxmlformats.org/drawingml/2006/chart\"";
const CHART_TYPE: &str = "application/vnd.openxmlformats-officedocument.drawingml.chart+xml";
/// The height of the sums and the remark below the chart.
const SENTENCES_HEIGHT: i64 = 411_480;
const FONT_SIZE: i64 = 12;
const AXES: &str = "<c:axId val=\"1\"/><c:axId val=\"2\"/>";

pub fn add(deck: &mut Deck, widget: &Widget, chart: &Chart) -> Result<(), WriteError> {
    deck.charts += 1;
    let (name, data) = (format!("chart{}.xml", deck.charts), format!("Microsoft_Excel_Sheet{}.xlsx", deck.charts));
    let workbook = chart_data(chart, &widget.table).map_err(failed)?;
    deck.package.add_workbook(format!("ppt/embeddings/{data}"), workbook);
    deck.package.add(&format!("ppt/charts/{name}"), CHART_TYPE, xml(chart, &widget.table).into_bytes());
    deck.package.relate("ppt/charts", &name, &[Relation::Part("package", format!("../embeddings/{data}"))]);

    let mut slide = Slide::with_title(&title(widget), None);
    let id = slide.relate(Relation::Part(CHART, format!("../charts/{name}")));
    let sentences = sentences(widget, sums(chart, &widget.table));
    let below = if sentences.is_empty() { 0 } else { SENTENCES_HEIGHT };
    let rect = Rect { height: CONTENT.height - below, ..CONTENT };
    slide.frame("Chart", rect, "chart", &format!("<c:chart {NAMESPACE} r:id=\"{id}\"/>"));
    if !sentences.is_empty() {
        let rect = Rect { y: CONTENT.y + rect.height, height: below, ..CONTENT };
        slide.text_box("Remark", rect, None, "b", &Text::muted(&sentences, 14).xml());
    }
    deck.push(slide);
    Ok(())
}

/// Returns the row of sums as a sentence: `Total: Likes 1,204, Shares 61.`
fn sums(chart: &Chart, table: &Table) -> Option<String> {
    let totals = table.totals.as_ref()?;
    let sum = |column: &usize| {
        let value = totals.get(*column).filter(|value| **value != Cell::Empty)?;
        Some(format!("{} {}", label(table, *column), cell(value)))
    };
    let sums: Vec<String> = chart.series.iter().filter_map(sum).collect();
    let name = totals.first().map_or_else(|| "Total".into(), |name| single_line(&cell(name)));
    (!sums.is_empty()).then(|| format!("{name}: {}.", sums.join(", ")))
}

fn label(table: &Table, column: usize) -> String {
    table.columns.get(column).map_or(String::new(), |column| series_label(&column.label))
}

fn xml(chart: &Chart, table: &Table) -> String {
    let categories = categories(table);
    let several = chart.series.len() > 1;
    let mut plot = match chart.chart_type {
        ChartType::Columns => {
            let grouping = if several { "stacked" } else { "clustered" };
            format!("<c:barChart><c:barDir val=\"col\"/><c:grouping val=\"{grouping}\"/><c:varyColors val=\"0\"/>")
        }
        ChartType::Lines => "<c:lineChart><c:grouping val=\"standard\"/><c:varyColors val=\"0\"/>".to_owned(),
    };
    for (at, column) in chart.series.iter().enumerate() {
        plot += &series(chart.chart_type, table, at, *column, &categories);
    }
    match chart.chart_type {
        ChartType::Columns => {
            let overlap = if several { "<c:overlap val=\"100\"/>" } else { "" };
            let _ = write!(plot, "<c:gapWidth val=\"40\"/>{overlap}{AXES}</c:barChart>");
        }
        ChartType::Lines => {
            let _ = write!(plot, "<c:marker val=\"1\"/>{AXES}</c:lineChart>");
        }
    }
    let legend = "<c:legend><c:legendPos val=\"b\"/><c:overlay val=\"0\"/></c:legend>";
    format!(
        "{HEADER}<c:chartSpace {NAMESPACE} {NAMESPACES}><c:date1904 val=\"0\"/><c:roundedCorners val=\"0\"/><c:chart>\
         <c:autoTitleDeleted val=\"1\"/><c:plotArea><c:layout/>{plot}{}</c:plotArea>{}<c:plotVisOnly val=\"1\"/>\
         <c:dispBlanksAs val=\"gap\"/></c:chart><c:txPr><a:bodyPr/><a:lstStyle/><a:p><a:pPr><a:defRPr sz=\"{}\">\
         <a:solidFill><a:srgbClr val=\"{}\"/></a:solidFill></a:defRPr></a:pPr><a:endParaRPr lang=\"en-GB\"/></a:p>\
         </c:txPr><c:externalData r:id=\"rId1\"><c:autoUpdate val=\"0\"/></c:externalData></c:chartSpace>",
        axes(chart, table),
        if several { legend } else { "" },
        FONT_SIZE * 100,
        color(MUTED),
    )
}

/// Returns the categories: the days, as Excel's day numbers.
fn categories(table: &Table) -> String {
    let last = table.rows.len() + 1;
    let mut xml = format!(
        "<c:cat><c:numRef><c:f>Sheet1!$A$2:$A${last}</c:f><c:numCache><c:formatCode>yyyy\\-mm\\-dd</c:formatCode>\
         <c:ptCount val=\"{}\"/>",
        table.rows.len()
    );
    for (at, row) in table.rows.iter().enumerate() {
        if let Some(day) = first_day(row).and_then(day_number) {
            let _ = write!(xml, "<c:pt idx=\"{at}\"><c:v>{day}</c:v></c:pt>");
        }
    }
    xml + "</c:numCache></c:numRef></c:cat>"
}

/// Returns Excel's number of a day: 1 is 1 January 1900, and the nonexistent 29 February 1900 is counted.
fn day_number(day: NaiveDate) -> Option<i64> {
    let days = (day - NaiveDate::from_ymd_opt(1899, 12, 31)?).num_days();
    (1900..=9999).contains(&day.year()).then_some(if days > 59 { days + 1 } else { days })
}

/// Returns a series. `at` is its index among the series, `column` its index in the table.
fn series(chart_type: ChartType, table: &Table, at: usize, column: usize, categories: &str) -> String {
    let (letter, last) = (column_letters(at + 1), table.rows.len() + 1);
    let name = escape_value(&label(table, column));
    let fill = format!("<a:solidFill><a:srgbClr val=\"{}\"/></a:solidFill>", color(palette::series(at)));
    let mut xml = format!(
        "<c:ser><c:idx val=\"{at}\"/><c:order val=\"{at}\"/><c:tx><c:strRef><c:f>Sheet1!${letter}$1</c:f><c:strCache>\
         <c:ptCount val=\"1\"/><c:pt idx=\"0\"><c:v>{name}</c:v></c:pt></c:strCache></c:strRef></c:tx>"
    );
    match chart_type {
        ChartType::Columns => {
            let _ = write!(xml, "<c:spPr>{fill}</c:spPr><c:invertIfNegative val=\"0\"/>");
        }
        ChartType::Lines => {
            let _ = write!(xml, "<c:spPr><a:ln w=\"31750\" cap=\"rnd\">{fill}<a:round/></a:ln></c:spPr><c:marker>");
            if table.rows.len() > MAX_MARKED_POINTS {
                xml.push_str("<c:symbol val=\"none\"/></c:marker>");
            } else {
                let style = format!("<c:spPr>{fill}<a:ln><a:noFill/></a:ln></c:spPr>");
                let _ = write!(xml, "<c:symbol val=\"circle\"/><c:size val=\"6\"/>{style}</c:marker>");
            }
        }
    }
    let _ = write!(
        xml,
        "{categories}<c:val><c:numRef><c:f>Sheet1!${letter}$2:${letter}${last}</c:f><c:numCache>\
         <c:formatCode>#,##0</c:formatCode><c:ptCount val=\"{}\"/>",
        table.rows.len()
    );
    for (point, row) in table.rows.iter().enumerate() {
        // An unknown value has no point, which is a gap.
        if let Some(Cell::Count(count)) = row.get(column) {
            let _ = write!(xml, "<c:pt idx=\"{point}\"><c:v>{count}</c:v></c:pt>");
        }
    }
    let smooth = if chart_type == ChartType::Lines { "<c:smooth val=\"0\"/>" } else { "" };
    let _ = write!(xml, "</c:numCache></c:numRef></c:val>{smooth}</c:ser>");
    xml
}

/// Returns the letters of a column: `A` for 0, `AA` for 26.
fn column_letters(column: usize) -> String {
    let letter = char::from(b'A' + (column % 26) as u8);
    if column < 26 { letter.to_string() } else { format!("{}{letter}", column_letters(column / 26 - 1)) }
}

fn axes(chart: &Chart, table: &Table) -> String {
    let step = date_step(table);
    let (unit, unit_type) = match step {
        DateStep::Days(days) => (days, "days"),
        DateStep::Months(months) => (months, "months"),
    };
    let line = format!("<a:solidFill><a:srgbClr val=\"{}\"/></a:solidFill>", color(LINE));
    let days = axis_title(table.columns.first().map_or("", |column| &column.label), "");
    let counts = axis_title(&chart.unit, " rot=\"-5400000\" vert=\"horz\"");
    let ends = "<c:scaling><c:orientation val=\"minMax\"/></c:scaling><c:delete val=\"0\"/>";
    let marks = "<c:majorTickMark val=\"none\"/><c:minorTickMark val=\"none\"/>";
    format!(
        "<c:dateAx><c:axId val=\"1\"/>{ends}<c:axPos val=\"b\"/>{days}<c:numFmt formatCode=\"{}\" sourceLinked=\"0\"/>\
         {marks}<c:tickLblPos val=\"low\"/><c:spPr><a:ln w=\"9525\">{line}</a:ln></c:spPr><c:crossAx val=\"2\"/>\
         <c:crosses val=\"autoZero\"/><c:auto val=\"1\"/><c:lblOffset val=\"100\"/><c:baseTimeUnit val=\"days\"/>\
         <c:majorUnit val=\"{unit}\"/><c:majorTimeUnit val=\"{unit_type}\"/></c:dateAx>\
         <c:valAx><c:axId val=\"2\"/>{ends}<c:axPos val=\"l\"/><c:majorGridlines><c:spPr><a:ln w=\"6350\">{line}</a:ln>\
         </c:spPr></c:majorGridlines>{counts}<c:numFmt formatCode=\"#,##0\" sourceLinked=\"0\"/>{marks}\
         <c:tickLblPos val=\"nextTo\"/><c:spPr><a:ln><a:noFill/></a:ln></c:spPr><c:crossAx val=\"1\"/>\
         <c:crosses val=\"autoZero\"/><c:crossBetween val=\"between\"/></c:valAx>",
        step.number_format()
    )
}

fn axis_title(text: &str, rotation: &str) -> String {
    let text = single_line(text);
    if text.is_empty() {
        return String::new();
    }
    format!(
        "<c:title><c:tx><c:rich><a:bodyPr{rotation}/><a:lstStyle/><a:p><a:pPr><a:defRPr sz=\"{size}\" b=\"0\"/></a:pPr>\
         <a:r><a:rPr lang=\"en-GB\" sz=\"{size}\" b=\"0\"/><a:t>{}</a:t></a:r></a:p></c:rich></c:tx>\
         <c:overlay val=\"0\"/></c:title>",
        escape(&clip(&text, 60)),
        size = FONT_SIZE * 100,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_numbered_as_in_excel() {
        let number = |year, month, day| day_number(NaiveDate::from_ymd_opt(year, month, day).expect("a day"));
        assert_eq!(number(1900, 1, 1), Some(1));
        assert_eq!(number(1900, 2, 28), Some(59));
        assert_eq!(number(1900, 3, 1), Some(61));
        assert_eq!(number(2026, 10, 1), Some(46_296));
        assert_eq!(number(1899, 12, 31), None);
    }

    #[test]
    fn columns_have_letters() {
        assert_eq!([0, 25, 26, 51, 52, 701, 702].map(column_letters), ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
    }
}
