//! AI endpoints: captions, hashtags, images. The models and the provider are in [`crate::ai`].
//!
//! Each request reserves its credits in a transaction of its own ([`CreditReservation::begin`]), calls the provider,
//! and consumes the credits in the transaction that stores the response ([`CreditReservation::end`]). Otherwise, the
//! credits are refunded: immediately if the request fails, by the scheduler if the process dies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crier_domain::ai::Operation;
use crier_store::ai_credits::{self, CreditRequest};
use crier_store::{Store, Tx};
use crier_telemetry::metrics::{self, AiOutcome};

use crate::ai::AiError;
use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, ErrorCode, Result};

pub mod captions;
pub mod hashtags;
pub mod images;

pub const TAG: &str = "AI";
/// The maximum length of a prompt, in characters.
pub const MAX_PROMPT_CHARS: usize = 8_000;

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![captions::endpoint().erase(), hashtags::endpoint().erase(), images::endpoint().erase()]
}

/// The error codes of the text endpoints, beyond the common ones.
pub const ERROR_CODES: &[ErrorCode] = &[
    ErrorCode::ValidationFailed,
    ErrorCode::PlatformNotConfigured,
    ErrorCode::InsufficientCredits,
    ErrorCode::AiProviderUnavailable,
];

/// `model`: the variable that configures the required model.
fn not_configured(model: &str) -> ApiError {
    let message =
        format!("AI is not configured on this installation. Its operator must set CRIER_AI_BASE_URL and {model}.");
    ApiError::new(ErrorCode::PlatformNotConfigured, message)
}

fn insufficient_credits(request: &CreditRequest) -> ApiError {
    let message = format!(
        "This request costs {} AI credits, but fewer of this month's {} remain. Wait for the next month, or ask the \
         operator for a larger plan.",
        request.credits,
        request.cap.unwrap_or_default()
    );
    ApiError::new(ErrorCode::InsufficientCredits, message)
}

/// Calls the provider with its timeout and records the outcome in the metrics. Reports a rejected prompt at `field`.
async fn call_provider<T>(
    cx: &Context,
    operation: Operation,
    field: &str,
    work: impl Future<Output = std::result::Result<T, AiError>>,
) -> Result<T> {
    let started = Instant::now();
    let result = tokio::time::timeout(cx.app.ai.timeout(), work).await;
    let (outcome, output) = match result {
        Ok(Ok(value)) => (AiOutcome::Done, Ok(value)),
        Ok(Err(error)) => to_api_error(&error, field),
        Err(_) => (AiOutcome::TimedOut, Err(ApiError::ai_unavailable("the provider did not respond in time"))),
    };
    metrics::ai_request(operation, outcome, started.elapsed());
    output
}

fn to_api_error<T>(error: &AiError, field: &str) -> (AiOutcome, Result<T>) {
    match error {
        AiError::Rejected(_) => {
            tracing::info!(%error, "the AI provider rejected a prompt");
            let problem = "The AI provider rejected this text. It may break the rules of the provider. Rephrase it.";
            (AiOutcome::Refused, Err(ApiError::field(field, problem)))
        }
        AiError::Unavailable(_) => (AiOutcome::Unavailable, Err(ApiError::ai_unavailable(error.to_string()))),
        AiError::Malformed(_) => (AiOutcome::Malformed, Err(ApiError::ai_unavailable(error.to_string()))),
    }
}

/// The credits reserved by this request. A panic also refunds them.
struct CreditReservation {
    store: Store,
    request: CreditRequest,
    id: i64,
    is_reserved: AtomicBool,
}

impl CreditReservation {
    /// Reserves the credits; fails if too few are left.
    async fn begin(cx: &Context, operation: Operation, credits: u64) -> Result<Self> {
        let request = CreditRequest {
            workspace_id: cx.caller.workspace_id,
            brand_id: cx.brand()?.id,
            operation,
            credits,
            cap: cx.plan.ai_credits,
        };
        let mut tx = cx.app.store.begin().await?;
        let Some(id) = ai_credits::reserve(&mut tx, &request).await? else {
            tx.rollback().await?;
            return Err(insufficient_credits(&request));
        };
        tx.commit().await?;
        Ok(Self { store: cx.app.store.clone(), request, id, is_reserved: true.into() })
    }

    /// Consumes the credits in the transaction of the response. Returns how many remain this month.
    async fn end(&self, cx: &Context, tx: &mut Tx) -> Result<Option<u64>> {
        if !ai_credits::consume(tx, self.request.workspace_id, self.id).await? {
            // The scheduler considered this request dead and refunded the credits. The result is charged anyway.
            let new_id =
                ai_credits::reserve(tx, &self.request).await?.ok_or_else(|| insufficient_credits(&self.request))?;
            ai_credits::consume(tx, self.request.workspace_id, new_id).await?;
        }
        // Report the current month, because the credits may have been reserved in the last minute of the previous one.
        let now = tx.now;
        let used = ai_credits::used(tx, self.request.workspace_id, now).await?;
        Ok(cx.plan.credits_left(used))
    }

    /// Refunds the credits, at most once.
    async fn refund(&self) {
        if self.is_reserved.swap(false, Ordering::SeqCst) {
            refund_reservation(&self.store, self.request.workspace_id, self.id).await;
        }
    }

    /// Returns `result`; refunds the credits if it is an error.
    async fn or_refund<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.refund().await;
        }
        result
    }
}

impl Drop for CreditReservation {
    fn drop(&mut self) {
        if *self.is_reserved.get_mut() && std::thread::panicking() {
            let (store, workspace, id) = (self.store.clone(), self.request.workspace_id, self.id);
            tokio::spawn(async move { refund_reservation(&store, workspace, id).await });
        }
    }
}

async fn refund_reservation(store: &Store, workspace_id: i64, id: i64) {
    let write = async {
        let mut tx = store.begin().await?;
        ai_credits::refund(&mut tx, workspace_id, id).await?;
        tx.commit().await
    };
    if let Err(error) = write.await {
        tracing::warn!(%error, reservation = id, "failed to refund credits; the scheduler will do it");
    }
}
