//! The words of the texts of posts and of their threads, which the search reads. Overrides are not searched. A deleted post has no words.

use std::collections::BTreeSet;

use crier_domain::post::{Post, ThreadPart};
use crier_domain::words;

use super::db::execute;
use super::{Result, Tx};

/// Encodes the words of a post as one bind: a JSON array.
pub(super) fn encode(post: &Post) -> String {
    list(&of(&post.content, &post.thread))
}

/// Returns the words of a post with this text and thread.
pub fn of(content: &str, thread: &[ThreadPart]) -> BTreeSet<String> {
    if thread.is_empty() {
        return words::indexed(content);
    }
    let parts = thread.iter().map(|part| part.content.as_str());
    words::indexed(&std::iter::once(content).chain(parts).collect::<Vec<_>>().join("\n"))
}

fn list<'a>(words: impl IntoIterator<Item = &'a String>) -> String {
    serde_json::json!(words.into_iter().collect::<Vec<_>>()).to_string()
}

/// Replaces the words of a post.
pub async fn replace(
    tx: &mut Tx,
    brand_id: i64,
    post_id: i64,
    before: &BTreeSet<String>,
    after: &BTreeSet<String>,
) -> Result<()> {
    remove(tx, brand_id, post_id, &before.difference(after).cloned().collect()).await?;
    let added = list(after.difference(before));
    if added == "[]" {
        return Ok(());
    }
    let sql = tx.for_engine(
        "
        INSERT INTO post_words (brand_id, word, post_id)
        SELECT $1, value, $2
        FROM json_array_elements_text($3::json)",
        "
        INSERT INTO post_words (brand_id, word, post_id)
        SELECT $1, value, $2
        FROM json_each($3)",
    );
    execute!(tx, sql, brand_id, post_id, added)?;
    Ok(())
}

/// Removes words of a post.
pub(super) async fn remove(tx: &mut Tx, brand_id: i64, post_id: i64, words: &BTreeSet<String>) -> Result<()> {
    if words.is_empty() {
        return Ok(());
    }
    // `value || ''` makes Postgres expect a single word and use the primary key.
    let sql = tx.for_engine(
        "
        DELETE FROM post_words
        WHERE brand_id = $1
            AND post_id = $2
            AND word IN (SELECT value FROM json_array_elements_text($3::json) WHERE value = value || '')",
        "
        DELETE FROM post_words
        WHERE brand_id = $1
            AND post_id = $2
            AND word IN (SELECT value FROM json_each($3))",
    );
    execute!(tx, sql, brand_id, post_id, list(words))?;
    Ok(())
}
