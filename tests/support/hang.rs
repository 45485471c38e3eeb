//! Calls that have their effect at a fake platform and are never answered.

#![allow(dead_code, reason = "a part of the tests uses a part of it")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use wiremock::ResponseTemplate;

/// What an answer that never comes takes.
const NEVER: Duration = Duration::from_secs(3_600);

/// Which calls hang, once each.
pub struct Hangs {
    next: Mutex<Vec<String>>,
    hung: Semaphore,
}

impl Default for Hangs {
    fn default() -> Self {
        Self { next: Mutex::default(), hung: Semaphore::new(0) }
    }
}

impl Hangs {
    /// Lets the next call of each of these kinds hang.
    pub fn at(&self, calls: &[&str]) {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).extend(calls.iter().map(|&call| call.to_owned()));
    }

    /// Waits until so many calls hang.
    pub async fn wait_for(&self, calls: u32) {
        self.hung.acquire_many(calls).await.expect("it is never closed").forget();
    }

    /// Returns the answer of a call, which comes never if the call is to hang.
    pub fn answer(&self, call: &str, answer: ResponseTemplate) -> ResponseTemplate {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = next.iter().position(|one| one == call) else { return answer };
        next.remove(at);
        self.hung.add_permits(1);
        answer.set_delay(NEVER)
    }
}
