//! The data of a platform: its key, its limits, and how its accounts are connected. The code that calls it is in
//! `common/platforms/src/<name>/`.

use serde::{Deserialize, Serialize};

crier_base::text_enum! {
    /// All platforms of the contract, in the order in which clients see them.
    pub enum Platform {
        Telegram = "telegram",
        Bluesky = "bluesky",
        Wordpress = "wordpress",
        Woocommerce = "woocommerce",
        Sandbox = "sandbox",
        Mastodon = "mastodon",
        Shopify = "shopify",
        Facebook = "facebook",
        Instagram = "instagram",
        Threads = "threads",
        Twitter = "twitter",
        Linkedin = "linkedin",
        Pinterest = "pinterest",
        Tiktok = "tiktok",
        GoogleBusiness = "google_business",
        Reddit = "reddit",
        Tumblr = "tumblr",
        Youtube = "youtube",
    }
}

crier_base::text_enum! {
    /// How an account is connected: in the browser, with credentials, or in the browser at a server that is named first
    /// (Mastodon, Shopify).
    pub enum Mode { Oauth = "oauth", SelfConnect = "self_connect", SelfConnectOauth = "self_connect_oauth" }
}

crier_base::text_enum! {
    /// The endpoint that connects an account.
    pub enum ConnectMethod { Credentials = "credentials", AuthorizeUrl = "authorize_url" }
}

crier_base::text_enum! {
    /// What is connected in a browser: the person's own account, or a page that the person chooses.
    pub enum ConnectTarget { Default = "default", Page = "page" }
}

crier_base::text_enum! {
    pub enum FieldType { Text = "text", Password = "password", Url = "url" }
}

crier_base::text_enum! {
    /// The unit in which a platform counts the length of a text.
    pub enum TextUnit {
        Characters = "characters",
        Graphemes = "graphemes",
        Utf16 = "utf16",
        Utf8Bytes = "utf8_bytes",
        Weighted = "weighted",
    }
}

crier_base::text_enum! {
    /// The kind of account at the platform.
    pub enum AccountKind { Profile = "profile", Page = "page", Channel = "channel", Site = "site", Store = "store" }
}

crier_base::text_enum! {
    pub enum ConversationType { Dm = "dm", Comment = "comment", Mention = "mention" }
}

/// One field of the credentials form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CredentialField {
    pub name: &'static str,
    pub label: &'static str,
    #[serde(rename = "type")]
    pub field_type: FieldType,
    pub required: bool,
}

/// The limits of a platform's text. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRules {
    pub max: Option<u32>,
    pub unit: TextUnit,
    /// A second limit, in UTF-8 bytes (Bluesky).
    pub max_bytes: Option<u32>,
    /// The limit for a post with images (Telegram's caption).
    pub max_with_media: Option<u32>,
    /// The length that every URL counts as (X, Mastodon).
    pub url_weight: Option<u32>,
}

/// The limits of a platform's images. An image that exceeds `mime_types`, `max_bytes`, `max_sides`, `max_pixels` or
/// `gif` is converted and shrunk, and an alt text is cut. Images that exceed other limits are rejected. So are the covers
/// of videos, also on a platform without images. The API publishes the first four fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MediaRules {
    pub max_images: u32,
    pub required: bool,
    pub mime_types: &'static [&'static str],
    pub max_bytes: Option<u64>,
    /// Maximum sum of width and height, in pixels.
    #[serde(skip)]
    pub max_sides: Option<u32>,
    /// Maximum of width times height.
    #[serde(skip)]
    pub max_pixels: Option<u64>,
    #[serde(skip)]
    pub gif: GifRules,
    /// Maximum length of an alt text, in characters.
    #[serde(skip)]
    pub max_alt_text: Option<u32>,
    #[serde(skip)]
    pub min_bytes: Option<u64>,
    /// Minimum width and height, in pixels.
    #[serde(skip)]
    pub min_side: Option<u32>,
    #[serde(skip)]
    pub ratio: Option<RatioRules>,
    /// Whether the platform downloads images from this installation, which must be reachable from the internet for
    /// that.
    #[serde(skip)]
    pub downloaded: bool,
}

/// The limits of a platform's videos. `None` is no limit, or an unknown one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct VideoRules {
    pub max_bytes: Option<u64>,
    pub min_duration_ms: Option<u32>,
    pub max_duration_ms: Option<u32>,
    /// The content types of the accepted files.
    pub containers: &'static [&'static str],
    /// The accepted codecs, as in [`VideoProperties::video_codec`](crate::media::VideoProperties::video_codec). Empty:
    /// all.
    pub video_codecs: &'static [&'static str],
    #[serde(skip)]
    pub ratio: Option<RatioRules>,
    /// The maximum number of videos in a post.
    pub max_count: u32,
    pub mixes_with_images: bool,
    /// Minimum width and height, in pixels.
    #[serde(skip)]
    pub min_side: Option<u32>,
    /// Maximum width and height, in pixels.
    #[serde(skip)]
    pub max_side: Option<u32>,
    /// Maximum width, in pixels.
    #[serde(skip)]
    pub max_width: Option<u32>,
    /// Maximum of width times height.
    #[serde(skip)]
    pub max_pixels: Option<u64>,
    /// Minimum and maximum number of frames per second. The minimum is 0 if there is none.
    #[serde(skip)]
    pub frame_rate: Option<(u32, u32)>,
    /// Maximum mean number of bits per second.
    #[serde(skip)]
    pub max_bit_rate: Option<u64>,
    /// Whether the platform downloads the file from this installation, which must be reachable from the internet for
    /// that.
    #[serde(skip)]
    pub downloaded: bool,
    /// Whether the platform rejects a file whose index comes after its frames. Crier sends it with its index first.
    #[serde(skip)]
    pub index_first: bool,
    /// Whether the platform rejects a video without an image that is shown before it plays.
    #[serde(skip)]
    pub requires_cover: bool,
}

/// The limits of videos that an operator has set in place of the platform's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VideoLimits {
    pub max_bytes: Option<u64>,
    pub max_duration_ms: Option<u32>,
}

impl VideoRules {
    /// Returns the rules with the limits that an operator has set.
    #[must_use]
    pub fn with_operator_limits(self, limits: VideoLimits) -> Self {
        Self {
            max_bytes: limits.max_bytes.or(self.max_bytes),
            max_duration_ms: limits.max_duration_ms.or(self.max_duration_ms),
            ..self
        }
    }
}

/// The limits of a GIF, in addition to those of every image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GifRules {
    /// Maximum number of bytes, instead of that of every image.
    pub max_bytes: Option<u64>,
    /// Maximum of width times height.
    pub max_pixels: Option<u64>,
    pub max_frames: Option<u32>,
    /// Maximum of width times height times the number of frames.
    pub max_total_pixels: Option<u64>,
    /// Whether the platform rejects a GIF with only one frame.
    pub only_animated: bool,
}

impl GifRules {
    pub const NONE: Self =
        Self { max_bytes: None, max_pixels: None, max_frames: None, max_total_pixels: None, only_animated: false };
}

/// The allowed aspect ratios, as the platform documents them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatioRules {
    pub narrowest: Ratio,
    pub widest: Ratio,
}

/// Width to height: 4:5 is `Ratio(4, 5)`, 1.91:1 is `Ratio(191, 100)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio(pub u32, pub u32);

impl RatioRules {
    /// Returns whether an image of this size is within both limits.
    pub fn takes(&self, width: u32, height: u32) -> bool {
        let (width, height) = (u64::from(width), u64::from(height));
        let at_least = |r: Ratio| width * u64::from(r.1) >= height * u64::from(r.0);
        let at_most = |r: Ratio| width * u64::from(r.1) <= height * u64::from(r.0);
        at_least(self.narrowest) && at_most(self.widest)
    }
}

impl std::fmt::Display for Ratio {
    /// Formats as `4:5`, `1.91:1`, `1:20`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0, self.1) {
            (width, 100) if width % 100 != 0 => write!(f, "{}.{:02}:1", width / 100, width % 100),
            (width, height) => write!(f, "{width}:{height}"),
        }
    }
}

/// The threads of a platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadRules {
    /// The maximum number of parts, including the post itself.
    pub max_parts: u32,
}

/// The limits of a first comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CommentRules {
    pub max: Option<u32>,
    pub unit: TextUnit,
}

/// A platform's capabilities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    pub text: TextRules,
    pub media: MediaRules,
    /// `None` if Crier cannot publish videos on the platform.
    pub video: Option<VideoRules>,
    pub required_options: &'static [&'static str],
    /// The types of conversations that are read into the inbox; if empty, accounts are not synced.
    pub inbox: &'static [ConversationType],
    pub replies: &'static [ConversationType],
    pub analytics: bool,
    /// `None` if the platform has no threads.
    pub thread: Option<ThreadRules>,
    /// `None` if Crier cannot comment on its own posts on the platform.
    pub first_comment: Option<CommentRules>,
    /// Whether a published post can be deleted from the platform.
    pub unpublish: bool,
}

/// A platform in the list of platforms. The API adds `configured`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Descriptor {
    pub platform: Platform,
    pub name: &'static str,
    pub mode: Mode,
    pub connect_method: ConnectMethod,
    pub credential_fields: &'static [CredentialField],
    pub capabilities: Capabilities,
}

impl Platform {
    /// Returns whether the platform requires a second application for pages. At others, one application serves every
    /// target.
    pub const fn has_page_application(self) -> bool {
        matches!(self, Self::Linkedin | Self::Instagram)
    }

    /// Returns whether the platform documents the limits of its videos in contradictory ways, so that an operator can
    /// set them.
    pub const fn has_uncertain_video_limits(self) -> bool {
        matches!(self, Self::Facebook | Self::Instagram | Self::Twitter | Self::Linkedin)
    }

    /// Returns whether the post of a call whose response was lost can be looked up on the platform. On some platforms,
    /// this works only for some accounts.
    pub const fn has_post_lookup(self) -> bool {
        !matches!(self, Self::Telegram)
    }

    /// Returns whether each server sets its own limits.
    pub const fn has_server_limits(self) -> bool {
        matches!(self, Self::Mastodon)
    }

    /// Returns whether an account has boards, of which each post names one.
    pub const fn has_boards(self) -> bool {
        matches!(self, Self::Pinterest)
    }

    /// Returns the target whose application serves this target.
    pub const fn application_target(self, target: ConnectTarget) -> ConnectTarget {
        if self.has_page_application() { target } else { ConnectTarget::Default }
    }
}

impl Descriptor {
    /// Returns whether the operator must register an application with the platform. At Mastodon servers Crier does so
    /// itself.
    pub fn needs_application(&self) -> bool {
        match self.mode {
            Mode::SelfConnect => false,
            Mode::SelfConnectOauth => self.platform != Platform::Mastodon,
            Mode::Oauth => true,
        }
    }
}
