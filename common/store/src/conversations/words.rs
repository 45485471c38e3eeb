//! The search index: a row for each distinct word of a conversation's participant and messages. Existing rows are not
//! written again, so a long conversation costs little more than a short one.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use crier_domain::conversation::Conversation;
use crier_domain::words;

use super::super::db::{execute, run};
use super::super::{Result, Tx};

/// The number of messages per statement that are read to find which words remain.
const BATCH: i64 = 100;
/// The maximum number of bytes of text that a transaction reads for that, over all conversations: on SQLite, it blocks
/// all other writers.
pub const MAX_READ: usize = 2 << 20;

/// Adds the words of these texts. The words of a replaced text remain.
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

/// Deletes the words of deleted texts, unless the conversation still contains them. `budget` is the number of bytes
/// that may still be read. If it does not suffice, all words remain: a search then finds too much rather than too
/// little.
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
    let mut removed: BTreeSet<String> = texts.iter().flat_map(|text| words::indexed(text)).collect();
    let people = [&conversation.participant_name, &conversation.participant_username];
    exclude(&mut removed, people.into_iter().flatten().map(String::as_str));
    let mut before: Option<(DateTime<Utc>, i64)> = None;
    while !removed.is_empty() {
        let batch = earlier(tx, conversation.id, before).await?;
        exclude(&mut removed, batch.iter().map(|(_, _, body)| body.as_str()));
        *budget = budget.saturating_sub(batch.iter().map(|(_, _, body)| body.len()).sum::<usize>());
        match batch.last() {
            Some((at, id, _)) if batch.len() as i64 >= BATCH => before = Some((*at, *id)),
            _ => break,
        }
        if *budget == 0 {
            return Ok(());
        }
    }
    if !removed.is_empty() {
        let list = serde_json::json!(removed).to_string();
        execute!(tx, sql, conversation.brand_id, conversation.id, list)?;
    }
    Ok(())
}

/// Removes the words of `texts` from the set.
fn exclude<'a>(removed: &mut BTreeSet<String>, texts: impl Iterator<Item = &'a str>) {
    for word in texts.flat_map(words::indexed) {
        removed.remove(&word);
    }
}

/// Returns messages before one, newest first, that are not deleted.
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
