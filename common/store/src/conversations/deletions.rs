//! Messages that were deleted at the platform. Their rows remain, without the text.
//!
//! The caller has locked the account's row in `inbox_syncs`. The conversations are locked one after the other, in the
//! order of their brands and ids.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use crier_domain::conversation::Conversation;
use serde_json::{Map, Value};
use sqlx::types::Json;

use super::super::db::{execute, run};
use super::super::jobs::{id_list, list_sql};
use super::super::{Conn, Result, Tx};
use super::receive::{brands, preview, update};
use super::{lock, words};

/// An inbound message, to ask the platform whether it still exists.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Candidate {
    pub sent_at: DateTime<Utc>,
    pub external_id: String,
}

/// Returns inbound messages that were sent between two times, newest first. A message that several brands have appears
/// once.
pub async fn candidates(
    conn: &mut Conn,
    account_id: i64,
    (since, until): (DateTime<Utc>, DateTime<Utc>),
    limit: i64,
) -> Result<Vec<Candidate>> {
    const SQL: &str = "
        SELECT DISTINCT sent_at, external_id
        FROM messages
        WHERE account_id = $1
            AND direction = 'inbound'
            AND status = 'received'
            AND deleted_at IS NULL
            AND external_id IS NOT NULL
            AND sent_at >= $2
            AND sent_at <= $3
        ORDER BY sent_at DESC, external_id DESC
        LIMIT $4";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(account_id).bind(since).bind(until).bind(limit).fetch_all(c))?)
}

/// Records that messages of an account were deleted, in each brand that has the account. Deletes their texts and words,
/// subtracts them from the unread count, and uses the newest remaining message for the preview and for replies. Ignores
/// unknown ids and messages that are already marked as deleted.
pub async fn delete(tx: &mut Tx, account_id: i64, external_ids: &[String]) -> Result<()> {
    if external_ids.is_empty() {
        return Ok(());
    }
    let mut budget = words::MAX_READ;
    for (brand_id, _) in brands(tx, account_id).await? {
        let mut conversations: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (conversation, id) in known(tx, brand_id, account_id, external_ids).await? {
            conversations.entry(conversation).or_default().push(id);
        }
        for (conversation, ids) in conversations {
            delete_of(tx, brand_id, conversation, &ids, &mut budget).await?;
        }
    }
    Ok(())
}

/// Returns the messages that a brand has and that are not marked as deleted: their conversations and our ids.
async fn known(conn: &mut Conn, brand_id: i64, account_id: i64, external_ids: &[String]) -> Result<Vec<(i64, i64)>> {
    // On Postgres, a join instead of `IN`, so that each id is looked up.
    let sql = conn.for_engine(
        "
        SELECT m.conversation_id, m.id
        FROM (
            SELECT DISTINCT value AS id
            FROM json_array_elements_text($3::json)
        ) v
        JOIN messages m ON m.brand_id = $1 AND m.account_id = $2 AND m.external_id = v.id
        WHERE m.deleted_at IS NULL
            AND status = 'received'",
        "
        SELECT conversation_id, id
        FROM messages
        WHERE brand_id = $1
            AND account_id = $2
            AND external_id IN (SELECT value FROM json_each($3))
            AND status = 'received'
            AND deleted_at IS NULL",
    );
    let ids = serde_json::json!(external_ids).to_string();
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(account_id).bind(&ids).fetch_all(c))?)
}

/// Deletes messages of one conversation. See [`words::remove`] for `budget`.
async fn delete_of(tx: &mut Tx, brand_id: i64, conversation_id: i64, ids: &[i64], budget: &mut usize) -> Result<()> {
    let Some(mut conversation) = lock(tx, brand_id, conversation_id).await? else { return Ok(()) };
    let ids = id_list(ids);
    let texts = texts(tx, &ids).await?;
    let sql = list_sql!(tx, "UPDATE messages SET body = '', deleted_at = $2, updated_at = $2 WHERE id", "");
    let now = tx.now;
    execute!(tx, sql, &ids, now)?;
    // Read after the lock, because a user may have marked them as read meanwhile.
    let unread = texts.iter().filter(|(is_unread, _)| *is_unread).count();
    let unread = i32::try_from(unread).unwrap_or(i32::MAX);
    conversation.unread_count = conversation.unread_count.saturating_sub(unread).max(0);
    use_newest(tx, &mut conversation).await?;
    update(tx, &conversation).await?;
    let texts: Vec<&str> = texts.iter().map(|(_, body)| body.as_str()).collect();
    words::remove(tx, &conversation, &texts, budget).await
}

/// Returns whether messages are unread, and their texts.
async fn texts(tx: &mut Tx, ids: &str) -> Result<Vec<(bool, String)>> {
    let sql = list_sql!(tx, "SELECT is_unread, body FROM messages WHERE id", "");
    Ok(run!(tx, c => sqlx::query_as(sql).bind(ids).fetch_all(c))?)
}

/// Sets the preview and the data for a reply to those of the newest messages that are not deleted. If none of them has
/// such data, as on platforms that need none, the data stays.
pub(super) async fn use_newest(tx: &mut Tx, conversation: &mut Conversation) -> Result<()> {
    const BODY: &str = "
        SELECT body
        FROM messages
        WHERE conversation_id = $1
            AND deleted_at IS NULL
        ORDER BY sent_at DESC, id DESC
        LIMIT 1";
    const CONTEXT: &str = "
        SELECT reply_context
        FROM messages
        WHERE conversation_id = $1
            AND deleted_at IS NULL
            AND reply_context IS NOT NULL
        ORDER BY sent_at DESC, id DESC
        LIMIT 1";
    let id = conversation.id;
    let body: Option<String> = run!(tx, c => sqlx::query_scalar(BODY).bind(id).fetch_optional(c))?;
    conversation.last_message_preview = preview(&body.unwrap_or_default());
    if !conversation.reply_context.is_empty() {
        let context: Option<Json<Map<String, Value>>> =
            run!(tx, c => sqlx::query_scalar(CONTEXT).bind(id).fetch_optional(c))?;
        if let Some(Json(context)) = context {
            conversation.reply_context = context;
        }
    }
    Ok(())
}
