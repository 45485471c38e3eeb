//! Lists and searches of conversations, ordered by their newest message, newest first. [`super::super::search`] explains
//! how.

use crier_domain::conversation::{Conversation, ConversationStatus};
use crier_domain::platform::{ConversationType, Platform};
use crier_domain::words::SearchTerm;

use super::super::db::run;
use super::super::jobs::{id_list, list_sql};
use super::super::search::{Bind, Condition, Membership, Order, Search, SearchedTable};
use super::super::{Conn, Page, PageRequest, Result};
use super::COLUMNS;

static CONVERSATIONS: SearchedTable = SearchedTable {
    name: "conversations",
    condition: "TRUE",
    id_column: "conversation_id",
    words: "conversation_words",
};

static NEWEST_FIRST: Order = Order {
    columns: ", r.last_message_at",
    forward: "r.last_message_at DESC, r.id DESC",
    backward: "r.last_message_at, r.id",
};

/// Filters a list; `None` matches everything.
#[derive(Clone, Debug, Default)]
pub struct ConversationFilter {
    pub status: Option<ConversationStatus>,
    pub kind: Option<ConversationType>,
    pub platform: Option<Platform>,
    pub account_id: Option<i64>,
    pub assignee_id: Option<i64>,
    pub unread: Option<bool>,
    pub tag: Option<String>,
    /// Words that a conversation must contain, all of them.
    pub words: Vec<SearchTerm>,
}

impl ConversationFilter {
    fn search(&self, brand_id: i64) -> Search<'_> {
        let equal = |column, value| Condition { column, operator: "=", value };
        let conditions = [
            self.status.map(|status| equal("r.status", Bind::Text(status.as_str()))),
            self.kind.map(|kind| equal("r.type", Bind::Text(kind.as_str()))),
            self.platform.map(|platform| equal("r.platform", Bind::Text(platform.as_str()))),
            self.account_id.map(|id| equal("r.account_id", Bind::Number(id))),
            self.assignee_id.map(|id| equal("r.assignee_id", Bind::Number(id))),
            self.unread.map(|unread| Condition {
                column: "r.unread_count",
                operator: if unread { ">" } else { "=" },
                value: Bind::Number(0),
            }),
        ];
        let tag = self.tag.as_deref().map(|tag| Membership {
            table: "conversation_tags",
            column: "tag",
            value: Bind::Text(tag),
            is_of_brand: true,
        });
        Search {
            table: &CONVERSATIONS,
            brand_id,
            conditions: conditions.into_iter().flatten().collect(),
            memberships: tag.into_iter().collect(),
            words: &self.words,
            order: &NEWEST_FIRST,
        }
    }
}

pub async fn list(
    conn: &mut Conn,
    brand_id: i64,
    filter: &ConversationFilter,
    page: PageRequest,
) -> Result<Page<Conversation>> {
    let (ids, total) = filter.search(brand_id).page(conn, page).await?;
    let sql = list_sql!(conn, "SELECT {COLUMNS} FROM conversations WHERE id", "AND brand_id = $2", COLUMNS);
    let list = id_list(&ids);
    let mut rows: Vec<Conversation> = run!(conn, c => sqlx::query_as(sql).bind(&list).bind(brand_id).fetch_all(c))?;
    rows.sort_by_key(|row| ids.iter().position(|id| *id == row.id));
    Ok(Page { rows, total })
}
