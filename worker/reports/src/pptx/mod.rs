//! PPTX: a 16:9 presentation with a title slide, and the slides of each widget: metrics as cards, editable charts,
//! tables, and notes. Content that does not fit on [`MAX_SLIDES`] slides is omitted, and a sentence says so. A chart's
//! values are in the chart; the text of a cell is cut at 160 characters. The XLSX file contains everything.
//!
//! The parts are written here as text. Only the ZIP file and the workbook inside a chart are written by libraries,
//! which XLSX needs anyway. No crate for presentations was suitable: `ppt-rs` writes charts that are not well-formed;
//! `pptx` 0.1 keeps characters that XML forbids, so that a hostile post results in a file that does not open, and needs
//! its own versions of `zip` and `quick-xml`.
//!
//! The parts are valid according to the schemas of ECMA-376 (Transitional), part 4. `tests/read_back.py` reads the
//! presentation with `python-pptx` and checks every relationship.
//!
//! **To add a view:** a file here that adds slides with [`Deck::push`], and its line in [`add_widget`].

use std::io::Write;

use crier_domain::report::ReportFormat;

use self::package::Package;
use self::slide::{CONTENT, Slide, Text};
use self::xml::{HEADER, escape};
use crate::text::{self, single_line};
use crate::{Document, View, Widget, WriteError};

mod chart;
mod metrics;
mod note;
mod package;
mod slide;
mod table;
mod xml;

/// The maximum number of slides per widget.
const MAX_SLIDES: usize = 20;

pub fn write(document: &Document, out: &mut dyn Write) -> Result<(), WriteError> {
    let mut deck = Deck::new(document);
    deck.push_title_slide(document);
    for widget in &document.widgets {
        add_widget(&mut deck, widget)?;
    }
    deck.package.add_presentation(deck.slides, core_properties(document));
    deck.package.write(out).map_err(failed)
}

fn add_widget(deck: &mut Deck, widget: &Widget) -> Result<(), WriteError> {
    if widget.table.rows.is_empty() {
        let mut slide = Slide::with_title(&title(widget), None);
        let remark = single_line(widget.remark.as_deref().unwrap_or_default());
        slide.text_box("Remark", CONTENT, None, "t", &Text::muted(&remark, 18).xml());
        deck.push(slide);
        return Ok(());
    }
    match &widget.view {
        View::Metrics => metrics::add(deck, widget),
        View::Chart(drawn) => chart::add(deck, widget, drawn)?,
        View::Table => table::add(deck, widget),
        View::Text => note::add(deck, widget),
    }
    Ok(())
}

/// The presentation with the slides so far.
struct Deck {
    package: Package,
    slides: usize,
    charts: usize,
    footer: String,
}

impl Deck {
    fn new(document: &Document) -> Self {
        let footer = format!("{}, {}", single_line(&document.brand), document.period.words());
        Self { package: Package::new(), slides: 0, charts: 0, footer }
    }

    /// Adds a slide with a footer.
    fn push(&mut self, mut slide: Slide) {
        self.slides += 1;
        slide.footer(&self.footer, self.slides);
        let (xml, relations) = slide.finish();
        self.package.add_slide(self.slides, xml, &relations);
    }

    fn push_title_slide(&mut self, document: &Document) {
        let mut slide = Slide::new(1);
        let title = single_line(&document.title);
        let size = if text::width(&title) > 60 { 32 } else { 44 };
        slide.placeholder("Title", "type=\"ctrTitle\"", &Text::new(&title, size).bold().xml());
        let brand = single_line(&document.brand);
        let subtitle = Text::new(&brand, 24).xml() + &Text::muted(&document.period.words(), 20).xml();
        slide.placeholder("Subtitle", "type=\"subTitle\" idx=\"1\"", &subtitle);
        let created = text::time(document.created_at);
        let facts =
            format!("{}\nCreated {created} ({})", single_line(&document.workspace), single_line(&document.timezone));
        let rect = slide::Rect { x: 914_400, y: 5_486_400, width: 10_363_200, height: 640_080 };
        slide.text_box("Facts", rect, None, "b", &Text::muted(&facts, 14).xml());
        let (xml, relations) = slide.finish();
        self.slides += 1;
        self.package.add_slide(self.slides, xml, &relations);
    }
}

fn title(widget: &Widget) -> String {
    single_line(&widget.title)
}

/// Returns the sentences below the last slide of a widget: its remark, and what was omitted.
fn sentences(widget: &Widget, omitted: Option<String>) -> String {
    let remark = widget.remark.as_deref().map(single_line);
    [remark, omitted].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn core_properties(document: &Document) -> String {
    let created = text::created_at(document).format("%Y-%m-%dT%H:%M:%SZ");
    let subject = format!("{}, {}", single_line(&document.brand), document.period.words());
    let time = |name: &str| format!("<dcterms:{name} xsi:type=\"dcterms:W3CDTF\">{created}</dcterms:{name}>");
    format!(
        "{HEADER}<cp:coreProperties \
         xmlns:cp=\"http://schemas.openxmlformats.org/package/2006/metadata/core-properties\" \
         xmlns:dc=\"http://purl.org/dc/elements/1.1/\" xmlns:dcterms=\"http://purl.org/dc/terms/\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"><dc:title>{}</dc:title><dc:subject>{}</dc:subject>\
         <dc:creator>{}</dc:creator>{}{}</cp:coreProperties>",
        escape(&document.title),
        escape(&subject),
        escape(&document.workspace),
        time("created"),
        time("modified"),
    )
}

fn failed(error: impl std::fmt::Display) -> WriteError {
    WriteError::of(ReportFormat::Pptx, error)
}
