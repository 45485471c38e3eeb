//! How each platform counts text, and what it rejects.

use crier_domain::catalogue::descriptor;
use crier_domain::media::ImageType;
use crier_domain::platform::{Platform, TextRules, TextUnit};
use crier_domain::snippet::parts_with;
use crier_platforms::images::{alt_text_warnings, check_file_sizes, check_gif_alone, check_same_size, check_shapes};
use crier_platforms::text::{ContentProblem, MediaCount, check, check_measured, length, measure};
use proptest::prelude::*;

fn count(platform: Platform, text: &str) -> u32 {
    length(platform, &descriptor(platform).capabilities.text, text)
}

fn problems(platform: Platform, text: &str, images: usize) -> Vec<(&'static str, &'static str)> {
    check(descriptor(platform), text, images).problems.into_iter().map(|p| (p.field, p.code)).collect()
}

const FAMILY: &str = "👨‍👩‍👧‍👦";

#[test]
fn x_uses_weighted_length() {
    for (text, weight) in [
        ("hello", 5),
        ("häβЖ", 4),
        ("日本語", 6),
        ("’“”–", 4),
        ("…", 2),
        (FAMILY, 2),
        ("👍🏽", 2),
        ("🇦🇹", 2),
        ("1️⃣", 2),
        ("❤️", 2),
        ("e\u{301}", 1),
        ("https://example.com/a/very/long/path?that=counts#as-much", 23),
        ("at https://t.co, see", 3 + 23 + 5),
        ("example.com and t.co", 23 + 5 + 23),
        ("example.photography, これはa.みんな", 23 + 2 + 6 + 23),
        ("me@example.com", 14),
        ("example.notatld", 15),
        ("क्ष", 3),
    ] {
        assert_eq!(count(Platform::Twitter, text), weight, "{text}");
    }
}

#[test]
fn other_platforms_use_their_own_units() {
    assert_eq!(count(Platform::Bluesky, &format!("a{FAMILY}é")), 3);
    assert_eq!(count(Platform::Telegram, "a👍"), 3);
    assert_eq!(count(Platform::Mastodon, "see https://example.com/long/enough/to/be/longer, ok"), 4 + 23 + 4);
    assert_eq!(count(Platform::Mastodon, "example.com"), 11);
    assert_eq!(count(Platform::Mastodon, "@ann@example.com (@bob) me@example.com"), 4 + 1 + 6 + 1 + 14);
    assert_eq!(count(Platform::Mastodon, "https://example.com/@ann@example.org"), 23);
    assert_eq!(count(Platform::Threads, "ab👍"), 6);
    assert_eq!(count(Platform::Threads, "日本"), 2);
    assert_eq!(count(Platform::Linkedin, "a(b) @c"), 10);
    assert_eq!(count(Platform::Facebook, "日👍"), 2);
}

#[test]
fn limit_errors_name_the_platform_and_the_length() {
    let bluesky = check(descriptor(Platform::Bluesky), &"a".repeat(312), 0);
    assert_eq!((bluesky.length, bluesky.limit), (312, Some(300)));
    assert_eq!(bluesky.problems.len(), 1);
    assert_eq!(bluesky.problems[0].message, "Bluesky accepts at most 300 characters; this text has 312.");
    assert!(problems(Platform::Bluesky, &"a".repeat(300), 4).is_empty());

    let caption = check(descriptor(Platform::Telegram), &"a".repeat(1025), 1);
    assert_eq!(caption.limit, Some(1024));
    assert_eq!(caption.problems[0].message, "Telegram accepts at most 1024 characters with media; this text has 1025.");
    assert!(problems(Platform::Telegram, &"a".repeat(4096), 0).is_empty());
    assert_eq!(problems(Platform::Telegram, &"a".repeat(4097), 0), [("content", "text_too_long")]);
    // On Tumblr, each block has a limit.
    assert!(problems(Platform::Tumblr, &"a".repeat(100_000), 0).is_empty());
}

#[test]
fn bluesky_also_limits_bytes() {
    let text = FAMILY.repeat(130);
    let bluesky = check(descriptor(Platform::Bluesky), &text, 0);
    assert_eq!(bluesky.length, 130);
    assert_eq!(
        bluesky.problems[0].message,
        format!("Bluesky accepts at most 3000 bytes; this text has {}.", text.len())
    );
}

#[test]
fn the_text_of_a_video_on_tiktok_is_shorter_than_that_of_photos() {
    let tiktok = descriptor(Platform::Tiktok);
    let of = |text: &str, images, videos| check_measured(tiktok, &measure(tiktok, text), MediaCount { images, videos });
    let (long, emoji) = ("x".repeat(2_201), "🥖".repeat(1_100));
    assert!(of(&long, 1, 0).problems.is_empty() && of(&emoji, 0, 1).problems.is_empty());
    let found = of(&long, 0, 1);
    assert_eq!((found.limit, found.problems.len()), (Some(2_200), 1));
    assert_eq!(found.problems[0].message, "TikTok accepts at most 2200 characters with a video; this text has 2201.");
}

#[test]
fn images_with_invalid_dimensions_are_rejected() {
    let shapes = |platform, sizes: &[(u32, u32)]| -> Vec<(&'static str, String)> {
        let sizes: Vec<_> = sizes.iter().copied().map(Some).collect();
        check_shapes(descriptor(platform), &sizes).into_iter().map(|p| (p.code, p.message)).collect()
    };
    for (platform, good, bad) in [
        (Platform::Telegram, [(2_000, 100), (100, 2_000), (1, 1), (9_000, 9_000)], [(2_001, 100), (100, 2_001)]),
        (Platform::Instagram, [(800, 1_000), (191, 100), (1, 1), (382, 200)], [(799, 1_000), (192, 100)]),
        (Platform::Threads, [(1_000, 100), (100, 1_000), (1, 1), (9, 16)], [(1_001, 100), (100, 1_001)]),
    ] {
        assert_eq!(shapes(platform, &good), []);
        let found = shapes(platform, &[good[0], bad[0], bad[1]]);
        assert!(found.iter().all(|(code, _)| *code == "image_ratio") && found.len() == 2, "{found:?}");
    }
    assert_eq!(
        shapes(Platform::Instagram, &[(1, 1), (100, 400)]),
        [(
            "image_ratio",
            "Instagram accepts images from 4:5 to 1.91:1 (width to height); image 2 has 100 × 400.".into()
        )]
    );
    let small = shapes(Platform::GoogleBusiness, &[(249, 900)]);
    let sentence = "Google Business Profile accepts images of at least 250 × 250 pixels; image 1 has 249 × 900.";
    assert_eq!(small, [("image_too_small", sentence.to_owned())]);
    assert_eq!(shapes(Platform::Wordpress, &[(1, 60_000)]), []);
    assert!(check_shapes(descriptor(Platform::GoogleBusiness), &[None]).is_empty());
}

#[test]
fn google_accepts_no_images_of_few_bytes() {
    use ImageType::{Jpeg, Png, Webp};
    let found = |platform, files: &[Option<(ImageType, u64)>]| check_file_sizes(descriptor(platform), files);
    let files = [None, Some((Png, 10_240)), Some((Jpeg, 10_239)), Some((Webp, 10))];
    assert_eq!(found(Platform::Bluesky, &files), []);
    let problems = found(Platform::GoogleBusiness, &files);
    assert_eq!((problems.len(), problems[0].code), (1, "image_too_small"));
    let sentence = "Google Business Profile accepts images of at least 10240 bytes; image 3 has 10239 bytes.";
    assert_eq!(problems[0].message, sentence);
}

#[test]
fn the_images_of_a_carousel_on_pinterest_have_one_size() {
    let found = |platform, sizes: &[Option<(u32, u32)>]| check_same_size(descriptor(platform), sizes);
    for sizes in [&[Some((2, 3))][..], &[], &[Some((2, 3)), None, Some((2, 3))], &[None, Some((3, 2))]] {
        assert_eq!(found(Platform::Pinterest, sizes), None);
    }
    let different = [None, Some((2, 3)), Some((2, 3)), Some((3, 2)), Some((4, 4))];
    assert_eq!(found(Platform::Tumblr, &different), None);
    let problem = found(Platform::Pinterest, &different).unwrap();
    assert_eq!((problem.field, problem.code), ("media", "image_sizes_differ"));
    let sentence = "Pinterest accepts several images only if all have the same width and height; image 2 has 2 × 3, and \
                    image 4 has 3 × 2.";
    assert_eq!(problem.message, sentence);
}

#[test]
fn a_gif_is_the_only_image_of_a_post_on_x() {
    use ImageType::{Gif, Jpeg, Png};
    let found = |platform, types: &[ImageType]| check_gif_alone(descriptor(platform), types);
    for types in [&[Gif][..], &[Jpeg, Png], &[]] {
        assert_eq!(found(Platform::Twitter, types), None);
    }
    assert_eq!(found(Platform::Bluesky, &[Gif, Gif]), None);
    let problem = found(Platform::Twitter, &[Jpeg, Gif]).unwrap();
    assert_eq!((problem.field, problem.code), ("media", "gif_not_alone"));
    assert_eq!(problem.message, "X accepts a GIF only as the only image; this post has 2 images.");
}

#[test]
fn image_counts_are_checked() {
    assert_eq!(problems(Platform::Bluesky, "x", 5), [("media", "too_many_images")]);
    assert_eq!(problems(Platform::Instagram, "x", 0), [("media", "image_required")]);
    assert_eq!(problems(Platform::Reddit, "x", 21), [("media", "too_many_images")]);
    assert!(problems(Platform::Linkedin, "x", 20).is_empty());
    assert_eq!(problems(Platform::Linkedin, "x", 21), [("media", "too_many_images")]);
    assert_eq!(problems(Platform::Sandbox, "x", 11), [("media", "too_many_images")]);
    assert_eq!(problems(Platform::Sandbox, &"x".repeat(5001), 10), [("content", "text_too_long")]);
    let message = &check(descriptor(Platform::GoogleBusiness), "x", 2).problems[0].message;
    assert_eq!(message, "Google Business Profile accepts at most 1 image; this post has 2.");
    assert_eq!(problems(Platform::Sandbox, " \n", 0), [("content", "empty")]);
    assert!(problems(Platform::Sandbox, "", 1).is_empty());
}

#[test]
fn instagram_limits_hashtags_and_mentions() {
    assert!(problems(Platform::Instagram, &"#a ".repeat(30), 1).is_empty());
    assert_eq!(problems(Platform::Instagram, &"#a ".repeat(31), 1), [("content", "too_many_hashtags")]);
    assert_eq!(problems(Platform::Instagram, &"@a ".repeat(21), 1), [("content", "too_many_mentions")]);
    assert!(problems(Platform::Instagram, &"a@b # @ ".repeat(40), 1).is_empty());
}

#[test]
fn threads_limits_different_links() {
    let links = |count: usize| (1..=count).map(|n| format!("https://a.example/{n} ")).collect::<String>();
    assert!(problems(Platform::Threads, &links(5).repeat(2), 0).is_empty());
    let found = check(descriptor(Platform::Threads), &format!("{}www.example.com", links(5)), 0).problems;
    let message = "Threads accepts at most 5 different links; this text has 6.";
    assert_eq!(found, [ContentProblem { field: "content", code: "too_many_links", message: message.to_owned() }]);
    let threads = descriptor(Platform::Threads);
    let signed = measure(threads, &links(5)).with_signature(measure(threads, "\n\nhttps://b.example"));
    assert_eq!(check_measured(threads, &signed, MediaCount::NONE).problems[0].code, "too_many_links");
    // File names look like links.
    assert!(problems(Platform::Threads, "a.rs b.rs c.rs d.rs e.rs f.rs", 0).is_empty());
    assert!(problems(Platform::Twitter, &links(9), 0).is_empty());
}

#[test]
fn a_content_warning_shares_the_limit_of_the_text() {
    let mastodon = descriptor(Platform::Mastodon);
    let warned = |warning: &str, text: &str| {
        check_measured(mastodon, &measure(mastodon, text).with_warning(mastodon, warning), MediaCount::NONE)
    };
    let link = "https://example.com/a/very/long/path";
    assert_eq!(warned(link, link).length as usize, link.len() + 23);
    assert!(warned("", &"a".repeat(500)).problems.is_empty());
    let problem = warned("👍🏽", &"a".repeat(500)).problems.pop().unwrap();
    let message = "Mastodon accepts at most 500 characters; this text and its content warning have 501.";
    assert_eq!((problem.code, problem.message.as_str()), ("text_too_long", message));
}

#[test]
fn a_text_and_its_signature_are_counted_like_one_text() {
    let texts = ["Fresh bread", "By @ann@", "At https://example.com/a", "e", FAMILY, "", "#rye \r\n", "x.\r"];
    for &platform in Platform::ALL {
        let descriptor = descriptor(platform);
        for text in texts {
            for signature in ["— Ann #bread", "@ann@social.example", "example.com/b", "\u{301}x", "https://example.com"]
            {
                let [text, separator, signature] = parts_with(Some(signature), text);
                let end = measure(descriptor, &[separator, signature].concat());
                let parts =
                    check_measured(descriptor, &measure(descriptor, text).with_signature(end), MediaCount::NONE);
                let whole = check(descriptor, &[text, separator, signature].concat(), 0);
                assert_eq!(parts.length, whole.length, "{platform}: {text:?} and {signature:?}");
            }
        }
    }
    let mastodon = descriptor(Platform::Mastodon);
    let signed = measure(mastodon, &"a".repeat(494)).with_signature(measure(mastodon, "\n\n— Ann"));
    let problem = check_measured(mastodon, &signed, MediaCount::NONE).problems.pop().unwrap();
    let message = "Mastodon accepts at most 500 characters; this text and the account's signature have 501.";
    assert_eq!((problem.code, problem.message.as_str()), ("text_too_long", message));
}

#[test]
fn alt_texts_that_are_cut_are_a_warning() {
    let (pinterest, long) = (descriptor(Platform::Pinterest), "é".repeat(501));
    let warnings = alt_text_warnings(pinterest, &[Some(&long[..1_000]), None, Some(&long)]);
    let message = "Pinterest accepts alt texts of at most 500 characters. The alt text of image 3 has 501 and will be truncated at the end of a word.";
    let message = message.to_owned();
    assert_eq!(warnings, [ContentProblem { field: "media", code: "alt_text_cut", message }]);
    assert!(alt_text_warnings(descriptor(Platform::Wordpress), &[Some(&long)]).is_empty());
}

fn rules(unit: TextUnit, url_weight: Option<u32>) -> TextRules {
    TextRules { max: None, unit, max_bytes: None, max_with_media: None, url_weight }
}

fn any_platform() -> impl Strategy<Value = Platform> {
    prop::sample::select(Platform::ALL)
}

/// Text that often contains URLs, emoji sequences and other scripts.
fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        r"\PC{0,8}",
        Just("https://example.com/a_(b)".to_owned()),
        Just("t.co".to_owned()),
        Just(FAMILY.to_owned()),
        Just("🇦🇹👍🏽\u{FE0F}\u{20E3}".to_owned()),
        Just(" \n".to_owned()),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn lengths_are_additive(a in any_text(), b in any_text()) {
        let both = format!("{a}{b}");
        for unit in [TextUnit::Characters, TextUnit::Utf16, TextUnit::Utf8Bytes] {
            let of = |text: &str| length(Platform::Sandbox, &rules(unit, None), text);
            prop_assert_eq!(of(&both), of(&a) + of(&b));
        }
        let graphemes = |text: &str| length(Platform::Sandbox, &rules(TextUnit::Graphemes, None), text);
        prop_assert!(graphemes(&both) <= graphemes(&a) + graphemes(&b));
    }

    #[test]
    fn coarser_units_are_never_longer(text in any_text()) {
        let of = |unit| length(Platform::Sandbox, &rules(unit, None), &text);
        prop_assert!(of(TextUnit::Graphemes) <= of(TextUnit::Characters));
        prop_assert!(of(TextUnit::Characters) <= of(TextUnit::Utf16));
        prop_assert!(of(TextUnit::Utf16) <= of(TextUnit::Utf8Bytes));
    }

    #[test]
    fn ascii_text_has_the_same_length_on_every_platform(text in "[a-z ]{0,200}", platform in any_platform()) {
        prop_assert_eq!(count(platform, &text) as usize, text.len());
    }

    #[test]
    fn x_length_ignores_unicode_normalization(text in "[a-zéüñ ]{0,40}") {
        let apart = text.replace('é', "e\u{301}").replace('ü', "u\u{308}").replace('ñ', "n\u{303}");
        prop_assert_eq!(count(Platform::Twitter, &text), count(Platform::Twitter, &apart));
    }

    #[test]
    fn urls_have_a_fixed_length(path in "[a-z0-9/]{0,200}") {
        prop_assert_eq!(count(Platform::Twitter, &format!("https://example.com/{path}")), 23);
        prop_assert_eq!(count(Platform::Mastodon, &format!("(https://example.com/{path})")), 25);
    }

    #[test]
    fn texts_and_image_counts_over_the_limit_are_rejected(text in any_text(), images in 0_usize..40, platform in any_platform()) {
        let checked = check(descriptor(platform), &text, images);
        let over = checked.limit.is_some_and(|limit| checked.length > limit);
        prop_assert!(!over || checked.problems.iter().any(|p| p.code == "text_too_long"));
        let too_many = images > descriptor(platform).capabilities.media.max_images as usize;
        prop_assert_eq!(too_many, checked.problems.iter().any(|p| p.code == "too_many_images"));
        prop_assert!(checked.problems.iter().all(|p| p.message.starts_with(descriptor(platform).name)));
    }
}
