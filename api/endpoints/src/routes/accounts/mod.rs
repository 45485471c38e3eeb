//! Social accounts: connected by credentials, refreshed, disconnected.

use crier_config::application_variables;
use crier_domain::account::{self, AccountStatus};
use crier_domain::catalogue::descriptor;
use crier_domain::limits;
use crier_domain::platform::{AccountKind, ConnectTarget, Platform};
use schemars::JsonSchema;
use serde::Serialize;

use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, ErrorCode};
use crate::openapi::schema::TextEnum;
use crate::response::{ScheduledTimestamp, Timestamp};

pub mod authorize;
pub mod connect;
pub mod disconnect;
pub mod list;
pub mod platforms;
pub mod refresh;
mod revoke;
pub mod save;
pub mod update;

pub const TAG: &str = "Social accounts";

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        list::endpoint().erase(),
        connect::endpoint().erase(),
        platforms::endpoint().erase(),
        authorize::endpoint().erase(),
        update::endpoint().erase(),
        refresh::endpoint().erase(),
        disconnect::endpoint().erase(),
    ]
}

/// The reason an account stopped working.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AccountError {
    pub code: String,
    pub message: String,
}

/// The limits that the account's server states, for Mastodon and servers that implement its API. Crier reads them when
/// the account is connected and once per day. A limit is null if the server does not state it. The limit of the platform
/// then applies.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AccountLimits {
    /// The server's software, such as `mastodon` or `gotosocial`. Servers count texts differently.
    pub software: Option<String>,
    /// The maximum length of a post.
    pub max_characters: Option<u32>,
    /// The length that every URL in a post counts as. Null if the server counts URLs in full.
    pub url_length: Option<u32>,
    /// The maximum number of images in a post.
    pub max_images: Option<u32>,
    /// The maximum length of an alt text. Longer ones are cut at a word.
    pub max_alt_text: Option<u32>,
    /// The maximum size of an image, in bytes. Larger ones are reduced.
    pub max_image_bytes: Option<u64>,
    /// The maximum of width times height of an image. Larger ones are reduced.
    pub max_image_pixels: Option<u64>,
    /// The types of images that are sent to the server. Other types are converted.
    pub mime_types: Vec<&'static str>,
    /// The maximum size of a video, in bytes.
    pub max_video_bytes: Option<u64>,
    /// The maximum of width times height of a video.
    pub max_video_pixels: Option<u64>,
    /// The maximum number of frames per second of a video.
    pub max_frame_rate: Option<u32>,
    /// The types of videos that the server accepts. Empty if it accepts none.
    pub video_types: Vec<&'static str>,
    /// The time when the limits were read.
    pub read_at: Timestamp,
}

impl AccountLimits {
    fn new(platform: Platform, limits: limits::AccountLimits) -> Self {
        let descriptor = descriptor(platform).with_limits(Some(&limits));
        Self {
            software: limits.software,
            max_characters: limits.max_characters,
            url_length: descriptor.capabilities.text.url_weight,
            max_images: limits.max_images,
            max_alt_text: limits.max_alt_text,
            max_image_bytes: limits.max_image_bytes,
            max_image_pixels: limits.max_image_pixels,
            mime_types: descriptor.capabilities.media.mime_types.to_vec(),
            max_video_bytes: limits.max_video_bytes,
            max_video_pixels: limits.max_video_pixels,
            max_frame_rate: limits.max_frame_rate,
            video_types: descriptor.capabilities.video.map_or_else(Vec::new, |rules| rules.containers.to_vec()),
            read_at: limits.read_at.into(),
        }
    }
}

/// An account on a platform. A workspace has one record of each external account, attached to one or more brands.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SocialAccount {
    pub id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    pub name: String,
    pub username: Option<String>,
    pub external_id: String,
    #[schemars(url)]
    pub profile_url: Option<String>,
    #[schemars(url)]
    pub avatar_url: Option<String>,
    #[schemars(with = "TextEnum<AccountKind>")]
    pub kind: AccountKind,
    /// The status of the account. Only active accounts can publish.
    #[schemars(with = "TextEnum<AccountStatus>")]
    pub status: AccountStatus,
    pub token_expires_at: Option<ScheduledTimestamp>,
    pub last_error: Option<AccountError>,
    /// Null if the platform's limits apply, or if the limits have not been read.
    #[schemars(extend("x-extension" = true))]
    pub limits: Option<AccountLimits>,
    /// The ID of the snippet that is the account's signature in this brand. Null if it has none.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub signature_id: Option<i64>,
    pub connected_at: Timestamp,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<account::SocialAccount> for SocialAccount {
    fn from(a: account::SocialAccount) -> Self {
        Self {
            id: a.id,
            platform: a.platform,
            name: a.name,
            username: a.username,
            external_id: a.external_id,
            profile_url: a.profile_url,
            avatar_url: a.avatar_url,
            kind: a.kind,
            status: a.status,
            token_expires_at: a.token_expires_at.map(ScheduledTimestamp),
            last_error: a.last_error.map(|e| AccountError { code: e.code, message: e.message }),
            limits: a
                .limits
                .filter(|_| a.platform.has_server_limits())
                .map(|limits| AccountLimits::new(a.platform, limits)),
            signature_id: a.signature_id,
            connected_at: a.connected_at.into(),
            created_at: a.created_at.into(),
            updated_at: a.updated_at.into(),
        }
    }
}

fn interactive_setup_required(platform: Platform) -> ApiError {
    let name = descriptor(platform).name;
    let message = format!("{name} accounts cannot be connected through the API. Connect them in the console.");
    ApiError::new(ErrorCode::InteractiveSetupRequired, message)
}

/// Returns an error that names the variables that the operator must set.
pub fn not_configured(platform: Platform, target: ConnectTarget) -> ApiError {
    let name = descriptor(platform).name;
    let message = if platform == Platform::Sandbox {
        "The sandbox is disabled on this installation. Its operator can enable it with CRIER_SANDBOX=true.".to_owned()
    } else {
        let [id, secret] = application_variables(platform, platform.application_target(target));
        format!(
            "{name} is not configured on this installation. Its operator must register an application at {name} and set \
             {id} and {secret}."
        )
    };
    ApiError::new(ErrorCode::PlatformNotConfigured, message)
}

pub fn unavailable(message: String) -> ApiError {
    ApiError::new(ErrorCode::PlatformUnavailable, message)
}

pub fn full(cap: u64) -> ApiError {
    let nouns = ["social account per brand", "social accounts per brand"];
    ApiError::limit_reached(cap, nouns, "Disconnect one, or ask the operator for a larger plan.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_configuration_names_the_variables() {
        let message = |platform, target| not_configured(platform, target).message.to_string();
        assert!(message(Platform::Sandbox, ConnectTarget::Default).contains("CRIER_SANDBOX=true"));
        for (platform, target, variables) in [
            (Platform::Facebook, ConnectTarget::Page, "CRIER_FACEBOOK_CLIENT_ID and CRIER_FACEBOOK_CLIENT_SECRET"),
            (
                Platform::GoogleBusiness,
                ConnectTarget::Default,
                "CRIER_GOOGLE_BUSINESS_CLIENT_ID and CRIER_GOOGLE_BUSINESS_CLIENT_SECRET",
            ),
            (
                Platform::Linkedin,
                ConnectTarget::Page,
                "CRIER_LINKEDIN_PAGE_CLIENT_ID and CRIER_LINKEDIN_PAGE_CLIENT_SECRET",
            ),
        ] {
            assert!(message(platform, target).contains(variables), "{}", message(platform, target));
        }
    }
}
