//! Calls that take effect on a fake platform and never get a response.

#![allow(dead_code, reason = "each test uses only a part")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use wiremock::ResponseTemplate;

/// A delay longer than any test takes.
const NEVER: Duration = Duration::from_secs(3_600);

/// The calls that hang, once each.
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
    /// Makes the next call of each of these kinds hang.
    pub fn at(&self, calls: &[&str]) {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).extend(calls.iter().map(|&call| call.to_owned()));
    }

    /// Waits until this many calls hang.
    pub async fn wait_for(&self, calls: u32) {
        self.hung.acquire_many(calls).await.expect("it is never closed").forget();
    }

    /// Returns the response to a call, with a delay that never ends if the call hangs.
    pub fn respond(&self, call: &str, response: ResponseTemplate) -> ResponseTemplate {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = next.iter().position(|one| one == call) else { return response };
        next.remove(at);
        self.hung.add_permits(1);
        response.set_delay(NEVER)
    }
}
