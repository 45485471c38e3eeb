//! Reads request bodies with a minimum transfer rate, regardless of how the client spaces its bytes. Responses also
//! have a minimum rate ([`crate::connections`]).

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use salvo::Request;
use salvo::http::ReqBody;

use crate::error::{ApiError, ErrorCode};

/// The minimum transfer rate of a body.
#[derive(Clone, Copy, Debug)]
pub struct MinRate {
    /// How far behind the rate a client may fall in total.
    pub grace: Duration,
    /// Bytes per second.
    pub bytes_per_second: u64,
}

impl Default for MinRate {
    fn default() -> Self {
        Self { grace: Duration::from_secs(30), bytes_per_second: 64 << 10 }
    }
}

/// The time budget of a client, like a token bucket: waiting uses it up and each byte refills it, up to the initial
/// grace. So a body takes at most the grace plus its size divided by the rate, and a client that stops sending is
/// dropped after at most the grace, whatever it sent before.
#[derive(Clone, Copy, Debug)]
pub struct TimeBudget {
    rate: MinRate,
    left: Duration,
}

impl TimeBudget {
    pub fn new(rate: MinRate) -> Self {
        Self { rate, left: rate.grace }
    }

    /// Records a wait for the client and the bytes that arrived after it.
    pub fn record(&mut self, waited: Duration, bytes: usize) {
        let earned = Duration::from_secs_f64(bytes as f64 / self.rate.bytes_per_second.max(1) as f64);
        self.left = (self.left.saturating_sub(waited) + earned).min(self.rate.grace);
    }

    /// Returns whether the client has fallen behind by more than the grace.
    pub fn is_exhausted(&self) -> bool {
        self.left.is_zero()
    }
}

/// The reason why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the client sends too slowly")]
    Slow(MinRate),
    #[error("the body is incomplete")]
    Incomplete,
    /// The head of a multipart part is longer than the limit.
    #[error("the headers of a part are too long")]
    LongHead,
}

impl BodyError {
    pub fn into_api_error(self) -> ApiError {
        let message = match self {
            Self::Slow(rate) => format!(
                "The body arrived too slowly: more than {1} seconds behind the minimum of {0} KiB per second. Send the \
                 request again over a faster connection.",
                rate.bytes_per_second >> 10,
                rate.grace.as_secs()
            ),
            Self::Incomplete => "The body is incomplete. Send the request again.".to_owned(),
            Self::LongHead => "The form could not be read: the headers of a part are too long.".to_owned(),
        };
        ApiError::new(ErrorCode::InvalidJson, message)
    }
}

/// A request body that is being received.
pub struct BodyReader<'r> {
    body: &'r mut ReqBody,
    budget: TimeBudget,
}

impl<'r> BodyReader<'r> {
    pub fn of(req: &'r mut Request, rate: MinRate) -> Self {
        Self::new(req.body_mut(), rate)
    }

    pub fn new(body: &'r mut ReqBody, rate: MinRate) -> Self {
        Self { body, budget: TimeBudget::new(rate) }
    }

    /// Returns the next bytes, or `None` at the end. Only the time spent waiting for the client counts.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        loop {
            let started = Instant::now();
            let Ok(frame) = tokio::time::timeout(self.budget.left, self.body.next()).await else {
                return Some(Err(BodyError::Slow(self.budget.rate)));
            };
            let data = match frame? {
                Ok(frame) => frame.into_data().unwrap_or_default(),
                Err(_) => return Some(Err(BodyError::Incomplete)),
            };
            self.budget.record(started.elapsed(), data.len());
            if !data.is_empty() {
                return Some(Ok(data));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: MinRate = MinRate { grace: Duration::from_secs(30), bytes_per_second: 1_000 };

    /// Returns the seconds after which a client that sends `bytes` every `every` seconds is dropped. `None` if it is
    /// never dropped.
    fn dropped_after(bytes: usize, every: u64) -> Option<u64> {
        let mut budget = TimeBudget::new(RATE);
        for n in 0..100_000 {
            let waited = Duration::from_secs(every);
            if waited >= budget.left {
                return Some(n * every + budget.left.as_secs());
            }
            budget.record(waited, bytes);
        }
        None
    }

    #[test]
    fn a_client_above_the_minimum_rate_is_kept() {
        assert_eq!(dropped_after(1_000, 1), None);
        assert_eq!(dropped_after(29_000, 29), None);
    }

    #[test]
    fn a_slow_client_is_dropped_for_any_chunking() {
        assert_eq!(dropped_after(0, 1), Some(30));
        assert_eq!(dropped_after(1, 29), Some(30), "a byte now and then keeps nothing open");
        assert_eq!(dropped_after(500, 1), Some(59), "half of the rate: the grace is used up at half of its speed");
        assert_eq!(dropped_after(900, 1), Some(291));
    }

    #[test]
    fn an_initial_burst_does_not_extend_the_deadline() {
        let mut budget = TimeBudget::new(RATE);
        budget.record(Duration::ZERO, 25 << 20);
        assert_eq!(budget.left, RATE.grace);
    }
}
