//! Splits a text into the parts of a thread.
//!
//! A part ends at a paragraph, or else at a sentence, or else at a word, and never within a link, a mention, a tag or a
//! grapheme. If that makes too many parts, longer parts are made, which end at sentences or words.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use crier_domain::platform::{Descriptor, Platform, TextRules};
use crier_domain::snippet::signature_for;
use crier_domain::words::is_unspaced;
use unicode_segmentation::UnicodeSegmentation;

use super::{MAX_THREADS_LINKS, TextCounting, cut, distinct_links, highlights, length};

/// The maximum length of a word in an error, in characters.
const MAX_SHOWN: usize = 40;

/// An account on which the parts are published.
#[derive(Clone, Copy, Debug)]
pub struct SplitAccount<'a> {
    /// The platform, with the limits of the account.
    pub descriptor: &'a Descriptor,
    /// The signature of the account. The first part leaves space for it.
    pub signature: Option<&'a str>,
}

/// The reason why a text cannot be split. The text is returned to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// A word, or a word and a signature, exceed a limit. `with`: empty, or what is added to the word.
    #[error("`{word}`{with} is too long for a post on {platform}. Shorten it.")]
    WordTooLong { word: String, with: &'static str, platform: &'static str },
    #[error("The text needs more than {0} parts. Shorten it.")]
    TooManyParts(usize),
}

/// Returns the parts of a text, without white space around them. Each fits on all accounts.
pub fn split<'t>(text: &'t str, accounts: &[SplitAccount<'_>], max_parts: usize) -> Result<Vec<&'t str>, SplitError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let limits = group(accounts);
    let ends = ends(text, limits.iter().map(|limits| limits.descriptor.platform).collect());
    for best in LEVELS {
        if let Some(parts) = split_at(text, &ends, &limits, max_parts, best)? {
            return Ok(parts);
        }
    }
    Err(SplitError::TooManyParts(max_parts))
}

/// The limits of several accounts for one text.
pub struct TextLimits<'a>(Vec<Limits<'a>>);

impl<'a> TextLimits<'a> {
    pub fn of(accounts: &[SplitAccount<'a>]) -> Self {
        Self(group(accounts))
    }

    /// Returns whether a text fits on every account, with its signature.
    pub fn fits(&self, text: &str) -> bool {
        self.0.iter().all(|limits| limits.fits(text, true))
    }
}

/// The limits of accounts that count in the same way.
struct Limits<'a> {
    descriptor: &'a Descriptor,
    first: Limit,
    /// The limit of the parts after the first, which have no signature.
    rest: Limit,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Limit {
    /// In the platform's unit.
    units: u32,
    bytes: usize,
}

impl Limit {
    fn of(rules: &TextRules) -> Self {
        let bytes = rules.max_bytes.map_or(usize::MAX, |max| max as usize);
        Self { units: rules.max.unwrap_or(u32::MAX), bytes }
    }

    fn min(self, other: Self) -> Self {
        Self { units: self.units.min(other.units), bytes: self.bytes.min(other.bytes) }
    }
}

impl Limits<'_> {
    fn fits(&self, part: &str, is_first: bool) -> bool {
        let limit = if is_first { self.first } else { self.rest };
        part.len() <= limit.bytes
            && count(self.descriptor, part) <= limit.units
            && (self.descriptor.platform != Platform::Threads || distinct_links(part) <= MAX_THREADS_LINKS)
    }

    fn too_long(&self, word: &str, is_first: bool) -> SplitError {
        let with = if is_first && self.first != self.rest { " with the account's signature" } else { "" };
        let word = cut::at_word(word, MAX_SHOWN).into_owned();
        SplitError::WordTooLong { word, with, platform: self.descriptor.name }
    }
}

fn count(descriptor: &Descriptor, text: &str) -> u32 {
    length(descriptor.platform, &descriptor.capabilities.text, text)
}

/// Returns the strictest limits for each way of counting, the lowest one first: it makes the texts short that are
/// counted for the others.
fn group<'a>(accounts: &[SplitAccount<'a>]) -> Vec<Limits<'a>> {
    let mut groups: HashMap<TextCounting, Limits<'a>> = HashMap::new();
    for account in accounts {
        let descriptor = account.descriptor;
        let rest = Limit::of(&descriptor.capabilities.text);
        let signature = account.signature.and_then(|signature| signature_for(signature, ""));
        let signature = signature.map_or_else(String::new, |signature| format!("\n\n{signature}"));
        let first = Limit {
            units: rest.units.saturating_sub(count(descriptor, &signature)),
            bytes: rest.bytes.saturating_sub(signature.len()),
        };
        let group = groups.entry(TextCounting::of(descriptor)).or_insert(Limits { descriptor, first, rest });
        group.first = group.first.min(first);
        group.rest = group.rest.min(rest);
    }
    let mut limits: Vec<Limits<'a>> = groups.into_values().collect();
    limits.sort_by_key(|limits| (limits.rest.units, limits.descriptor.platform));
    limits
}

/// What ends at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// A character of a script without spaces.
    Character,
    Word,
    Sentence,
    Paragraph,
}

const LEVELS: [Level; 4] = [Level::Paragraph, Level::Sentence, Level::Word, Level::Character];

/// A place where a part may end.
#[derive(Clone, Copy, Debug)]
struct End {
    /// The byte offset of what follows, after white space.
    at: usize,
    level: Level,
}

/// Returns the places where a part may end, in order. The last one is the end of the text.
fn ends(text: &str, platforms: BTreeSet<Platform>) -> Vec<End> {
    let sentences: HashSet<usize> = text.split_sentence_bound_indices().map(|(at, _)| at).collect();
    let graphemes: HashSet<usize> = text.grapheme_indices(true).map(|(at, _)| at).collect();
    let mut links = links(text, platforms).into_iter().peekable();
    let mut found = Vec::new();
    for (at, _) in text.split_word_bound_indices().skip(1) {
        while links.peek().is_some_and(|link| link.end <= at) {
            links.next();
        }
        if links.peek().is_some_and(|link| link.start < at) || !graphemes.contains(&at) {
            continue;
        }
        if let Some(level) = level(&text[..at], &text[at..], sentences.contains(&at)) {
            found.push(End { at, level });
        }
    }
    found.push(End { at: text.len(), level: Level::Paragraph });
    found
}

/// Returns all links, mentions and tags, ordered by their beginning: those of the platforms, and those of X, which has
/// all three.
fn links(text: &str, mut platforms: BTreeSet<Platform>) -> Vec<Range<usize>> {
    platforms.insert(Platform::Twitter);
    let mut found: Vec<_> = platforms.into_iter().flat_map(|platform| highlights::find(platform, text)).collect();
    found.sort_unstable_by_key(|range| range.start);
    found
}

/// Returns what ends between two texts. `None` if no part may end there.
fn level(before: &str, after: &str, ends_sentence: bool) -> Option<Level> {
    let (last, next) = (before.chars().next_back()?, after.chars().next()?);
    let or_sentence = |level| if ends_sentence { Level::Sentence } else { level };
    if next.is_whitespace() {
        return None;
    }
    if last.is_whitespace() {
        let gap = &before[before.trim_end().len()..];
        return Some(match gap.matches('\n').count() {
            0 => or_sentence(Level::Word),
            1 => Level::Sentence,
            _ => Level::Paragraph,
        });
    }
    match last {
        _ if !is_unspaced(next) => None,
        '、' | '。' | '，' | '．' | '！' | '？' | '：' | '；' | '」' | '』' | '）' | '】' | '》' | '〉' => {
            Some(or_sentence(Level::Word))
        }
        _ => is_unspaced(last).then(|| or_sentence(Level::Character)),
    }
}

/// Returns the parts, each of which ends at the best level that is at most `best`. `None` if there are too many.
fn split_at<'t>(
    text: &'t str,
    ends: &[End],
    limits: &[Limits<'_>],
    max_parts: usize,
    best: Level,
) -> Result<Option<Vec<&'t str>>, SplitError> {
    let (mut parts, mut start, mut rest) = (Vec::new(), 0, ends);
    while !rest.is_empty() {
        if parts.len() == max_parts {
            return Ok(None);
        }
        let is_first = parts.is_empty();
        let part = |count: usize| text[start..rest[count - 1].at].trim_end();
        let mut most = rest.len();
        for limits in limits {
            let fits = |count| limits.fits(part(count), is_first);
            if !fits(most) {
                most = longest(most - 1, fits);
            }
            if most == 0 {
                return Err(limits.too_long(part(1), is_first));
            }
        }
        let count = if most == rest.len() { most } else { preferred(&rest[..most], best) };
        parts.push(part(count));
        start = rest[count - 1].at;
        rest = &rest[count..];
    }
    Ok(Some(parts))
}

/// Returns the highest number up to `max` that fits; 0 if 1 does not. Each number below one that fits also fits: a
/// shorter text does not count more, because no part ends within a link or a mention. The numbers grow step by step, so
/// that the texts that are measured are not much longer than the part.
fn longest(max: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, 1);
    while high <= max && fits(high) {
        low = high;
        high *= 2;
    }
    high = high.min(max + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the number of places up to the last one of the best level that is at most `best`.
fn preferred(ends: &[End], best: Level) -> usize {
    let mut levels = LEVELS.into_iter().filter(|level| *level <= best);
    let last = levels.find_map(|level| ends.iter().rposition(|end| end.level >= level));
    last.map_or(ends.len(), |last| last + 1)
}

#[cfg(test)]
mod tests;
