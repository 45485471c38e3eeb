//! `POST /brands/{brand}/queue/move`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_posts::queue::{self, QueueChange};
use crier_store::Tx;

use super::{Queue, TAG, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The new place of a post in the queue.
#[derive(Clone, Debug, Request)]
pub struct QueueMove {
    /// The ID of a queued post.
    #[field(id(), example = 1)]
    pub post_id: i64,
    /// The ID of the queued post in front of which it is placed. Null moves it to the end.
    #[field(id())]
    pub before: Option<i64>,
}

pub fn endpoint() -> Endpoint<QueueMove, One<Queue>> {
    Endpoint::post("/brands/{brand}/queue/move", "moveQueuedPost", Scope::PostsWrite)
        .tag(TAG)
        .summary("Update the order of a brand's queue")
        .description(
            "Queued posts get new times, so that each account gets its posts in the new order. Posts that are being \
             published, and posts whose time is less than a minute away, do not move.",
        )
        .extension()
        .for_publishers()
        .checks_then_writes(move_post)
        .with_rerender("queue", show::show)
}

async fn move_post(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<QueueMove>>) -> Result<Reply<Queue>> {
    let request = parsed.valid()?;
    let change = QueueChange::Move { post_id: request.post_id, before: request.before };
    queue::change(tx, cx.brand()?.id, change).await?;
    Ok(Reply::from(Queue::load(cx, tx).await?))
}
