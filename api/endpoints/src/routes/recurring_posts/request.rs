//! The fields of recurring posts in requests.

use std::ops::RangeInclusive;

use chrono::NaiveDate;
use crier_domain::analytics::zone;
use crier_domain::content_plan::Destination;
use crier_domain::post::{MAX_LABEL, MAX_LABELS};
use crier_domain::recurrence::{Frequency, parse_cron};
use crier_domain::recurring_post::{MAX_COUNT, MAX_NAME, MAX_VARIATIONS, Variation};
use crier_posts::change::{MAX_ACCOUNTS, MAX_CONTENT_CHARS, MAX_MEDIA};
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::fields::{Fields, PatchField};
use crate::request::{Format, Request};
use crate::routes::posts::request::OverrideRequest;

/// The maximum length of a cron expression, in characters.
const MAX_CRON: usize = 120;
/// The problem of a cron expression that matches no date.
pub const NO_DATE: &str = "Must match at least one date that exists.";
const WEEKDAYS: RangeInclusive<i64> = 1..=7;

/// One of the texts that the posts use in turn. Text, an image or a video is required.
#[derive(Clone, Debug, Default, Request)]
#[request(name = "RecurringPostVariationRequest", check = check_variation)]
pub struct VariationRequest {
    #[field(text(0..=MAX_CONTENT_CHARS), example = "Fresh bread from 7 o'clock.")]
    pub content: Option<String>,
    /// The IDs of the images and videos.
    #[field(ids(MAX_MEDIA))]
    pub media: Option<Vec<i64>>,
}

/// The recurring post to create.
#[derive(Clone, Debug, Request)]
#[request(name = "NewRecurringPost", check = check_new)]
pub struct CreateRecurringPostRequest {
    #[field(text(1..=MAX_NAME), example = "Menu of the week")]
    pub name: String,
    /// The texts that the posts use in turn, from 1 to 20.
    #[field(objects(MAX_VARIATIONS), example)]
    pub variations: Vec<VariationRequest>,
    /// The IDs of accounts of the brand. At least one is required unless the posts are drafts.
    #[field(ids(MAX_ACCOUNTS), example = [1])]
    pub accounts: Option<Vec<i64>>,
    #[field(objects(MAX_ACCOUNTS))]
    pub overrides: Option<Vec<OverrideRequest>>,
    /// At most 10 labels of at most 40 characters each.
    #[field(texts(MAX_LABELS, 1..=MAX_LABEL))]
    pub labels: Option<Vec<String>>,
    /// The days of the posts: every day, the `weekdays`, a `day` of each month, or as `cron` specifies.
    #[field(enum_value(), example = "weekly")]
    pub frequency: Frequency,
    /// The weekdays of a `weekly` rule, from 1 (Monday) to 7. Default: the weekday of `starts_on`.
    #[field(weekdays(), example = [1])]
    pub weekdays: Option<Vec<i64>>,
    /// The day of the month of a `monthly` rule. A shorter month uses its last day. Default: the day of `starts_on`.
    #[field(number(1..=31))]
    pub day: Option<i64>,
    /// A cron expression with five fields: minute, hour, day, month, weekday (0 and 7 are Sunday). Required if
    /// `frequency` is `cron`; otherwise, it must be omitted.
    #[field(text(0..=MAX_CRON))]
    pub cron: Option<String>,
    /// The local time, as `HH:MM`. Default: `09:00`. Ignored if `frequency` is `cron`.
    #[field(local_time(), example = "09:00")]
    pub time: Option<String>,
    /// The first day, in the brand's time zone. Default: today.
    #[field(date(), example = "{day+7}")]
    pub starts_on: Option<NaiveDate>,
    /// The last day. Must not be before `starts_on`.
    #[field(date())]
    pub ends_on: Option<NaiveDate>,
    /// The maximum number of posts.
    #[field(number(1..=MAX_COUNT))]
    pub count: Option<i64>,
    /// The result of each occurrence. `calendar`: a scheduled post. `draft`: a draft with the time. `approval`: a post
    /// pending approval.
    #[field(enum_value(), default = Destination::Draft, example = "calendar")]
    pub destination: Destination,
    #[field(flag(), default = true)]
    pub is_active: bool,
}

/// The changes to a recurring post. Omitted fields keep their values. Null sets a field to its default.
#[derive(Clone, Debug, Default, Request)]
#[request(check = check_change)]
pub struct RecurringPostChange {
    #[field(text(1..=MAX_NAME), example = "Menu of the day")]
    pub name: PatchField<String>,
    /// All texts that the posts use in turn.
    #[field(objects(MAX_VARIATIONS))]
    pub variations: PatchField<Vec<VariationRequest>>,
    #[field(ids(MAX_ACCOUNTS))]
    pub accounts: PatchField<Vec<i64>>,
    /// The new overrides. They replace all existing overrides. If this field is omitted, overrides of accounts that the
    /// rule no longer has are deleted.
    #[field(objects(MAX_ACCOUNTS))]
    pub overrides: PatchField<Vec<OverrideRequest>>,
    #[field(texts(MAX_LABELS, 1..=MAX_LABEL))]
    pub labels: PatchField<Vec<String>>,
    #[field(enum_value())]
    pub frequency: PatchField<Frequency>,
    /// The weekdays of a `weekly` rule, from 1 (Monday) to 7.
    #[field(weekdays())]
    pub weekdays: PatchField<Vec<i64>>,
    /// The day of the month, for a `monthly` rule.
    #[field(number(1..=31))]
    pub day: PatchField<i64>,
    #[field(text(0..=MAX_CRON))]
    pub cron: PatchField<String>,
    /// The local time, as `HH:MM`. Ignored if `frequency` is `cron`.
    #[field(local_time(), example = "10:00")]
    pub time: PatchField<String>,
    #[field(date())]
    pub starts_on: PatchField<NaiveDate>,
    /// The last day. Null if the rule has no end.
    #[field(date())]
    pub ends_on: PatchField<NaiveDate>,
    /// The maximum number of posts, including those that exist. Null if there is no maximum.
    #[field(number(1..=MAX_COUNT))]
    pub count: PatchField<i64>,
    #[field(enum_value())]
    pub destination: PatchField<Destination>,
    #[field(flag())]
    pub is_active: PatchField<bool>,
}

/// At least one weekday, without duplicates.
fn weekdays() -> Weekdays {
    Weekdays
}

struct Weekdays;

impl Format for Weekdays {
    type Value = Vec<i64>;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<Vec<i64>> {
        fields.list(name, MAX_WEEKDAYS, "integers").map(|list| {
            let mut days = Vec::new();
            for (i, value) in fields.each(list) {
                match value.as_i64().filter(|day| WEEKDAYS.contains(day)) {
                    Some(day) => days.push(day),
                    None => fields.problem(&format!("{name}.{i}"), "Must be a weekday, from 1 (Monday) to 7 (Sunday)."),
                }
            }
            days.sort_unstable();
            days.dedup();
            days
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        let (min, max) = (*WEEKDAYS.start(), *WEEKDAYS.end());
        json_schema!({
            "type": "array",
            "items": { "type": "integer", "format": "int64", "minimum": min, "maximum": max },
            "maxItems": MAX_WEEKDAYS,
        })
    }
}

/// The maximum number of weekdays in a list.
const MAX_WEEKDAYS: usize = 7;

fn check_new(request: &CreateRecurringPostRequest, fields: &Fields<'_>) {
    if request.frequency == Frequency::Cron {
        check_cron(request.cron.as_deref(), fields);
    }
}

fn check_change(change: &RecurringPostChange, fields: &Fields<'_>) {
    let is_cron = match &change.frequency {
        PatchField::Value(frequency) => *frequency == Frequency::Cron,
        PatchField::Omitted | PatchField::Null => true,
    };
    if let (true, PatchField::Value(expression)) = (is_cron, &change.cron) {
        check_cron(Some(expression), fields);
    }
}

/// Adds the problem of a cron expression. That it matches no date is found by a search of all years, which is too slow
/// for the transaction that stores the rule.
fn check_cron(expression: Option<&str>, fields: &Fields<'_>) {
    let Some(expression) = expression.filter(|text| !text.is_empty()) else { return };
    if fields.problems.has(&fields.path("cron")) {
        return;
    }
    let cx = fields.context();
    match parse_cron(expression) {
        Ok(schedule) if schedule.next_after(&cx.now.with_timezone(&zone(Some(cx.zone)))).is_some() => {}
        Ok(_) => fields.problem("cron", NO_DATE),
        Err(message) => fields.problem("cron", message),
    }
}

fn check_variation(variation: &VariationRequest, fields: &Fields<'_>) {
    let has_text = variation.content.as_ref().is_some_and(|content| !content.is_empty());
    let has_media = variation.media.as_ref().is_some_and(|media| !media.is_empty());
    let is_reported = |field: &str| fields.problems.has(&fields.path(field));
    if !has_text && !has_media && !is_reported("content") && !is_reported("media") {
        fields.problem("content", "Add text, an image or a video.");
    }
}

impl From<VariationRequest> for Variation {
    fn from(request: VariationRequest) -> Self {
        Self { content: request.content.unwrap_or_default(), media: request.media.unwrap_or_default() }
    }
}

impl CreateRecurringPostRequest {
    /// Returns the field that is ignored: a time beside a cron expression.
    pub fn ignored(&self) -> Option<&'static str> {
        (self.frequency == Frequency::Cron && self.time.is_some()).then_some("time")
    }
}

fn to_change<T>(field: Option<T>) -> PatchField<T> {
    field.map_or(PatchField::Omitted, PatchField::Value)
}

/// The change of a rule without fields to this one.
impl From<CreateRecurringPostRequest> for RecurringPostChange {
    fn from(new: CreateRecurringPostRequest) -> Self {
        Self {
            name: PatchField::Value(new.name),
            variations: PatchField::Value(new.variations),
            accounts: to_change(new.accounts),
            overrides: to_change(new.overrides),
            labels: to_change(new.labels),
            frequency: PatchField::Value(new.frequency),
            weekdays: to_change(new.weekdays),
            day: to_change(new.day),
            cron: to_change(new.cron),
            time: to_change(new.time),
            starts_on: to_change(new.starts_on),
            ends_on: to_change(new.ends_on),
            count: to_change(new.count),
            destination: PatchField::Value(new.destination),
            is_active: PatchField::Value(new.is_active),
        }
    }
}
