//! The options of a post, as connectors read them. They were checked with the post; a wrong one is still an error here,
//! because the rules may have changed since.

use serde_json::Value;

use super::{CallError, OutgoingPost};
use crate::domain::failure::{Category, Failure};

/// Returns a text option without surrounding spaces; `None` if it is absent or empty, an error if it is no text.
pub(super) fn text<'a>(post: &'a OutgoingPost, name: &str) -> Result<Option<&'a str>, CallError> {
    let Some(value) = post.options.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let wrong = || {
        let message = format!("The option {name} must be a text.");
        CallError::Permanent(Failure::of(Category::InvalidContent, message))
    };
    let text = value.as_str().ok_or_else(wrong)?.trim();
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Returns the value of a boolean option; false if it has none.
pub(super) fn flag(post: &OutgoingPost, name: &str) -> bool {
    post.options.get(name).and_then(Value::as_bool).unwrap_or_default()
}
