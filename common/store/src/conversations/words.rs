//! The words by which a conversation is found: a row for each different word of its participant and messages. A row
//! that is there stays as it is, so a long conversation costs little more than a short one.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use crier_domain::conversation::Conversation;
use crier_domain::words;

use super::super::db::{execute, run};
use super::super::{Result, Tx};

/// How many messages are read at once to find which words are still there.
const BATCH: i64 = 100;
/// How many bytes of text a transaction reads for that, of all conversations together: on SQLite it blocks all writers.
pub const MAX_READ: usize = 2 << 20;

/// Adds the words of these texts. The words of a text that was replaced stay: the conversation contained them.
pub async fn add(tx: &mut Tx, brand_id: i64, conversation_id: i64, texts: &[&str]) -> Result<()> {
    let words: BTreeSet<String> = texts.iter().flat_map(|text| words::indexed(text)).collect();
    if words.is_empty() {
        return Ok(());
    }
    let sql = tx.for_engine(
        "
        INSERT INTO conversation_words (brand_id, word, conversation_id)
        SELECT $1, value, $2
        FROM json_array_elements_text($3::json)
        ON CONFLICT DO NOTHING",
        "
        INSERT INTO conversation_words (brand_id, word, conversation_id)
        SELECT $1, value, $2
        FROM json_each($3)
        WHERE TRUE
        ON CONFLICT DO NOTHING",
    );
    let list = serde_json::json!(words).to_string();
    execute!(tx, sql, brand_id, conversation_id, list)?;
    Ok(())
}

/// Removes the words of texts that were deleted, unless the conversation has them elsewhere. `budget`: how many bytes may
/// still be read. Where more is to be read, the words stay: a search then finds too much rather than too little.
pub async fn remove(tx: &mut Tx, conversation: &Conversation, texts: &[&str], budget: &mut usize) -> Result<()> {
    if *budget == 0 {
        return Ok(());
    }
    let sql = tx.for_engine(
        "
        DELETE FROM conversation_words
        WHERE brand_id = $1
            AND conversation_id = $2
            AND word IN (SELECT value FROM json_array_elements_text($3::json))",
        "
        DELETE FROM conversation_words
        WHERE brand_id = $1
            AND conversation_id = $2
            AND word IN (SELECT value FROM json_each($3))",
    );
    let mut gone: BTreeSet<String> = texts.iter().flat_map(|text| words::indexed(text)).collect();
    let people = [&conversation.participant_name, &conversation.participant_username];
    keep(&mut gone, people.into_iter().flatten().map(String::as_str));
    let mut before: Option<(DateTime<Utc>, i64)> = None;
    while !gone.is_empty() {
        let batch = earlier(tx, conversation.id, before).await?;
        keep(&mut gone, batch.iter().map(|(_, _, body)| body.as_str()));
        *budget = budget.saturating_sub(batch.iter().map(|(_, _, body)| body.len()).sum::<usize>());
        match batch.last() {
            Some((at, id, _)) if batch.len() as i64 >= BATCH => before = Some((*at, *id)),
            _ => break,
        }
        if *budget == 0 {
            return Ok(());
        }
    }
    if !gone.is_empty() {
        let list = serde_json::json!(gone).to_string();
        execute!(tx, sql, conversation.brand_id, conversation.id, list)?;
    }
    Ok(())
}

fn keep<'a>(gone: &mut BTreeSet<String>, texts: impl Iterator<Item = &'a str>) {
    for word in texts.flat_map(words::indexed) {
        gone.remove(&word);
    }
}

/// Returns the messages before one, the newest first, that are not deleted.
async fn earlier(
    tx: &mut Tx,
    conversation_id: i64,
    before: Option<(DateTime<Utc>, i64)>,
) -> Result<Vec<(DateTime<Utc>, i64, String)>> {
    const NEWEST: &str = "
        SELECT sent_at, id, body
        FROM messages
        WHERE conversation_id = $1
            AND deleted_at IS NULL
        ORDER BY sent_at DESC, id DESC
        LIMIT $2";
    const BEFORE: &str = "
        SELECT sent_at, id, body
        FROM messages
        WHERE conversation_id = $1
            AND deleted_at IS NULL
            AND (sent_at, id) < ($3, $4)
        ORDER BY sent_at DESC, id DESC
        LIMIT $2";
    Ok(match before {
        None => run!(tx, c => sqlx::query_as(NEWEST).bind(conversation_id).bind(BATCH).fetch_all(c))?,
        Some((at, id)) => run!(tx, c => sqlx::query_as(BEFORE).bind(conversation_id).bind(BATCH).bind(at).bind(id)
            .fetch_all(c))?,
    })
}
