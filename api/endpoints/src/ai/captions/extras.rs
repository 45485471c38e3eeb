//! Hashtags and emojis in a caption: checks that requested ones are present, and removes unwanted ones.

use crier_platforms::text::is_emoji;
use unicode_segmentation::UnicodeSegmentation as _;

use super::CaptionRequest;

/// Returns the requirement that the caption violates, worded for the model.
pub fn violation(request: &CaptionRequest, caption: &str) -> Option<&'static str> {
    let hashtags = caption.split_whitespace().any(is_hashtag);
    let emojis = caption.graphemes(true).any(is_emoji);
    match (request.include_hashtags, request.include_emojis) {
        (Some(false), _) if hashtags => Some("A caption contains a hashtag. Use no hashtags."),
        (Some(true), _) if !hashtags => Some("Hashtags are missing. Each caption must have some."),
        (_, Some(false)) if emojis => Some("A caption contains an emoji. Use no emojis."),
        (_, Some(true)) if !emojis => Some("Emojis are missing. Each caption must have some."),
        _ => None,
    }
}

/// Returns the caption without unwanted hashtags and emojis.
pub fn strip_unwanted(request: &CaptionRequest, caption: &str) -> String {
    let mut text = caption.to_owned();
    if request.include_emojis == Some(false) {
        text = without_emojis(&text);
    }
    if request.include_hashtags == Some(false) {
        text = without_hashtags(&text);
    }
    text
}

/// Removes trailing hashtags. Hashtags within a sentence are part of it and only lose their `#`.
fn without_hashtags(text: &str) -> String {
    let mut rest = text.trim_end();
    while let Some(at) = rest.rfind(char::is_whitespace).filter(|at| is_hashtag(rest[*at..].trim_start())) {
        rest = rest[..at].trim_end();
    }
    rest.split_inclusive(char::is_whitespace).map(|word| if is_hashtag(word) { &word[1..] } else { word }).collect()
}

fn without_emojis(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for letter in text.graphemes(true).filter(|letter| !is_emoji(letter)) {
        // Skip the space on one side of a removed emoji.
        if letter != " " || !(kept.is_empty() || kept.ends_with(char::is_whitespace)) {
            kept.push_str(letter);
        }
    }
    kept.trim_end().to_owned()
}

/// Returns whether a word is `#` followed by letters, digits or `_`, with at least one letter.
fn is_hashtag(word: &str) -> bool {
    let within = |c: &char| c.is_alphanumeric() || *c == '_';
    word.strip_prefix('#').is_some_and(|rest| rest.chars().take_while(within).any(char::is_alphabetic))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(include_hashtags: Option<bool>, include_emojis: Option<bool>) -> CaptionRequest {
        CaptionRequest {
            prompt: String::new(),
            platform: None,
            count: 1,
            tone: None,
            language: None,
            length: None,
            include_hashtags,
            include_emojis,
        }
    }

    #[test]
    fn hashtags_follow_the_request_option() {
        for (text, without) in [
            ("Fresh #bread for all #bakery #خبز", "Fresh bread for all"),
            ("We are #1 in C#, at 5:00", "We are #1 in C#, at 5:00"),
            ("#bread", "bread"),
            ("One\n\n#a\n#b", "One"),
        ] {
            let (no, yes) = (request(Some(false), None), request(Some(true), None));
            assert_eq!(strip_unwanted(&no, text), without, "{text}");
            assert_eq!(
                (violation(&no, text).is_some(), violation(&yes, text).is_none()),
                (text != without, text != without)
            );
            assert_eq!(violation(&no, without), None, "{without}");
            assert_eq!(violation(&request(None, None), text), None);
        }
    }

    #[test]
    fn emojis_follow_the_request_option() {
        for (text, without) in [
            ("Fresh 🍞 bread 👩‍👩‍👧‍👦!", "Fresh bread !"),
            ("🇩🇪 #️⃣ 1️⃣ ❤️", ""),
            ("Open 24/7 © Ann, #1*", "Open 24/7 © Ann, #1*"),
            ("لدينا خبز 🥖", "لدينا خبز"),
            ("A 🍞\nB 👍🏽", "A \nB"),
        ] {
            let (no, yes) = (request(None, Some(false)), request(None, Some(true)));
            assert_eq!(strip_unwanted(&no, text), without, "{text}");
            assert_eq!(
                (violation(&no, text).is_some(), violation(&yes, text).is_none()),
                (text != without, text != without)
            );
            assert_eq!(violation(&no, without), None, "{without}");
        }
    }
}
