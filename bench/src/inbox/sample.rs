//! An inbox with very many conversations, written in bulk.

use std::ops::Range;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::words;
use crier_store::db::time_text;
use crier_store::{Db, StoreError, Tx};
use serde_json::{Value, json};

use super::super::database::{self, execute};

/// The contents of the inbox.
pub struct SampleInbox<'a> {
    pub brand_id: i64,
    pub account_id: i64,
    /// The time of the first conversation. Each of the others is a second later than the previous one.
    pub first_at: DateTime<Utc>,
    /// Returns the text of a message, from the number of its conversation and its own.
    pub text: &'a (dyn Fn(i64, i64) -> String + Sync),
    /// The number of messages per conversation.
    pub messages: i64,
}

/// Inserts conversations, on Postgres and on SQLite.
const CONVERSATIONS: (&str, &str) = (
    "
    INSERT INTO conversations (
        brand_id, account_id, platform, type, status, unread_count, last_message_at, created_at, updated_at,
        thread_id, participant_name, last_message_preview, reply_context
    )
    SELECT $1, $2, 'sandbox', value ->> 1, value ->> 2, (value ->> 3)::integer, (value ->> 4)::timestamptz, $4, $4,
        value ->> 0, value ->> 5, value ->> 6, '{}'
    FROM json_array_elements($3::json)",
    "
    INSERT INTO conversations (
        brand_id, account_id, platform, type, status, unread_count, last_message_at, created_at, updated_at,
        thread_id, participant_name, last_message_preview, reply_context
    )
    SELECT $1, $2, 'sandbox', value ->> 1, value ->> 2, value ->> 3, value ->> 4, $4, $4,
        value ->> 0, value ->> 5, value ->> 6, '{}'
    FROM json_each($3)",
);
/// Inserts messages. A row names the thread of its conversation. On SQLite, the cross join makes the conversation a
/// look-up for each row.
const MESSAGES: (&str, &str) = (
    "
    INSERT INTO messages (
        conversation_id, brand_id, account_id, direction, status, sent_at, attempts, created_at, updated_at,
        external_id, author_name, body
    )
    SELECT c.id, $1, $2, 'inbound', 'received', (value ->> 1)::timestamptz, 0, $4, $4,
        value ->> 2, 'Vera', value ->> 3
    FROM json_array_elements($3::json)
    JOIN conversations c
        ON c.brand_id = $1 AND c.account_id = $2 AND c.type = value ->> 4 AND c.thread_id = value ->> 0",
    "
    INSERT INTO messages (
        conversation_id, brand_id, account_id, direction, status, sent_at, attempts, created_at, updated_at,
        external_id, author_name, body
    )
    SELECT c.id, $1, $2, 'inbound', 'received', value ->> 1, 0, $4, $4, value ->> 2, 'Vera', value ->> 3
    FROM json_each($3)
    CROSS JOIN conversations c
        ON c.brand_id = $1 AND c.account_id = $2 AND c.type = value ->> 4 AND c.thread_id = value ->> 0",
);
/// Inserts words in the same way.
const WORDS: (&str, &str) = (
    "
    INSERT INTO conversation_words (brand_id, word, conversation_id)
    SELECT $1, value ->> 1, c.id
    FROM json_array_elements($3::json)
    JOIN conversations c
        ON c.brand_id = $1 AND c.account_id = $2 AND c.type = value ->> 2 AND c.thread_id = value ->> 0
    WHERE $4 IS NOT NULL",
    "
    INSERT INTO conversation_words (brand_id, word, conversation_id)
    SELECT $1, value ->> 1, c.id
    FROM json_each($3)
    CROSS JOIN conversations c
        ON c.brand_id = $1 AND c.account_id = $2 AND c.type = value ->> 2 AND c.thread_id = value ->> 0
    WHERE $4 IS NOT NULL",
);
const TAGS: &str = "
    INSERT INTO conversation_tags (brand_id, tag, conversation_id)
    SELECT brand_id, 'vip', id
    FROM conversations
    WHERE brand_id = $1 AND id % 100 = 7
    ON CONFLICT DO NOTHING";

impl SampleInbox<'_> {
    /// Writes the conversations with these numbers, their messages, words and tags. One in four is resolved, one in ten
    /// is unread, one in a hundred has a tag.
    pub async fn insert(&self, tx: &mut Tx, numbers: Range<i64>) -> Result<(), StoreError> {
        let (mut threads, mut messages, mut index) = (Vec::new(), Vec::new(), Vec::new());
        for n in numbers {
            let kind = if n % 3 == 0 { "dm" } else { "comment" };
            let status = if n % 4 == 0 { "resolved" } else { "open" };
            let at = self.first_at + TimeDelta::seconds(n);
            let texts: Vec<String> = (0..self.messages).map(|m| (self.text)(n, m)).collect();
            let preview = texts.last().cloned().unwrap_or_default();
            threads.push(json!([n.to_string(), kind, status, i64::from(n % 10 == 0), time_text(at), "Vera", preview]));
            index.extend(words::indexed(&texts.join(" ")).into_iter().map(|word| json!([n.to_string(), word, kind])));
            for (m, text) in texts.into_iter().enumerate() {
                messages.push(json!([n.to_string(), time_text(at), format!("{n}-{m}"), text, kind]));
            }
        }
        let (brand, account, now) = (self.brand_id, self.account_id, self.first_at);
        for ((pg, sqlite), rows) in [(CONVERSATIONS, threads), (MESSAGES, messages), (WORDS, index)] {
            let sql = tx.for_engine(pg, sqlite);
            execute!(tx, sql, brand, account, Value::from(rows).to_string(), now)?;
        }
        execute!(tx, TAGS, brand)?;
        Ok(())
    }
}

/// Like [`database::run_maintenance`], for the tables of the inbox too.
pub async fn run_maintenance(db: &Db) -> Result<(), StoreError> {
    if let Db::Pg(pool) = db {
        const SQL: &str = "VACUUM (ANALYZE) conversations, conversation_words, conversation_tags, messages";
        sqlx::raw_sql(SQL).execute(&mut *pool.acquire().await?).await?;
    }
    database::run_maintenance(db).await
}
