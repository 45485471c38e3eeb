//! Prepares texts from users and platforms for drawing.
//!
//! Control characters and characters that change the direction are removed (a text has the direction of its first
//! letter). A character that no font has is never drawn as an empty box: an emoji is omitted, a run of other characters
//! is replaced with `[…]`, and the last page says so.

use std::cell::Cell;

use typst::foundations::{IntoValue, Value, dict};
use unicode_segmentation::UnicodeSegmentation;

use super::fonts::Fonts;
use crate::text::is_right_to_left;

/// The replacement for characters that no font has.
const MISSING: &str = "[…]";

/// Prepares texts for drawing, and records whether a character was omitted or replaced.
pub struct Texts<'a> {
    pub fonts: &'a Fonts,
    missing: Cell<bool>,
}

/// The size, in points, and the weight of a font.
#[derive(Clone, Copy)]
pub struct Style {
    pub size: f64,
    pub bold: bool,
}

impl<'a> Texts<'a> {
    pub fn new(fonts: &'a Fonts) -> Self {
        Self { fonts, missing: Cell::new(false) }
    }

    /// Returns the sentence about missing characters, if there are any.
    pub fn remark(&self) -> Option<&'static str> {
        self.missing.get().then_some(
            "Some characters in this report are missing or shown as […] because the server that created it has no font \
             for them. The other file formats contain all characters.",
        )
    }

    /// Returns at most `max` characters of the text, on one line.
    pub fn line(&self, text: &str, max: usize) -> String {
        let line = self.drawable(&text.split_whitespace().collect::<Vec<_>>().join(" "), max);
        // An omitted character may have been between two spaces.
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns the paragraphs of a text, without empty ones.
    pub fn paragraphs(&self, text: &str) -> Vec<String> {
        let lines = text.split(['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']);
        lines.map(|line| self.sentence(line, usize::MAX)).filter(|line| !line.is_empty()).collect()
    }

    /// Returns at most `max` characters of the text, as one paragraph in which long words can be broken.
    pub fn sentence(&self, text: &str, max: usize) -> String {
        breakable(&self.line(text, max))
    }

    /// Returns the text broken into at most `lines` lines of at most `width` points, with an ellipsis if it is cut.
    pub fn fit(&self, text: &str, max: usize, style: Style, width: f64, lines: usize) -> String {
        let text = self.line(text, max.saturating_add(1));
        let end = text.char_indices().nth(max).map(|(at, _)| at);
        let mut end = match (self.broken(&text, style, width, lines), end) {
            ((all, None), None) => return all,
            ((_, stopped), end) => end.into_iter().chain(stopped).min().unwrap_or(text.len()),
        };
        // The ellipsis needs space, which may require cutting more letters.
        loop {
            let (cut, stopped) = self.broken(&format!("{}…", text[..end].trim_end()), style, width, lines);
            if stopped.is_none() || end == 0 {
                return cut;
            }
            end = text[..end].grapheme_indices(true).next_back().map_or(0, |(at, _)| at);
        }
    }

    /// Returns the width of a text on one line, in points.
    pub fn width(&self, text: &str, style: Style) -> f64 {
        text.chars().map(|c| self.fonts.width(c, style.bold)).sum::<f64>() * style.size
    }

    /// Breaks a text into lines, at spaces and around wide letters if possible. Also returns the position where it
    /// stopped; `None` if the whole text fits.
    fn broken(&self, text: &str, style: Style, width: f64, lines: usize) -> (String, Option<usize>) {
        let mut done: Vec<String> = Vec::new();
        let (mut line, mut wide, mut last_break) = (String::new(), 0.0, 0);
        for (at, cluster) in text.grapheme_indices(true) {
            let advance = self.width(cluster, style);
            if wide + advance > width && !line.is_empty() && cluster != " " {
                if done.len() + 1 == lines {
                    done.push(line);
                    return (done.join("\n"), Some(at));
                }
                let rest = if last_break > 0 { line.split_off(last_break) } else { String::new() };
                done.push(line.trim_end().to_owned());
                line = rest.trim_start().to_owned();
                (wide, last_break) = (self.width(&line, style), 0);
            }
            if line.is_empty() && cluster == " " {
                continue;
            }
            line.push_str(cluster);
            wide += advance;
            if cluster == " " || cluster == "-" || cluster == "/" || is_ideograph(cluster) {
                last_break = line.len();
            }
        }
        done.push(line.trim_end().to_owned());
        (done.join("\n"), None)
    }

    /// Returns at most `max` characters of the text, without characters that must not or cannot be drawn.
    fn drawable(&self, text: &str, max: usize) -> String {
        let mut drawn = String::with_capacity(text.len().min(max.saturating_mul(4)));
        let mut count = 0;
        for cluster in text.graphemes(true) {
            let allowed: String = cluster.chars().filter(|c| !is_removed(*c)).collect();
            if allowed.is_ascii() {
                drawn.push_str(&allowed);
            } else {
                self.push_cluster(&allowed, &mut drawn);
            }
            count += allowed.chars().count();
            if count >= max {
                break;
            }
        }
        drawn
    }

    fn push_cluster(&self, cluster: &str, drawn: &mut String) {
        let Some(first) = cluster.chars().next() else { return };
        let catalogue = self.fonts.catalogue;
        if catalogue.covers(first) {
            // A cluster of one character, the usual case, needs no search for a font that has all characters.
            let is_single = cluster.len() == first.len_utf8();
            let part = if is_single { cluster.to_owned() } else { catalogue.drawable(cluster) };
            let is_lost = |c: char| !part.contains(c) && !is_invisible(c);
            if cluster.chars().any(is_lost) {
                self.missing.set(true);
            }
            drawn.push_str(&part);
        } else if !is_invisible(first) {
            self.missing.set(true);
            if !is_emoji(first) && !drawn.ends_with(MISSING) {
                drawn.push_str(MISSING);
            }
        }
    }
}

/// Returns the text as a value for the template, with its direction if it is written from right to left.
pub fn directed(text: String) -> Value {
    if is_right_to_left(&text) { dict! { "rtl" => text }.into_value() } else { text.into_value() }
}

/// Inserts break opportunities into words that are longer than those of any language.
fn breakable(line: &str) -> String {
    const MAX_WORD: usize = 40;
    if line.len() <= MAX_WORD {
        return line.to_owned();
    }
    let mut done = String::with_capacity(line.len() + line.len() / 8);
    let mut run = 0;
    for cluster in line.graphemes(true) {
        run = if cluster == " " || is_ideograph(cluster) { 0 } else { run + 1 };
        if run > MAX_WORD {
            done.push('\u{200b}');
        }
        done.push_str(cluster);
    }
    done
}

/// Returns whether a character is a control character, changes the direction, or is a noncharacter.
fn is_removed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{2028}' | '\u{2029}' | '\u{206a}'..='\u{206f}')
        || (c as u32) & 0xfffe == 0xfffe
        || matches!(c, '\u{fdd0}'..='\u{fdef}')
}

/// Returns whether a character is invisible, so that it can be omitted if no font has it.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{fe00}'..='\u{fe0f}')
        || matches!(c, '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}')
        || matches!(c, '\u{3164}' | '\u{ffa0}' | '\u{1bca0}'..='\u{1bca3}' | '\u{e0000}'..='\u{e0fff}')
}

fn is_emoji(c: char) -> bool {
    matches!(c, '\u{1f000}'..='\u{1faff}' | '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{fe0f}')
}

/// Returns whether a line may be broken after the letter, because Chinese, Japanese and Korean are written without
/// spaces.
fn is_ideograph(cluster: &str) -> bool {
    cluster.chars().next().is_some_and(|c| {
        matches!(c, '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}')
            || matches!(c, '\u{ff00}'..='\u{ffef}' | '\u{1f000}'..='\u{1faff}' | '\u{20000}'..='\u{3ffff}')
    })
}
