//! Errors of the storage, for the log: they say what to do, and contain no confidential data. The library's own
//! messages contain whole responses of the bucket, with the id of the key and the signed request.

use std::error::Error as _;

/// Maximum length of a message, in characters.
const MAX_LENGTH: usize = 300;

/// The storage is unreachable, full, or denies access.
#[derive(Debug, thiserror::Error)]
#[error("file storage: {0}")]
pub struct StorageError(String);

impl StorageError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    pub(super) fn of(error: object_store::Error) -> Self {
        let text = error.to_string();
        let code = code(&text).unwrap_or_default();
        match error {
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Self(format!(
                    "the bucket denied access ({code}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and \
                     the permissions of the key: GetObject, PutObject, DeleteObject, AbortMultipartUpload, ListBucket"
                ))
            }
            _ if code == NO_BUCKET => {
                Self("the bucket does not exist; check CRIER_STORAGE_URL, AWS_ENDPOINT_URL and AWS_REGION".to_owned())
            }
            error => Self(shortened(&with_root(&error, text.clone()), code)),
        }
    }

    pub(super) fn of_disk(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

const NO_BUCKET: &str = "NoSuchBucket";

/// Returns whether the file is missing. A missing bucket is another error, because the files may be in another bucket.
pub(super) fn is_missing(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && code(&error.to_string()) != Some(NO_BUCKET)
}

/// Returns the error code in a bucket's response.
fn code(text: &str) -> Option<&str> {
    let rest = text.split_once("<Code>")?.1;
    Some(rest.split_once("</Code>")?.0).filter(|code| code.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// Appends the root cause, such as "connection refused", unless the text already contains it.
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

/// Removes the bucket's response, but keeps its code.
fn shortened(text: &str, code: &str) -> String {
    let (words, response) = text.split_once('<').unwrap_or((text, ""));
    let words: String =
        words.trim_end_matches([' ', ':']).chars().filter(|c| !c.is_control()).take(MAX_LENGTH).collect();
    if response.is_empty() { words } else { format!("{words}: {code}") }
}
