//! Conversations of the inbox. A conversation belongs to a brand; always lock its row before changing it or its
//! messages.
//!
//! - here: find, lock, change one;
//! - [`deletions`]: messages that were deleted at the platform;
//! - [`list`]: lists and searches;
//! - [`receive`]: stores messages that were read from a platform;
//! - [`replies`]: messages of a conversation, and the replies among them;
//! - [`words`]: the index of the search.

use chrono::{DateTime, Utc};
use crier_domain::conversation::{Conversation, ConversationStatus, MessageDirection};

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, Tx};

pub mod deletions;
pub mod list;
pub mod receive;
pub mod replies;
pub mod words;

const COLUMNS: &str = "
    id, brand_id, account_id, platform, type, status, unread_count, assignee_id, snoozed_until, last_message_at,
    last_inbound_at, post_id, created_at, updated_at, thread_id, participant_external_id, participant_name,
    participant_username, participant_avatar_url, subject_external_id, subject_url, last_message_preview,
    reply_context";

pub async fn find(conn: &mut Conn, brand_id: i64, conversation_id: i64) -> Result<Option<Conversation>> {
    let sql = sql!("SELECT {COLUMNS} FROM conversations WHERE brand_id = $1 AND id = $2", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(conversation_id).fetch_optional(c))?)
}

/// Finds a conversation and locks its row.
pub async fn lock(tx: &mut Tx, brand_id: i64, conversation_id: i64) -> Result<Option<Conversation>> {
    let sql = locking_sql!(
        tx,
        "SELECT {COLUMNS} FROM conversations WHERE brand_id = $1 AND id = $2 {LOCK}",
        "FOR UPDATE",
        COLUMNS
    );
    Ok(run!(tx, c => sqlx::query_as(sql).bind(brand_id).bind(conversation_id).fetch_optional(c))?)
}

/// Finds the conversation of a message and locks its row, for the worker.
pub async fn lock_of_message(tx: &mut Tx, message_id: i64) -> Result<Option<Conversation>> {
    let sql = locking_sql!(
        tx,
        "SELECT {COLUMNS}
        FROM conversations
        WHERE id = (SELECT conversation_id FROM messages WHERE id = $1)
        {LOCK}",
        "FOR UPDATE",
        COLUMNS
    );
    Ok(run!(tx, c => sqlx::query_as(sql).bind(message_id).fetch_optional(c))?)
}

/// Sets the status. `until` is the end of a snooze.
pub async fn set_status(
    tx: &mut Tx,
    conversation_id: i64,
    status: ConversationStatus,
    until: Option<DateTime<Utc>>,
) -> Result<()> {
    const SQL: &str = "
        UPDATE conversations
        SET status = $2, snoozed_until = $3, updated_at = $4
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, conversation_id, status, until, now)?;
    Ok(())
}

/// Assigns a conversation to a member of its brand, or to no one. Returns `false` if the user is not a member.
pub async fn assign(tx: &mut Tx, conversation: &Conversation, user_id: Option<i64>) -> Result<bool> {
    if let Some(user_id) = user_id {
        const MEMBER: &str = "
            SELECT u.id
            FROM brand_members m
            JOIN users u ON u.id = m.user_id
            WHERE m.brand_id = $1 AND m.user_id = $2";
        let brand = conversation.brand_id;
        let member: Option<i64> =
            run!(tx, c => sqlx::query_scalar(MEMBER).bind(brand).bind(user_id).fetch_optional(c))?;
        if member.is_none() {
            return Ok(false);
        }
    }
    let now = tx.now;
    const SQL: &str = "UPDATE conversations SET assignee_id = $2, updated_at = $3 WHERE id = $1";
    execute!(tx, SQL, conversation.id, user_id, now)?;
    Ok(true)
}

/// Marks all messages as read.
pub async fn mark_read(tx: &mut Tx, conversation_id: i64) -> Result<()> {
    let now = tx.now;
    const SQL: &str = "UPDATE conversations SET unread_count = 0, updated_at = $2 WHERE id = $1 AND unread_count > 0";
    execute!(tx, SQL, conversation_id, now)?;
    execute!(tx, "UPDATE messages SET is_unread = FALSE WHERE conversation_id = $1 AND is_unread", conversation_id)?;
    Ok(())
}

/// Returns the number of conversations of a brand with unread messages, without spam, at most `limit`.
pub async fn count_unread(conn: &mut Conn, brand_id: i64, limit: i64) -> Result<i64> {
    const SQL: &str = "
        SELECT count(*)
        FROM (
            SELECT 1
            FROM conversations
            WHERE brand_id = $1
                AND unread_count > 0
                AND status <> 'spam'
            LIMIT $2
        ) AS unread";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).bind(limit).fetch_one(c))?)
}

/// Returns the direction of the message in each conversation's preview: the newest that is not deleted. Leaves out
/// conversations without such a message.
pub async fn last_directions(conn: &mut Conn, conversation_ids: &[i64]) -> Result<Vec<(i64, MessageDirection)>> {
    let sql = list_sql!(
        conn,
        "
        SELECT id, direction
        FROM (
            SELECT c.id, (
                SELECT m.direction
                FROM messages m
                WHERE m.conversation_id = c.id
                    AND m.deleted_at IS NULL
                ORDER BY m.sent_at DESC, m.id DESC
                LIMIT 1
            ) AS direction
            FROM conversations c
            WHERE c.id",
        "
        ) AS newest
        WHERE direction IS NOT NULL"
    );
    let ids = id_list(conversation_ids);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&ids).fetch_all(c))?)
}

/// Replaces the tags of a conversation.
pub async fn set_tags(tx: &mut Tx, conversation: &Conversation, tags: &[String]) -> Result<()> {
    let sql = tx.for_engine(
        "
        INSERT INTO conversation_tags (brand_id, tag, conversation_id)
        SELECT $1, value, $2
        FROM json_array_elements_text($3::json)
        ON CONFLICT DO NOTHING",
        "
        INSERT INTO conversation_tags (brand_id, tag, conversation_id)
        SELECT $1, value, $2
        FROM json_each($3)
        WHERE TRUE
        ON CONFLICT DO NOTHING",
    );
    let (id, brand, now) = (conversation.id, conversation.brand_id, tx.now);
    execute!(tx, "DELETE FROM conversation_tags WHERE conversation_id = $1", id)?;
    if !tags.is_empty() {
        execute!(tx, sql, brand, id, serde_json::json!(tags).to_string())?;
    }
    execute!(tx, "UPDATE conversations SET updated_at = $2 WHERE id = $1", id, now)?;
    Ok(())
}

/// Returns the tags of conversations, in alphabetical order.
pub async fn tags(conn: &mut Conn, conversation_ids: &[i64]) -> Result<Vec<(i64, String)>> {
    let sql = list_sql!(
        conn,
        "SELECT conversation_id, tag FROM conversation_tags WHERE conversation_id",
        "ORDER BY conversation_id, tag"
    );
    let ids = id_list(conversation_ids);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&ids).fetch_all(c))?)
}

/// Returns the tags of a brand's conversations, in alphabetical order.
pub async fn tags_of_brand(conn: &mut Conn, brand_id: i64, limit: i64) -> Result<Vec<String>> {
    const SQL: &str = "
        SELECT DISTINCT tag
        FROM conversation_tags
        WHERE brand_id = $1
        ORDER BY tag
        LIMIT $2";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).bind(limit).fetch_all(c))?)
}

/// Opens conversations whose snooze has ended, at most `limit`. Returns how many.
pub async fn end_snoozes(tx: &mut Tx, limit: i64) -> Result<u64> {
    let sql = locking_sql!(
        tx,
        "
        WITH due AS MATERIALIZED (
            SELECT id
            FROM conversations
            WHERE snoozed_until <= $1
            ORDER BY snoozed_until
            LIMIT (SELECT $2)
            {LOCK}
        )
        UPDATE conversations
        SET status = 'open', snoozed_until = NULL, updated_at = $1
        WHERE id IN (SELECT id FROM due WHERE id = id + 0)",
        "FOR UPDATE SKIP LOCKED"
    );
    let now = tx.now;
    Ok(execute!(tx, sql, now, limit)?)
}
