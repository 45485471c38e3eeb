//! `GET /brands/{brand}/social-accounts/platforms`

use crier_domain::access::Scope;
use crier_domain::platform::{self, ConnectMethod, ConversationType, FieldType, Mode, Platform, TextUnit};
use crier_platforms::ConnectorRegistry;
use crier_store::{Conn, applications};
use schemars::JsonSchema;
use serde::Serialize;

use super::TAG;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::response::{Many, Reply};

/// A field of the credentials.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CredentialField {
    pub name: &'static str,
    pub label: &'static str,
    #[schemars(with = "TextEnum<FieldType>")]
    pub r#type: FieldType,
    pub required: bool,
}

/// A platform's limits for text. A limit is null if the platform does not have it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TextRules {
    pub max: Option<u32>,
    #[schemars(with = "TextEnum<TextUnit>")]
    pub unit: TextUnit,
    /// A second limit, in UTF-8 bytes.
    pub max_bytes: Option<u32>,
    pub max_with_media: Option<u32>,
    /// The number of units that each URL counts as, regardless of its length.
    pub url_weight: Option<u32>,
}

/// A platform's limits for images.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MediaRules {
    pub max_images: u32,
    pub required: bool,
    pub mime_types: Vec<&'static str>,
    pub max_bytes: Option<u64>,
}

/// A platform's limits for videos. A limit is null if the platform does not have it, or if it is not known.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VideoRules {
    pub max_bytes: Option<u64>,
    pub min_duration_ms: Option<u32>,
    pub max_duration_ms: Option<u32>,
    /// The content types of the files that the platform accepts.
    pub containers: Vec<&'static str>,
    /// The codecs that the platform accepts. Empty if it accepts all, or if they are not known.
    pub video_codecs: Vec<&'static str>,
    /// The accepted aspect ratios. Null if the platform accepts all.
    pub aspect_ratios: Option<AspectRatios>,
    /// The maximum number of videos in a post.
    pub max_count: u32,
    /// Whether a post can have both videos and images.
    pub mixes_with_images: bool,
}

/// A range of aspect ratios, as `width:height`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AspectRatios {
    #[schemars(extend("examples" = ["9:16"]))]
    pub min: String,
    #[schemars(extend("examples" = ["16:9"]))]
    pub max: String,
}

impl From<platform::VideoRules> for VideoRules {
    fn from(rules: platform::VideoRules) -> Self {
        let ratios = |ratio: platform::RatioRules| AspectRatios {
            min: ratio.narrowest.to_string(),
            max: ratio.widest.to_string(),
        };
        Self {
            max_bytes: rules.max_bytes,
            min_duration_ms: rules.min_duration_ms,
            max_duration_ms: rules.max_duration_ms,
            containers: rules.containers.to_vec(),
            video_codecs: rules.video_codecs.to_vec(),
            aspect_ratios: rules.ratio.map(ratios),
            max_count: rules.max_count,
            mixes_with_images: rules.mixes_with_images,
        }
    }
}

/// A platform's limits for threads.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ThreadRules {
    /// The maximum number of parts, including the post itself.
    pub max_parts: u32,
}

/// A platform's limits for first comments.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FirstCommentRules {
    /// Null if the platform has no limit.
    pub max: Option<u32>,
    #[schemars(with = "TextEnum<TextUnit>")]
    pub unit: TextUnit,
}

/// The capabilities of a platform.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Capabilities {
    pub text: TextRules,
    pub media: MediaRules,
    /// The limits of videos in the platform's default format. Null if Crier cannot publish videos on the platform.
    pub video: Option<VideoRules>,
    /// The options that a post requires, in `overrides[].options`.
    pub required_options: Vec<&'static str>,
    /// The types of conversations in the inbox. Empty if this installation has disabled the inbox of the platform.
    #[schemars(with = "Vec<TextEnum<ConversationType>>")]
    pub inbox: Vec<ConversationType>,
    #[schemars(with = "Vec<TextEnum<ConversationType>>")]
    pub replies: Vec<ConversationType>,
    /// Whether this installation collects metrics of the platform's posts and accounts.
    pub analytics: bool,
    /// Null if the platform has no threads.
    pub thread: Option<ThreadRules>,
    /// Null if Crier cannot comment on its own posts.
    pub first_comment: Option<FirstCommentRules>,
    /// Whether Crier can delete published posts from the platform.
    pub unpublish: bool,
}

/// A platform and its requirements. Read the descriptor at run time instead of hard-coding it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlatformDescriptor {
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    pub name: &'static str,
    #[schemars(with = "TextEnum<Mode>")]
    pub mode: Mode,
    #[schemars(with = "TextEnum<ConnectMethod>")]
    pub connect_method: ConnectMethod,
    pub credential_fields: Vec<CredentialField>,
    /// Whether this installation can connect the platform.
    #[schemars(extend("x-extension" = true))]
    pub configured: bool,
    #[schemars(extend("x-extension" = true))]
    pub capabilities: Capabilities,
}

impl PlatformDescriptor {
    fn of(d: &platform::Descriptor, registry: &ConnectorRegistry, configured: bool) -> Self {
        let inbox = registry.has_inbox(d.platform);
        let fields = d.credential_fields.iter().map(|f| CredentialField {
            name: f.name,
            label: f.label,
            r#type: f.field_type,
            required: f.required,
        });
        let (text, media) = (&d.capabilities.text, &d.capabilities.media);
        let thread = d.capabilities.thread.map(|rules| ThreadRules { max_parts: rules.max_parts });
        let first_comment = d.capabilities.first_comment;
        let video_limits = registry.video_limits(d.platform);
        Self {
            platform: d.platform,
            name: d.name,
            mode: d.mode,
            connect_method: d.connect_method,
            credential_fields: fields.collect(),
            configured,
            capabilities: Capabilities {
                text: TextRules {
                    max: text.max,
                    unit: text.unit,
                    max_bytes: text.max_bytes,
                    max_with_media: text.max_with_media,
                    url_weight: text.url_weight,
                },
                media: MediaRules {
                    max_images: media.max_images,
                    required: media.required,
                    mime_types: media.mime_types.to_vec(),
                    max_bytes: media.max_bytes,
                },
                video: d.capabilities.video.map(|rules| rules.with_operator_limits(video_limits).into()),
                required_options: d.capabilities.required_options.to_vec(),
                inbox: if inbox { d.capabilities.inbox.to_vec() } else { Vec::new() },
                replies: if inbox { d.capabilities.replies.to_vec() } else { Vec::new() },
                analytics: registry.collects_metrics(d.platform),
                thread,
                first_comment: first_comment.map(|rules| FirstCommentRules { max: rules.max, unit: rules.unit }),
                unpublish: d.capabilities.unpublish,
            },
        }
    }
}

pub fn endpoint() -> Endpoint<(), Many<PlatformDescriptor>> {
    Endpoint::get("/brands/{brand}/social-accounts/platforms", "listPlatforms", Scope::AccountsRead)
        .tag(TAG)
        .summary("List the platforms that can be connected")
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<PlatformDescriptor>>> {
    let registry = &cx.app.platforms;
    let set = applications::platforms(conn, cx.caller.workspace_id, cx.brand()?.id).await?;
    let configured = |platform| registry.is_configured(platform, set.contains(&platform));
    let all = registry.all().iter().map(|d| PlatformDescriptor::of(d, registry, configured(d.platform)));
    Ok(Reply::from(all.collect::<Vec<_>>()))
}
