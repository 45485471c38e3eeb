//! The words by which a conversation is found: a row for each different word of its participant and messages. A row
//! that is there stays as it is, so a long conversation costs little more than a short one.

use std::collections::BTreeSet;

use super::super::db::execute;
use super::super::{Result, Tx};
use crate::domain::words;

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
