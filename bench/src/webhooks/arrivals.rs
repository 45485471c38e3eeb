//! The deliveries that arrived at the endpoints. Each must arrive once.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::sync::Notify;

use super::super::{BenchError, Result, fail};
use super::client::SentMessage;

/// Maximum time without an arrival while waiting for deliveries.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(120);
const NAME: &str = "message ";

/// Returns the brand name that identifies the events of a message.
pub fn name_of(message: u32) -> String {
    format!("{NAME}{message}")
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    data: Data<'a>,
}

#[derive(Deserialize)]
struct Data<'a> {
    name: &'a str,
}

/// Returns the message number in a webhook's body.
fn message_of(body: &[u8]) -> Option<u32> {
    let envelope: Envelope<'_> = serde_json::from_slice(body).ok()?;
    envelope.data.name.strip_prefix(NAME)?.parse().ok()
}

pub struct Arrivals {
    origin: Instant,
    log: Mutex<Log>,
    awaited: AtomicUsize,
    reached: Notify,
}

#[derive(Default)]
struct Log {
    deliveries: HashSet<u64>,
    /// The message, and the microseconds after `origin`. Compact, because memory is measured at the same time.
    arrivals: Vec<(u32, u32)>,
    duplicates: usize,
    unreadable: usize,
}

/// Timing of delivered messages.
pub struct DeliveryTiming {
    /// From the first request to the last delivery.
    pub took: Duration,
    /// From the message's request to each delivery.
    pub times: Vec<Duration>,
}

impl Arrivals {
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
            log: Mutex::default(),
            awaited: AtomicUsize::new(usize::MAX),
            reached: Notify::new(),
        }
    }

    pub fn record(&self, delivery: Option<u64>, body: &[u8]) {
        let at = u32::try_from(self.origin.elapsed().as_micros()).unwrap_or(u32::MAX);
        let mut log = self.log();
        match (delivery, message_of(body)) {
            (Some(delivery), Some(message)) if log.deliveries.insert(delivery) => log.arrivals.push((message, at)),
            (Some(_), Some(_)) => log.duplicates += 1,
            _ => log.unreadable += 1,
        }
        if log.arrivals.len() >= self.awaited.load(Ordering::SeqCst) {
            self.reached.notify_one();
        }
    }

    /// Waits until this many deliveries have arrived in total; returns when the last one did.
    pub async fn wait(&self, deliveries: usize) -> std::result::Result<Instant, BenchError> {
        self.awaited.store(deliveries, Ordering::SeqCst);
        loop {
            let arrived = self.count();
            if arrived >= deliveries {
                return Ok(self.last());
            }
            let is_idle = tokio::time::timeout(ARRIVAL_TIMEOUT, self.reached.notified()).await.is_err();
            if is_idle && self.count() == arrived {
                self.check()?;
                let seconds = ARRIVAL_TIMEOUT.as_secs();
                return fail(format!("{arrived} of {deliveries} deliveries came, and none within {seconds} s"));
            }
        }
    }

    /// Fails if a delivery arrived twice or was unreadable.
    pub fn check(&self) -> Result {
        let log = self.log();
        match (log.duplicates, log.unreadable) {
            (0, 0) => Ok(()),
            (0, unreadable) => fail(format!("{unreadable} webhooks came without an id or a message")),
            (duplicates, _) => fail(format!("{duplicates} deliveries came twice")),
        }
    }

    /// Returns the timing of these messages; fails unless each reached every endpoint once.
    pub fn timing_of(&self, sent: &[SentMessage], endpoints: u32) -> std::result::Result<DeliveryTiming, BenchError> {
        self.check()?;
        let (Some(first), Some(messages)) = (sent.iter().map(|one| one.sent_at).min(), range(sent)) else {
            return fail("no message was sent");
        };
        let sent_at: HashMap<u32, Instant> = sent.iter().map(|one| (one.message, one.sent_at)).collect();
        let mut arrivals: HashMap<u32, u32> = HashMap::new();
        let (mut times, mut last) = (Vec::new(), first);
        for (message, at) in self.log().arrivals.iter().filter(|(message, _)| messages.contains(message)) {
            let at = self.origin + Duration::from_micros(u64::from(*at));
            *arrivals.entry(*message).or_default() += 1;
            last = last.max(at);
            times.extend(sent_at.get(message).map(|sent| at.saturating_duration_since(*sent)));
        }
        match sent.iter().filter(|one| arrivals.get(&one.message) != Some(&endpoints)).count() {
            0 => Ok(DeliveryTiming { took: last - first, times }),
            wrong => fail(format!("{wrong} of {} messages did not reach each endpoint once", sent.len())),
        }
    }

    pub fn count(&self) -> usize {
        self.log().arrivals.len()
    }

    fn last(&self) -> Instant {
        let last = self.log().arrivals.last().map_or(0, |(_, at)| *at);
        self.origin + Duration::from_micros(u64::from(last))
    }

    /// Ignores poisoning: nothing panics while holding the lock.
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn range(sent: &[SentMessage]) -> Option<Range<u32>> {
    let numbers = || sent.iter().map(|one| one.message);
    Some(numbers().min()?..numbers().max()? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(message: u32) -> Vec<u8> {
        serde_json::json!({ "event": "brand.created", "data": { "brand_id": 7, "name": name_of(message) } })
            .to_string()
            .into_bytes()
    }

    fn sent(messages: Range<u32>) -> Vec<SentMessage> {
        let now = Instant::now();
        messages.map(|message| SentMessage { message, sent_at: now, responded_at: now }).collect()
    }

    #[tokio::test]
    async fn messages_delivered_once_to_each_endpoint_are_timed() {
        let (sent, arrivals) = (sent(3..5), Arrivals::new());
        for (delivery, message) in [(1, 3), (2, 4), (3, 4), (4, 3), (5, 9)] {
            arrivals.record(Some(delivery), &body(message));
        }
        arrivals.wait(5).await.unwrap();
        assert_eq!(arrivals.timing_of(&sent, 2).unwrap().times.len(), 4);
    }

    #[test]
    fn lost_and_duplicate_deliveries_are_errors() {
        let (sent, arrivals) = (sent(0..2), Arrivals::new());
        arrivals.record(Some(1), &body(0));
        let lost = arrivals.timing_of(&sent, 1).err().unwrap().to_string();
        assert_eq!(lost, "1 of 2 messages did not reach each endpoint once");
        arrivals.record(Some(2), &body(1));
        assert!(arrivals.timing_of(&sent, 1).is_ok());
        arrivals.record(Some(2), &body(1));
        assert_eq!(arrivals.timing_of(&sent, 1).err().unwrap().to_string(), "1 deliveries came twice");
    }

    #[test]
    fn indistinguishable_deliveries_are_errors() {
        let arrivals = Arrivals::new();
        arrivals.record(None, &body(0));
        arrivals.record(Some(1), b"{}");
        let error = arrivals.check().err().unwrap().to_string();
        assert_eq!((error.as_str(), arrivals.count()), ("2 webhooks came without an id or a message", 0));
    }
}
