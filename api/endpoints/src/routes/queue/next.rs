//! `GET /brands/{brand}/queue/next`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_posts::queue;
use crier_store::Conn;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::TAG;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::fields::{Fields, PatchField};
use crate::request::{Format, Parsed, Request};
use crate::response::{Many, Reply, ScheduledTimestamp};

/// The maximum number of accounts in the query.
const MAX_LISTED_ACCOUNTS: usize = 1_000;
const DEFAULT_COUNT: i64 = 10;

/// The slots to list.
#[derive(Clone, Debug, Default, Request)]
pub struct ListFreeSlots {
    /// Only slots that are free for all of these accounts: IDs, separated by commas. If omitted, only slots that no post
    /// has taken on any account.
    #[field(id_list())]
    pub accounts: Option<Vec<i64>>,
    /// The maximum number of slots.
    #[field(number(1..=100), default = DEFAULT_COUNT)]
    pub count: Option<i64>,
}

/// Ids, separated by commas.
fn id_list() -> IdList {
    IdList
}

struct IdList;

impl Format for IdList {
    type Value = Vec<i64>;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<Vec<i64>> {
        fields.read(name, |value| {
            let parts = value.as_str().unwrap_or_default().split(',').take(MAX_LISTED_ACCOUNTS + 1);
            let ids: Option<Vec<i64>> =
                parts.map(|part| part.trim().parse::<i64>().ok().filter(|id| *id > 0)).collect();
            let ids = ids.filter(|ids| ids.len() <= MAX_LISTED_ACCOUNTS);
            ids.ok_or_else(|| "Must be at most 1,000 IDs, separated by commas, such as 1,2.".to_owned())
        })
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+(,[0-9]+)*$" })
    }
}

/// A time at which a queued post can be published.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FreeSlot {
    pub scheduled_at: ScheduledTimestamp,
}

pub fn endpoint() -> Endpoint<ListFreeSlots, Many<FreeSlot>> {
    Endpoint::get("/brands/{brand}/queue/next", "listFreeSlots", Scope::PostsRead)
        .tag(TAG)
        .summary("List the next free slots of a brand's queue")
        .description(
            "The next post for these accounts takes the first slot, unless another post takes it first. A slot less \
             than a minute away is not free. Only slots within a year are listed.",
        )
        .extension()
        .checks_then_reads(list)
}

async fn list(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<ListFreeSlots>>) -> Result<Reply<Vec<FreeSlot>>> {
    let request = parsed.valid()?;
    let count = usize::try_from(request.count.unwrap_or(DEFAULT_COUNT)).unwrap_or_default();
    let accounts = request.accounts.as_deref().unwrap_or_default();
    let times = queue::free_times(conn, cx.brand()?.id, accounts, count, cx.now).await?;
    Ok(Reply::from(times.into_iter().map(|at| FreeSlot { scheduled_at: at.into() }).collect::<Vec<_>>()))
}
