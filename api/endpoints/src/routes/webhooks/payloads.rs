//! The schemas of the events' `data`. Crier builds these objects where it emits the events; a test compares the samples
//! with the schemas.

use crier_domain::account::DisconnectResult;
use crier_domain::event::EventName;
use crier_domain::platform::{ConversationType, Platform};
use crier_domain::report::ReportFormat;
use schemars::JsonSchema;

use crate::openapi::schema::SchemaFn;
use crate::openapi::schema::{Schemas, TextEnum};
use crate::response::ScheduledTimestamp;
use crate::routes::accounts::AccountError;
use crate::routes::media::MediaImportError;
use crate::routes::reports::ReportProblem;

/// A post that was published on an account.
#[derive(JsonSchema)]
pub struct PostPublishedData {
    pub post_id: i64,
    pub brand_id: i64,
    pub social_account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    /// The ID of the post on the platform.
    pub external_id: Option<String>,
    /// The public URL of the post. Null if it is unknown.
    pub url: Option<String>,
}

/// A post that could not be published on an account.
#[derive(JsonSchema)]
pub struct PostFailedData {
    pub post_id: i64,
    pub brand_id: i64,
    pub social_account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    pub error: PostFailure,
}

/// The reason a post or its first comment could not be published on an account, or was rejected later.
#[derive(JsonSchema)]
pub struct PostFailure {
    /// A stable error code.
    pub code: String,
    pub message: String,
}

/// A post that was deleted from an account.
#[derive(JsonSchema)]
pub struct PostUnpublishedData {
    pub post_id: i64,
    pub brand_id: i64,
    pub social_account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    /// The ID that the post had on the platform.
    pub external_id: Option<String>,
    /// The public URL that the post had. Null if it is unknown.
    pub url: Option<String>,
}

/// A first comment that could not be published on an account.
#[derive(JsonSchema)]
pub struct PostFirstCommentFailedData {
    pub post_id: i64,
    pub brand_id: i64,
    pub social_account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    pub error: PostFailure,
}

/// A post that the platform rejected after it had published it.
#[derive(JsonSchema)]
pub struct PostRejectedByPlatformData {
    pub post_id: i64,
    pub brand_id: i64,
    pub social_account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    pub error: PostFailure,
}

/// An account that was connected to a brand.
#[derive(JsonSchema)]
pub struct AccountConnectedData {
    pub brand_id: i64,
    pub social_account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
}

/// An account that was disconnected from a brand.
#[derive(JsonSchema)]
pub struct AccountDisconnectedData {
    pub brand_id: i64,
    pub social_account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    /// `detached`: other brands still have the account. `revoked`: no other brand has the account, and its tokens are
    /// deleted.
    #[schemars(with = "TextEnum<DisconnectResult>")]
    pub result: DisconnectResult,
}

/// An account whose access expires soon.
#[derive(JsonSchema)]
pub struct AccountExpiringData {
    pub brand_id: i64,
    pub social_account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    /// The time when access to the account expires.
    pub expires_at: ScheduledTimestamp,
}

/// An account whose credentials the platform no longer accepts.
#[derive(JsonSchema)]
pub struct AccountExpiredData {
    pub brand_id: i64,
    pub social_account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    pub error: AccountError,
}

/// A brand that was created.
#[derive(JsonSchema)]
pub struct BrandCreatedData {
    pub brand_id: i64,
    pub name: String,
}

/// An import that completed or failed.
#[derive(JsonSchema)]
pub struct MediaImportData {
    /// The ID of the import.
    pub job_id: i64,
    pub brand_id: i64,
    /// The ID of the image or video. Null if the import failed.
    pub media_id: Option<i64>,
    /// Null if the import completed.
    pub error: Option<MediaImportError>,
}

/// An export of a report that completed or failed.
#[derive(JsonSchema)]
pub struct ReportDeliveryData {
    pub delivery_id: i64,
    pub report_id: i64,
    pub brand_id: i64,
    #[schemars(with = "TextEnum<ReportFormat>")]
    pub format: ReportFormat,
    /// Null if the file was created.
    pub error: Option<ReportProblem>,
}

/// A message in the inbox.
#[derive(JsonSchema)]
pub struct MessageData {
    pub message_id: i64,
    pub conversation_id: i64,
    pub brand_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    /// The type of the conversation.
    #[schemars(with = "TextEnum<ConversationType>")]
    pub r#type: ConversationType,
}

/// Returns the function that returns the schema of an event's `data`.
pub fn schema(event: EventName) -> SchemaFn {
    match event {
        EventName::PostPublished => Schemas::response::<PostPublishedData>,
        EventName::PostFailed => Schemas::response::<PostFailedData>,
        EventName::PostUnpublished => Schemas::response::<PostUnpublishedData>,
        EventName::PostFirstCommentFailed => Schemas::response::<PostFirstCommentFailedData>,
        EventName::PostRejectedByPlatform => Schemas::response::<PostRejectedByPlatformData>,
        EventName::AccountConnected => Schemas::response::<AccountConnectedData>,
        EventName::AccountDisconnected => Schemas::response::<AccountDisconnectedData>,
        EventName::AccountExpiring => Schemas::response::<AccountExpiringData>,
        EventName::AccountExpired => Schemas::response::<AccountExpiredData>,
        EventName::BrandCreated => Schemas::response::<BrandCreatedData>,
        EventName::MediaCompleted | EventName::MediaFailed => Schemas::response::<MediaImportData>,
        EventName::ReportSent | EventName::ReportFailed => Schemas::response::<ReportDeliveryData>,
        EventName::MessageSent | EventName::MessageFailed | EventName::MessageReceived => {
            Schemas::response::<MessageData>
        }
    }
}
