//! The fields of posts in requests.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use crier_domain::catalogue;
use crier_domain::post::{FirstCommentOverride, MAX_LABEL, MAX_LABELS, MAX_THREAD, ScheduleType, TargetOverride};
use crier_platforms::link_card;
use crier_platforms::options::{self, OptionKind};
pub use crier_posts::change::{MAX_ACCOUNTS, MAX_CONTENT_CHARS, MAX_MEDIA};
use crier_posts::{PostChange, PostOverride};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::fields::{Fields, PatchField, steps};
use crate::openapi::schema::by_platform;
use crate::request::Request;

mod thread;

pub use thread::{FirstCommentRequest, ThreadPartRequest, to_thread};

/// The changes to a post. Omitted fields keep their values. Null clears a field.
#[derive(Clone, Debug, Default, Request)]
#[request(name = "PostChange")]
pub struct UpdatePostRequest {
    #[field(text(0..=MAX_CONTENT_CHARS), example = "Fresh bread from 6 o'clock.")]
    pub content: PatchField<String>,
    /// `queue`, an extension, schedules the post at the next free slot of the brand's queue.
    #[field(enum_value(), example = "now")]
    pub schedule_type: PatchField<ScheduleType>,
    #[field(time(), extension)]
    pub scheduled_at: PatchField<DateTime<Utc>>,
    #[field(ids(MAX_ACCOUNTS), extension)]
    pub accounts: PatchField<Vec<i64>>,
    #[field(ids(MAX_MEDIA), extension)]
    pub media: PatchField<Vec<i64>>,
    /// The new overrides. They replace all existing overrides.
    #[field(objects(MAX_ACCOUNTS), extension)]
    pub overrides: PatchField<Vec<OverrideRequest>>,
    /// All labels of the post. They do not affect what is published.
    #[field(texts(MAX_LABELS, 1..=MAX_LABEL), extension)]
    pub labels: PatchField<Vec<String>>,
    /// All parts that follow the post in its thread.
    #[field(objects(MAX_THREAD), extension)]
    pub thread: PatchField<Vec<ThreadPartRequest>>,
    /// The comment to publish under the post.
    #[field(object(), extension)]
    pub first_comment: PatchField<FirstCommentRequest>,
}

/// The override for one account. Omitted fields use the post's values.
#[derive(Clone, Debug, Default, Request)]
#[request(name = "PostOverride", check = check_override)]
pub struct OverrideRequest {
    /// The ID of one of the post's accounts.
    #[field(id(), required)]
    pub account_id: Option<i64>,
    #[field(text(1..=MAX_CONTENT_CHARS))]
    pub content: Option<String>,
    #[field(ids(MAX_MEDIA))]
    pub media: Option<Vec<i64>>,
    #[field(map())]
    pub options: Option<PostOptions>,
    /// The parts that follow the text on this account. An empty list publishes only the first part.
    #[field(objects(MAX_THREAD))]
    pub thread: Option<Vec<ThreadPartRequest>>,
    /// The comment for this account. Null publishes none.
    #[field(object())]
    pub first_comment: PatchField<FirstCommentRequest>,
}

/// The platform-specific options of a post, by name.
#[derive(Clone, Debug, Default)]
pub struct PostOptions(Map<String, Value>);

impl From<Map<String, Value>> for PostOptions {
    fn from(options: Map<String, Value>) -> Self {
        Self(options)
    }
}

impl JsonSchema for PostOptions {
    fn schema_name() -> Cow<'static, str> {
        "PostOptions".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let fields = catalogue::all().iter().flat_map(|platform| {
            options::of(platform.platform).iter().map(|option| (option.name, platform.name, schema_of(option.kind)))
        });
        by_platform("The platform-specific options, in addition to the text, images and videos.", fields)
    }
}

fn schema_of(kind: OptionKind) -> Value {
    match kind {
        OptionKind::Boolean => json!({ "type": "boolean" }),
        OptionKind::Milliseconds => json!({ "type": "integer", "minimum": 0 }),
        OptionKind::Image => json!({ "type": "integer" }),
        OptionKind::Link => json!({ "type": "string", "format": "uri" }),
        OptionKind::Text(_)
        | OptionKind::Utf16Text(_)
        | OptionKind::PlainText(_)
        | OptionKind::Tag(_)
        | OptionKind::OneOf(_)
        | OptionKind::Language
        | OptionKind::Subreddit => json!({ "type": "string" }),
        OptionKind::LinkCard => {
            let card = json!({
                "type": "object",
                "properties": {
                    "url": { "type": "string", "format": "uri" },
                    "title": { "type": "string", "maxLength": link_card::MAX_TITLE },
                    "description": { "type": "string", "maxLength": link_card::MAX_DESCRIPTION },
                    "media_id": { "type": "integer" },
                },
            });
            json!({ "anyOf": [{ "type": "boolean" }, card] })
        }
    }
}

/// The options stay in the override, so that their other problems are found too.
fn check_override(request: &OverrideRequest, fields: &Fields<'_>) {
    if request.options.as_ref().is_some_and(|options| any_field_has_nul(&options.0)) {
        fields.problem("options", "Must not contain the NUL character.");
    }
}

impl From<&UpdatePostRequest> for PostChange {
    fn from(request: &UpdatePostRequest) -> Self {
        let UpdatePostRequest {
            content,
            schedule_type,
            scheduled_at,
            accounts,
            media,
            overrides,
            labels,
            thread,
            first_comment,
        } = request.clone();
        Self {
            content,
            schedule_type,
            scheduled_at,
            accounts,
            media,
            overrides: overrides.map(to_overrides),
            labels,
            thread: thread.map(to_thread),
            first_comment: first_comment.map(Into::into),
        }
    }
}

pub fn to_overrides(overrides: Vec<OverrideRequest>) -> Vec<PostOverride> {
    overrides.into_iter().map(Into::into).collect()
}

impl From<OverrideRequest> for PostOverride {
    fn from(request: OverrideRequest) -> Self {
        let target_override = TargetOverride {
            content: request.content,
            media: request.media,
            options: request.options.unwrap_or_default().0,
            signature: None,
            thread: request.thread.map(to_thread),
            first_comment: match request.first_comment {
                PatchField::Omitted => None,
                PatchField::Null => Some(FirstCommentOverride::Off),
                PatchField::Value(comment) => Some(FirstCommentOverride::Own(comment.into())),
            },
        };
        Self { account_id: request.account_id, target_override }
    }
}

fn any_field_has_nul(object: &Map<String, Value>) -> bool {
    object.iter().any(|(key, value)| key.contains('\0') || has_nul(value))
}

fn has_nul(value: &Value) -> bool {
    steps::count_step();
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(list) => list.iter().any(has_nul),
        Value::Object(object) => any_field_has_nul(object),
        _ => false,
    }
}
