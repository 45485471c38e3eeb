//! Rate limits per minute: the generic cell rate algorithm, as one pure function and two stores for its state.
//!
//! The state of a subject is one number: the time at which its allowance is full again. A request advances it by the
//! share of one request; if it would be more than a minute ahead, the request is rejected and the state does not
//! change. So an allowance can be used in one burst, and refills evenly.
//!
//! **To add a store:** implement a [`Limiter`] that applies [`take`] (or the same arithmetic, in one atomic step) to
//! its state.

use std::net::{IpAddr, Ipv6Addr};

use async_trait::async_trait;

pub mod memory;
pub mod redis;

/// One minute in microseconds.
const WINDOW: i64 = 60_000_000;

/// The subject of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateLimitSubject {
    /// An API key, by its id.
    Key(i64),
    /// A client without a valid key, by address. IPv6 addresses are grouped by /64, the usual assignment of one client.
    Address(IpAddr),
    /// A visitor of the pages for signing in and connecting, grouped like [`Self::Address`]: requests with wrong keys from
    /// the same address do not use up this allowance.
    Visitor(IpAddr),
    /// A user for whom pages on the web are read, by id.
    PageReader(i64),
    /// The access of an application, by the id of its grant, for new tokens. Its requests count as those of a key.
    Grant(i64),
}

impl RateLimitSubject {
    pub fn address(ip: IpAddr) -> Self {
        Self::Address(network_of(ip))
    }

    pub fn visitor(ip: IpAddr) -> Self {
        Self::Visitor(network_of(ip))
    }
}

fn network_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

impl std::fmt::Display for RateLimitSubject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(id) => write!(f, "key:{id}"),
            Self::Address(ip) => write!(f, "address:{ip}"),
            Self::Visitor(ip) => write!(f, "visitor:{ip}"),
            Self::PageReader(id) => write!(f, "page-reader:{id}"),
            Self::Grant(id) => write!(f, "grant:{id}"),
        }
    }
}

/// The result for a request, and the values of the rate limit headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// Requests per minute.
    pub limit: u32,
    pub remaining: u32,
    /// The time when the allowance is full again, in Unix seconds.
    pub reset: i64,
    /// Whole seconds until the next request is allowed, at least 1. Only relevant if this request was rejected.
    pub retry_after: u64,
}

/// Returns the part of a minute that one request uses, in microseconds.
fn share(limit: u32) -> i64 {
    (WINDOW / i64::from(limit.max(1))).max(1)
}

/// Takes one request. `full_at`: the time when the allowance is full again, in Unix microseconds (in the past if it is
/// full). Returns its new value.
pub fn take(full_at: i64, now: i64, limit: u32) -> (i64, Decision) {
    // Neither a clock that was set back nor a smaller plan may lock a client out for longer than one window.
    let full_at = full_at.clamp(now, now + WINDOW);
    let next = full_at + share(limit);
    let allowed = next - now <= WINDOW;
    let new_full_at = if allowed { next } else { full_at };
    (new_full_at, Decision::of(allowed, new_full_at, now, limit))
}

impl Decision {
    /// Computes the headers from the state after the request.
    fn of(allowed: bool, full_at: i64, now: i64, limit: u32) -> Self {
        let left = (WINDOW - (full_at - now)) / share(limit);
        let wait = full_at + share(limit) - WINDOW - now;
        Self {
            allowed,
            limit,
            remaining: if allowed { u32::try_from(left).unwrap_or(0).min(limit) } else { 0 },
            reset: full_at.div_euclid(1_000_000) + i64::from(full_at.rem_euclid(1_000_000) > 0),
            retry_after: u64::try_from(wait).unwrap_or(0).div_ceil(1_000_000).max(1),
        }
    }
}

/// Counts requests.
#[async_trait]
pub trait Limiter: Send + Sync {
    /// Takes one request from the subject's allowance of `limit` per minute. Never fails: if the shared state is
    /// unavailable, each process counts for itself.
    async fn take(&self, subject: RateLimitSubject, limit: u32) -> Decision;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: i64 = 1_700_000_000_000_000;

    #[test]
    fn a_full_bucket_allows_a_burst_and_refills_evenly() {
        let mut full_at = 0;
        for left in (0..60).rev() {
            let (next, decision) = take(full_at, START, 60);
            assert!(decision.allowed && decision.remaining == left, "{decision:?}");
            full_at = next;
        }
        let (same, rejected) = take(full_at, START, 60);
        assert_eq!((same, rejected.allowed, rejected.remaining, rejected.retry_after), (full_at, false, 0, 1));
        assert_eq!(rejected.reset, START / 1_000_000 + 60);
        let (_, next) = take(full_at, START + 1_000_000, 60);
        assert!(next.allowed && next.remaining == 0);
        assert!(!take(full_at, START + 999_999, 60).1.allowed);
        assert_eq!(take(full_at, START + 60_000_000, 60).1.remaining, 59);
    }

    #[test]
    fn a_clock_set_back_does_not_lock_out_clients() {
        let (full_at, _) = take(0, START, 60);
        let (_, decision) = take(full_at, START - 3_600_000_000, 60);
        assert!(!decision.allowed && decision.retry_after == 1, "{decision:?}");
    }

    #[test]
    fn addresses_of_one_client_share_a_subject() {
        let subject = |text: &str| RateLimitSubject::address(text.parse().unwrap());
        assert_eq!(subject("2001:db8::1"), subject("2001:db8::ffff:1"));
        assert_ne!(subject("2001:db8::1"), subject("2001:db8:0:1::1"));
        assert_eq!(subject("::ffff:192.0.2.1"), subject("192.0.2.1"));
        assert_ne!(subject("192.0.2.1"), subject("192.0.2.2"));
    }

    proptest! {
        /// For any pauses, no minute lets more than twice the allowance through, `remaining` is correct, and after
        /// `retry_after` the next request is allowed.
        #[test]
        fn reported_limits_match_later_decisions(limit in 1_u32..2_000, pauses in prop::collection::vec(0_i64..2_000_000, 1..300)) {
            let (mut full_at, mut now, mut let_through) = (0, START, 0_i64);
            let mut remaining = limit;
            for pause in pauses {
                now += pause;
                let (next, d) = take(full_at, now, limit);
                prop_assert!(d.allowed || remaining == 0 || pause > 0 || full_at == 0);
                if pause == 0 && full_at > 0 {
                    prop_assert_eq!(d.allowed, remaining > 0);
                }
                prop_assert!(d.remaining <= limit && d.reset * 1_000_000 >= now - 1_000_000);
                if !d.allowed {
                    let later = now + i64::try_from(d.retry_after).unwrap() * 1_000_000;
                    prop_assert!(take(full_at, later, limit).1.allowed);
                }
                let_through += i64::from(d.allowed);
                remaining = d.remaining;
                full_at = next;
            }
            let max = i64::from(limit) + (now - START) / share(limit) + 1;
            prop_assert!(let_through <= max, "{} of {}", let_through, max);
        }
    }
}
