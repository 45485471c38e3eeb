//! The data about each platform that API clients see: one [`Descriptor`] each, in the order of [`Platform::ALL`].
//!
//! The numbers come from the documentation of the platforms, which is named at each. If servers or sites set a limit
//! themselves, the default of the software is used. The limits of videos are in [`video`].
//!
//! **To add a platform:** add its row to [`CATALOGUE`], at the position of its variant in [`Platform`].

use ConversationType::{Comment, Dm, Mention};

use crate::platform::{
    Capabilities, CommentRules, ConnectMethod, ConversationType, CredentialField, Descriptor, FieldType, GifRules,
    MediaRules, Mode, Platform, Ratio, RatioRules, TextRules, TextUnit, ThreadRules,
};

pub mod video;

/// Returns the descriptor of a platform.
pub fn descriptor(platform: Platform) -> &'static Descriptor {
    &CATALOGUE[platform as usize]
}

/// Returns every descriptor, in the order of [`Platform::ALL`].
pub fn all() -> &'static [Descriptor] {
    &CATALOGUE
}

/// Returns the maximum number of posts that a platform accepts on one account within 24 hours, if it is known.
/// Instagram and Threads: content publishing limits. TikTok: posts through an application. YouTube: the uploads of all
/// accounts of an application per day, instead of those of one account. LinkedIn, Pinterest and Facebook: safe values.
pub const fn daily_posts(platform: Platform) -> Option<u32> {
    match platform {
        Platform::Instagram => Some(50),
        Platform::Tiktok => Some(15),
        Platform::Linkedin | Platform::Pinterest | Platform::Youtube => Some(100),
        Platform::Facebook => Some(200),
        Platform::Threads => Some(250),
        _ => None,
    }
}

const JPEG: &str = "image/jpeg";
const PNG: &str = "image/png";
const GIF: &str = "image/gif";
const WEBP: &str = "image/webp";
const MB: u64 = 1_000_000;

const fn field(name: &'static str, label: &'static str, field_type: FieldType, required: bool) -> CredentialField {
    CredentialField { name, label, field_type, required }
}

const fn text(max: u32, unit: TextUnit) -> TextRules {
    TextRules { max: Some(max), unit, max_bytes: None, max_with_media: None, url_weight: None }
}

const fn comments(max: u32, unit: TextUnit) -> Option<CommentRules> {
    Some(CommentRules { max: Some(max), unit })
}

/// No platform limits the length of a thread. This is Crier's limit: the post and [`MAX_THREAD`] parts.
///
/// [`MAX_THREAD`]: crate::post::MAX_THREAD
const THREAD: Option<ThreadRules> = Some(ThreadRules { max_parts: 25 });

const fn images(max_images: u32, mime_types: &'static [&'static str], max_bytes: Option<u64>) -> MediaRules {
    MediaRules {
        max_images,
        required: false,
        mime_types,
        max_bytes,
        max_sides: None,
        max_pixels: None,
        gif: GifRules::NONE,
        max_alt_text: None,
        min_bytes: None,
        min_side: None,
        ratio: None,
        downloaded: false,
    }
}

const fn with_alt_text(max: u32, rules: MediaRules) -> MediaRules {
    MediaRules { max_alt_text: Some(max), ..rules }
}

const fn required(rules: MediaRules) -> MediaRules {
    MediaRules { required: true, ..rules }
}

const fn downloaded(rules: MediaRules) -> MediaRules {
    MediaRules { downloaded: true, ..rules }
}

const fn shaped(rules: MediaRules, narrowest: Ratio, widest: Ratio) -> MediaRules {
    MediaRules { ratio: Some(RatioRules { narrowest, widest }), ..rules }
}

const fn by_credentials(
    platform: Platform,
    name: &'static str,
    credential_fields: &'static [CredentialField],
    capabilities: Capabilities,
) -> Descriptor {
    let (mode, connect_method) = (Mode::SelfConnect, ConnectMethod::Credentials);
    Descriptor { platform, name, mode, connect_method, credential_fields, capabilities }
}

const fn by_page(platform: Platform, name: &'static str, mode: Mode, capabilities: Capabilities) -> Descriptor {
    let connect_method = ConnectMethod::AuthorizeUrl;
    Descriptor { platform, name, mode, connect_method, credential_fields: &[], capabilities }
}

static CATALOGUE: [Descriptor; Platform::ALL.len()] = [
    TELEGRAM,
    BLUESKY,
    WORDPRESS,
    WOOCOMMERCE,
    SANDBOX,
    MASTODON,
    SHOPIFY,
    FACEBOOK,
    INSTAGRAM,
    THREADS,
    TWITTER,
    LINKEDIN,
    PINTEREST,
    TIKTOK,
    GOOGLE_BUSINESS,
    REDDIT,
    TUMBLR,
    YOUTUBE,
];

/// Telegram Bot API: `sendMessage` (1–4096 characters after entities parsing), `sendPhoto` (caption 0–1024, at most 10
/// MB, width and height at most 10,000 together and 20 to 1), `sendMediaGroup` (2–10). Lengths are in UTF-16 code
/// units, as in its entities.
const TELEGRAM: Descriptor = by_credentials(
    Platform::Telegram,
    "Telegram",
    &[
        field("bot_token", "Bot token", FieldType::Password, true),
        field("chat_id", "Chat ID or @username of the channel", FieldType::Text, true),
    ],
    Capabilities {
        text: TextRules { max_with_media: Some(1024), ..text(4096, TextUnit::Utf16) },
        media: MediaRules {
            max_sides: Some(10_000),
            ..shaped(images(10, &[JPEG, PNG, WEBP], Some(10 * MB)), Ratio(1, 20), Ratio(20, 1))
        },
        video: Some(video::TELEGRAM),
        required_options: &[],
        inbox: &[Dm, Comment],
        replies: &[Dm, Comment],
        analytics: true,
        thread: THREAD,
        first_comment: comments(4096, TextUnit::Utf16),
        unpublish: true,
    },
);

/// Lexicons `app.bsky.feed.post` (maxGraphemes 300, maxLength 3000) and `app.bsky.embed.images` (4 images of 2,000,000
/// bytes, but the guides state 1,000,000). The lexicon does not limit alt texts; Bluesky's application does.
const BLUESKY: Descriptor = by_credentials(
    Platform::Bluesky,
    "Bluesky",
    &[
        field("identifier", "Handle or email", FieldType::Text, true),
        field("app_password", "App password", FieldType::Password, true),
        field("service", "URL of the personal data server", FieldType::Url, false),
    ],
    Capabilities {
        text: TextRules { max_bytes: Some(3000), ..text(300, TextUnit::Graphemes) },
        media: with_alt_text(2_000, images(4, &[JPEG, PNG, WEBP], Some(MB))),
        video: Some(video::BLUESKY),
        required_options: &[],
        inbox: &[Dm, Comment, Mention],
        replies: &[Dm, Comment, Mention],
        analytics: true,
        thread: THREAD,
        first_comment: comments(300, TextUnit::Graphemes),
        unpublish: true,
    },
);

/// WordPress sets no limit; 100,000 is Crier's limit. The first image is the featured image, the others form a gallery.
const WORDPRESS: Descriptor = by_credentials(
    Platform::Wordpress,
    "WordPress",
    &[
        field("site_url", "Site URL", FieldType::Url, true),
        field("username", "Username", FieldType::Text, true),
        field("application_password", "Application password", FieldType::Password, true),
    ],
    Capabilities {
        text: text(100_000, TextUnit::Characters),
        media: images(20, &[JPEG, PNG, GIF, WEBP], None),
        video: Some(video::WORDPRESS),
        required_options: &[],
        inbox: &[Comment],
        replies: &[Comment],
        analytics: false,
        thread: None,
        first_comment: comments(65_525, TextUnit::Characters),
        unpublish: true,
    },
);

/// A post becomes a simple product. A consumer key cannot reply to reviews.
const WOOCOMMERCE: Descriptor = by_credentials(
    Platform::Woocommerce,
    "WooCommerce",
    &[
        field("store_url", "Store URL", FieldType::Url, true),
        field("consumer_key", "Consumer key", FieldType::Password, true),
        field("consumer_secret", "Consumer secret", FieldType::Password, true),
    ],
    Capabilities {
        text: text(100_000, TextUnit::Characters),
        media: images(20, &[JPEG, PNG, GIF, WEBP], None),
        video: None,
        required_options: &[],
        inbox: &[Comment],
        replies: &[],
        analytics: false,
        thread: None,
        first_comment: None,
        unpublish: true,
    },
);

const SANDBOX: Descriptor = by_credentials(
    Platform::Sandbox,
    "Sandbox",
    &[field("handle", "Handle", FieldType::Text, true)],
    Capabilities {
        text: text(5000, TextUnit::Characters),
        media: images(10, &[JPEG, PNG, GIF, WEBP], None),
        video: Some(video::SANDBOX),
        required_options: &[],
        inbox: &[Comment],
        replies: &[Comment],
        analytics: true,
        thread: THREAD,
        first_comment: comments(5000, TextUnit::Characters),
        unpublish: true,
    },
);

/// The defaults of Mastodon's `/api/v2/instance`; each server may set others ([`crate::limits`]). Mastodon counts
/// graphemes, every URL as 23, and `@user@host` as `@user`. It rejects a GIF with more than 1280 × 720 pixels.
const MASTODON: Descriptor = by_page(
    Platform::Mastodon,
    "Mastodon",
    Mode::SelfConnectOauth,
    Capabilities {
        text: TextRules { url_weight: Some(23), ..text(500, TextUnit::Graphemes) },
        media: MediaRules {
            max_pixels: Some(33_177_600),
            gif: GifRules { max_pixels: Some(1280 * 720), ..GifRules::NONE },
            ..with_alt_text(1_500, images(4, &[JPEG, PNG, GIF, WEBP], Some(16 << 20)))
        },
        video: Some(video::MASTODON),
        required_options: &[],
        inbox: &[Dm, Comment, Mention],
        replies: &[Dm, Comment, Mention],
        analytics: true,
        thread: THREAD,
        first_comment: comments(500, TextUnit::Graphemes),
        unpublish: true,
    },
);

/// Admin API `articleCreate`: an article has one image, with an alt text of at most 512 characters.
const SHOPIFY: Descriptor = by_page(
    Platform::Shopify,
    "Shopify",
    Mode::SelfConnectOauth,
    Capabilities {
        text: TextRules { max: None, ..text(0, TextUnit::Characters) },
        media: with_alt_text(512, downloaded(images(1, &[JPEG, PNG, GIF, WEBP], None))),
        video: None,
        required_options: &[],
        inbox: &[],
        replies: &[],
        analytics: false,
        thread: None,
        first_comment: None,
        unpublish: true,
    },
);

/// Graph API, page feed and photos.
const FACEBOOK: Descriptor = by_page(
    Platform::Facebook,
    "Facebook",
    Mode::Oauth,
    Capabilities {
        text: text(63_206, TextUnit::Characters),
        media: images(10, &[JPEG, PNG, GIF], Some(4 * MB)),
        video: Some(video::FACEBOOK),
        required_options: &[],
        inbox: &[Dm, Comment],
        replies: &[Dm, Comment],
        analytics: true,
        thread: None,
        first_comment: comments(8_000, TextUnit::Characters),
        unpublish: true,
    },
);

/// Instagram platform, content publishing: JPEG only, at most 8 MB, 4:5 to 1.91:1, at least one. Hashtags and mentions:
/// `text::check`.
const INSTAGRAM: Descriptor = by_page(
    Platform::Instagram,
    "Instagram",
    Mode::Oauth,
    Capabilities {
        text: text(2200, TextUnit::Characters),
        media: with_alt_text(
            1_000,
            shaped(downloaded(required(images(10, &[JPEG], Some(8 * MB)))), Ratio(4, 5), Ratio(191, 100)),
        ),
        video: Some(video::INSTAGRAM),
        required_options: &[],
        inbox: &[Dm, Comment],
        replies: &[Comment],
        analytics: true,
        thread: None,
        first_comment: comments(2_200, TextUnit::Characters),
        unpublish: true,
    },
);

/// Threads API, posts: 500 characters, where an emoji counts as its UTF-8 bytes; a carousel of 2 to 20 images of at most
/// 10:1.
const THREADS: Descriptor = by_page(
    Platform::Threads,
    "Threads",
    Mode::Oauth,
    Capabilities {
        text: text(500, TextUnit::Weighted),
        media: with_alt_text(
            1_000,
            shaped(downloaded(images(20, &[JPEG, PNG], Some(8 * MB))), Ratio(1, 10), Ratio(10, 1)),
        ),
        video: Some(video::THREADS),
        required_options: &[],
        inbox: &[Comment, Mention],
        replies: &[Comment, Mention],
        analytics: true,
        thread: THREAD,
        first_comment: comments(500, TextUnit::Weighted),
        unpublish: true,
    },
);

/// X, "Counting characters" and media best practices: a GIF has at most 15 MB, 1280 × 1080 pixels, 350 frames, and 300
/// million pixels (width × height × frames) in total. X accepts no still GIFs (its staff, in the developer forum).
const TWITTER: Descriptor = by_page(
    Platform::Twitter,
    "X",
    Mode::Oauth,
    Capabilities {
        text: TextRules { url_weight: Some(23), ..text(280, TextUnit::Weighted) },
        media: MediaRules {
            gif: GifRules {
                max_bytes: Some(15 * MB),
                max_pixels: Some(1280 * 1080),
                max_frames: Some(350),
                max_total_pixels: Some(300_000_000),
                only_animated: true,
            },
            ..with_alt_text(1_000, images(4, &[JPEG, PNG, WEBP, GIF], Some(5 * MB)))
        },
        video: Some(video::TWITTER),
        required_options: &[],
        inbox: &[Mention],
        replies: &[Mention],
        analytics: true,
        thread: THREAD,
        first_comment: comments(280, TextUnit::Weighted),
        unpublish: true,
    },
);

/// LinkedIn, Posts API and "little text format": characters that must be escaped count twice. MultiImage and Images
/// API: 2 to 20 images, fewer than 36,152,320 pixels, GIFs of at most 250 frames, alt texts of at most 4,086
/// characters. Only pages have an inbox and metrics.
const LINKEDIN: Descriptor = by_page(
    Platform::Linkedin,
    "LinkedIn",
    Mode::Oauth,
    Capabilities {
        text: text(3000, TextUnit::Weighted),
        media: MediaRules {
            max_pixels: Some(36_152_319),
            gif: GifRules { max_frames: Some(250), ..GifRules::NONE },
            ..with_alt_text(4_086, images(20, &[JPEG, PNG, GIF], None))
        },
        video: Some(video::LINKEDIN),
        required_options: &[],
        inbox: &[Comment],
        replies: &[Comment],
        analytics: true,
        thread: None,
        first_comment: comments(1_250, TextUnit::Characters),
        unpublish: true,
    },
);

/// Pinterest v5, pins: the text is the description; the title (100) is an option. Images that are sent with the pin are
/// JPEG or PNG.
const PINTEREST: Descriptor = by_page(
    Platform::Pinterest,
    "Pinterest",
    Mode::Oauth,
    Capabilities {
        text: text(800, TextUnit::Characters),
        media: with_alt_text(500, required(images(5, &[JPEG, PNG], Some(10 * MB)))),
        video: Some(video::PINTEREST),
        required_options: &["board"],
        inbox: &[],
        replies: &[],
        analytics: true,
        thread: None,
        first_comment: None,
        unpublish: true,
    },
);

/// TikTok, content posting API, photos: the text is the description, counted in UTF-16; the title (90) is an option.
const TIKTOK: Descriptor = by_page(
    Platform::Tiktok,
    "TikTok",
    Mode::Oauth,
    Capabilities {
        text: text(4000, TextUnit::Utf16),
        media: downloaded(required(images(35, &[JPEG, WEBP], Some(20 * MB)))),
        video: Some(video::TIKTOK),
        required_options: &["visibility"],
        inbox: &[],
        replies: &[],
        analytics: true,
        thread: None,
        first_comment: None,
        unpublish: false,
    },
);

/// Google Business Profile, `localPosts`; photos of at least 10,240 bytes and 250 by 250 pixels.
const GOOGLE_BUSINESS: Descriptor = by_page(
    Platform::GoogleBusiness,
    "Google Business Profile",
    Mode::Oauth,
    Capabilities {
        text: text(1500, TextUnit::Characters),
        media: MediaRules {
            min_bytes: Some(10_240),
            min_side: Some(250),
            ..downloaded(images(1, &[JPEG, PNG], Some(5 * MB)))
        },
        video: None,
        required_options: &[],
        inbox: &[Comment],
        replies: &[Comment],
        analytics: false,
        thread: None,
        first_comment: None,
        unpublish: true,
    },
);

/// Reddit, `/api/submit`: a text (40,000), a link, an image or a gallery of up to 20.
const REDDIT: Descriptor = by_page(
    Platform::Reddit,
    "Reddit",
    Mode::Oauth,
    Capabilities {
        text: text(40_000, TextUnit::Characters),
        media: images(20, &[JPEG, PNG, GIF], Some(20 * MB)),
        video: Some(video::REDDIT),
        required_options: &["subreddit", "title"],
        inbox: &[Dm, Comment, Mention],
        replies: &[Dm, Comment, Mention],
        analytics: true,
        thread: None,
        first_comment: comments(10_000, TextUnit::Characters),
        unpublish: true,
    },
);

/// Tumblr, Neue Post Format: 4096 characters per text block, 1,000 blocks and 1 MB per post; the connector makes the
/// blocks, and 100,000 characters are always within these limits. 30 images per post.
const TUMBLR: Descriptor = by_page(
    Platform::Tumblr,
    "Tumblr",
    Mode::Oauth,
    Capabilities {
        text: text(100_000, TextUnit::Characters),
        media: with_alt_text(4_096, images(30, &[JPEG, PNG, GIF, WEBP], None)),
        video: Some(video::TUMBLR),
        required_options: &[],
        inbox: &[Comment, Mention],
        replies: &[],
        analytics: true,
        thread: None,
        first_comment: None,
        unpublish: true,
    },
);

/// YouTube Data API v3, `videos.insert`: the text is the description (5,000 bytes), the title (100 characters) is an
/// option. A post is one video. The image rules are those of its cover (`thumbnails.set`: JPEG or PNG, 50 MB since
/// September 2026). Comments of at most 10,000 characters.
const YOUTUBE: Descriptor = by_page(
    Platform::Youtube,
    "YouTube",
    Mode::Oauth,
    Capabilities {
        text: text(5_000, TextUnit::Utf8Bytes),
        media: required(images(0, &[JPEG, PNG], Some(50 * MB))),
        video: Some(video::YOUTUBE),
        required_options: &["title", "made_for_kids"],
        inbox: &[Comment],
        replies: &[Comment],
        analytics: true,
        thread: None,
        first_comment: comments(10_000, TextUnit::Characters),
        unpublish: true,
    },
);
