//! Schemas from Rust types: [`Documented`] says what a type is in JSON, [`record!`] and [`request!`] declare a struct and
//! its schema in one place, so that the document cannot lag behind the code.
//!
//! A field's doc comment is its description; what else a schema has to say stands in braces behind the type:
//! `pub name: String { "minLength": 1, "maxLength": 120 }`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::answer::{Planned, Stamp};
use crate::fields::Given;

/// The schemas that have a name, gathered while the document is made.
#[derive(Debug, Default)]
pub struct Schema {
    pub named: BTreeMap<&'static str, Value>,
}

/// A type that is told of in the document.
pub trait Documented {
    /// Whether a request may leave it out.
    const OPTIONAL: bool = false;
    fn schema(s: &mut Schema) -> Value;
}

/// A field of a record, as the macros write it.
pub struct Field {
    pub name: &'static str,
    pub description: &'static str,
    pub required: bool,
    pub schema: Value,
    pub extra: Vec<(&'static str, Value)>,
}

impl Schema {
    /// A reference to a named schema, which is made at the first mention.
    pub fn named(&mut self, name: &'static str, make: impl FnOnce(&mut Self) -> Value) -> Value {
        if !self.named.contains_key(name) {
            // Its place is taken first, for types that hold themselves.
            self.named.insert(name, Value::Null);
            let schema = make(self);
            self.named.insert(name, schema);
        }
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    pub fn object(description: &str, fields: Vec<Field>) -> Value {
        let required: Vec<&str> = fields.iter().filter(|f| f.required).map(|f| f.name).collect();
        let mut properties = Map::new();
        for field in &fields {
            let mut schema = field.schema.clone();
            if let Some(object) = schema.as_object_mut() {
                if !field.description.is_empty() {
                    object.insert("description".to_owned(), field.description.trim().into());
                }
                for (key, value) in &field.extra {
                    object.insert((*key).to_owned(), value.clone());
                }
            }
            properties.insert(field.name.trim_start_matches("r#").to_owned(), schema);
        }
        let mut object = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            object["required"] = required.into_iter().map(|n| n.trim_start_matches("r#")).collect();
        }
        if !description.is_empty() {
            object["description"] = description.trim().into();
        }
        object
    }
}

/// The same, or null.
fn nullable(schema: Value) -> Value {
    match schema.get("type").and_then(Value::as_str).map(str::to_owned) {
        Some(kind) if schema.get("enum").is_none() => {
            let mut schema = schema;
            schema["type"] = json!([kind, "null"]);
            schema
        }
        _ if schema.as_object().is_some_and(Map::is_empty) => schema,
        _ => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

macro_rules! plain {
    ($($ty:ty => $schema:tt),+ $(,)?) => {
        $(impl Documented for $ty {
            fn schema(_: &mut Schema) -> Value { json!($schema) }
        })+
    };
}

plain! {
    i64 => { "type": "integer", "format": "int64" },
    i32 => { "type": "integer", "format": "int32" },
    u64 => { "type": "integer", "format": "int64", "minimum": 0 },
    u32 => { "type": "integer", "format": "int32", "minimum": 0 },
    bool => { "type": "boolean" },
    String => { "type": "string" },
    &'static str => { "type": "string" },
    Stamp => { "type": "string", "format": "date-time" },
    Planned => { "type": "string", "format": "date-time" },
    chrono::DateTime<chrono::Utc> => { "type": "string", "format": "date-time" },
    chrono::NaiveDate => { "type": "string", "format": "date" },
    Value => {},
    Map<String, Value> => { "type": "object", "additionalProperties": true },
}

impl<T: Documented> Documented for Option<T> {
    const OPTIONAL: bool = true;
    fn schema(s: &mut Schema) -> Value {
        nullable(T::schema(s))
    }
}

impl<T: Documented> Documented for Given<T> {
    const OPTIONAL: bool = true;
    fn schema(s: &mut Schema) -> Value {
        nullable(T::schema(s))
    }
}

impl<T: Documented> Documented for Vec<T> {
    fn schema(s: &mut Schema) -> Value {
        json!({ "type": "array", "items": T::schema(s) })
    }
}

impl<T: Documented> Documented for &'static [T] {
    fn schema(s: &mut Schema) -> Value {
        <Vec<T>>::schema(s)
    }
}

/// An enumeration of the domain, by its words.
macro_rules! words {
    ($($name:ident in $module:path),+ $(,)?) => {
        $(impl Documented for $module {
            fn schema(s: &mut Schema) -> Value {
                s.named(stringify!($name), |_| {
                    let words: Vec<&str> = <$module>::ALL.iter().map(|v| v.as_str()).collect();
                    json!({ "type": "string", "enum": words })
                })
            }
        })+
    };
}

words! {
    AuthorizationTarget in crate::routes::accounts::authorize::Target,
    AiLength in crier_common::domain::ai::Length,
    AiQuality in crier_common::domain::ai::Quality,
    AiSize in crier_common::domain::ai::Size,
    Theme in crier_common::domain::bio_page::Theme,
    AccountKind in crier_common::domain::platform::AccountKind,
    AccountStatus in crier_common::domain::account::AccountStatus,
    AssetType in crier_common::domain::media::AssetType,
    AttemptOutcome in crier_common::domain::post::AttemptOutcome,
    Category in crier_common::domain::failure::Category,
    ConnectMethod in crier_common::domain::platform::ConnectMethod,
    ConversationType in crier_common::domain::platform::ConversationType,
    DeliveryOutcome in crier_common::domain::webhook::AttemptOutcome,
    DeliveryStatus in crier_common::domain::webhook::DeliveryStatus,
    DisconnectOutcome in crier_common::domain::account::DisconnectResult,
    ErrorCode in crate::error::Code,
    ErrorType in crate::error::Kind,
    EventName in crier_common::domain::event::EventName,
    Feature in crier_common::domain::plan::Feature,
    ImageType in crier_common::domain::media::ImageType,
    MediaErrorCode in crier_common::domain::media::MediaErrorCode,
    MediaJobStatus in crier_common::domain::media::MediaJobStatus,
    FeedStatus in crier_common::domain::feed::FeedStatus,
    FeedType in crier_common::domain::feed::FeedType,
    FieldType in crier_common::domain::platform::FieldType,
    Mode in crier_common::domain::platform::Mode,
    PlanDestination in crier_common::domain::content_plan::Destination,
    PlanItemStatus in crier_common::domain::content_plan::ItemStatus,
    Platform in crier_common::domain::platform::Platform,
    PostStatus in crier_common::domain::post::PostStatus,
    Role in crier_common::domain::access::Role,
    ScheduleType in crier_common::domain::post::ScheduleType,
    TargetStatus in crier_common::domain::post::TargetStatus,
    TextUnit in crier_common::domain::platform::TextUnit,
}

/// A struct that is answered: it serialises, and all its fields are there in every answer.
macro_rules! record {
    ($($(#[doc = $doc:literal])* pub struct $name:ident {
        $($(#[doc = $text:literal])* pub $field:ident : $ty:ty $({ $($key:literal : $value:tt),+ $(,)? })?),+ $(,)?
    })+) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Debug, serde::Serialize)]
        pub struct $name {
            $($(#[doc = $text])* pub $field: $ty,)+
        }

        $crate::openapi::schema::documented! {
            $name, concat!($($doc),*), always; $($field: $ty, concat!($($text),*), [$($($key : $value),+)?];)+
        }
    )+};
}

/// A struct that is read from a body: an `Option` or a [`Given`] may be left out.
macro_rules! request {
    ($($(#[doc = $doc:literal])* pub struct $name:ident {
        $($(#[doc = $text:literal])* pub $field:ident : $ty:ty $({ $($key:literal : $value:tt),+ $(,)? })?),+ $(,)?
    })+) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            $($(#[doc = $text])* pub $field: $ty,)+
        }

        $crate::openapi::schema::documented! {
            $name, concat!($($doc),*), asked; $($field: $ty, concat!($($text),*), [$($($key : $value),+)?];)+
        }
    )+};
}

/// A body that is told of under a name of its own, but read as another type.
macro_rules! described {
    ($($(#[doc = $doc:literal])* pub struct $name:ident {
        $($(#[doc = $text:literal])* pub $field:ident : $ty:ty $({ $($key:literal : $value:tt),+ $(,)? })?),+ $(,)?
    })+) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        $crate::openapi::schema::documented! {
            $name, concat!($($doc),*), asked; $($field: $ty, concat!($($text),*), [$($($key : $value),+)?];)+
        }
    )+};
}

macro_rules! documented {
    ($name:ident, $doc:expr, $when:ident; $($field:ident : $ty:ty, $text:expr, [$($key:literal : $value:tt),*];)+) => {
        impl $crate::openapi::schema::Documented for $name {
            fn schema(s: &mut $crate::openapi::schema::Schema) -> serde_json::Value {
                use $crate::openapi::schema::{Documented, Field, Schema};
                s.named(stringify!($name), |s| {
                    let fields = vec![$(Field {
                        name: stringify!($field),
                        description: $text,
                        required: $crate::openapi::schema::required::<$ty>(stringify!($when)),
                        schema: <$ty as Documented>::schema(s),
                        extra: vec![$(($key, serde_json::json!($value))),*],
                    }),+];
                    Schema::object($doc, fields)
                })
            }
        }
    };
}

pub(crate) use {described, documented, record, request};

/// Whether a field of this type must be there.
pub fn required<T: Documented>(when: &str) -> bool {
    when == "always" || !T::OPTIONAL
}
