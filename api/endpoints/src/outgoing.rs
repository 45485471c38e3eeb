//! Limits the memory and file descriptors that responses hold until their clients have read them.
//!
//! A response that is being sent has a [`Lease`] on the budgets of its process, of its client's address, and of its
//! workspace and its API key or session, or of all other clients. If a budget is used up, a read is rejected before anything
//! is sent, and the connection of a write is closed: the client retries the write with its `Idempotency-Key`. A client
//! that reads too slowly is disconnected by the server. Reading a video at the minimum rate takes days.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use crier_runtime::descriptors;
use crier_store::keys::Caller;
use crier_telemetry::metrics;
use futures::{Stream, StreamExt, stream};
use http::header::CONTENT_LENGTH;
use salvo::Response;
use salvo::http::ResBody;

use crate::error::ApiError;
use crate::limits::RateLimitSubject;

/// The maximum number of bytes that all responses of a process hold.
const MAX_BYTES: usize = 128 << 20;
/// The divisor for the share of responses to one address or to one workspace. Responses to one API key may hold half of
/// that.
const HOLDER_SHARE: usize = 4;
/// Smaller responses fit the buffers of their connections and are not counted.
const MIN_COUNTED_BYTES: usize = 16 << 10;
/// The size that a file in flight counts as, in bytes, unless the process may open only a few files.
const FILE_BYTES: usize = 256 << 10;
/// The divisor for the share of a process's descriptors that files in flight may hold.
const DESCRIPTOR_SHARE: usize = 8;
/// Bodies are passed to the connection in parts of this size, so that it never buffers a whole body.
const PART_BYTES: usize = 16 << 10;

/// The party that a response in flight counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    Address(RateLimitSubject),
    Workspace(i64),
    Key(i64),
    /// All clients without an API key or a session, because one client may have any number of addresses.
    Visitors,
}

impl Holder {
    /// Returns how many of `all` bytes the holder may hold.
    const fn share(self, all: usize) -> usize {
        match self {
            Self::Address(_) | Self::Workspace(_) => all / HOLDER_SHARE,
            Self::Key(_) => all / HOLDER_SHARE / 2,
            Self::Visitors => all / 2,
        }
    }
}

/// The holders of a request with an API key or a session. Stored in the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct CallerHolders(pub [Holder; 2]);

impl CallerHolders {
    pub const fn of(caller: &Caller) -> Self {
        Self([Holder::Workspace(caller.workspace_id), Holder::Key(caller.key_id)])
    }
}

/// The budget of a process. Clones share it.
#[derive(Clone, Debug)]
pub struct OutgoingBudget {
    max_bytes: usize,
    file_bytes: usize,
    usage: Arc<Mutex<Usage>>,
}

#[derive(Debug, Default)]
struct Usage {
    total: usize,
    by_holder: HashMap<Holder, usize>,
}

/// The budget that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetExceeded {
    /// The budget of the client's address, workspace or key.
    Holder,
    /// The budget of the process, or of all visitors.
    Process,
}

/// A part of the budget. Dropping it returns the part.
#[derive(Debug)]
pub struct Lease {
    budget: OutgoingBudget,
    holders: Vec<Holder>,
    bytes: usize,
}

impl Default for OutgoingBudget {
    fn default() -> Self {
        Self::new(MAX_BYTES, descriptors::limit())
    }
}

impl OutgoingBudget {
    /// Creates a budget for a process that may open `descriptors` files.
    pub fn new(max_bytes: usize, descriptors: usize) -> Self {
        let max_files = (descriptors / DESCRIPTOR_SHARE).max(HOLDER_SHARE);
        Self { max_bytes, file_bytes: FILE_BYTES.max(max_bytes / max_files), usage: Arc::default() }
    }

    /// Returns the number of bytes that a response holds while it is sent. 0 if it is not counted.
    pub fn size_of(&self, body: &ResBody) -> usize {
        match body {
            ResBody::Stream(_) => self.file_bytes,
            other => other
                .size()
                .and_then(|size| usize::try_from(size).ok())
                .filter(|size| *size >= MIN_COUNTED_BYTES)
                .unwrap_or(0),
        }
    }

    /// Fails if [`OutgoingBudget::take`] would reject a response of `bytes` to the caller. Call it before creating such
    /// a response.
    pub fn check_caller(&self, bytes: usize, caller: &Caller) -> Result<(), BudgetExceeded> {
        self.check(&self.usage.lock().unwrap_or_else(PoisonError::into_inner), bytes, &CallerHolders::of(caller).0)
    }

    fn check(&self, usage: &Usage, bytes: usize, holders: &[Holder]) -> Result<(), BudgetExceeded> {
        let is_over = |holder: &&Holder| {
            usage.by_holder.get(*holder).is_some_and(|before| before + bytes > holder.share(self.max_bytes))
        };
        match holders.iter().find(is_over) {
            None => Ok(()),
            Some(Holder::Visitors) => Err(BudgetExceeded::Process),
            Some(_) => Err(BudgetExceeded::Holder),
        }
    }

    /// Takes `bytes` for these holders. A holder without responses in flight may always have one.
    pub fn take(&self, bytes: usize, holders: Vec<Holder>) -> Result<Lease, BudgetExceeded> {
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        if usage.total > 0 && usage.total + bytes > self.max_bytes {
            return Err(BudgetExceeded::Process);
        }
        self.check(&usage, bytes, &holders)?;
        usage.total += bytes;
        holders.iter().for_each(|holder| *usage.by_holder.entry(*holder).or_default() += bytes);
        metrics::http_response_bytes(usage.total);
        drop(usage);
        Ok(Lease { budget: self.clone(), holders, bytes })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut usage = self.budget.usage.lock().unwrap_or_else(PoisonError::into_inner);
        usage.total -= self.bytes;
        for holder in &self.holders {
            let left = usage.by_holder.get_mut(holder).map(|bytes| {
                *bytes -= self.bytes;
                *bytes
            });
            if left == Some(0) {
                usage.by_holder.remove(holder);
            }
        }
        metrics::http_response_bytes(usage.total);
    }
}

impl From<BudgetExceeded> for ApiError {
    fn from(exceeded: BudgetExceeded) -> Self {
        match exceeded {
            BudgetExceeded::Holder => Self::unread_responses(),
            BudgetExceeded::Process => Self::busy_sending(),
        }
    }
}

/// Sends a body in parts that hold the lease, and the guard of the connection, until the last one is sent.
pub fn send(res: &mut Response, lease: Lease, connection: impl Send + Sync + 'static) {
    let guards = (lease, connection);
    let body = match std::mem::take(&mut res.body) {
        ResBody::Stream(body) => {
            let body = body.into_inner();
            ResBody::stream(body.inspect(move |_| {
                let _ = &guards;
            }))
        }
        ResBody::Once(bytes) => {
            // A stream has no known length, so it is set here.
            res.headers_mut().insert(CONTENT_LENGTH, bytes.len().into());
            ResBody::stream(parts(bytes, guards))
        }
        other => other,
    };
    res.body = body;
}

/// Returns copies of the parts: a connection that buffers a slice would hold all of its bytes.
fn parts<G: Send + 'static>(bytes: Bytes, guards: G) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    stream::unfold((bytes, guards), |(mut rest, guards)| async move {
        if rest.is_empty() {
            return None;
        }
        let part = Bytes::copy_from_slice(&rest.split_to(rest.len().min(PART_BYTES)));
        Some((Ok(part), (rest, guards)))
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_key_leaves_half_to_the_other_keys_of_its_workspace() {
        let budget = OutgoingBudget::new(16 * MIB, 1_024);
        let of_key = |key| vec![Holder::Workspace(1), Holder::Key(key)];
        let first = [budget.take(MIB, of_key(1)).unwrap(), budget.take(MIB, of_key(1)).unwrap()];
        assert_eq!(budget.take(MIB, of_key(1)).unwrap_err(), BudgetExceeded::Holder);
        let second = [budget.take(MIB, of_key(2)).unwrap(), budget.take(MIB, of_key(2)).unwrap()];
        assert_eq!(budget.take(MIB, of_key(3)).unwrap_err(), BudgetExceeded::Holder);
        drop((first, second));
    }

    fn workspace(id: i64) -> Vec<Holder> {
        vec![Holder::Workspace(id)]
    }

    #[test]
    fn a_holder_gets_at_most_a_quarter_of_the_budget() {
        let budget = OutgoingBudget::new(16 * MIB, 1_024);
        let first: Vec<_> = (0..4).map(|_| budget.take(MIB, workspace(1)).unwrap()).collect();
        assert_eq!(budget.take(MIB, workspace(1)).unwrap_err(), BudgetExceeded::Holder);
        let others: Vec<_> = (2..5).map(|id| budget.take(4 * MIB, workspace(id)).unwrap()).collect();
        assert_eq!(budget.take(1, workspace(9)).unwrap_err(), BudgetExceeded::Process);
        drop(first);
        budget.take(4 * MIB, workspace(1)).unwrap();
        drop(others);
        assert!(budget.usage.lock().unwrap().by_holder.is_empty());
    }

    #[test]
    fn clients_without_a_key_get_at_most_half_of_the_budget() {
        let budget = OutgoingBudget::new(16 * MIB, 1_024);
        let visitor = |number| {
            let address = RateLimitSubject::address(IpAddr::from([192, 0, 2, number]));
            vec![Holder::Address(address), Holder::Visitors]
        };
        let visitors: Vec<_> = (0..8).map(|number| budget.take(MIB, visitor(number)).unwrap()).collect();
        assert_eq!(budget.take(MIB, visitor(8)).unwrap_err(), BudgetExceeded::Process);
        budget.take(4 * MIB, workspace(1)).unwrap();
        drop(visitors);
        budget.take(MIB, visitor(8)).unwrap();
    }

    #[test]
    fn a_response_larger_than_the_budget_is_sent_if_it_is_the_only_one() {
        let budget = OutgoingBudget::new(MIB, 1_024);
        let lease = budget.take(2 * MIB, workspace(1)).unwrap();
        assert_eq!(budget.take(1, workspace(2)).unwrap_err(), BudgetExceeded::Process);
        drop(lease);
    }

    #[test]
    fn files_hold_at_most_an_eighth_of_the_descriptors() {
        let budget = OutgoingBudget::new(128 * MIB, 1_024);
        let file = budget.size_of(&ResBody::stream(stream::empty::<Result<Bytes, Infallible>>()));
        assert_eq!(128 * MIB / file, 128);
        assert_eq!(budget.size_of(&ResBody::Once(Bytes::from_static(b"{}"))), 0);
    }

    #[tokio::test]
    async fn parts_are_the_body_and_hold_the_lease_to_the_end() {
        let budget = OutgoingBudget::new(16 * MIB, 1_024);
        let body: Bytes = (0..=u8::MAX).cycle().take(100_001).collect();
        let lease = budget.take(body.len(), workspace(1)).unwrap();
        let mut parts = Box::pin(parts(body.clone(), lease));
        let mut read = Vec::new();
        while let Some(Ok(part)) = parts.next().await {
            assert!(part.len() <= PART_BYTES && budget.usage.lock().unwrap().total == body.len());
            read.extend_from_slice(&part);
        }
        drop(parts);
        assert!(read == body && budget.usage.lock().unwrap().total == 0);
    }
}
