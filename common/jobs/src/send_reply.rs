//! `send_reply`: sends one reply of the inbox.

use crier_domain::failure::{Category, Failure};
use crier_store::conversations::{self, replies as messages};
use crier_store::{Conn, Result, Tx};

use super::{JobDefinition, SubjectDescription};
use crate::replies;

pub struct SendReply;

impl JobDefinition for SendReply {
    async fn lock(tx: &mut Tx, message_id: i64) -> Result<()> {
        conversations::lock_of_message(tx, message_id).await.map(drop)
    }

    async fn describe(conn: &mut Conn, message_id: i64) -> Result<Option<SubjectDescription>> {
        let Some(m) = messages::find(conn, message_id).await? else { return Ok(None) };
        let words =
            format!("reply {} in conversation {}, {}, attempts: {}", m.id, m.conversation_id, m.status, m.attempts);
        Ok(Some(SubjectDescription::new(words)))
    }

    async fn on_dead(tx: &mut Tx, message_id: i64, trace: Option<&str>) -> Result<()> {
        let message = "Crier could not send this reply within the maximum number of attempts. Reply again.";
        replies::fail(tx, message_id, Failure::of(Category::Internal, message), trace).await
    }

    async fn on_cancelled(tx: &mut Tx, message_id: i64) -> Result<()> {
        let message = "The operator canceled this reply. Reply again if you still need it.";
        replies::fail(tx, message_id, Failure::with_code(Category::Internal, "cancelled", message), None).await
    }

    async fn on_retry(tx: &mut Tx, message_id: i64) -> Result<bool> {
        replies::retry_failed(tx, message_id).await
    }
}
