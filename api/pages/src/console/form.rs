//! The fields of a submitted form, in order. A name may occur several times.

use chrono::DateTime;
use crier_endpoints::response::Timestamp;
use serde_json::{Map, Value};

#[derive(Clone, Debug, Default)]
pub struct Form(Vec<(String, String)>);

/// Returns whether a URL-encoded form has more than `max` fields: short ones take much more memory than the form, and a
/// page searches all of them for each field that it reads.
pub fn has_more_fields(body: &[u8], max: usize) -> bool {
    body.split(|byte| *byte == b'&').count() > max
}

impl Form {
    /// Parses a URL-encoded form. Browsers send line breaks as `\r\n`; they become `\n`.
    pub fn parse(body: &[u8]) -> Self {
        let pairs = url::form_urlencoded::parse(body);
        Self(pairs.map(|(name, value)| (name.into_owned(), value.replace("\r\n", "\n"))).collect())
    }

    /// Returns a form with these texts, which the API has received.
    pub fn of_texts(texts: Map<String, Value>) -> Self {
        let text = |(name, value): (String, Value)| Some((name, value.as_str()?.replace("\r\n", "\n")));
        Self(texts.into_iter().filter_map(text).collect())
    }

    /// Returns the size of all names and values, in bytes.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Returns the last value of a field. Empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        self.get_or(name, "")
    }

    /// Returns the last value of a field, or `stored` if the form does not contain the field.
    pub fn get_or<'f>(&'f self, name: &str, stored: &'f str) -> &'f str {
        self.0.iter().rev().find(|(key, _)| key == name).map_or(stored, |(_, value)| value)
    }

    /// Returns the trimmed value of a field. `None` if it is empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        Some(self.get(name).trim()).filter(|text| !text.is_empty())
    }

    /// Returns all values of a field.
    pub fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the IDs in a field. Other values are ignored.
    pub fn ids(&self, name: &str) -> Vec<i64> {
        self.all(name).filter_map(|value| value.parse().ok()).collect()
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    /// Returns the fields whose name has this prefix, with the rest of their names.
    pub fn under<'f>(&'f self, prefix: &'f str) -> impl Iterator<Item = (&'f str, &'f str)> {
        self.0.iter().filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, value.as_str())))
    }

    /// Returns the version of the post or the slots that the page of the form showed, from the field `seen`. Without the
    /// field, it is that of slots that were never saved, which no post has.
    pub fn seen(&self) -> Timestamp {
        version(self.get("seen"))
    }

    /// Returns the IDs and the versions of the posts in a list, from the field `shown`: `ID:VERSION,ID:VERSION`.
    pub fn shown(&self) -> impl Iterator<Item = (i64, Timestamp)> {
        let pairs = self.get("shown").split(',').filter_map(|pair| pair.split_once(':'));
        pairs.filter_map(|(id, seen)| Some((id.parse().ok()?, version(seen))))
    }

    /// Returns an object with these fields. Empty fields are null.
    pub fn texts(&self, names: &[&'static str]) -> Map<String, Value> {
        names.iter().map(|name| ((*name).to_owned(), self.text(name).map_or(Value::Null, Value::from))).collect()
    }
}

/// Returns a version in a form, which is a time in microseconds. For another text, it is the epoch.
fn version(text: &str) -> Timestamp {
    let at = text.parse().ok().and_then(DateTime::from_timestamp_micros);
    Timestamp(at.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_lose_carriage_returns() {
        let form = Form::parse(b"accounts=2&accounts=x&accounts=1&content=a%0D%0Ab&name=+&credentials.token=t");
        assert_eq!(form.ids("accounts"), [2, 1]);
        assert_eq!((form.get("content"), form.text("name"), form.get("missing")), ("a\nb", None, ""));
        assert_eq!(form.under("credentials.").collect::<Vec<_>>(), [("token", "t")]);
        assert_eq!(Value::from(form.texts(&["content", "name"])).to_string(), r#"{"content":"a\nb","name":null}"#);
    }
}
