//! Figures: cards, three in a line and two lines on a slide.

use super::slide::{CONTENT, Rect, Slide, Text};
use super::{Deck, MAX_SLIDES, sentences, title};
use crate::palette::SURFACE;
use crate::text::{cell, clip, single_line, width};
use crate::{Cell, Widget};

const ACROSS: usize = 3;
const ON_A_SLIDE: usize = 6;
const GAP: i64 = 228_600;
const HEIGHT: i64 = 1_920_240;
const WIDTH: i64 = (CONTENT.width - GAP * (ACROSS as i64 - 1)) / ACROSS as i64;

pub fn add(deck: &mut Deck, widget: &Widget) {
    let rows = &widget.table.rows;
    let slides = rows.len().div_ceil(ON_A_SLIDE).min(MAX_SLIDES);
    let left_out = rows.len().saturating_sub(MAX_SLIDES * ON_A_SLIDE);
    let left_out = (left_out > 0).then(|| format!("{left_out} more figures are in the XLSX file of this report."));
    let previous = widget.table.columns.get(2).map_or(String::new(), |column| single_line(&column.label));
    for (number, rows) in rows.chunks(ON_A_SLIDE).take(slides).enumerate() {
        let mut slide = Slide::titled(&title(widget), (slides > 1).then_some((number + 1, slides)));
        for (at, row) in rows.iter().enumerate() {
            let (line, column) = ((at / ACROSS) as i64, (at % ACROSS) as i64);
            let (x, y) = (CONTENT.x + column * (WIDTH + GAP), CONTENT.y + line * (HEIGHT + GAP));
            let place = Rect { x, y, width: WIDTH, height: HEIGHT };
            slide.text_box("Figure", place, Some(SURFACE), "ctr", &card(row, &previous));
        }
        if number + 1 == slides {
            let sentences = sentences(widget, left_out.clone());
            let y = CONTENT.y + 2 * (HEIGHT + GAP);
            let place = Rect { y, height: CONTENT.y + CONTENT.height - y, ..CONTENT };
            if !sentences.is_empty() {
                slide.text_box("Remark", place, None, "t", &Text::muted(&sentences, 12).xml());
            }
        }
        deck.push(slide);
    }
}

fn card(row: &[Cell], previous_label: &str) -> String {
    let [metric, value, previous] = [0, 1, 2].map(|at| row.get(at).unwrap_or(&Cell::Empty));
    let metric = single_line(&cell(metric));
    let value_text = single_line(&cell(value));
    let size = match width(&value_text) {
        0..=11 => 40,
        12..=16 => 28,
        _ => 20,
    };
    let mut paragraphs = Text::muted(&clip(&metric, 60), 16).xml();
    paragraphs += &Text::new(&clip(&value_text, 60), size).bold().xml();
    let change = change(value, previous).map_or(String::new(), |change| format!(" ({change})"));
    let before = format!("{}: {}{change}", clip(previous_label, 40), cell(previous));
    paragraphs + &Text::muted(&before, 14).xml()
}

/// `+25%`, if both values are known and there was something before.
fn change(value: &Cell, previous: &Cell) -> Option<String> {
    let (Cell::Count(value), Cell::Count(previous @ 1..)) = (value, previous) else { return None };
    let (value, previous) = (i128::from(*value), i128::from(*previous));
    let percent = ((value - previous) as f64 / previous as f64 * 100.0).round();
    Some(if percent == 0.0 { "0%".to_owned() } else { format!("{percent:+}%") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_where_there_was_something_before() {
        let of = |value, previous| change(&value, &previous);
        assert_eq!(of(Cell::Count(200), Cell::Count(160)).as_deref(), Some("+25%"));
        assert_eq!(of(Cell::Count(0), Cell::Count(3)).as_deref(), Some("-100%"));
        assert_eq!(of(Cell::Count(1_000), Cell::Count(1_001)).as_deref(), Some("0%"));
        assert_eq!(of(Cell::Count(1), Cell::Count(0)), None);
        assert_eq!(of(Cell::Empty, Cell::Count(1)), None);
        assert_eq!(of(Cell::Count(1), Cell::Empty), None);
    }
}
