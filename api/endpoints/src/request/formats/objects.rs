//! Objects with fields of their own.

use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use crate::fields::{Fields, PatchField};
use crate::request::{Format, Request};

/// An object whose fields the endpoint checks itself. `T` describes them.
pub fn map<T>() -> ObjectMap<T> {
    ObjectMap(PhantomData)
}

pub struct ObjectMap<T>(PhantomData<T>);

impl<T: From<Map<String, Value>> + JsonSchema> Format for ObjectMap<T> {
    type Value = T;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<T> {
        fields.object(name).map(|object| object.clone().into())
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

/// An object with the fields of `T`.
pub fn object<T>() -> Object<T> {
    Object(PhantomData)
}

pub struct Object<T>(PhantomData<T>);

impl<T: Request> Format for Object<T> {
    type Value = T;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<T> {
        match fields.object(name) {
            PatchField::Omitted => PatchField::Omitted,
            PatchField::Null => PatchField::Null,
            PatchField::Value(object) => {
                T::read(&fields.within(name, object)).map_or(PatchField::Omitted, PatchField::Value)
            }
        }
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }

    fn example(&self) -> Value {
        T::example().into()
    }
}

/// At most `max` objects with the fields of `T`, in order. One that lacks a required field is omitted: a type whose
/// position matters to later checks makes its fields `Option`s that are `required`.
pub fn objects<T>(max: usize) -> Objects<T> {
    Objects { max, of: PhantomData }
}

pub struct Objects<T> {
    max: usize,
    of: PhantomData<T>,
}

impl<T: Request> Format for Objects<T> {
    type Value = Vec<T>;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<Vec<T>> {
        fields.list(name, self.max, "objects").map(|list| {
            let each = fields.each(list).filter_map(|(i, value)| match value.as_object() {
                Some(object) => T::read(&fields.within(&format!("{name}.{i}"), object)),
                None => {
                    fields.problem(&format!("{name}.{i}"), "Must be an object.");
                    None
                }
            });
            each.collect()
        })
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "items": items, "maxItems": self.max })
    }

    fn example(&self) -> Value {
        vec![Value::from(T::example())].into()
    }
}
