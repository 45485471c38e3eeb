//! Notes: paragraphs, which continue on further slides.

use unicode_segmentation::UnicodeSegmentation;

use super::slide::{CONTENT, POINT, Rect, Slide, Text};
use super::{Deck, MAX_SLIDES, sentences, title};
use crate::text::{clean, width};
use crate::{Cell, Widget};

const SIZE: i64 = 18;
/// Of a line, in digits, and of a slide, in lines. Both a little less than what fits, as letters differ.
const LINE: usize = 88;
const LINES: usize = ((CONTENT.height - SENTENCES) / (SIZE * POINT * 5 / 4)) as usize;
/// For the sentences below.
const SENTENCES: i64 = 365_760;

pub fn add(deck: &mut Deck, widget: &Widget) {
    let texts = widget.table.rows.iter().flatten().filter_map(|cell| match cell {
        Cell::Text(text) | Cell::Link(text) => Some(clean(text)),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    // One more than is shown, to see whether something is left out.
    let mut pages = pages(&text, MAX_SLIDES + 1);
    let left_out = (pages.len() > MAX_SLIDES).then(|| "The rest is in the XLSX file of this report.".to_owned());
    pages.truncate(MAX_SLIDES);
    let sentences = sentences(widget, left_out);
    for (number, page) in pages.iter().enumerate() {
        let mut slide = Slide::titled(&title(widget), (pages.len() > 1).then_some((number + 1, pages.len())));
        let place = Rect { height: CONTENT.height - SENTENCES, ..CONTENT };
        slide.text_box("Note", place, None, "t", &Text::new(page.trim_end_matches('\n'), SIZE).xml());
        if number + 1 == pages.len() && !sentences.is_empty() {
            let y = CONTENT.y + CONTENT.height - SENTENCES;
            let place = Rect { y, height: SENTENCES, ..CONTENT };
            slide.text_box("Remark", place, None, "b", &Text::muted(&sentences, 12).xml());
        }
        deck.push(slide);
    }
}

/// Cuts a text into what fits on a slide, at most `max` times. The parts together are the beginning of the text.
fn pages(text: &str, max: usize) -> Vec<&str> {
    let mut pages = Vec::new();
    let (mut start, mut end, mut used) = (0, 0, 0);
    for line in text.split_inclusive('\n').flat_map(wrap) {
        if used == LINES {
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

/// Cuts a paragraph into lines, between words where there are any.
fn wrap(paragraph: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let (mut start, mut end, mut used) = (0, 0, 0);
    for word in paragraph.split_word_bounds() {
        // A word that is longer than a line is cut anywhere.
        let pieces: Vec<&str> = if word.len() > LINE { word.graphemes(true).collect() } else { vec![word] };
        for piece in pieces {
            let width = width(piece);
            if used > 0 && used + width > LINE && !piece.trim().is_empty() {
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
            assert!(pages.iter().all(|page| width(page) <= LINES * (LINE + 2)));
            assert!(pages.iter().all(|page| page.matches('\n').count() <= LINES));
        }
        assert_eq!(pages(&breaks, 3).len(), 3);
        assert_eq!(wrap("one two").len(), 1);
    }
}
