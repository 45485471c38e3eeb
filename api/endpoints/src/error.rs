//! Error responses: one envelope, one table of codes.
//!
//! An [`ErrorCode`] is a row of the contract's error table, with its status and type. An [`ApiError`] is a code with a
//! message that says what to do next. The internal cause is logged once, where the response is written, and never sent.
//!
//! **To add a code:** add its variant and its arms in [`ErrorCode::status`] and [`ErrorCode::kind`] here, and its entry
//! to `docs/errors.md`. The endpoints that return it list it.

use std::borrow::Cow;

pub use crier_base::problems::FieldProblems;
use crier_base::problems::ProblemSet;
use crier_domain::access::Scope;
use crier_domain::plan::Feature;
use crier_domain::post::PostTransitionError;
use crier_posts::PostError;
use crier_store::StoreError;
use http::StatusCode;
use serde::Serialize;

crier_base::text_enum! {
    pub enum ErrorCode {
        IdempotencyKeyRequired = "idempotency_key_required",
        IdempotencyKeyInvalid = "idempotency_key_invalid",
        InvalidJson = "invalid_json",
        /// An extension: a header of a resumable upload is missing or invalid.
        InvalidUpload = "invalid_upload",
        Unauthorized = "unauthorized",
        LimitReached = "limit_reached",
        FeatureNotAvailable = "feature_not_available",
        InsufficientCredits = "insufficient_credits",
        StorageLimitExceeded = "storage_limit_exceeded",
        InsufficientScope = "insufficient_scope",
        BrandForbidden = "brand_forbidden",
        TestModeWriteForbidden = "test_mode_write_forbidden",
        NotFound = "not_found",
        MethodNotAllowed = "method_not_allowed",
        IdempotencyKeyReused = "idempotency_key_reused",
        IdempotencyInProgress = "idempotency_in_progress",
        ReconnectRequired = "reconnect_required",
        ReportNotReady = "report_not_ready",
        PostNotEditable = "post_not_editable",
        PostNotSubmittable = "post_not_submittable",
        PostNotPending = "post_not_pending",
        ItemAlreadyScheduled = "item_already_scheduled",
        WebhookInactive = "webhook_inactive",
        /// An extension: an unpublished post or a link-in-bio page uses the image.
        MediaInUse = "media_in_use",
        /// An extension: the bytes do not continue a resumable upload.
        UploadOffsetMismatch = "upload_offset_mismatch",
        /// An extension: another version of the protocol of resumable uploads is required.
        UploadVersionUnsupported = "upload_version_unsupported",
        PayloadTooLarge = "payload_too_large",
        UnsupportedMediaType = "unsupported_media_type",
        ValidationFailed = "validation_failed",
        InvalidCredentials = "invalid_credentials",
        InteractiveSetupRequired = "interactive_setup_required",
        InvalidWebhookUrl = "invalid_webhook_url",
        InvalidSourceUrl = "invalid_source_url",
        PlatformNotConfigured = "platform_not_configured",
        PlatformCapabilityUnavailable = "platform_capability_unavailable",
        /// An extension: another request is writing to a resumable upload.
        UploadLocked = "upload_locked",
        RateLimited = "rate_limited",
        InternalError = "internal_error",
        PlatformUnavailable = "platform_unavailable",
        AiProviderUnavailable = "ai_provider_unavailable",
        ServiceUnavailable = "service_unavailable",
    }
}

crier_base::text_enum! {
    /// The `type` of the envelope.
    pub enum ErrorType {
        InvalidRequest = "invalid_request_error",
        Authentication = "authentication_error",
        PlanLimit = "plan_limit_error",
        Permission = "permission_error",
        NotFound = "not_found_error",
        Conflict = "conflict_error",
        Validation = "validation_error",
        RateLimit = "rate_limit_error",
        Api = "api_error",
    }
}

impl ErrorCode {
    pub const fn status(self) -> StatusCode {
        match self {
            Self::IdempotencyKeyRequired | Self::IdempotencyKeyInvalid | Self::InvalidJson | Self::InvalidUpload => {
                StatusCode::BAD_REQUEST
            }
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::LimitReached | Self::FeatureNotAvailable | Self::InsufficientCredits | Self::StorageLimitExceeded => {
                StatusCode::PAYMENT_REQUIRED
            }
            Self::InsufficientScope | Self::BrandForbidden | Self::TestModeWriteForbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::IdempotencyKeyReused
            | Self::IdempotencyInProgress
            | Self::ReconnectRequired
            | Self::ReportNotReady
            | Self::PostNotEditable
            | Self::PostNotSubmittable
            | Self::PostNotPending
            | Self::ItemAlreadyScheduled
            | Self::WebhookInactive
            | Self::MediaInUse
            | Self::UploadOffsetMismatch => StatusCode::CONFLICT,
            Self::UploadVersionUnsupported => StatusCode::PRECONDITION_FAILED,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::ValidationFailed
            | Self::InvalidCredentials
            | Self::InteractiveSetupRequired
            | Self::InvalidWebhookUrl
            | Self::InvalidSourceUrl
            | Self::PlatformNotConfigured
            | Self::PlatformCapabilityUnavailable => StatusCode::UNPROCESSABLE_ENTITY,
            Self::UploadLocked => StatusCode::LOCKED,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
            Self::PlatformUnavailable | Self::AiProviderUnavailable => StatusCode::BAD_GATEWAY,
            Self::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the type, which depends only on the status. A client that does not know a code can use the type.
    pub const fn kind(self) -> ErrorType {
        match self.status().as_u16() {
            401 => ErrorType::Authentication,
            402 => ErrorType::PlanLimit,
            403 => ErrorType::Permission,
            404 => ErrorType::NotFound,
            409 | 423 => ErrorType::Conflict,
            422 => ErrorType::Validation,
            429 => ErrorType::RateLimit,
            500.. => ErrorType::Api,
            _ => ErrorType::InvalidRequest,
        }
    }
}

/// The reference of the error codes, served at `/docs/errors`.
pub const CATALOGUE: &str = include_str!("../../../docs/errors.md");

impl ErrorCode {
    /// Returns the code's entry in the catalogue, in Markdown.
    pub fn entry(self) -> &'static str {
        let head = format!("\n### `{self}`\n");
        let after = CATALOGUE.split_once(&head).map(|(_, after)| after).unwrap_or_default();
        after.split("\n#").next().unwrap_or_default().trim()
    }

    /// Returns the URL of that entry.
    pub fn doc_url(self, public_url: &str) -> String {
        format!("{public_url}/docs/errors#{self}")
    }
}

/// An error response.
#[derive(Debug)]
pub struct ApiError {
    pub code: ErrorCode,
    /// A sentence or two for the client's developer or user.
    pub message: Cow<'static, str>,
    pub fields: FieldProblems,
    /// The features of which the plan includes none. Empty for other errors.
    pub features: &'static [Feature],
    /// The value of the `Retry-After` header, in seconds.
    pub retry_after: Option<u64>,
    /// Whether an earlier request with the same `Idempotency-Key` was carried out.
    pub replayed: bool,
    /// The internal cause, for the log only.
    pub cause: Option<Box<Cause>>,
}

/// The internal cause of an error.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Other(String),
}

pub type Result<T> = std::result::Result<T, ApiError>;

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            fields: FieldProblems::new(),
            features: &[],
            retry_after: None,
            replayed: false,
            cause: None,
        }
    }

    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds.max(1));
        self
    }

    /// `has_header`: whether the request has an `Authorization` header.
    pub fn unauthorized(has_header: bool) -> Self {
        let problem = if has_header {
            "The API key is invalid or has been deleted."
        } else {
            "The `Authorization` header is missing."
        };
        Self::new(
            ErrorCode::Unauthorized,
            format!("{problem} Send `Authorization: Bearer <API_KEY>` with a valid key."),
        )
    }

    pub fn rate_limited(retry_after: u64) -> Self {
        let message = format!("Rate limit exceeded. Retry after {retry_after} s.");
        Self::new(ErrorCode::RateLimited, message).retry_after(retry_after)
    }

    /// Returns the error for a client or workspace with too many responses in flight.
    pub fn unread_responses() -> Self {
        let message = "Too many large responses are still being sent to you. Read them completely, then retry.";
        Self::new(ErrorCode::RateLimited, message).retry_after(1)
    }

    /// Returns the error for too many responses in flight to all clients together.
    pub fn busy_sending() -> Self {
        let message = "Too many large responses are being sent. Retry after the time in `Retry-After`.";
        Self::new(ErrorCode::ServiceUnavailable, message).retry_after(1)
    }

    pub fn insufficient_scope(scope: Scope) -> Self {
        let message = format!("This API key lacks the scope `{scope}`. Use a key that has it.");
        Self::new(ErrorCode::InsufficientScope, message)
    }

    pub fn for_publishers() -> Self {
        let message = "Contributors cannot publish. Submit a draft for approval, or ask an editor, admin or owner of the \
                       brand.";
        Self::new(ErrorCode::InsufficientScope, message)
    }

    /// Returns the error for a key with a role limit, for what later runs in the name of its user.
    pub fn limited_key() -> Self {
        let message = "This API key can only write drafts. Use a key without this limit, or do this in the console.";
        Self::new(ErrorCode::InsufficientScope, message)
    }

    pub fn test_mode() -> Self {
        Self::new(ErrorCode::TestModeWriteForbidden, "A test key can only read. Use a live key (svc_live_…) to write.")
    }

    pub fn brand_forbidden() -> Self {
        Self::new(
            ErrorCode::BrandForbidden,
            "The user of this API key is not a member of this brand, the key cannot use it, or the brand does not exist.",
        )
    }

    /// Returns the error for a key with limited brands at an endpoint that concerns all brands of its user.
    pub fn limited_brands() -> Self {
        let message = "This API key can use only some brands, and this endpoint concerns all brands of its user. Use a \
                       key for all brands.";
        Self::new(ErrorCode::BrandForbidden, message)
    }

    pub fn feature(features: &'static [Feature]) -> Self {
        let names: Vec<&str> = features.iter().map(|f| f.as_str()).collect();
        let message = format!(
            "The workspace's plan does not include `{}`. Ask the operator for a plan that does.",
            names.join("` or `")
        );
        Self { features, ..Self::new(ErrorCode::FeatureNotAvailable, message) }
    }

    /// Returns the error for a plan that allows only `cap` records. `nouns`: their name, singular and plural. `remedy`:
    /// a sentence that says what to do.
    pub fn limit_reached(cap: u64, nouns: [&str; 2], remedy: &str) -> Self {
        let noun = nouns[usize::from(cap != 1)];
        let message = format!("The workspace's plan allows {cap} {noun}. {remedy}");
        Self::new(ErrorCode::LimitReached, message)
    }

    /// Fails if `more` would exceed a cap that is the same in every plan. `current`: the current number.
    pub fn check_cap(whose: &str, cap: usize, what: &str, current: i64, more: usize) -> Result<()> {
        if usize::try_from(current).unwrap_or_default().saturating_add(more) <= cap {
            return Ok(());
        }
        let message =
            format!("{whose} can have at most {cap} {what}, and there are already {current}. Delete some first.");
        Err(Self::new(ErrorCode::LimitReached, message))
    }

    /// Returns the error for a repeated request whose record has been deleted.
    pub fn record_deleted() -> Self {
        let message = "A request with this `Idempotency-Key` was already completed. The record that it created or \
             updated has been deleted since. The request was not repeated.";
        Self { replayed: true, ..Self::new(ErrorCode::NotFound, message) }
    }

    pub fn not_found(what: &str) -> Self {
        Self::new(ErrorCode::NotFound, format!("The {what} does not exist."))
    }

    pub fn no_route() -> Self {
        Self::new(ErrorCode::NotFound, "This path does not exist. See the API reference at /docs.")
    }

    pub fn method_not_allowed() -> Self {
        Self::new(
            ErrorCode::MethodNotAllowed,
            "This path does not support this method. The `Allow` header lists the methods that it supports.",
        )
    }

    pub fn in_progress() -> Self {
        Self::new(
            ErrorCode::IdempotencyInProgress,
            "A request with this `Idempotency-Key` is still in progress. Retry in one second to get its response.",
        )
        .retry_after(1)
    }

    pub fn key_reused() -> Self {
        Self::new(
            ErrorCode::IdempotencyKeyReused,
            "This `Idempotency-Key` was used for a different request. Send each new request with a new key.",
        )
    }

    pub fn too_large(limit: usize) -> Self {
        Self::new(ErrorCode::PayloadTooLarge, format!("The body must have at most {limit} bytes."))
    }

    pub fn validation(fields: FieldProblems) -> Self {
        ProblemSet::from(fields).into()
    }

    /// Returns the error for one invalid field.
    pub fn field(path: &str, problem: impl Into<String>) -> Self {
        Self::validation(FieldProblems::from([(path.to_owned(), vec![problem.into()])]))
    }

    pub fn internal(cause: impl Into<Cause>) -> Self {
        let message = "An internal error occurred. Retry. If the problem persists, tell the operator the `request_id`.";
        Self { cause: Some(Box::new(cause.into())), ..Self::new(ErrorCode::InternalError, message) }
    }

    /// Returns the error for an unavailable file storage, or too little space for temporary files.
    pub fn storage(cause: impl Into<String>) -> Self {
        let message = "The service cannot store files right now. Nothing was changed. Retry in a few seconds.";
        Self { cause: Some(Box::new(Cause::Other(cause.into()))), ..Self::new(ErrorCode::ServiceUnavailable, message) }
            .retry_after(5)
    }

    /// Returns the error for an AI provider without a usable response.
    pub fn ai_unavailable(cause: impl Into<String>) -> Self {
        let message = "The AI provider returned no usable response within 20 seconds. No credits were used. Retry \
                       later.";
        Self {
            cause: Some(Box::new(Cause::Other(cause.into()))),
            ..Self::new(ErrorCode::AiProviderUnavailable, message)
        }
    }

    /// Returns an internal error for a state that should not be possible.
    pub fn bug(what: impl Into<String>) -> Self {
        Self::internal(Cause::Other(what.into()))
    }

    /// Returns whether the cause is a serialization error, so that the transaction can be retried.
    pub fn is_serialization(&self) -> bool {
        matches!(self.cause.as_deref(), Some(Cause::Store(error)) if error.is_serialization())
    }

    /// Returns whether the request was rejected because of its content, and not because something failed.
    pub fn is_rejection(&self) -> bool {
        self.cause.is_none() && self.code.status().is_client_error()
    }

    /// Logs the internal cause. Called once, where the response is written.
    pub fn log(&self) {
        match (&self.cause, self.code) {
            (Some(cause), ErrorCode::InternalError) => tracing::error!(%cause, "request failed"),
            (Some(cause), _) => tracing::warn!(%cause, code = %self.code, "failed to complete a request"),
            (None, _) => tracing::debug!(code = %self.code, "request rejected"),
        }
    }

    /// Serializes the response body. `public_url`: the URL of this server.
    pub fn envelope(&self, request_id: &str, public_url: &str) -> Vec<u8> {
        #[derive(Serialize)]
        struct Envelope<'a> {
            error: Inner<'a>,
        }
        #[derive(Serialize)]
        struct Inner<'a> {
            r#type: ErrorType,
            code: ErrorCode,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            fields: Option<&'a FieldProblems>,
            request_id: &'a str,
            doc_url: String,
        }
        let fields = (self.code == ErrorCode::ValidationFailed).then_some(&self.fields);
        let (code, doc_url) = (self.code, self.code.doc_url(public_url));
        let error = Inner { r#type: code.kind(), code, message: &self.message, fields, request_id, doc_url };
        serde_json::to_vec(&Envelope { error }).unwrap_or_default()
    }
}

impl From<ProblemSet> for ApiError {
    fn from(found: ProblemSet) -> Self {
        let message = found.to_string();
        Self { fields: found.into_fields(), ..Self::new(ErrorCode::ValidationFailed, message) }
    }
}

impl From<PostError> for ApiError {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Invalid(found) => found.into(),
            PostError::NotEditable(message) => Self::new(ErrorCode::PostNotEditable, message),
            PostError::ForPublishers => Self::for_publishers(),
            PostError::LimitReached { cap } => {
                let remedy = "Wait for the next month, or ask the operator for a larger plan.";
                Self::limit_reached(cap, ["post per month", "posts per month"], remedy)
            }
            PostError::Store(error) => error.into(),
            PostError::Bug(what) => Self::bug(what),
        }
    }
}

impl From<PostTransitionError> for ApiError {
    fn from(error: PostTransitionError) -> Self {
        Self::new(ErrorCode::PostNotEditable, error.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        if error.is_unavailable() {
            let message = "The service cannot reach its database. Nothing was changed. Retry in a few seconds.";
            return Self { cause: Some(Box::new(error.into())), ..Self::new(ErrorCode::ServiceUnavailable, message) }
                .retry_after(5);
        }
        Self::internal(error)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn error_table_matches_the_contract() {
        let table: BTreeMap<u16, Vec<&str>> = ErrorCode::ALL.iter().fold(BTreeMap::new(), |mut table, code| {
            table.entry(code.status().as_u16()).or_insert_with(Vec::new).push(code.as_str());
            table
        });
        assert_eq!(
            table[&400],
            ["idempotency_key_required", "idempotency_key_invalid", "invalid_json", "invalid_upload"]
        );
        assert_eq!(table[&403], ["insufficient_scope", "brand_forbidden", "test_mode_write_forbidden"]);
        assert_eq!(table[&409].len(), 11);
        assert_eq!(ErrorCode::PayloadTooLarge.kind(), ErrorType::InvalidRequest);
        assert_eq!(ErrorCode::PlatformUnavailable.kind(), ErrorType::Api);
        assert_eq!(ErrorCode::LimitReached.kind(), ErrorType::PlanLimit);
    }

    #[test]
    fn only_validation_errors_contain_fields() {
        let text = |error: &ApiError| String::from_utf8(error.envelope("req_1", "https://x.example")).unwrap();
        let error = ApiError::field("accounts.0", "There is no such account.");
        assert_eq!(
            text(&error),
            concat!(
                r#"{"error":{"type":"validation_error","code":"validation_failed","#,
                r#""message":"`accounts.0` is not valid: There is no such account.","#,
                r#""fields":{"accounts.0":["There is no such account."]},"request_id":"req_1","#,
                r#""doc_url":"https://x.example/docs/errors#validation_failed"}}"#
            )
        );
        assert!(!text(&ApiError::not_found("post")).contains("fields"));
    }

    #[test]
    fn internal_cause_is_never_sent() {
        let error = ApiError::bug("password=hunter2");
        assert!(!String::from_utf8(error.envelope("req_1", "")).unwrap().contains("hunter2"));
    }
}
