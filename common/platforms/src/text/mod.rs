//! Counts the length of a text as a platform does, and reports what the platform would reject in a post.
//!
//! The limits are data (`catalogue.rs`); this module implements how each [`TextUnit`] counts. `weighted` means that the
//! platform's own rule gives characters different weights; the three rules are implemented here by name.
//!
//! **To add a rule:** add a variant to [`CountingRule`], its arms in [`rule`], [`count`] and [`count_ascii`], and a
//! line to the tests.

pub mod comparable;
pub mod cut;
pub mod domains;
pub mod highlights;
pub mod links;
mod mentions;
pub mod split;

use std::collections::HashSet;
use std::ops::Range;

use crier_domain::platform::{Descriptor, Platform, TextRules, TextUnit};
use serde::Serialize;
use unicode_normalization::UnicodeNormalization;
use unicode_properties::emoji::{
    EmojiStatus, UnicodeEmoji, is_emoji_presentation_selector, is_regional_indicator, is_zwj,
};
use unicode_segmentation::UnicodeSegmentation;

/// A reason why a platform would reject a post, or a warning about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContentProblem {
    /// `content` or `media`; of a missing permission, `thread` or `first_comment`.
    pub field: &'static str,
    /// A stable code: `text_too_long`, `too_many_images`, `image_required`, `video_required`, `image_ratio`,
    /// `image_too_small`, `image_sizes_differ`, `gif_not_alone`, `too_many_hashtags`, `too_many_mentions`,
    /// `too_many_links`, `angle_brackets`, `empty`, `missing_permission`, and those of videos
    /// ([`video_checks`](super::video_checks)); of a warning: `link_costs_more`, `hashtags_not_counted`,
    /// `text_may_be_too_long`, `alt_text_cut`.
    pub code: &'static str,
    /// A sentence that names the platform, the post's value and the limit.
    pub message: String,
}

/// The number of images and videos of a post.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaCount {
    pub images: usize,
    pub videos: usize,
}

impl MediaCount {
    pub const NONE: Self = Self { images: 0, videos: 0 };

    const fn of_images(images: usize) -> Self {
        Self { images, videos: 0 }
    }

    pub const fn total(self) -> usize {
        self.images + self.videos
    }
}

/// The result of checking a text against a platform's limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TextCheck {
    /// In the platform's unit.
    pub length: u32,
    /// `None` if the platform sets no limit.
    pub limit: Option<u32>,
    pub problems: Vec<ContentProblem>,
}

/// The rules for counting a text. They may differ between accounts of one platform, because different server software
/// counts differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextCounting {
    platform: Platform,
    unit: TextUnit,
    url_weight: Option<u32>,
}

impl TextCounting {
    pub fn of(descriptor: &Descriptor) -> Self {
        let TextRules { unit, url_weight, .. } = descriptor.capabilities.text;
        Self { platform: descriptor.platform, unit, url_weight }
    }
}

/// The measurements of a text that the rules need. Computing them scans the whole text. They are valid for every
/// account that counts in the same way.
#[derive(Clone, Copy, Debug)]
pub struct TextMeasurements {
    /// In the platform's unit, with the content warning.
    length: u32,
    has_warning: bool,
    has_signature: bool,
    bytes: usize,
    is_empty: bool,
    // The following are 0 on platforms that do not limit them.
    hashtags: usize,
    mentions: usize,
    /// Links of the text that are also in the signature count twice.
    links: usize,
    angle_brackets: usize,
}

/// Measures a text for a platform.
pub fn measure(descriptor: &Descriptor, text: &str) -> TextMeasurements {
    let marked = |sign| if descriptor.platform == Platform::Instagram { marked_words(text, sign) } else { 0 };
    TextMeasurements {
        length: length(descriptor.platform, &descriptor.capabilities.text, text),
        has_warning: false,
        has_signature: false,
        bytes: text.len(),
        is_empty: text.trim().is_empty(),
        hashtags: marked('#'),
        mentions: marked('@'),
        links: if descriptor.platform == Platform::Threads { distinct_links(text) } else { 0 },
        angle_brackets: if descriptor.platform == Platform::Youtube { text.matches(['<', '>']).count() } else { 0 },
    }
}

impl TextMeasurements {
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Adds the content warning of a post, which shares the limit of the text. Links and mentions in it count in full.
    #[must_use]
    pub fn with_warning(self, descriptor: &Descriptor, warning: &str) -> Self {
        if warning.is_empty() {
            return self;
        }
        let length = to_length(count(rule(descriptor.platform, descriptor.capabilities.text.unit), warning));
        Self { length: self.length.saturating_add(length), has_warning: true, ..self }
    }

    /// Adds the account's signature, which was measured for the same platform together with the separator before it.
    #[must_use]
    pub fn with_signature(self, signature: Self) -> Self {
        Self {
            length: self.length.saturating_add(signature.length),
            has_signature: true,
            bytes: self.bytes + signature.bytes,
            is_empty: self.is_empty && signature.is_empty,
            hashtags: self.hashtags + signature.hashtags,
            mentions: self.mentions + signature.mentions,
            links: self.links + signature.links,
            angle_brackets: self.angle_brackets + signature.angle_brackets,
            ..self
        }
    }
}

/// The maximum length of the text of a video on TikTok ("Direct Post": `title`), in UTF-16 code units. That of a photo
/// post is longer.
const MAX_TIKTOK_CAPTION: u32 = 2_200;

/// Checks a post with `images` images against a platform's rules.
pub fn check(descriptor: &Descriptor, text: &str, images: usize) -> TextCheck {
    check_measured(descriptor, &measure(descriptor, text), MediaCount::of_images(images))
}

/// Checks a text that was already measured for this platform, and the number of images and videos. Only
/// [`video_checks`](super::video_checks) reports too many videos.
pub fn check_measured(descriptor: &Descriptor, text: &TextMeasurements, media: MediaCount) -> TextCheck {
    let (name, rules) = (descriptor.name, &descriptor.capabilities.text);
    let length = text.length;
    let has_media = media.total() > 0;
    let (limit, with) = match rules.max_with_media {
        _ if descriptor.platform == Platform::Tiktok && media.videos > 0 => (Some(MAX_TIKTOK_CAPTION), " with a video"),
        Some(max) if has_media => (Some(max), " with media"),
        _ => (rules.max, ""),
    };
    let mut problems = Vec::new();
    let mut content = |code, message| problems.push(ContentProblem { field: "content", code, message });

    if text.is_empty && !has_media && !descriptor.capabilities.media.required {
        let required =
            if descriptor.capabilities.video.is_some() { "text, an image or a video" } else { "text or an image" };
        content("empty", format!("{name} requires {required}."));
    }
    if let Some(limit) = limit.filter(|&limit| length > limit) {
        let unit = if rules.unit == TextUnit::Utf8Bytes { "bytes" } else { "characters" };
        let counts = match (text.has_warning, text.has_signature) {
            (false, false) => "this text has",
            (true, false) => "this text and its content warning have",
            (false, true) => "this text and the account's signature have",
            (true, true) => "this text, its content warning and the account's signature have",
        };
        let message = format!("{name} accepts at most {limit} {unit}{with}; {counts} {length}.");
        content("text_too_long", message);
    } else if let Some(limit) = rules.max_bytes.filter(|&limit| text.bytes > limit as usize) {
        content("text_too_long", format!("{name} accepts at most {limit} bytes; this text has {}.", text.bytes));
    }
    for (count, max, code, what) in [
        // Instagram's content publishing guide, for a caption.
        (text.hashtags, 30, "too_many_hashtags", "hashtags"),
        (text.mentions, 20, "too_many_mentions", "mentions"),
        (text.links, MAX_THREADS_LINKS, "too_many_links", "different links"),
    ] {
        if count > max {
            content(code, format!("{name} accepts at most {max} {what}; this text has {count}."));
        }
    }
    if text.angle_brackets > 0 {
        content(
            "angle_brackets",
            format!("{name} does not accept < and > in a text; this text has {}.", text.angle_brackets),
        );
    }
    problems.extend(check_images(descriptor, media));
    TextCheck { length, limit, problems }
}

fn check_images(descriptor: &Descriptor, media: MediaCount) -> Option<ContentProblem> {
    let (name, rules) = (descriptor.name, &descriptor.capabilities.media);
    let (images, max) = (media.images, rules.max_images);
    let (code, message) = if images > max as usize {
        let noun = if max == 1 { "image" } else { "images" };
        let allowed = if max == 0 { "no images".to_owned() } else { format!("at most {max} {noun}") };
        ("too_many_images", format!("{name} accepts {allowed}; this post has {images}."))
    } else if rules.required && media.total() == 0 && max == 0 {
        ("video_required", format!("{name} requires a video; this post has none."))
    } else if rules.required && media.total() == 0 {
        let message = if descriptor.capabilities.video.is_some() {
            format!("{name} requires an image or a video; this post has neither.")
        } else {
            format!("{name} requires at least 1 image; this post has 0.")
        };
        ("image_required", message)
    } else {
        return None;
    };
    Some(ContentProblem { field: "media", code, message })
}

/// Returns the required options that are missing in `options` (omitted, null, or empty).
pub fn missing_options(
    descriptor: &Descriptor,
    options: &serde_json::Map<String, serde_json::Value>,
) -> Vec<&'static str> {
    let is_set = |name: &str| match options.get(name) {
        None | Some(serde_json::Value::Null) => false,
        Some(value) => value.as_str().is_none_or(|text| !text.trim().is_empty()),
    };
    descriptor.capabilities.required_options.iter().copied().filter(|name| !is_set(name)).collect()
}

/// Returns the length of a text as the platform counts it.
pub fn length(platform: Platform, rules: &TextRules, text: &str) -> u32 {
    let rule = rule(platform, rules.unit);
    let composed;
    let text = if rule == CountingRule::X {
        composed = text.nfc().collect::<String>();
        &composed
    } else {
        text
    };
    let Some(weight) = rules.url_weight else { return to_length(count(rule, text)) };
    let (mut total, mut from) = (0, 0);
    for (range, weight) in shortened(platform, weight as usize, text) {
        // The mention is part of a link.
        if range.start < from {
            continue;
        }
        total += count(rule, &text[from..range.start]) + weight;
        from = range.end;
    }
    to_length(total + count(rule, &text[from..]))
}

/// Returns the parts of a text with a fixed length, and that length, in order: links, and on Mastodon the server in
/// `@user@server`.
fn shortened(platform: Platform, url_weight: usize, text: &str) -> Vec<(Range<usize>, usize)> {
    let links = links::find(text, platform == Platform::Twitter);
    let mut parts: Vec<_> = links.into_iter().map(|link| (link, url_weight)).collect();
    if platform == Platform::Mastodon {
        parts.extend(mentions::servers(text).into_iter().map(|server| (server, 0)));
        parts.sort_by_key(|(range, _)| range.start);
    }
    parts
}

fn to_length(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The characters that must be escaped on LinkedIn.
const LINKEDIN_ESCAPED: &str = "\\<>#~_|[]*(){}@";

/// How characters are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CountingRule {
    Characters,
    Graphemes,
    Utf16,
    Utf8,
    /// X, "Counting characters": most Latin, Greek, Cyrillic… characters count 1, all others 2, an emoji sequence 2.
    X,
    /// Threads, "Posts": 500 characters; an emoji counts as its number of UTF-8 bytes.
    Threads,
    /// LinkedIn, "Little text format": an escaped character counts together with its backslash.
    Linkedin,
}

fn rule(platform: Platform, unit: TextUnit) -> CountingRule {
    match unit {
        TextUnit::Characters => CountingRule::Characters,
        TextUnit::Graphemes => CountingRule::Graphemes,
        TextUnit::Utf16 => CountingRule::Utf16,
        TextUnit::Utf8Bytes => CountingRule::Utf8,
        TextUnit::Weighted => match platform {
            Platform::Threads => CountingRule::Threads,
            Platform::Linkedin => CountingRule::Linkedin,
            _ => CountingRule::X,
        },
    }
}

fn count(rule: CountingRule, text: &str) -> usize {
    if text.is_ascii() {
        return count_ascii(rule, text);
    }
    match rule {
        CountingRule::Characters => text.chars().count(),
        CountingRule::Graphemes => text.graphemes(true).count(),
        CountingRule::Utf16 => text.encode_utf16().count(),
        CountingRule::Utf8 => text.len(),
        CountingRule::X => {
            text.graphemes(true).map(|g| if is_emoji(g) { 2 } else { g.chars().map(x_weight).sum::<usize>() }).sum()
        }
        CountingRule::Threads => {
            text.graphemes(true).map(|g| if is_emoji(g) { g.len() } else { g.chars().count() }).sum()
        }
        CountingRule::Linkedin => text.chars().map(|c| 1 + usize::from(LINKEDIN_ESCAPED.contains(c))).sum(),
    }
}

/// Counts ASCII without segmentation: only CRLF is a grapheme of two characters.
fn count_ascii(rule: CountingRule, text: &str) -> usize {
    match rule {
        CountingRule::Graphemes => text.len() - text.matches("\r\n").count(),
        CountingRule::Linkedin => text.len() + text.bytes().filter(|b| LINKEDIN_ESCAPED.contains(*b as char)).count(),
        CountingRule::Characters
        | CountingRule::Utf16
        | CountingRule::Utf8
        | CountingRule::X
        | CountingRule::Threads => text.len(),
    }
}

fn x_weight(c: char) -> usize {
    match c {
        '\0'..='\u{10FF}' | '\u{2000}'..='\u{200D}' | '\u{2010}'..='\u{201F}' | '\u{2032}'..='\u{2037}' => 1,
        _ => 2,
    }
}

/// Returns whether a grapheme is displayed as an emoji: by default, or because of a selector, a modifier or a joiner.
pub fn is_emoji(grapheme: &str) -> bool {
    let mut chars = grapheme.chars();
    let Some(first) = chars.next() else { return false };
    let is_emoji_by_default = matches!(
        first.emoji_status(),
        EmojiStatus::EmojiPresentation
            | EmojiStatus::EmojiPresentationAndModifierBase
            | EmojiStatus::EmojiPresentationAndEmojiComponent
            | EmojiStatus::EmojiPresentationAndModifierAndEmojiComponent
    ) && !is_regional_indicator(first);
    let makes_emoji = |c: char| {
        is_emoji_presentation_selector(c)
            || is_zwj(c)
            || is_regional_indicator(c)
            || matches!(c, '\u{20E3}' | '\u{1F3FB}'..='\u{1F3FF}')
    };
    is_emoji_by_default || (first.is_emoji_char() && chars.any(makes_emoji))
}

/// The maximum number of different links in a post on Threads: Threads API, "Text Attachments",
/// `THREADS_API__LINK_LIMIT_EXCEEDED`, since December 2025.
const MAX_THREADS_LINKS: usize = 5;

/// Counts the different links of a text that have a scheme or begin with `www.`, as in the examples of Threads. A link
/// of another form may count there too.
fn distinct_links(text: &str) -> usize {
    let is_counted = |link: &&str| {
        let start = link.get(..4).unwrap_or_default();
        start.eq_ignore_ascii_case("http") || start.eq_ignore_ascii_case("www.")
    };
    let links = links::find(text, true).into_iter().map(|link| &text[link]);
    links.filter(is_counted).collect::<HashSet<_>>().len()
}

/// Counts the hashtags of a text.
pub(super) fn count_hashtags(text: &str) -> usize {
    marked_words(text, '#')
}

/// Counts the words that begin with `sign` followed by a letter, a digit or `_`.
fn marked_words(text: &str, sign: char) -> usize {
    let mut previous = ' ';
    let mut chars = text.chars().peekable();
    let mut count = 0;
    while let Some(c) = chars.next() {
        let continues = chars.peek().is_some_and(|n| n.is_alphanumeric() || *n == '_');
        if c == sign && continues && !previous.is_alphanumeric() {
            count += 1;
        }
        previous = c;
    }
    count
}
