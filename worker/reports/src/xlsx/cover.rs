//! The first sheet: the facts about the report, and the table of contents.

use rust_xlsxwriter::{Url, Worksheet, XlsxError};

use super::cells::{Formats, Writer};
use crate::text::{self, single_line};
use crate::{Document, document::Widget};

pub fn add(sheet: &mut Worksheet, document: &Document, names: &[String], formats: &Formats) -> Result<(), XlsxError> {
    sheet.set_name(super::COVER)?.set_screen_gridlines(false);
    // Printed on one page, regardless of how a program computes the widths.
    sheet.set_paper_size(9).set_print_fit_to_pages(1, 1);
    sheet.set_column_width(0, 14)?.set_column_width(1, 60)?;
    let facts = [
        ("Brand", single_line(&document.brand)),
        ("Period", document.period.words()),
        ("Workspace", single_line(&document.workspace)),
        ("Time zone", single_line(&document.timezone)),
        ("Created", text::time(document.created_at)),
    ];
    let mut writer = Writer::new(sheet, formats);
    writer.text(0, 0, &single_line(&document.title), &formats.title)?;
    let mut row = 2;
    for (label, fact) in &facts {
        writer.text(row, 0, label, &formats.label)?;
        writer.text(row, 1, fact, &formats.note)?;
        row += 1;
    }
    row += 1;
    writer.text(row, 0, "Contents", &formats.label)?;
    for (Widget { title, .. }, name) in document.widgets.iter().zip(names) {
        let title = single_line(title);
        let title = if title.is_empty() { name } else { &title };
        let link = Url::new(format!("internal:'{}'!A1", name.replace('\'', "''")));
        writer.sheet.write_url_with_options(row, 1, link, title, "", Some(&formats.contents))?;
        row += 1;
    }
    Ok(())
}
