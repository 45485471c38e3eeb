//! Notes: paragraphs, which continue on further slides.

use unicode_segmentation::UnicodeSegmentation;

use super::slide::{CONTENT, POINT, Rect, Slide, Text};
use super::{Deck, MAX_SLIDES, sentences, title};
use crate::text::{clean, width};
use crate::{Cell, Widget};

const SIZE: i64 = 18;
/// The width of a line, in digits, and the number of lines per slide. Both are a little less than what fits, because
/// the widths of letters vary.
const LINE_WIDTH: usize = 88;
const LINES_PER_SLIDE: usize = ((CONTENT.height - SENTENCES_HEIGHT) / (SIZE * POINT * 5 / 4)) as usize;
/// The height of the sentences below the text.
const SENTENCES_HEIGHT: i64 = 365_760;

pub fn add(deck: &mut Deck, widget: &Widget) {
    let texts = widget.table.rows.iter().flatten().filter_map(|cell| match cell {
        Cell::Text(text) | Cell::Link(text) => Some(clean(text)),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    // One more than is shown, to detect whether something is omitted.
    let mut pages = pages(&text, MAX_SLIDES + 1);
    let omitted = (pages.len() > MAX_SLIDES).then(|| "The rest is in the XLSX file of this report.".to_owned());
    pages.truncate(MAX_SLIDES);
    let sentences = sentences(widget, omitted);
    for (number, page) in pages.iter().enumerate() {
        let mut slide = Slide::with_title(&title(widget), (pages.len() > 1).then_some((number + 1, pages.len())));
        let rect = Rect { height: CONTENT.height - SENTENCES_HEIGHT, ..CONTENT };
        slide.text_box("Note", rect, None, "t", &Text::new(page.trim_end_matches('\n'), SIZE).xml());
        if number + 1 == pages.len() && !sentences.is_empty() {
            let y = CONTENT.y + CONTENT.height - SENTENCES_HEIGHT;
            let rect = Rect { y, height: SENTENCES_HEIGHT, ..CONTENT };
            slide.text_box("Remark", rect, None, "b", &Text::muted(&sentences, 12).xml());
        }
        deck.push(slide);
    }
}

/// Splits a text into at most `max` parts that each fit on a slide. The parts together are the beginning of the text.
fn pages(text: &str, max: usize) -> Vec<&str> {
    let mut pages = Vec::new();
    let (mut start, mut end, mut used) = (0, 0, 0);
    for line in text.split_inclusive('\n').flat_map(wrap) {
        if used == LINES_PER_SLIDE {
            pages.push(&text[start..end]);
            if pages.len() == max {
                return pages;
            }
            (start, used) = (end, 0);
        }
        end += line.len();
        used += 1;
    }
    pages.push(&text[start..end]);
    pages
}

/// Splits a paragraph into lines, between words if possible.
fn wrap(paragraph: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let (mut start, mut end, mut used) = (0, 0, 0);
    for word in paragraph.split_word_bounds() {
        // A word that is longer than a line is split anywhere.
        let pieces: Vec<&str> = if word.len() > LINE_WIDTH { word.graphemes(true).collect() } else { vec![word] };
        for piece in pieces {
            let width = width(piece);
            if used > 0 && used + width > LINE_WIDTH && !piece.trim().is_empty() {
                lines.push(&paragraph[start..end]);
                (start, used) = (end, 0);
            }
            end += piece.len();
            used += width;
        }
    }
    lines.push(&paragraph[start..end]);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_together_are_the_text() {
        let words = "Bread, and more of it. ".repeat(2_800);
        let signs = "焼きたてのパン".repeat(4_000);
        let breaks = "\n".repeat(500);
        let marks = "e\u{301}".repeat(4_000);
        for text in ["", "One line", "Two\n\nparagraphs\n", &words, &signs, &breaks, &marks] {
            let pages = pages(text, 1_000);
            assert_eq!(pages.concat(), text);
            assert!(pages.iter().all(|page| width(page) <= LINES_PER_SLIDE * (LINE_WIDTH + 2)));
            assert!(pages.iter().all(|page| page.matches('\n').count() <= LINES_PER_SLIDE));
        }
        assert_eq!(pages(&breaks, 3).len(), 3);
        assert_eq!(wrap("one two").len(), 1);
    }
}
