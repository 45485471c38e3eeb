//! Metrics: cards, three in a line and up to three lines per slide.

use super::slide::{CONTENT, Rect, Slide, Text};
use super::{Deck, MAX_SLIDES, sentences, title};
use crate::palette::SURFACE;
use crate::text::{cell, clip, single_line, width};
use crate::{Cell, Widget};

const CARDS_PER_LINE: usize = 3;
const CARDS_PER_SLIDE: usize = 9;
const GAP: i64 = 228_600;
const WIDTH: i64 = (CONTENT.width - GAP * (CARDS_PER_LINE as i64 - 1)) / CARDS_PER_LINE as i64;
/// The height of the sentences below the cards.
const SENTENCES_HEIGHT: i64 = 320_040;

/// The layout of cards. The height is in EMU, the font sizes are in points.
struct Layout {
    height: i64,
    /// The font sizes of the value, the metric and the previous value.
    value: i64,
    metric: i64,
    previous: i64,
}

/// The layout for up to two lines of cards.
const LARGE: Layout = Layout { height: 1_920_240, value: 40, metric: 16, previous: 14 };
/// The layout for three lines of cards.
const SMALL: Layout =
    Layout { height: (CONTENT.height - SENTENCES_HEIGHT - 3 * GAP) / 3, value: 28, metric: 14, previous: 12 };

pub fn add(deck: &mut Deck, widget: &Widget) {
    let rows = &widget.table.rows;
    let slides = rows.len().div_ceil(CARDS_PER_SLIDE).min(MAX_SLIDES);
    let omitted = rows.len().saturating_sub(MAX_SLIDES * CARDS_PER_SLIDE);
    let omitted = (omitted > 0).then(|| format!("{omitted} more metrics are in the XLSX file of this report."));
    let previous = widget.table.columns.get(2).map_or(String::new(), |column| single_line(&column.label));
    for (number, rows) in rows.chunks(CARDS_PER_SLIDE).take(slides).enumerate() {
        let mut slide = Slide::with_title(&title(widget), (slides > 1).then_some((number + 1, slides)));
        let lines = rows.len().div_ceil(CARDS_PER_LINE);
        let layout = if lines > 2 { SMALL } else { LARGE };
        for (at, row) in rows.iter().enumerate() {
            let (line, column) = ((at / CARDS_PER_LINE) as i64, (at % CARDS_PER_LINE) as i64);
            let (x, y) = (CONTENT.x + column * (WIDTH + GAP), CONTENT.y + line * (layout.height + GAP));
            let rect = Rect { x, y, width: WIDTH, height: layout.height };
            slide.text_box("Figure", rect, Some(SURFACE), "ctr", &card(row, &previous, &layout));
        }
        if number + 1 == slides {
            let sentences = sentences(widget, omitted.clone());
            let y = CONTENT.y + lines as i64 * (layout.height + GAP);
            let rect = Rect { y, height: CONTENT.y + CONTENT.height - y, ..CONTENT };
            if !sentences.is_empty() {
                slide.text_box("Remark", rect, None, "t", &Text::muted(&sentences, 12).xml());
            }
        }
        deck.push(slide);
    }
}

fn card(row: &[Cell], previous_label: &str, layout: &Layout) -> String {
    let [metric, value, previous, change] = [0, 1, 2, 3].map(|at| row.get(at).unwrap_or(&Cell::Empty));
    let metric = single_line(&cell(metric));
    let value_text = single_line(&cell(value));
    let size = match width(&value_text) {
        0..=11 => layout.value,
        12..=16 => layout.value * 7 / 10,
        _ => layout.value / 2,
    };
    let mut paragraphs = Text::muted(&clip(&metric, 60), layout.metric).xml();
    paragraphs += &Text::new(&clip(&value_text, 60), size).bold().xml();
    let change = if *change == Cell::Empty { String::new() } else { format!(" ({})", cell(change)) };
    let before = format!("{}: {}{change}", clip(previous_label, 40), cell(previous));
    paragraphs + &Text::muted(&before, layout.previous).xml()
}
