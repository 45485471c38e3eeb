//! JSON schemas of the API's types, so that the document always matches the code.
//!
//! A type of a response derives [`JsonSchema`], one of a request [`Request`]. Its doc comment and those of its fields are the
//! descriptions; bounds, examples and further keywords are attributes: `#[schemars(length(min = 1, max = 120),
//! extend("examples" = ["Ann"]))]`. An enum of the domain is described by [`TextEnum`]: `#[schemars(with =
//! "Option<TextEnum<Platform>>")]`.
//!
//! A type that stands for another one, such as [`Timestamp`](crate::response::Timestamp), has no doc comment: it would
//! be the description of every field of that type.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use crate::request::{FieldSpec, Request};

/// Returns the schema of a type.
pub type SchemaFn = fn(&mut Schemas) -> Value;

/// Collects the named schemas while the document is built.
#[derive(Debug)]
pub struct Schemas {
    pub named: BTreeMap<String, Value>,
    requests: SchemaGenerator,
    responses: SchemaGenerator,
}

impl Default for Schemas {
    fn default() -> Self {
        let settings = || {
            let settings = SchemaSettings::draft2020_12().with_transform(Normalize);
            settings.with(|s| s.definitions_path = "/components/schemas".into())
        };
        Self {
            named: BTreeMap::new(),
            requests: settings().for_deserialize().into_generator(),
            responses: settings().for_serialize().into_generator(),
        }
    }
}

impl Schemas {
    /// Returns the schema of a type in a request.
    pub fn request<T: JsonSchema>(&mut self) -> Value {
        collect::<T>(&mut self.requests, &mut self.named)
    }

    /// Returns the parameters of a query.
    pub fn query<T: Request>(&mut self) -> Vec<FieldSpec> {
        let mut parameters = T::fields(&mut self.requests);
        for parameter in &mut parameters {
            Normalize.transform(&mut parameter.schema);
        }
        self.named.extend(self.requests.take_definitions(true));
        parameters
    }

    /// Returns the schema of a type in a response, which contains every field.
    pub fn response<T: JsonSchema>(&mut self) -> Value {
        collect::<T>(&mut self.responses, &mut self.named)
    }
}

/// Returns the schema of a type, and adds the named ones that it refers to.
fn collect<T: JsonSchema>(generator: &mut SchemaGenerator, named: &mut BTreeMap<String, Value>) -> Value {
    let mut schema = generator.subschema_for::<T>();
    Normalize.transform(&mut schema);
    named.extend(generator.take_definitions(true));
    schema.to_value()
}

/// Converts the schemas of schemars to the form that the document uses.
#[derive(Clone, Debug)]
struct Normalize;

impl Transform for Normalize {
    fn transform(&mut self, schema: &mut Schema) {
        // A doc comment of several lines is one paragraph.
        if let Some(Value::String(description)) = schema.get_mut("description") {
            *description = description.replace('\n', " ");
        }
        // OpenAPI has no formats for unsigned integers; `minimum` covers them.
        if let Some(Value::String(format)) = schema.get_mut("format")
            && let Some(bits) = format.strip_prefix("uint")
        {
            *format = format!("int{bits}");
        }
        transform_subschemas(self, schema);
    }
}

/// Returns an object whose fields depend on the platform. Each field is a name, the platform's name, and a schema.
pub fn by_platform(description: &str, fields: impl Iterator<Item = (&'static str, &'static str, Value)>) -> Schema {
    let mut platforms: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut properties = Map::new();
    for (name, platform, schema) in fields {
        platforms.entry(name).or_default().push(platform);
        properties.entry(name).or_insert(schema);
    }
    for (name, platforms) in platforms {
        properties[name]["description"] = format!("For {}.", enumerated(&platforms)).into();
    }
    json_schema!({
        "type": "object", "description": description, "properties": properties, "additionalProperties": true,
    })
}

/// Returns names as a list in a sentence.
fn enumerated(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

/// Describes a `text_enum!` by a named schema of its values.
pub struct TextEnum<T>(PhantomData<T>);

/// Implements [`JsonSchema`] for the [`TextEnum`]s: their names in the document, and the enums.
macro_rules! text_enums {
    ($($name:ident in $module:path),+ $(,)?) => {
        $(impl JsonSchema for TextEnum<$module> {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let values: Vec<&str> = <$module>::ALL.iter().map(|v| v.as_str()).collect();
                json_schema!({ "type": "string", "enum": values })
            }
        })+
    };
}

text_enums! {
    AuthorizationTarget in crier_domain::platform::ConnectTarget,
    AiLength in crier_domain::ai::Length,
    AiQuality in crier_domain::ai::Quality,
    AiSize in crier_domain::ai::Size,
    LinkIcon in crier_domain::bio_page::LinkIcon,
    Theme in crier_domain::bio_page::Theme,
    AccountKind in crier_domain::platform::AccountKind,
    AccountStatus in crier_domain::account::AccountStatus,
    AssetType in crier_domain::media::AssetType,
    AttemptOutcome in crier_domain::post::AttemptOutcome,
    BulkAction in crier_domain::post::BulkAction,
    BulkOutcome in crier_domain::post::BulkOutcome,
    Category in crier_domain::failure::Category,
    ConnectMethod in crier_domain::platform::ConnectMethod,
    ConversationStatus in crier_domain::conversation::ConversationStatus,
    ConversationType in crier_domain::platform::ConversationType,
    DateFormat in crier_domain::post_import::DateFormat,
    DeliveryOutcome in crier_domain::webhook::DeliveryOutcome,
    DeliveryStatus in crier_domain::webhook::DeliveryStatus,
    DisconnectOutcome in crier_domain::account::DisconnectResult,
    ErrorCode in crate::error::ErrorCode,
    ErrorType in crate::error::ErrorType,
    EventName in crier_domain::event::EventName,
    Feature in crier_domain::plan::Feature,
    FirstCommentStatus in crier_domain::post::FirstCommentStatus,
    MediaType in crier_domain::media::MediaType,
    MediaErrorCode in crier_domain::media::MediaErrorCode,
    MediaJobStatus in crier_domain::media::MediaJobStatus,
    FeedDestination in crier_domain::auto_post::FeedDestination,
    FeedPostStatus in crier_domain::auto_post::FeedPostStatus,
    FeedStatus in crier_domain::feed::FeedStatus,
    FeedType in crier_domain::feed::FeedType,
    FieldType in crier_domain::platform::FieldType,
    MessageDirection in crier_domain::conversation::MessageDirection,
    MessageStatus in crier_domain::conversation::MessageStatus,
    Mode in crier_domain::platform::Mode,
    PartStatus in crier_domain::post::PartStatus,
    PlanDestination in crier_domain::content_plan::Destination,
    PlanItemStatus in crier_domain::content_plan::ItemStatus,
    Platform in crier_domain::platform::Platform,
    PostExportFormat in crier_domain::post_import::PostExportFormat,
    PostSchedule in crier_domain::post_import::PostSchedule,
    PostImportStatus in crier_domain::post_import::PostImportStatus,
    PostMetric in crier_domain::analytics::PostMetric,
    PostSort in crier_domain::post::PostSort,
    PostStatus in crier_domain::post::PostStatus,
    ReportDeliveryStatus in crier_domain::report::ReportDeliveryStatus,
    ReportErrorCode in crier_domain::report::ReportErrorCode,
    ReportFormat in crier_domain::report::ReportFormat,
    ReportFrequency in crier_domain::recurrence::Frequency,
    ReportMailStatus in crier_domain::mail::MailStatus,
    ReportWidgetType in crier_domain::report::WidgetType,
    Role in crier_domain::access::Role,
    RequestedScheduleType in crier_domain::post::ScheduleType,
    ScheduleType in crier_domain::post::StoredScheduleType,
    SnippetKind in crier_domain::snippet::SnippetKind,
    TargetStatus in crier_domain::post::TargetStatus,
    TextUnit in crier_domain::platform::TextUnit,
}
