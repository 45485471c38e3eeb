//! The doorbell: it carries the ids of jobs that are ready, and nothing else.
//!
//! The record is in the database, so the bell may lose an id, bring it twice or be away altogether: the dispatcher rings
//! again for what nobody claimed. That makes both transports small: [`memory`] is a channel inside the process, [`redis`]
//! a list for each kind that workers wait at with a blocking pop. Why no acknowledgements, and not apalis-redis, is in
//! `docs/jobs.md`.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::domain::job::{Bell, Kind};

pub mod memory;
pub mod redis;

/// How many ids of a kind may stand in the bell; what is over that waits in the database.
pub const CAPACITY: usize = 20_000;

/// An id that was rung, and the place that was kept free for it where others could run it as well; the place is free again
/// when this is dropped.
#[derive(Debug)]
pub struct Heard {
    pub id: i64,
    pub place: Option<OwnedSemaphorePermit>,
}

/// A bell that can be listened to.
#[async_trait]
pub trait Transport: Bell {
    /// The ids of a kind as they are rung. Each id reaches one listener, and is taken from the others only when one of
    /// `places` is free. Ends when `places` is closed; a lost connection renews itself.
    fn listen(&self, kind: Kind, places: Arc<Semaphore>) -> mpsc::Receiver<Heard>;

    /// Whether the bell can be reached now.
    fn is_up(&self) -> bool;

    /// How many more ids of each kind the bell takes; `None` while it cannot be reached.
    async fn room(&self) -> Option<Vec<(Kind, usize)>>;
}
