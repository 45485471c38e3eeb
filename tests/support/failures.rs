//! Errors of platform calls, for the scripts of fake platforms.

#![allow(dead_code, reason = "each test uses only a part")]

use chrono::{DateTime, Utc};
use crier_domain::failure::{Category, Failure};
use crier_platforms::{CallError, Published};

pub fn auth() -> Failure {
    Failure::of(Category::AuthExpired, "The fake rejects the token.")
}

pub fn transient() -> CallError {
    CallError::Transient(Failure::of(Category::PlatformError, "The fake failed for the moment."))
}

pub fn permanent() -> CallError {
    CallError::Permanent(Failure::of(Category::PlatformRejected, "The fake rejects this.").from_platform("422"))
}

pub fn unknown() -> CallError {
    CallError::Unknown(Failure::of(Category::OutcomeUnknown, "The connection broke after the post was sent."))
}

pub fn duplicate() -> CallError {
    CallError::Permanent(Failure::of(Category::DuplicateContent, "The fake already has this post."))
}

/// Returns the error of a platform that names the existing post.
pub fn duplicate_of(id: &str) -> CallError {
    CallError::Duplicate { existing: Box::new(Published::new(id, None)), failure: duplicate().failure().clone() }
}

pub fn reauth() -> CallError {
    CallError::Reauth(auth())
}

pub fn auth_expired() -> CallError {
    CallError::AuthExpired(auth())
}

pub fn rate_limited(until: DateTime<Utc>) -> CallError {
    CallError::RateLimited { until: Some(until), failure: Failure::of(Category::RateLimited, "The fake asks to wait.") }
}

pub fn gone() -> Failure {
    Failure::with_code(Category::PlatformRejected, "parent_missing", "The fake does not know the post to reply to.")
}
