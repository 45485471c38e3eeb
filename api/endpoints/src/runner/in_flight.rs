//! The `Idempotency-Key`s of the writes that are running in this process.
//!
//! A request that is sent again while the first one is running gets 409 immediately, and takes no connection to the
//! database. One that reaches another process runs there too, but only one of the two can store its response
//! ([`crier_store::idempotency`]).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crier_store::idempotency::IdempotencySlot;

/// The API key's id and the `Idempotency-Key`.
type KeyId = (i64, String);

#[derive(Clone, Default)]
pub struct InFlightKeys(Arc<Mutex<HashSet<KeyId>>>);

/// A key in flight. Dropping it releases the key.
pub struct InFlightKey {
    keys: InFlightKeys,
    name: KeyId,
}

impl InFlightKeys {
    /// Returns `None` if a request with this key is running.
    pub fn enter(&self, slot: &IdempotencySlot) -> Option<InFlightKey> {
        let name = (slot.api_key_id, slot.key.clone());
        let is_new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        is_new.then(|| InFlightKey { keys: self.clone(), name })
    }
}

impl Drop for InFlightKey {
    fn drop(&mut self) {
        self.keys.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}
