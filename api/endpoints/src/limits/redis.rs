//! State in Redis, shared by all replicas of the API: one Lua call per request, using Redis's clock.
//!
//! While Redis is unavailable, each process counts for itself and retries Redis after a second. A request never waits
//! longer than [`REDIS_TIMEOUT`].

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use crier_base::clock::Clock;
use crier_telemetry::logs::Repeat;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisError, Script};
use secrecy::{ExposeSecret, SecretString};

use super::memory::MemoryLimiter;
use super::{Decision, Limiter, RateLimitSubject, WINDOW, share};

/// Timeout of one count.
const REDIS_TIMEOUT: Duration = Duration::from_millis(100);
/// The pause before Redis is used again after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// Prefix of an installation's keys.
const PREFIX: &str = "crier";

/// The same arithmetic as [`super::take`], in one atomic step. A double represents these microsecond values exactly.
const TAKE_SCRIPT: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local share, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local full_at = tonumber(redis.call('GET', KEYS[1]) or 0)
full_at = math.min(math.max(full_at, now), now + window)
local following = full_at + share
if following - now > window then return {0, full_at, now} end
redis.call('SET', KEYS[1], string.format('%.0f', following), 'PX', math.ceil((following - now) / 1000))
return {1, following, now}
";

pub struct RedisLimiter {
    prefix: String,
    connection: ConnectionManager,
    script: Script,
    fallback: MemoryLimiter,
    outage: Mutex<Outage>,
}

/// A failure of Redis.
#[derive(Default)]
struct Outage {
    paused_until: Option<Instant>,
    repeat: Repeat,
}

impl RedisLimiter {
    /// Creates a limiter that connects on first use. Needs a Tokio runtime.
    pub fn new(url: &SecretString, clock: Clock) -> Result<Self, RedisError> {
        Self::with_prefix(PREFIX, url, clock)
    }

    /// Like [`Self::new`], with another key prefix.
    pub fn with_prefix(prefix: &str, url: &SecretString, clock: Clock) -> Result<Self, RedisError> {
        let client = Client::open(url.expose_secret())?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(FAILURE_PAUSE))
            .set_response_timeout(Some(FAILURE_PAUSE))
            .set_number_of_retries(1);
        Ok(Self {
            prefix: format!("{prefix}:limit:"),
            connection: ConnectionManager::new_lazy_with_config(client, config)?,
            script: Script::new(TAKE_SCRIPT),
            fallback: MemoryLimiter::new(clock),
            outage: Mutex::default(),
        })
    }

    /// Counts the request in Redis. The error is the reason why this failed.
    async fn take_shared(&self, subject: RateLimitSubject, limit: u32) -> Result<Decision, String> {
        let mut connection = self.connection.clone();
        let mut call = self.script.prepare_invoke();
        call.key(format!("{}{subject}", self.prefix)).arg(share(limit)).arg(WINDOW);
        let result = tokio::time::timeout(REDIS_TIMEOUT, call.invoke_async::<(i64, i64, i64)>(&mut connection)).await;
        match result {
            Ok(Ok((allowed, full_at, now))) => Ok(Decision::of(allowed == 1, full_at, now, limit)),
            Ok(Err(error)) => Err(format!("Redis returned an error: {error}")),
            Err(_) => Err("Redis timed out".to_owned()),
        }
    }

    fn is_paused(&self) -> bool {
        self.outage().paused_until.is_some_and(|until| Instant::now() < until)
    }

    /// Stops using Redis for a while.
    fn pause(&self, reason: &str) {
        let mut outage = self.outage();
        outage.paused_until = Some(Instant::now() + FAILURE_PAUSE);
        if outage.repeat.is_due() {
            tracing::warn!(reason, "rate limits are counted per process");
        }
    }

    fn end_outage(&self) {
        if self.outage().repeat.end() {
            tracing::info!("rate limits are counted in Redis again");
        }
    }

    /// No code panics while it holds the lock, so a poisoned lock is safe to use.
    fn outage(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Limiter for RedisLimiter {
    async fn take(&self, subject: RateLimitSubject, limit: u32) -> Decision {
        if !self.is_paused() {
            match self.take_shared(subject, limit).await {
                Ok(decision) => {
                    self.end_outage();
                    return decision;
                }
                Err(reason) => self.pause(&reason),
            }
        }
        self.fallback.take_now(subject, limit)
    }
}
