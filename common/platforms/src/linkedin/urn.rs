//! The URNs of posts and comments, which become part of URLs.

use chrono::{DateTime, Utc};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

const COMMENT: &str = "urn:li:comment:(";

/// Returns whether a URN is that of a post, so that it may become part of a URL.
pub(super) fn is_post(urn: &str) -> bool {
    let number = urn.strip_prefix("urn:li:share:").or(urn.strip_prefix("urn:li:ugcPost:"));
    number.is_some_and(is_number)
}

/// Returns when a post was created. Its number has 22 bits after the Unix time in milliseconds, which LinkedIn does not
/// document, but many tools rely on.
pub(super) fn created_at(post: &str) -> Option<DateTime<Utc>> {
    let number: u64 = post.rsplit(':').next()?.parse().ok()?;
    DateTime::from_timestamp_millis(i64::try_from(number >> 22).ok()?)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 40 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the two parts of `urn:li:comment:(urn:li:activity:1,2)`.
pub(super) fn comment_parts(urn: &str) -> Option<(&str, &str)> {
    let (object, number) = urn.strip_prefix(COMMENT)?.strip_suffix(')')?.split_once(',')?;
    (is_object(object) && is_number(number)).then_some((object, number))
}

/// Returns whether a URN is that of a post or its activity, so that it may become part of a URL.
pub(super) fn is_object(urn: &str) -> bool {
    let parts = urn.strip_prefix("urn:li:").and_then(|rest| rest.split_once(':'));
    parts.is_some_and(|(kind, number)| {
        is_number(number) && kind.len() <= 40 && kind.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

pub(super) fn comment_urn(object: &str, number: &str) -> Option<String> {
    (is_object(object) && is_number(number)).then(|| format!("{COMMENT}{object},{number})"))
}

/// Encodes a URN for a URL, as the protocol requires.
pub(super) fn encoded(urn: &str) -> String {
    utf8_percent_encode(urn, NON_ALPHANUMERIC).to_string()
}
