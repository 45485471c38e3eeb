//! `PUT /brands/{brand}/queue`

use std::collections::HashSet;
use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::queue::{MAX_SLOT_ACCOUNTS, MAX_SLOTS, Slot};
use crier_domain::recurrence::parse_time;
use crier_posts::check::missing_account;
use crier_posts::queue::{self, QueueChange};
use crier_store::{Conn, Tx, accounts, queues};

use super::{Queue, TAG, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::Result;
use crate::fields::{Fields, Problems};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// A slot of the queue.
#[derive(Clone, Debug, Request)]
#[request(name = "QueueSlotRequest", check = check)]
pub struct SlotRequest {
    /// The day of the week, from 1 (Monday) to 7 (Sunday).
    #[field(number(1..=7), example = 1)]
    pub weekday: i64,
    /// The time of day, `HH:MM`, in the brand's time zone. A time skipped by daylight saving time moves to
    /// the next existing time. A repeated time is used once.
    #[field(local_time(), example = "09:00")]
    pub time: String,
    /// The IDs of the accounts that can use the slot. Omit it for every account.
    #[field(ids(MAX_SLOT_ACCOUNTS))]
    pub account_ids: Option<Vec<i64>>,
}

fn check(request: &SlotRequest, fields: &Fields<'_>) {
    if request.account_ids.as_ref().is_some_and(Vec::is_empty) && !fields.problems.has(&fields.path("account_ids")) {
        fields.problem("account_ids", "Choose at least one account, or omit this field for every account.");
    }
}

/// The new slots of the queue.
#[derive(Clone, Debug, Request)]
pub struct QueueUpdate {
    /// All slots of the week. At most 200.
    #[field(objects(MAX_SLOTS), example)]
    pub slots: Vec<SlotRequest>,
}

pub fn endpoint() -> Endpoint<QueueUpdate, One<Queue>> {
    Endpoint::put("/brands/{brand}/queue", "updateQueue", Scope::PostsWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Update the slots of a brand's queue")
        .description(
            "Replaces all slots. Queued posts get new times, and their order on each account does not change. Posts \
             with a time of their own never move, nor do posts whose time is less than a minute away. If a queued post \
             would have no slot within two years, the slots are rejected.",
        )
        .extension()
        .for_publishers()
        .checks_then_writes(update)
        .with_rerender("queue", show::show)
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<QueueUpdate>>) -> Result<Reply<Queue>> {
    let request = parsed.valid()?;
    check_accounts(tx, cx.brand()?.id, &request.slots).await?;
    let slots: Vec<Slot> = request.slots.iter().map(SlotRequest::slot).collect();
    queue::change(tx, cx.brand()?.id, QueueChange::Slots { slots: &slots, seen: cx.version }).await?;
    Ok(Reply::from(Queue::load(cx, tx).await?))
}

impl SlotRequest {
    fn slot(&self) -> Slot {
        Slot {
            weekday: u32::try_from(self.weekday).unwrap_or_default(),
            time: parse_time(&self.time).unwrap_or_default(),
            account_ids: self.account_ids.clone().unwrap_or_default(),
        }
    }
}

/// Fails if a slot lists an account that the brand does not have. Accounts that a stored slot lists are accepted: they
/// may have been disconnected, and are connected again later.
async fn check_accounts(conn: &mut Conn, brand_id: i64, slots: &[SlotRequest]) -> Result<()> {
    let mut listed: Vec<i64> = slots.iter().filter_map(|slot| slot.account_ids.as_deref()).flatten().copied().collect();
    listed.sort_unstable();
    listed.dedup();
    let own = accounts::summaries(conn, brand_id, &listed).await?;
    let mut known: HashSet<i64> = own.into_iter().map(|account| account.id).collect();
    let (stored, _) = queues::find(conn, brand_id).await?;
    known.extend(stored.into_iter().flat_map(|slot| slot.account_ids));
    let problems = Problems::default();
    for (n, slot) in slots.iter().enumerate() {
        for (i, id) in slot.account_ids.iter().flatten().enumerate() {
            if !known.contains(id) {
                problems.add(format!("slots.{n}.account_ids.{i}"), missing_account(*id));
            }
        }
    }
    Ok(problems.into_result()?)
}
