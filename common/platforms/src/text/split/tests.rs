use crier_domain::catalogue::descriptor;
use proptest::prelude::*;
use unicode_normalization::UnicodeNormalization;

use super::super::check;
use super::*;

/// Returns the sandbox, which counts characters, with this limit.
fn limited(max: u32) -> Descriptor {
    let mut limited = descriptor(Platform::Sandbox).clone();
    limited.capabilities.text.max = Some(max);
    limited
}

fn parts(text: &str, max: u32) -> Result<Vec<&str>, SplitError> {
    split(text, &[SplitAccount { descriptor: &limited(max), signature: None }], 25)
}

#[test]
fn parts_end_at_paragraphs_then_sentences_then_words() {
    for (max, text, expected) in [
        (20, "", vec![]),
        (20, " \n one two \n", vec!["one two"]),
        (20, "One two.\n\nThree four. Five six seven.", vec!["One two.", "Three four.", "Five six seven."]),
        (10, "one two three four five six", vec!["one two", "three four", "five six"]),
        (14, "one two\nthree four five", vec!["one two", "three four", "five"]),
        (9, "日本語のパンです。新しい店", vec!["日本語のパンです。", "新しい店"]),
        (4, "日本語のパン", vec!["日本語の", "パン"]),
        (4, "👩\u{200D}🚀 👩\u{200D}🚀", vec!["👩\u{200D}🚀", "👩\u{200D}🚀"]),
    ] {
        assert_eq!(parts(text, max).unwrap(), expected, "{text}");
    }
}

#[test]
fn links_mentions_and_tags_stay_whole() {
    for (max, text, expected) in [
        (8, "#日本語のパン です", vec!["#日本語のパン", "です"]),
        (21, "See https://a.example/b now", vec!["See", "https://a.example/b", "now"]),
        (16, "Ask @ann@a.example now", vec!["Ask", "@ann@a.example", "now"]),
    ] {
        assert_eq!(parts(text, max).unwrap(), expected, "{text}");
    }
    for (max, text, word) in
        [(5, "#日本語のパン", "#日本語のパン"), (10, "https://a.example", "https://a.example"), (3, "abcd e", "abcd")]
    {
        let error = SplitError::WordTooLong { word: word.to_owned(), with: "", platform: "Sandbox" };
        assert_eq!(parts(text, max), Err(error), "{text}");
    }
}

#[test]
fn longer_parts_are_made_if_there_are_too_many() {
    let (text, descriptor) = ("a\n\nbbbb cccc dddd eeee", limited(14));
    let accounts = [SplitAccount { descriptor: &descriptor, signature: None }];
    assert_eq!(split(text, &accounts, 3).unwrap(), ["a", "bbbb cccc dddd", "eeee"]);
    assert_eq!(split(text, &accounts, 2).unwrap(), ["a\n\nbbbb cccc", "dddd eeee"]);
    assert_eq!(split(text, &accounts, 1), Err(SplitError::TooManyParts(1)));
}

#[test]
fn the_first_part_leaves_space_for_the_signature() {
    let descriptor = limited(20);
    let signed = |signature| [SplitAccount { descriptor: &descriptor, signature: Some(signature) }];
    let text = "one two three four five";
    assert_eq!(split(text, &signed(" — Ann\n"), 25).unwrap(), ["one two three", "four five"]);
    assert_eq!(split(text, &signed(" "), 25).unwrap(), ["one two three four", "five"]);
    let error = split("sixteen_letters_", &signed("— Ann"), 25).unwrap_err().to_string();
    assert_eq!(error, "`sixteen_letters_` with the account's signature is too long for a post on Sandbox. Shorten it.");
}

#[test]
fn every_account_counts_in_its_own_way() {
    // A link of 108 characters, which X counts as 23.
    let text = format!("{} https://a.example/{}", "x".repeat(250), "y".repeat(90));
    let of = |platforms: &[Platform]| {
        let accounts: Vec<_> =
            platforms.iter().map(|p| SplitAccount { descriptor: descriptor(*p), signature: None }).collect();
        split(&text, &accounts, 25).unwrap().len()
    };
    assert_eq!((of(&[Platform::Twitter]), of(&[Platform::Bluesky]), of(&[Platform::Mastodon])), (1, 2, 1));
    assert_eq!((of(&[Platform::Twitter, Platform::Bluesky]), of(&[])), (2, 1));
}

/// Returns a text without white space.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect()
}

proptest! {
    #[test]
    fn parts_fit_and_have_all_words(
        text in r"([a-z]{1,9}[ ,.!\n]|https?://a\.example/[a-z]{0,30} |@ann@a\.example |#größe|日本語。|🥖|\PC){0,300}",
    ) {
        let text: String = text.nfc().collect();
        let platforms = [Platform::Twitter, Platform::Bluesky, Platform::Mastodon, Platform::Threads];
        let accounts = platforms.map(|p| SplitAccount { descriptor: descriptor(p), signature: None });
        let Ok(parts) = split(&text, &accounts, 25) else { return Ok(()) };
        prop_assert_eq!(squeezed(&parts.concat()), squeezed(&text));
        for (part, account) in parts.iter().flat_map(|part| accounts.map(|account| (part, account))) {
            let problems = check(account.descriptor, part, 0).problems;
            prop_assert!(problems.is_empty(), "{part:?}: {problems:?}");
        }
        let ranges: Vec<Range<usize>> = parts.iter().map(|part| {
            let start = part.as_ptr() as usize - text.as_ptr() as usize;
            start..start + part.len()
        }).collect();
        let whole = text.grapheme_indices(true).map(|(at, grapheme)| at..at + grapheme.len());
        for link in platforms.iter().flat_map(|p| highlights::find(*p, &text)).chain(whole) {
            if text[link.clone()].contains(char::is_whitespace) {
                continue;
            }
            let is_whole = ranges.iter().any(|part| part.start <= link.start && link.end <= part.end);
            prop_assert!(is_whole, "{:?}", &text[link]);
        }
    }

    #[test]
    fn the_longest_number_that_fits_is_found(max in 0_usize..200, limit in 0_usize..250) {
        prop_assert_eq!(longest(max, |count| count <= limit), max.min(limit));
    }
}
