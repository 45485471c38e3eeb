//! Stores messages that were read from a platform, in each brand that has the account.
//!
//! A message is stored once per brand, by the platform's id. An existing one is updated only if its text has changed,
//! or if it was marked as deleted ([`deletions`](super::deletions)) and the platform returns it again. It stays in its
//! conversation even if the platform returns it in another thread: if the comments above it were deleted, it begins
//! one. The caller has locked the account's row in `inbox_syncs`, so no other sync of the account runs. The
//! conversations are locked one after the other.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use crier_domain::account::SocialAccount;
use crier_domain::conversation::{
    Conversation, ConversationStatus, FetchedMessage, MAX_PREVIEW, MessageDirection, MessageStatus, Participant,
};
use crier_domain::platform::ConversationType;
use crier_domain::untrusted;
use serde_json::{Map, Value};
use sqlx::types::Json;

use super::super::db::{execute, run};
use super::super::{Conn, Result, Tx};
use super::deletions::use_newest;
use super::{lock, words};

/// A new inbound message that was sent after the brand got the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub brand_id: i64,
    pub conversation_id: i64,
    pub message_id: i64,
    pub kind: ConversationType,
}

/// A message that a brand already has.
#[derive(sqlx_macros::FromRow)]
struct StoredMessage {
    external_id: String,
    conversation_id: i64,
    status: MessageStatus,
    deleted_at: Option<DateTime<Utc>>,
    body: String,
}

impl StoredMessage {
    /// Returns whether a message that was read again changes nothing.
    fn is_same(&self, message: &FetchedMessage) -> bool {
        self.status != MessageStatus::Received || (self.body == message.body && self.deleted_at.is_none())
    }
}

/// Returns the brands that have an account, and when they got it.
pub(super) async fn brands(conn: &mut Conn, account_id: i64) -> Result<Vec<(i64, DateTime<Utc>)>> {
    const SQL: &str = "
        SELECT brand_id, created_at
        FROM brand_accounts
        WHERE account_id = $1
        ORDER BY brand_id";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(account_id).fetch_all(c))?)
}

/// Stores messages of an account. Returns the new inbound messages that were sent after the brand got the account.
/// Older ones are stored as read.
pub async fn receive(tx: &mut Tx, account: &SocialAccount, messages: &[FetchedMessage]) -> Result<Vec<Received>> {
    let mut received = Vec::new();
    if messages.is_empty() {
        return Ok(received);
    }
    for (brand_id, since) in brands(tx, account.id).await? {
        let known = known(tx, brand_id, account.id, messages).await?;
        let mut threads: BTreeMap<(ConversationType, &str), Vec<&FetchedMessage>> = BTreeMap::new();
        let mut changed: BTreeMap<i64, Vec<&FetchedMessage>> = BTreeMap::new();
        for message in messages {
            match known.get(&message.external_id) {
                None => threads.entry((message.kind, &message.thread_id)).or_default().push(message),
                // Unchanged messages are not written again.
                Some(stored) if stored.is_same(message) => {}
                Some(stored) => changed.entry(stored.conversation_id).or_default().push(message),
            }
        }
        for (id, messages) in &mut changed {
            messages.sort_by_key(|message| message.sent_at);
            if let Some(conversation) = lock(tx, brand_id, *id).await? {
                received.extend(store_thread(tx, account, conversation, messages, since).await?);
            }
        }
        for messages in threads.values_mut() {
            messages.sort_by_key(|message| message.sent_at);
            let conversation = conversation(tx, brand_id, account, messages).await?;
            received.extend(store_thread(tx, account, conversation, messages, since).await?);
        }
    }
    Ok(received)
}

/// Returns the messages that a brand already has, by their platform ids.
async fn known(
    conn: &mut Conn,
    brand_id: i64,
    account_id: i64,
    messages: &[FetchedMessage],
) -> Result<HashMap<String, StoredMessage>> {
    // On Postgres, a join instead of `IN`, so that each id is looked up.
    let sql = conn.for_engine(
        "
        SELECT m.external_id, m.conversation_id, m.status, m.deleted_at, m.body
        FROM (
            SELECT DISTINCT value AS id
            FROM json_array_elements_text($3::json)
        ) v
        JOIN messages m ON m.brand_id = $1 AND m.account_id = $2 AND m.external_id = v.id",
        "
        SELECT external_id, conversation_id, status, deleted_at, body
        FROM messages
        WHERE brand_id = $1
            AND account_id = $2
            AND external_id IN (SELECT value FROM json_each($3))",
    );
    let ids: Vec<&str> = messages.iter().map(|message| message.external_id.as_str()).collect();
    let ids = serde_json::json!(ids).to_string();
    let rows: Vec<StoredMessage> =
        run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(account_id).bind(&ids).fetch_all(c))?;
    Ok(rows.into_iter().map(|known| (known.external_id.clone(), known)).collect())
}

/// Finds the conversation of a thread, or creates it, and locks it.
async fn conversation(
    tx: &mut Tx,
    brand_id: i64,
    account: &SocialAccount,
    messages: &[&FetchedMessage],
) -> Result<Conversation> {
    const INSERT: &str = "
        INSERT INTO conversations (
            brand_id, account_id, platform, type, status, unread_count, last_message_at, created_at, updated_at,
            thread_id, last_message_preview, reply_context
        )
        VALUES ($1, $2, $3, $4, 'open', 0, $5, $6, $6, $7, '', '{}')
        ON CONFLICT (brand_id, account_id, type, thread_id)
        DO UPDATE SET thread_id = excluded.thread_id
        RETURNING id";
    let (first, now) = (messages[0], tx.now);
    let id: i64 = run!(tx, c => sqlx::query_scalar(INSERT).bind(brand_id).bind(account.id).bind(account.platform)
        .bind(first.kind).bind(first.sent_at).bind(now).bind(&first.thread_id).fetch_one(c))?;
    let found = lock(tx, brand_id, id).await?;
    found.ok_or_else(|| super::super::StoreError::Decode("a conversation was not stored".into()))
}

/// Stores the messages of one thread, the oldest first, in its locked conversation.
async fn store_thread(
    tx: &mut Tx,
    account: &SocialAccount,
    mut conversation: Conversation,
    messages: &[&FetchedMessage],
    since: DateTime<Utc>,
) -> Result<Vec<Received>> {
    let (mut received, mut texts, before) = (Vec::new(), Vec::new(), conversation.clone());
    let is_new = conversation.last_message_preview.is_empty();
    let mut is_edited = false;
    for message in messages {
        let is_inbound = message.direction == MessageDirection::Inbound;
        let is_new_inbound = is_inbound && message.sent_at >= since;
        let stored = match insert(tx, account, &conversation, message, is_new_inbound).await? {
            Some(id) => Some(id),
            None => {
                match replace_body(tx, account.id, &conversation, message).await? {
                    BodyChange::Nothing => continue,
                    BodyChange::Text => {}
                    BodyChange::Unread => conversation.unread_count = conversation.unread_count.saturating_add(1),
                }
                is_edited = true;
                None
            }
        };
        texts.push(message.body.as_str());
        if let Some(message_id) = stored.filter(|_| is_new_inbound) {
            let (status, unread_count) = (conversation.status.after_inbound(), conversation.unread_count);
            conversation = Conversation { status, unread_count: unread_count.saturating_add(1), ..conversation };
            let (brand_id, conversation_id, kind) = (conversation.brand_id, conversation.id, conversation.kind);
            received.push(Received { brand_id, conversation_id, message_id, kind });
        }
        if is_inbound {
            conversation.last_inbound_at = conversation.last_inbound_at.max(Some(message.sent_at));
        }
        if message.sent_at >= conversation.last_message_at || conversation.last_message_preview.is_empty() {
            conversation.last_message_at = message.sent_at;
            conversation.last_message_preview = preview(&message.body);
            conversation.reply_context = message.reply_context.clone();
        }
        learn(&mut conversation, message);
    }
    if texts.is_empty() {
        return Ok(received);
    }
    if is_edited {
        // If later messages were deleted, the preview shows an earlier one than `last_message_at` says.
        use_newest(tx, &mut conversation).await?;
    }
    if conversation.status != ConversationStatus::Snoozed {
        conversation.snoozed_until = None;
    }
    if is_new || conversation.subject_external_id != before.subject_external_id {
        conversation.post_id = post_of(tx, &conversation).await?;
    }
    update(tx, &conversation).await?;
    let people = [&conversation.participant_name, &conversation.participant_username];
    texts.extend(people.into_iter().flatten().map(String::as_str));
    words::add(tx, conversation.brand_id, conversation.id, &texts).await?;
    Ok(received)
}

/// Stores what a message says about the thread.
fn learn(conversation: &mut Conversation, message: &FetchedMessage) {
    if let Some(Participant { external_id, name, username, avatar_url }) = &message.participant {
        conversation.participant_external_id = Some(external_id.clone());
        conversation.participant_name = name.clone().or(conversation.participant_name.take());
        conversation.participant_username = username.clone().or(conversation.participant_username.take());
        conversation.participant_avatar_url = avatar_url.clone().or(conversation.participant_avatar_url.take());
    }
    if let Some(subject) = &message.subject {
        conversation.subject_external_id = Some(subject.external_id.clone());
        conversation.subject_url = subject.url.clone().or(conversation.subject_url.take());
    }
}

pub(super) fn preview(body: &str) -> String {
    // Not empty even if the message is, because an empty preview means that there is no message yet.
    untrusted::some_line(body, MAX_PREVIEW).unwrap_or_else(|| "–".to_owned())
}

/// Inserts a message and returns its id. Returns `None` if the brand already has it.
async fn insert(
    tx: &mut Tx,
    account: &SocialAccount,
    conversation: &Conversation,
    message: &FetchedMessage,
    is_unread: bool,
) -> Result<Option<i64>> {
    const SQL: &str = "
        INSERT INTO messages (
            conversation_id, brand_id, account_id, direction, status, sent_at, attempts, created_at, updated_at,
            external_id, author_name, body, is_unread, reply_context
        )
        VALUES ($1, $2, $3, $4, 'received', $5, 0, $6, $6, $7, $8, $9, $10, $11)
        ON CONFLICT DO NOTHING
        RETURNING id";
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(conversation.id).bind(conversation.brand_id).bind(account.id)
        .bind(message.direction).bind(message.sent_at).bind(now).bind(&message.external_id)
        .bind(&message.author_name).bind(&message.body).bind(is_unread).bind(context_of(message)).fetch_optional(c))?)
}

/// Returns the data for a reply to a message. `None` if the connector needs none.
fn context_of(message: &FetchedMessage) -> Option<Json<&Map<String, Value>>> {
    (!message.reply_context.is_empty()).then_some(Json(&message.reply_context))
}

/// How an existing message was changed.
enum BodyChange {
    Nothing,
    Text,
    /// It was marked as deleted and nobody had read it, so it is unread again.
    Unread,
}

/// Stores an edited text with the data for a reply to it, or restores a message that was marked as deleted. A reply keeps
/// the text that was sent.
async fn replace_body(
    tx: &mut Tx,
    account_id: i64,
    conversation: &Conversation,
    message: &FetchedMessage,
) -> Result<BodyChange> {
    const WAS_UNREAD: &str = "
        SELECT count(*)
        FROM messages
        WHERE brand_id = $1
            AND account_id = $2
            AND external_id = $3
            AND deleted_at IS NOT NULL
            AND is_unread";
    const SQL: &str = "
        UPDATE messages
        SET body = $4, deleted_at = NULL, updated_at = $5, reply_context = $6
        WHERE brand_id = $1
            AND account_id = $2
            AND external_id = $3
            AND status = 'received'
            AND (body <> $4 OR deleted_at IS NOT NULL)";
    let now = tx.now;
    let (brand_id, id) = (conversation.brand_id, &message.external_id);
    let was_unread: i64 =
        run!(tx, c => sqlx::query_scalar(WAS_UNREAD).bind(brand_id).bind(account_id).bind(id).fetch_one(c))?;
    Ok(match execute!(tx, SQL, brand_id, account_id, id, &message.body, now, context_of(message))? {
        0 => BodyChange::Nothing,
        _ if was_unread > 0 => BodyChange::Unread,
        _ => BodyChange::Text,
    })
}

/// Returns the brand's post to which a conversation belongs.
async fn post_of(tx: &mut Tx, conversation: &Conversation) -> Result<Option<i64>> {
    const SQL: &str = "
        SELECT t.post_id
        FROM post_targets t
        JOIN posts p ON p.id = t.post_id
        WHERE t.account_id = $1
            AND t.external_id = $2
            AND p.brand_id = $3
        ORDER BY t.id
        LIMIT 1";
    let Some(subject) = &conversation.subject_external_id else { return Ok(None) };
    let (account, brand) = (conversation.account_id, conversation.brand_id);
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(account).bind(subject).bind(brand).fetch_optional(c))?)
}

pub(super) async fn update(tx: &mut Tx, conversation: &Conversation) -> Result<()> {
    const SQL: &str = "
        UPDATE conversations
        SET status = $2, unread_count = $3, snoozed_until = $4, last_message_at = $5, last_inbound_at = $6,
            post_id = $7, updated_at = $8, participant_external_id = $9, participant_name = $10,
            participant_username = $11, participant_avatar_url = $12, subject_external_id = $13, subject_url = $14,
            last_message_preview = $15, reply_context = $16
        WHERE id = $1";
    let (now, c) = (tx.now, conversation);
    let context: Json<&Map<String, Value>> = Json(&c.reply_context);
    execute!(
        tx,
        SQL,
        c.id,
        c.status,
        c.unread_count,
        c.snoozed_until,
        c.last_message_at,
        c.last_inbound_at,
        c.post_id,
        now,
        &c.participant_external_id,
        &c.participant_name,
        &c.participant_username,
        &c.participant_avatar_url,
        &c.subject_external_id,
        &c.subject_url,
        &c.last_message_preview,
        context,
    )?;
    Ok(())
}
