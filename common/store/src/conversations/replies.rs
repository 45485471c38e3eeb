//! The messages of a conversation, and the replies among them: `pending` until their job has ended, then `sent` or
//! `failed`. The caller of a function that changes a reply has locked its conversation.

use chrono::{DateTime, Utc};
use crier_domain::conversation::{Conversation, ConversationStatus, Message, MessageStatus};
use crier_domain::failure::Failure;
use serde_json::{Map, Value};
use sqlx::types::Json;

use super::super::db::{execute, run};
use super::super::sql::sql;
use super::super::{Conn, Result, Tx};
use super::{receive, set_status, words};

const COLUMNS: &str = "
    id, conversation_id, direction, status, sent_at, author_user_id, call_started_at, attempts, next_attempt_at,
    created_at, updated_at, deleted_at, external_id, author_name, marker, error, body";

/// Returns the newest messages of a conversation, oldest first: at most `limit`, with bodies of at most `size` bytes in
/// total.
pub async fn messages(conn: &mut Conn, conversation_id: i64, limit: i64, size: i64) -> Result<Vec<Message>> {
    let sql = sql!(
        "
        SELECT {COLUMNS}
        FROM (
            SELECT *, sum(octet_length(body)) OVER (ORDER BY sent_at DESC, id DESC) AS size
            FROM (
                SELECT *
                FROM messages
                WHERE conversation_id = $1
                ORDER BY sent_at DESC, id DESC
                LIMIT $2
            ) AS newest
        ) AS sized
        WHERE size <= $3
        ORDER BY sent_at DESC, id DESC",
        COLUMNS
    );
    let mut found: Vec<Message> =
        run!(conn, c => sqlx::query_as(sql).bind(conversation_id).bind(limit).bind(size).fetch_all(c))?;
    found.reverse();
    Ok(found)
}

pub async fn find(conn: &mut Conn, message_id: i64) -> Result<Option<Message>> {
    let sql = sql!("SELECT {COLUMNS} FROM messages WHERE id = $1", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(message_id).fetch_optional(c))?)
}

/// Finds a message without its JSON columns, to end one whose row cannot be read.
pub async fn find_without_json(conn: &mut Conn, message_id: i64) -> Result<Option<Message>> {
    // `nullif` of a column with itself is NULL, of the column's type, without its value being decoded.
    const SQL: &str = "
        SELECT id, conversation_id, direction, status, sent_at, author_user_id, call_started_at, attempts,
            next_attempt_at, created_at, updated_at, deleted_at, external_id, author_name,
            nullif(marker, marker) AS marker, nullif(error, error) AS error, body
        FROM messages
        WHERE id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(message_id).fetch_optional(c))?)
}

/// Returns the ids of a message's conversation and workspace.
pub async fn place(conn: &mut Conn, message_id: i64) -> Result<Option<(i64, i64)>> {
    const SQL: &str = "
        SELECT m.conversation_id, b.workspace_id
        FROM messages m
        JOIN brands b ON b.id = m.brand_id
        WHERE m.id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(message_id).fetch_optional(c))?)
}

/// Stores a pending reply, and returns its id.
pub async fn insert(
    tx: &mut Tx,
    conversation: &Conversation,
    user_id: i64,
    user_name: &str,
    body: &str,
) -> Result<i64> {
    const SQL: &str = "
        INSERT INTO messages (
            conversation_id, brand_id, account_id, direction, status, sent_at, author_user_id, attempts, created_at,
            updated_at, author_name, body
        )
        VALUES ($1, $2, $3, 'outbound', 'pending', $4, $5, 0, $4, $4, $6, $7)
        RETURNING id";
    const SHOW: &str = "
        UPDATE conversations
        SET last_message_at = $2, last_message_preview = $3, updated_at = $4
        WHERE id = $1";
    // Never before the newest message, even if the platform's clock is ahead.
    let (now, at) = (tx.now, tx.now.max(conversation.last_message_at));
    let (brand, account) = (conversation.brand_id, conversation.account_id);
    let id = run!(tx, c => sqlx::query_scalar(SQL).bind(conversation.id).bind(brand).bind(account).bind(at)
        .bind(user_id).bind(user_name).bind(body).fetch_one(c))?;
    execute!(tx, SHOW, conversation.id, at, receive::preview(body), now)?;
    words::add(tx, brand, conversation.id, &[body]).await?;
    Ok(id)
}

/// Starts a run: counts the attempt. If there is a marker, also stores it and the time *before* the call that uses
/// them.
pub async fn start(tx: &mut Tx, message_id: i64, marker: Option<&Map<String, Value>>) -> Result<()> {
    const SQL: &str = "
        UPDATE messages
        SET attempts = attempts + 1, next_attempt_at = NULL, marker = coalesce($2, marker),
            call_started_at = CASE WHEN $3 THEN $4 ELSE call_started_at END, updated_at = $4
        WHERE id = $1";
    let (now, marks) = (tx.now, marker.is_some());
    execute!(tx, SQL, message_id, marker.map(Json), marks, now)?;
    Ok(())
}

/// Stores the marker and the time *before* the call that uses them.
pub async fn mark_call(tx: &mut Tx, message_id: i64, marker: &Map<String, Value>) -> Result<()> {
    const SQL: &str = "
        UPDATE messages
        SET marker = $2, call_started_at = $3, updated_at = $3
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, message_id, Json(marker), now)?;
    Ok(())
}

/// Clears the time of a call that was not made or was rejected.
pub async fn clear_call(tx: &mut Tx, message_id: i64) -> Result<()> {
    let now = tx.now;
    execute!(tx, "UPDATE messages SET call_started_at = NULL, updated_at = $2 WHERE id = $1", message_id, now)?;
    Ok(())
}

/// Refunds the attempt of the last run, which was interrupted before its call.
pub async fn refund_attempt(tx: &mut Tx, message_id: i64) -> Result<()> {
    let now = tx.now;
    execute!(tx, "UPDATE messages SET attempts = attempts - 1, updated_at = $2 WHERE id = $1", message_id, now)?;
    Ok(())
}

/// The state of a reply after a run.
#[derive(Clone, Debug)]
pub struct ReplyOutcome {
    pub status: MessageStatus,
    pub external_id: Option<String>,
    pub error: Option<Failure>,
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// The outcome of the last call is unknown: the next run must find out first.
    pub call_open: bool,
}

/// Stores the state of a reply after a run. If a sync has already read the reply from the platform, deletes that copy.
/// A failed reply reopens a resolved conversation, because the recipient did not get it.
pub async fn end(tx: &mut Tx, conversation: &Conversation, message_id: i64, ended: &ReplyOutcome) -> Result<()> {
    const SQL: &str = "
        UPDATE messages
        SET status = $2, external_id = $3, error = $4, next_attempt_at = $5,
            call_started_at = CASE WHEN $6 THEN call_started_at ELSE NULL END, updated_at = $7
        WHERE id = $1";
    const COPY: &str = "
        DELETE FROM messages
        WHERE brand_id = $1
            AND account_id = $2
            AND external_id = $3
            AND id <> $4
            AND status = 'received'";
    let now = tx.now;
    if let Some(id) = &ended.external_id {
        execute!(tx, COPY, conversation.brand_id, conversation.account_id, id, message_id)?;
    }
    let (error, next) = (ended.error.as_ref().map(Json), ended.next_attempt_at);
    execute!(tx, SQL, message_id, ended.status, &ended.external_id, error, next, ended.call_open, now)?;
    if ended.status == MessageStatus::Failed && conversation.status == ConversationStatus::Resolved {
        set_status(tx, conversation.id, ConversationStatus::Open, None).await?;
    }
    Ok(())
}

/// Makes a failed reply pending again, for the operator.
pub async fn reset(tx: &mut Tx, message_id: i64) -> Result<()> {
    const SQL: &str = "
        UPDATE messages
        SET status = 'pending', next_attempt_at = NULL, updated_at = $2
        WHERE id = $1 AND status = 'failed'";
    let now = tx.now;
    execute!(tx, SQL, message_id, now)?;
    Ok(())
}
