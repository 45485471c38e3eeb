//! The queue of a brand: the slots of its week, and the posts that take their times from them (`crier_posts::queue`).

use crier_domain::queue::Slot;
use crier_posts::queue::{self, QueueChange};
use crier_store::queues::{self, Place};
use crier_store::{Conn, Tx, brands};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::Result;
use crate::response::{ScheduledTimestamp, Timestamp};

pub mod move_post;
pub mod next;
pub mod show;
pub mod update;

pub const TAG: &str = "Queue";

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![show::endpoint().erase(), update::endpoint().erase(), next::endpoint().erase(), move_post::endpoint().erase()]
}

/// A time of the week at which queued posts are published.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "QueueSlot")]
pub struct SlotBody {
    /// The day of the week, from 1 (Monday) to 7 (Sunday).
    #[schemars(range(min = 1, max = 7))]
    pub weekday: u32,
    /// The time of day, `HH:MM`, in the brand's time zone.
    #[schemars(extend("examples" = ["09:00"]))]
    pub time: String,
    /// The IDs of the accounts that can use the slot. Null for every account.
    #[schemars(extend("examples" = [null]))]
    pub account_ids: Option<Vec<i64>>,
}

impl From<Slot> for SlotBody {
    fn from(slot: Slot) -> Self {
        Self {
            weekday: slot.weekday,
            time: slot.time.format("%H:%M").to_string(),
            account_ids: Some(slot.account_ids).filter(|ids| !ids.is_empty()),
        }
    }
}

/// A post that waits in the queue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QueuedPost {
    pub id: i64,
    pub scheduled_at: ScheduledTimestamp,
    /// The IDs of the post's accounts.
    pub accounts: Vec<i64>,
}

/// The queue of a brand.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// The IANA name of the brand's time zone.
    #[schemars(extend("examples" = ["Europe/Berlin"]))]
    pub timezone: String,
    pub slots: Vec<SlotBody>,
    /// The posts that wait in the queue, the next one first. At most 1,000.
    pub posts: Vec<QueuedPost>,
    /// The time at which the slots were last updated. Null if they never were.
    pub updated_at: Option<Timestamp>,
}

impl Queue {
    /// Loads the queue of the brand in the path.
    pub async fn load(cx: &Context, conn: &mut Conn) -> Result<Self> {
        let brand = cx.brand()?;
        let (slots, updated_at) = queues::find(conn, brand.id).await?;
        let places = queues::waiting_places(conn, brand.id).await?;
        // The time zone may have changed since the request was authorized.
        let timezone =
            brands::find(conn, brand.id).await?.map_or_else(|| brand.timezone.clone(), |brand| brand.timezone);
        Ok(Self {
            timezone,
            slots: slots.into_iter().map(Into::into).collect(),
            posts: queued_posts(&places),
            updated_at: updated_at.map(Into::into),
        })
    }
}

/// Gives queued posts new times after the transaction has changed the time zone of their brand. Fails if a post would have
/// no slot.
pub async fn follow_time_zone(tx: &mut Tx, brand_id: i64) -> Result<()> {
    Ok(queue::change(tx, brand_id, QueueChange::TimeZone).await?)
}

/// Returns the posts of places, which are in the order of the queue.
fn queued_posts(places: &[Place]) -> Vec<QueuedPost> {
    let of_post = places.chunk_by(|one, next| one.post_id == next.post_id);
    let post = |places: &[Place]| {
        let first = places.first()?;
        let accounts = places.iter().map(|place| place.account_id).collect();
        Some(QueuedPost { id: first.post_id, scheduled_at: first.at.into(), accounts })
    };
    of_post.filter_map(post).collect()
}
