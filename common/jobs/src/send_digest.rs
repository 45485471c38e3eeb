//! `send_digest`: writes an email to a user about the problems that wait for it. If a job is cancelled, the next tick of
//! the scheduler enqueues another one.

use crier_store::{Conn, Result, Tx, notices, users};

use super::{JobDefinition, SubjectDescription};

pub struct SendDigest;

impl JobDefinition for SendDigest {
    async fn lock(tx: &mut Tx, user_id: i64) -> Result<()> {
        users::lock(tx, user_id).await
    }

    async fn describe(conn: &mut Conn, user_id: i64) -> Result<Option<SubjectDescription>> {
        let found = notices::frequency(conn, user_id).await?;
        Ok(found.map(|frequency| SubjectDescription::new(format!("notices of user {user_id}, {frequency}"))))
    }

    /// Discards the problems. Otherwise the scheduler would enqueue a job every minute, which would die as well.
    async fn on_dead(tx: &mut Tx, user_id: i64, _trace: Option<&str>) -> Result<()> {
        users::lock(tx, user_id).await?;
        notices::take(tx, user_id, 0).await.map(drop)
    }
}
