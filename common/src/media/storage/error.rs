//! What went wrong with the storage, in words for the log: what to do about it, and nothing that is nobody's business. The
//! libraries' own words hold whole answers of the bucket, with the key's id and what was signed in them.

use std::error::Error as _;

/// How much of a message is kept.
const LONGEST: usize = 300;

/// The storage cannot be reached, is full, or refuses us.
#[derive(Debug, thiserror::Error)]
#[error("the storage of files: {0}")]
pub struct StorageError(String);

impl StorageError {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    pub(super) fn of(error: object_store::Error) -> Self {
        let text = error.to_string();
        let code = code(&text).unwrap_or_default();
        match error {
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Self(format!(
                    "the bucket refuses us ({code}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and what that key may do: GetObject, PutObject, DeleteObject, ListBucket"
                ))
            }
            _ if code == NO_BUCKET => {
                Self("there is no such bucket; check CRIER_STORAGE_URL, AWS_ENDPOINT_URL and AWS_REGION".to_owned())
            }
            error => Self(shortened(&with_root(&error, text.clone()), code)),
        }
    }

    pub(super) fn of_disk(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

const NO_BUCKET: &str = "NoSuchBucket";

/// Whether there is no such file. That there is no such bucket is something else: the files may well be in another one.
pub(super) fn is_missing(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && code(&error.to_string()) != Some(NO_BUCKET)
}

/// The code in a bucket's answer.
fn code(text: &str) -> Option<&str> {
    let rest = text.split_once("<Code>")?.1;
    Some(rest.split_once("</Code>")?.0).filter(|code| code.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// With what lies under it, where the words do not say that already: "connection refused".
fn with_root(error: &object_store::Error, text: String) -> String {
    let mut root = None;
    let mut next = error.source();
    while let Some(cause) = next {
        root = Some(cause.to_string());
        next = cause.source();
    }
    match root {
        Some(root) if !text.contains(&root) => format!("{text}: {root}"),
        _ => text,
    }
}

/// Without the bucket's answer, but with its code.
fn shortened(text: &str, code: &str) -> String {
    let (words, answer) = text.split_once('<').unwrap_or((text, ""));
    let words: String = words.trim_end_matches([' ', ':']).chars().filter(|c| !c.is_control()).take(LONGEST).collect();
    if answer.is_empty() { words } else { format!("{words}: {code}") }
}
