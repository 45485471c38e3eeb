//! The `options` of a post, which it may set besides text and images. They are checked with the post.
//!
//! **To add an option:** add it to its platform in [`of`], and read it in the connector with [`text`] or [`flag`]. If a
//! post cannot be published without it, also add it to the descriptor's `required_options`.

use crier_domain::catalogue::video::{REEL, STORY, VideoFormat};
use crier_domain::platform::Platform;
use serde_json::{Map, Value};
use url::Url;

use super::{CallError, OutgoingPost, link_card};

/// One option of a platform's posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostOption {
    pub name: &'static str,
    pub kind: OptionKind,
}

/// The values that an option accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// The maximum number of characters.
    Text(usize),
    /// The maximum number of UTF-16 code units.
    Utf16Text(usize),
    /// The maximum number of characters, without `<` and `>`.
    PlainText(usize),
    /// The maximum number of characters, without `.` and `&`.
    Tag(usize),
    /// An `http` or `https` URL.
    Link,
    /// A language tag (BCP 47), such as `de` or `pt-BR`.
    Language,
    /// The name of a subreddit, with or without `r/`.
    Subreddit,
    OneOf(&'static [&'static str]),
    Boolean,
    /// A time in a video, in milliseconds from its start.
    Milliseconds,
    /// The id of an image of the brand.
    Image,
    /// Whether the first link becomes a card, or an object with the fields of the card ([`link_card`]).
    LinkCard,
}

/// The maximum length of a content warning, equal to that of a post.
const MAX_CONTENT_WARNING: usize = 65_535;
/// The maximum length of a URL.
const MAX_LINK: usize = 2_048;

const fn text_of(name: &'static str, max: usize) -> PostOption {
    PostOption { name, kind: OptionKind::Text(max) }
}

const fn plain_text_of(name: &'static str, max: usize) -> PostOption {
    PostOption { name, kind: OptionKind::PlainText(max) }
}

const fn one_of(name: &'static str, values: &'static [&'static str]) -> PostOption {
    PostOption { name, kind: OptionKind::OneOf(values) }
}

const fn boolean(name: &'static str) -> PostOption {
    PostOption { name, kind: OptionKind::Boolean }
}

const LANGUAGE: PostOption = PostOption { name: "language", kind: OptionKind::Language };
const LINK_CARD: PostOption = PostOption { name: link_card::OPTION, kind: OptionKind::LinkCard };
const TOPIC_TAG: PostOption = PostOption { name: "topic_tag", kind: OptionKind::Tag(50) };
const LINK: PostOption = PostOption { name: "link", kind: OptionKind::Link };
const COVER_TIME: PostOption = PostOption { name: COVER_AT_MS, kind: OptionKind::Milliseconds };
const COVER_IMAGE: PostOption = PostOption { name: COVER_MEDIA_ID, kind: OptionKind::Image };

/// The option for the time of the frame that is shown before a video plays.
pub const COVER_AT_MS: &str = "cover_at_ms";
/// The option for the image that is shown before a video plays.
pub const COVER_MEDIA_ID: &str = crier_domain::post::COVER_OPTION;
/// The option for the ID of the board that a pin is published on.
pub const BOARD: &str = "board";
/// The option for the format in which a video is published.
pub const FORMAT: &str = "format";
/// The format of a video in the feed.
pub const FEED: &str = "feed";

/// Crier's names for who may see a TikTok post.
pub const TIKTOK_VISIBILITIES: [&str; 4] = ["public", "friends", "followers", "private"];
/// The buttons of a Google Business post. The first is the default for a post with a link.
pub const GOOGLE_BUSINESS_ACTIONS: [&str; 6] = ["LEARN_MORE", "BOOK", "ORDER", "SHOP", "SIGN_UP", "CALL"];
/// Who may reply to a post on Threads.
const THREADS_REPLIES: [&str; 5] =
    ["everyone", "accounts_you_follow", "mentioned_only", "parent_post_author_only", "followers_only"];

/// Who may see a video on YouTube. The first is the default.
pub const YOUTUBE_PRIVACY: [&str; 3] = ["private", "unlisted", "public"];
/// The categories of YouTube's videos that can be chosen (`videoCategories.list`): 1 film, 2 cars, 10 music, 15 animals,
/// 17 sports, 19 travel, 20 games, 22 people, 23 comedy, 24 entertainment, 25 news, 26 instructions, 27 education, 28
/// science, 29 non-profit.
const YOUTUBE_CATEGORIES: [&str; 15] =
    ["1", "2", "10", "15", "17", "19", "20", "22", "23", "24", "25", "26", "27", "28", "29"];

/// Returns the options of a platform.
pub const fn of(platform: Platform) -> &'static [PostOption] {
    match platform {
        Platform::Wordpress => const { &[text_of("title", 500), COVER_IMAGE] },
        Platform::Mastodon => {
            const {
                &[
                    one_of("visibility", &["public", "unlisted", "private"]),
                    // Shares the limit of the text, which each server sets.
                    text_of("spoiler_text", MAX_CONTENT_WARNING),
                    LANGUAGE,
                    boolean("sensitive"),
                    COVER_IMAGE,
                ]
            }
        }
        Platform::Facebook => {
            const { &[LINK, one_of(FORMAT, &[FEED, REEL, STORY]), text_of("title", 255), COVER_IMAGE] }
        }
        Platform::Instagram => const { &[one_of(FORMAT, &[REEL, STORY]), COVER_TIME, COVER_IMAGE] },
        Platform::Linkedin => const { &[LINK, text_of("title", 400), COVER_IMAGE] },
        Platform::Pinterest => const { &[text_of(BOARD, 100), text_of("title", 100), LINK, COVER_TIME, COVER_IMAGE] },
        Platform::Telegram => &[COVER_IMAGE],
        Platform::Tumblr => const { &[text_of("tags", 4_000), COVER_IMAGE] },
        Platform::Threads => const { &[LINK, one_of("reply_control", &THREADS_REPLIES), TOPIC_TAG] },
        Platform::Tiktok => {
            const {
                &[
                    one_of("visibility", &TIKTOK_VISIBILITIES),
                    PostOption { name: "title", kind: OptionKind::Utf16Text(90) },
                    boolean("disable_comment"),
                    boolean("auto_add_music"),
                    boolean("brand_content"),
                    boolean("brand_organic"),
                    COVER_TIME,
                ]
            }
        }
        Platform::Shopify => {
            const { &[text_of("title", 255), text_of("author", 255), text_of("summary", 5_000), text_of("tags", 5_000)] }
        }
        Platform::GoogleBusiness => const { &[LINK, one_of("action", &GOOGLE_BUSINESS_ACTIONS), LANGUAGE] },
        Platform::Reddit => {
            const {
                &[
                    PostOption { name: "subreddit", kind: OptionKind::Subreddit },
                    text_of("title", 300),
                    LINK,
                    text_of("flair_id", 100),
                    text_of("flair_text", 64),
                    boolean("nsfw"),
                    boolean("spoiler"),
                    COVER_IMAGE,
                ]
            }
        }
        Platform::Bluesky => &[LINK_CARD],
        Platform::Youtube => {
            const {
                &[
                    plain_text_of("title", 100),
                    one_of("privacy", &YOUTUBE_PRIVACY),
                    boolean("made_for_kids"),
                    one_of("category_id", &YOUTUBE_CATEGORIES),
                    plain_text_of("tags", 500),
                    boolean("notify_subscribers"),
                    COVER_IMAGE,
                ]
            }
        }
        Platform::Woocommerce | Platform::Sandbox | Platform::Twitter => &[],
    }
}

/// Returns whether a platform has an option.
pub fn has(platform: Platform, name: &str) -> bool {
    of(platform).iter().any(|option| option.name == name)
}

/// Returns the format of a post's video. `None` for the platform's default.
pub fn video_format(platform: Platform, options: &Map<String, Value>) -> Option<VideoFormat> {
    options.get(FORMAT).and_then(Value::as_str).and_then(|format| VideoFormat::of(platform, format))
}

/// Returns the content warning of a post, which counts together with its text.
pub fn content_warning(platform: Platform, options: &Map<String, Value>) -> &str {
    let option = match platform {
        Platform::Mastodon => options.get("spoiler_text"),
        _ => None,
    };
    option.and_then(Value::as_str).unwrap_or_default()
}

/// Returns the options whose value the platform does not accept, with the accepted values. Unknown options are ignored,
/// as elsewhere in a request. Null means omitted.
pub fn check(platform: Platform, options: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let found = of(platform).iter().filter_map(|option| {
        let value = options.get(option.name).filter(|value| !value.is_null())?;
        (!option.kind.takes(value)).then(|| (option.name, option.kind.describe()))
    });
    found.collect()
}

impl OptionKind {
    fn takes(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Boolean, value) => value.is_boolean(),
            (Self::Milliseconds, value) => value.is_u64(),
            (Self::Image, value) => is_id(value),
            (Self::LinkCard, Value::Bool(_)) => true,
            (Self::LinkCard, Value::Object(card)) => card.iter().all(|(name, value)| is_card_field(name, value)),
            (Self::Text(max), Value::String(text)) => text.chars().count() <= max,
            (Self::Utf16Text(max), Value::String(text)) => text.encode_utf16().count() <= max,
            (Self::PlainText(max), Value::String(text)) => text.chars().count() <= max && !text.contains(['<', '>']),
            (Self::Tag(max), Value::String(text)) => text.chars().count() <= max && !text.contains(['.', '&']),
            // Empty means omitted.
            (Self::Language | Self::Subreddit, Value::String(text)) if text.trim().is_empty() => true,
            (Self::Language, Value::String(text)) => is_language_tag(text),
            (Self::Subreddit, Value::String(text)) => subreddit(text).is_some(),
            (Self::OneOf(values), Value::String(text)) => values.contains(&text.as_str()),
            (Self::Link, Value::String(text)) => {
                text.len() <= MAX_LINK
                    && Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            }
            _ => false,
        }
    }

    /// Completes "The option … must be …".
    fn describe(self) -> String {
        match self {
            Self::Text(max) => format!("text of at most {max} characters"),
            Self::Utf16Text(max) => format!("text of at most {max} characters, of which most emoji count as 2 or more"),
            Self::PlainText(max) => format!("text of at most {max} characters without < and >"),
            Self::Tag(max) => format!("text of at most {max} characters without . and &"),
            Self::Link => format!("an http or https URL of at most {MAX_LINK} characters"),
            Self::Language => "a language code such as de or pt-BR".to_owned(),
            Self::Subreddit => "a subreddit name: 2 to 30 letters, digits, _ and -".to_owned(),
            Self::OneOf(values) => format!("one of {}", values.join(", ")),
            Self::Boolean => "true or false".to_owned(),
            Self::Milliseconds => "a number of milliseconds, at least 0".to_owned(),
            Self::Image => "the ID of an image".to_owned(),
            Self::LinkCard => format!(
                "true, false, or an object with `url` (an http or https URL of at most {MAX_LINK} characters), `title` \
                 and `description` (texts of at most {} and {} characters) and `media_id` (the ID of an image)",
                link_card::MAX_TITLE,
                link_card::MAX_DESCRIPTION
            ),
        }
    }
}

fn is_id(value: &Value) -> bool {
    value.as_i64().is_some_and(|id| id > 0)
}

/// Returns whether a link card may have this field. Unknown fields are ignored.
fn is_card_field(name: &str, value: &Value) -> bool {
    value.is_null()
        || match name {
            "url" => OptionKind::Link.takes(value),
            "title" => OptionKind::Text(link_card::MAX_TITLE).takes(value),
            "description" => OptionKind::Text(link_card::MAX_DESCRIPTION).takes(value),
            "media_id" => is_id(value),
            _ => true,
        }
}

/// The languages with a two-letter code (ISO 639-1), and former codes that are still in use.
const LANGUAGES: &str = "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da \
    de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik \
    in io is it iu iw ja ji jv jw ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk \
    ml mn mo mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se \
    sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo \
    xh yi yo za zh zu";

/// The maximum length of a language tag.
pub const MAX_LANGUAGE: usize = 35;

/// Returns whether a text has the syntax of a language tag (BCP 47): a known two-letter code or any three-letter code,
/// then parts of up to eight letters and digits.
fn is_language_tag(text: &str) -> bool {
    let mut parts = text.split('-');
    let code = parts.next().unwrap_or_default().to_ascii_lowercase();
    let is_code = match code.len() {
        2 => LANGUAGES.split_whitespace().any(|known| known == code),
        3 => code.bytes().all(|byte| byte.is_ascii_lowercase()),
        _ => false,
    };
    let is_part = |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    text.len() <= MAX_LANGUAGE && is_code && parts.all(is_part)
}

/// Returns the name in the option `subreddit`. `None` if it is not valid.
pub(super) fn subreddit(text: &str) -> Option<&str> {
    let text = text.trim().trim_start_matches('/');
    let name = text.strip_prefix("r/").unwrap_or(text);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    ((2..=30).contains(&name.len()) && name.chars().all(is_name)).then_some(name)
}

/// Returns a text option without surrounding spaces. `None` if it is missing or empty. It was checked with the post,
/// but an invalid value is an error here, because the rules may have changed since.
pub(super) fn text<'a>(post: &'a OutgoingPost, name: &str) -> Result<Option<&'a str>, CallError> {
    let Some(value) = post.options.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let wrong = || CallError::invalid(format!("The option {name} must be text."));
    let text = value.as_str().ok_or_else(wrong)?.trim();
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Returns the value of a boolean option. Default: false.
pub(super) fn flag(post: &OutgoingPost, name: &str) -> bool {
    post.options.get(name).and_then(Value::as_bool).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crier_domain::catalogue;
    use serde_json::json;

    use super::*;

    fn rejected(platform: Platform, options: Value) -> Vec<&'static str> {
        let Value::Object(options) = options else { panic!("an object") };
        check(platform, &options).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn every_required_option_is_described() {
        for descriptor in catalogue::all() {
            for name in descriptor.capabilities.required_options {
                let known = of(descriptor.platform).iter().any(|option| option.name == *name);
                assert!(known, "{}: {name}", descriptor.name);
            }
        }
    }

    #[test]
    fn values_of_another_kind_are_rejected() {
        let right = json!({ "visibility": "unlisted", "sensitive": true, "language": null, "another": [1] });
        assert!(rejected(Platform::Mastodon, right).is_empty());
        let wrong = json!({ "visibility": "secret", "sensitive": "yes", "spoiler_text": "x".repeat(65_536) });
        assert_eq!(rejected(Platform::Mastodon, wrong), ["visibility", "spoiler_text", "sensitive"]);
        for link in ["ftp://a.example", "a.example", "https://", &format!("https://a.example/{}", "x".repeat(2_048))] {
            assert_eq!(rejected(Platform::Facebook, json!({ "link": link })), ["link"], "{link}");
        }
        assert!(rejected(Platform::Facebook, json!({ "link": "https://a.example/é" })).is_empty());
        assert_eq!(rejected(Platform::Pinterest, json!({ "board": 12 })), ["board"]);
    }

    #[test]
    fn a_link_card_is_off_or_has_fields_of_the_right_form() {
        let card = |value: Value| rejected(Platform::Bluesky, json!({ "link_card": value }));
        for right in [
            json!(false),
            json!(true),
            json!(null),
            json!({}),
            json!({ "url": "https://a.example", "title": "", "description": "é".repeat(1_000), "media_id": 7 }),
            json!({ "url": null, "media_id": null, "other": [1] }),
        ] {
            assert!(card(right.clone()).is_empty(), "{right}");
        }
        for wrong in [
            json!("no"),
            json!([false]),
            json!({ "url": "ftp://a.example" }),
            json!({ "url": "" }),
            json!({ "title": "x".repeat(301) }),
            json!({ "description": 5 }),
            json!({ "media_id": "7" }),
            json!({ "media_id": 0 }),
        ] {
            assert_eq!(card(wrong.clone()), ["link_card"], "{wrong}");
        }
    }

    #[test]
    fn the_cover_and_the_format_of_a_video_have_a_form() {
        let right = json!({ "format": "story", "cover_at_ms": 0, "cover_media_id": 7 });
        assert!(rejected(Platform::Instagram, right).is_empty());
        assert!(rejected(Platform::Instagram, json!({ "cover_at_ms": null, "cover_media_id": null })).is_empty());
        for wrong in [json!(-1), json!(1.5), json!("100"), json!(true)] {
            let options = json!({ "format": "feed", "cover_at_ms": wrong, "cover_media_id": wrong });
            let expected = ["format", "cover_at_ms", "cover_media_id"];
            assert_eq!(rejected(Platform::Instagram, options), expected, "{wrong}");
        }
        assert_eq!(rejected(Platform::Reddit, json!({ "cover_media_id": 0 })), ["cover_media_id"]);
        let wrong = json!({ "title": "x".repeat(256), "format": "short" });
        assert_eq!(rejected(Platform::Facebook, wrong), ["format", "title"]);
        assert!(rejected(Platform::Bluesky, json!({ "cover_media_id": "x" })).is_empty(), "it has no such option");
    }

    #[test]
    fn only_another_format_than_the_default_has_rules_of_its_own() {
        let format = |platform, value: Value| {
            video_format(platform, &Map::from_iter([(FORMAT.to_owned(), value)])).map(VideoFormat::noun)
        };
        assert_eq!(format(Platform::Facebook, json!("reel")), Some("reels"));
        assert_eq!(format(Platform::Instagram, json!("story")), Some("stories"));
        for value in [json!("feed"), json!("reel"), json!(null), json!(7)] {
            assert_eq!(format(Platform::Instagram, value.clone()), None, "{value}");
        }
        assert_eq!(format(Platform::Tiktok, json!("story")), None);
    }

    #[test]
    fn a_title_on_tiktok_is_counted_in_utf_16() {
        for right in ["x".repeat(90), "é".repeat(90), "🥖".repeat(45)] {
            assert!(rejected(Platform::Tiktok, json!({ "title": right })).is_empty(), "{right}");
        }
        for wrong in ["x".repeat(91), "🥖".repeat(46)] {
            assert_eq!(rejected(Platform::Tiktok, json!({ "title": wrong })), ["title"], "{wrong}");
        }
    }

    #[test]
    fn a_topic_on_threads_contains_no_dot_and_no_ampersand() {
        for right in ["bread", "rye bread", "é".repeat(50).as_str(), ""] {
            assert!(rejected(Platform::Threads, json!({ "topic_tag": right })).is_empty(), "{right}");
        }
        for wrong in ["v1.2", "rock&roll", "é".repeat(51).as_str()] {
            assert_eq!(rejected(Platform::Threads, json!({ "topic_tag": wrong })), ["topic_tag"], "{wrong}");
        }
    }

    #[test]
    fn titles_and_tags_on_youtube_contain_no_angle_brackets() {
        let right = json!({ "title": "é".repeat(100), "tags": "bread,rye & more", "category_id": "22" });
        assert!(rejected(Platform::Youtube, right).is_empty());
        let wrong = json!({ "title": "I <3 bread", "privacy": "friends", "category_id": "3", "tags": "x".repeat(501) });
        assert_eq!(rejected(Platform::Youtube, wrong), ["title", "privacy", "category_id", "tags"]);
        let wrong = json!({ "title": "x".repeat(101), "made_for_kids": "false", "notify_subscribers": 1 });
        assert_eq!(rejected(Platform::Youtube, wrong), ["title", "made_for_kids", "notify_subscribers"]);
    }

    #[test]
    fn a_language_and_a_subreddit_have_a_form() {
        let long = format!("de{}", "-abcdefgh".repeat(4));
        for platform in [Platform::Mastodon, Platform::GoogleBusiness] {
            for right in ["de", "pt-BR", "zh-Hant-TW", "es-419", "EN", "yue", ""] {
                assert!(rejected(platform, json!({ "language": right })).is_empty(), "{right}");
            }
            for wrong in ["nonsense", "xx", "d", "pt_BR", "de-", "-de", "de--AT", "français", "de AT", &long] {
                assert_eq!(rejected(platform, json!({ "language": wrong })), ["language"], "{wrong}");
            }
        }
        for right in ["Bread", "r/Bread", "/r/u_ann-b", ""] {
            assert!(rejected(Platform::Reddit, json!({ "subreddit": right })).is_empty(), "{right}");
        }
        for wrong in ["a", "bread/../x", "r/", "two words", "x".repeat(31).as_str()] {
            assert_eq!(rejected(Platform::Reddit, json!({ "subreddit": wrong })), ["subreddit"], "{wrong}");
        }
    }
}
