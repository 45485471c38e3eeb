//! A JSON parser with a limit on values: a body of 1 MiB can contain half a million values, and each takes seventy
//! times the memory of its text.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The maximum number of values in a body. The largest useful body of any endpoint has a third of that.
pub const MAX_VALUES: usize = 20_000;

/// The reason why parsing failed.
#[derive(Debug)]
pub enum JsonError {
    /// More than [`MAX_VALUES`].
    TooMany,
    Syntax(serde_json::Error),
}

/// Parses the whole text as one value. If a key occurs twice, the last value counts.
pub fn parse(raw: &[u8]) -> Result<Value, JsonError> {
    if count_commas(raw) >= MAX_VALUES {
        return Err(JsonError::TooMany);
    }
    let left = Cell::new(MAX_VALUES);
    let mut from = serde_json::Deserializer::from_slice(raw);
    let read = ValueSeed(&left).deserialize(&mut from).and_then(|value| from.end().map(|()| value));
    read.map_err(|error| if left.get() == 0 { JsonError::TooMany } else { JsonError::Syntax(error) })
}

/// Counts the commas outside strings. There are at least as many values. Counting costs a tenth of parsing.
fn count_commas(raw: &[u8]) -> usize {
    let (mut count, mut in_string, mut escaped) = (0, false, false);
    for byte in raw {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Deserializes one value; the cell contains how many more are allowed.
#[derive(Clone, Copy)]
struct ValueSeed<'c>(&'c Cell<usize>);

impl ValueSeed<'_> {
    /// Called after each element of an array or object; fails when the limit is reached.
    fn take<E: serde::de::Error>(self) -> Result<Self, E> {
        self.0.set(self.0.get().saturating_sub(1));
        if self.0.get() == 0 { Err(E::custom("too many values")) } else { Ok(self) }
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = from.next_element_seed(self)? {
            list.push(value);
            self.take::<A::Error>()?;
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = from.next_key::<String>()? {
            let value = from.next_value_seed(self)?;
            object.insert(key, value);
            self.take::<A::Error>()?;
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_filter_map("is finite", |n| n.is_finite().then(|| Value::from(n))),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::vec((".{0,4}", inner), 0..6)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn parser_agrees_with_serde_json(value in any_json(), cut in any::<prop::sample::Index>()) {
            let text = value.to_string();
            let theirs: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(parse(text.as_bytes()).unwrap(), theirs);
            let cut = &text.as_bytes()[..cut.index(text.len())];
            prop_assert_eq!(parse(cut).is_ok(), serde_json::from_slice::<Value>(cut).is_ok());
        }
    }

    #[test]
    fn commas_in_strings_are_not_counted() {
        assert_eq!(count_commas(br#"{"a,":"b,\",","c":[1,2]}"#), 2);
        assert_eq!(count_commas(br#"["\\",",",3]"#), 2);
        assert_eq!(count_commas(br#"["open,"#), 0);
    }

    #[test]
    fn a_duplicate_key_keeps_its_last_value() {
        assert_eq!(parse(br#"{"a":1,"b":2,"a":3}"#).unwrap().to_string(), r#"{"a":3,"b":2}"#);
    }

    #[test]
    fn values_are_counted_at_any_nesting() {
        let many = |text: &str| matches!(parse(text.as_bytes()), Err(JsonError::TooMany));
        let list = |n: usize| format!("[{}0]", "0,".repeat(n - 1));
        assert!(!many(&list(MAX_VALUES - 1)));
        assert!(many(&list(MAX_VALUES)));
        assert!(many(&format!("[{}0]", "[[[0]]],".repeat(MAX_VALUES / 4))));
        assert!(many(&format!("{{{}\"z\":0}}", "\"a\":{},".repeat(MAX_VALUES))));
        // A syntax error before the limit is reported as a syntax error.
        assert!(matches!(parse("[".repeat(100_000).as_bytes()), Err(JsonError::Syntax(_))));
    }
}
