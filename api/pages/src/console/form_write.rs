//! Idempotent writes without an endpoint: a form that is sent twice is executed once.
//!
//! As with endpoints, the form's `_key` is an `Idempotency-Key`. The result is stored, encrypted, in the transaction of
//! the write, and is returned if the form is sent again.

use crier_endpoints::admission;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::runner::in_flight::InFlightKey;
use crier_store::Tx;
use crier_store::idempotency::{self, FreeKey, IdempotencySlot, KeyState, StoredBody, StoredResponse};
use sha2::{Digest, Sha256};

use super::visit::Visit;

/// The write of a form that was sent for the first time.
pub struct FormWrite<'v> {
    pub tx: Tx,
    visit: &'v Visit,
    slot: IdempotencySlot,
    free: FreeKey,
    _in_flight: InFlightKey,
}

/// A submitted form.
pub enum Submission<'v> {
    First(Box<FormWrite<'v>>),
    /// The form was sent before. Contains what [`FormWrite::finish`] stored.
    Repeated(Vec<u8>),
}

impl<'v> FormWrite<'v> {
    /// Looks up the key of the form, and begins the transaction of the write if the key is new.
    pub async fn begin(visit: &'v Visit) -> Result<Submission<'v>> {
        Self::look_up(visit).await.inspect_err(|error| visit.note(error))
    }

    async fn look_up(visit: &'v Visit) -> Result<Submission<'v>> {
        let key = visit.form.get("_key");
        if !admission::is_idempotency_key(key) {
            let message = "This form is incomplete. Go back, reload the page, and submit the form again.";
            return Err(ApiError::new(ErrorCode::IdempotencyKeyInvalid, message));
        }
        let slot = IdempotencySlot {
            api_key_id: visit.authenticated.caller.key_id,
            key: key.to_owned(),
            fingerprint: fingerprint(visit),
            request: None,
        };
        let in_flight = visit.app.in_flight.enter(&slot).ok_or_else(in_progress)?;
        let mut tx = visit.app.store.begin().await?;
        let found = idempotency::look_up_in(&mut tx, &slot).await?;
        if let KeyState::Free(free) = found {
            return Ok(Submission::First(Box::new(Self { tx, visit, slot, free, _in_flight: in_flight })));
        }
        tx.rollback().await?;
        match found {
            KeyState::Stored(StoredResponse { body: StoredBody::Whole(body), .. }) => Ok(Submission::Repeated(body)),
            KeyState::Reused => {
                let message = "This form was already submitted with other values. Reload the page and submit it again.";
                Err(ApiError::new(ErrorCode::IdempotencyKeyReused, message))
            }
            _ => Err(in_progress()),
        }
    }

    /// Ends a write without a result: commits, or rolls back if it was rejected.
    pub async fn end(self, written: Result<()>) -> Result<()> {
        match written {
            Ok(()) => self.finish("").await,
            Err(error) => self.reject(error).await,
        }
    }

    /// Rolls back, and returns the error. A dropped transaction would hold the key a moment longer, and the form, if it
    /// is sent again, would be "in progress".
    pub async fn reject<T>(self, error: ApiError) -> Result<T> {
        self.visit.note(&error);
        if let Err(failed) = self.tx.rollback().await {
            tracing::debug!(error = %failed, "rollback failed; closing the connection rolls back anyway");
        }
        Err(error)
    }

    /// Stores the result and commits.
    pub async fn finish(self, result: impl Into<Vec<u8>>) -> Result<()> {
        let visit = self.visit;
        self.commit(result.into()).await.inspect_err(|error| visit.note(error))
    }

    async fn commit(mut self, result: Vec<u8>) -> Result<()> {
        let stored = StoredResponse { status: 200, location: None, body: StoredBody::Whole(result) };
        match idempotency::store(&mut self.tx, &self.slot, &stored, self.free).await {
            Ok(()) => Ok(self.tx.commit().await?),
            Err(error) if error.is_serialization() => {
                self.tx.rollback().await?;
                Err(in_progress())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn in_progress() -> ApiError {
    let message = "This form was just submitted and is still being processed. Reload the page.";
    ApiError::new(ErrorCode::IdempotencyInProgress, message)
}

/// Returns a hash of the IDs and fields of the form. Its action is part of its `_key`.
pub fn fingerprint(visit: &Visit) -> Vec<u8> {
    let mut hash = Sha256::new();
    let ids = visit.ids.iter().map(|(name, id)| ((*name).to_owned(), id.to_string()));
    let fields = visit.form.under("").filter(|(name, _)| !matches!(*name, "_csrf" | "_key"));
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
    for (name, value) in ids.chain(fields) {
        for part in [name, value] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    hash.finalize().to_vec()
}
