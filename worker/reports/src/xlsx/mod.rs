//! XLSX: a cover, and a sheet per widget with its typed table and its chart, which refers to the cells.
//!
//! Written with `rust_xlsxwriter`, which keeps a workbook in memory. 10,000 rows take some tens of megabytes, too
//! little to justify a mode with temporary files, which also cannot write Excel tables. Texts are always written as
//! strings, never as formulas. The relevant limits of Excel are constants in this folder (sheet names, 32,767
//! characters in a cell, 65,530 links, 15 digits):
//! <https://support.microsoft.com/en-us/office/excel-specifications-and-limits-1672b34d-7043-467e-8e27-269d656771c3>.

use std::collections::HashSet;
use std::io::Write;

use crier_domain::report::ReportFormat;
use rust_xlsxwriter::{DocProperties, Workbook, XlsxError};

use crate::text::{self, clean, single_line, utf16_parts};
use crate::{Document, Widget, WriteError};

mod cells;
mod chart;
mod cover;
mod sheet;

pub use chart::{DateStep, MAX_MARKED_POINTS, chart_data, date_step, first_day, series_label};

/// Excel's limit for the name of a sheet, in UTF-16 code units.
const MAX_SHEET_NAME: usize = 31;
const COVER: &str = "Report";

pub fn write(document: &Document, out: &mut dyn Write) -> Result<(), WriteError> {
    let bytes = workbook(document).and_then(|mut workbook| workbook.save_to_buffer());
    out.write_all(&bytes.map_err(|error| WriteError::of(ReportFormat::Xlsx, error))?)?;
    Ok(())
}

fn workbook(document: &Document) -> Result<Workbook, XlsxError> {
    let mut workbook = Workbook::new();
    workbook.set_properties(&properties(document));
    let formats = cells::Formats::new();
    let names = sheet_names(&document.widgets);
    cover::add(workbook.add_worksheet(), document, &names, &formats)?;
    for (widget, name) in document.widgets.iter().zip(&names) {
        sheet::add(workbook.add_worksheet(), document, widget, name, &formats)?;
    }
    Ok(workbook)
}

fn properties(document: &Document) -> DocProperties {
    let period = document.period.words();
    DocProperties::new()
        .set_title(clean(&document.title))
        .set_subject(format!("{}, {period}", single_line(&document.brand)))
        .set_company(clean(&document.workspace))
        .set_creation_datetime(&text::created_at(document))
}

/// Returns a name for each widget's sheet: its title, as far as Excel allows, with a number if it is not unique.
fn sheet_names(widgets: &[Widget]) -> Vec<String> {
    // Excel compares names regardless of case, and reserves `History`.
    let mut taken = HashSet::from([COVER.to_lowercase(), "history".to_owned()]);
    let mut names = Vec::with_capacity(widgets.len());
    for widget in widgets {
        let base_name = allowed(&widget.title);
        let numbered = (2..).map(|number| {
            let suffix = format!(" ({number})");
            let stem = utf16_parts(&base_name, MAX_SHEET_NAME - suffix.len())[0];
            format!("{}{suffix}", stem.trim_end())
        });
        // At least one of `widgets.len() + 2` different names is free.
        let name = [base_name.clone()].into_iter().chain(numbered).find(|name| taken.insert(name.to_lowercase()));
        names.extend(name);
    }
    names
}

/// Returns a title without the characters that a sheet name must not contain.
fn allowed(title: &str) -> String {
    let title = single_line(&title.replace(['[', ']', ':', '*', '?', '/', '\\'], " "));
    let title = title.trim_matches(['\'', ' ']);
    let name = utf16_parts(title, MAX_SHEET_NAME)[0].trim_matches(['\'', ' ']);
    if name.is_empty() { "Widget".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sheet_names_are_unique_and_allowed() {
        let mut widgets = crate::sample::document(1).widgets;
        let (long, carrots) = ("long ".repeat(20), "🥕".repeat(16));
        let titles = ["History", "a/b", "A B", "", "'it's", &long, &long, &carrots];
        for (widget, title) in widgets.iter_mut().zip(titles) {
            widget.title = title.to_owned();
        }
        let names = sheet_names(&widgets);
        let expected = [
            "History (2)",
            "a b",
            "A B (2)",
            "Widget",
            "it's",
            "long long long long long long l",
            "long long long long long lo (2)",
            &"🥕".repeat(15),
        ];
        assert_eq!(names, expected);
    }
}
