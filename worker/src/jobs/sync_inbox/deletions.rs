//! Finds messages that were deleted on the platform: once per hour it queries the platform for some of the account's
//! messages. It begins with the newest and continues with older ones each hour, until it has checked the last 30 days.
//! Then it begins again.
//!
//! The position is stored as a cursor beside those of the streams. A check that fails is repeated an hour later. Unless
//! the platform rejects the credentials or limits the rate, the sync has not failed, because all messages were read.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use crier_platforms::CallError;
use crier_store::conversations::deletions::{self, Candidate};
use crier_store::inbox_syncs::{self, InboxSync};
use crier_store::jobs::engine as rows;
use serde_json::{Value, json};

use super::{AccountSession, Run, RunError, Step, SyncInbox, SyncStop};

/// The name of the cursor. No connector has a stream with this name.
const CURSOR: &str = "deletions";
const INTERVAL: TimeDelta = TimeDelta::hours(1);
/// The maximum age of a message that is checked.
const MAX_AGE: TimeDelta = TimeDelta::days(30);

/// The position of the next messages to check.
#[derive(Debug, PartialEq)]
struct Position {
    /// When the next check is due; `None` before the first check.
    due: Option<DateTime<Utc>>,
    /// Messages after this time have been checked; `None` if the next check begins with the newest message.
    until: Option<DateTime<Utc>>,
}

impl Position {
    fn read(cursor: Option<&Value>) -> Self {
        let time = |name: &str| cursor.and_then(|c| c[name].as_str()).and_then(|text| text.parse().ok());
        Self { due: time("due"), until: time("until") }
    }

    /// Returns the cursor after checking `found`: at most `limit` messages, newest first.
    fn after(&self, found: &[Candidate], limit: usize, now: DateTime<Utc>) -> Value {
        let last = found.last().filter(|_| found.len() >= limit).map(|last| last.sent_at);
        // More messages may have the same time; those beyond one check are skipped.
        let until = last.map(|at| if self.until == Some(at) { at - TimeDelta::microseconds(1) } else { at });
        Self { due: Some(now + INTERVAL), until }.cursor()
    }

    /// Returns the cursor after a check that failed.
    fn again(&self, now: DateTime<Utc>) -> Value {
        Self { due: Some(now + INTERVAL), until: self.until }.cursor()
    }

    fn cursor(&self) -> Value {
        let text = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Micros, true);
        json!({ "due": self.due.map(text), "until": self.until.map(text) })
    }
}

impl SyncInbox {
    /// Checks the next messages if they are due, and stores which of them were deleted.
    pub(super) async fn check_deletions(&self, run: &Run, session: &mut AccountSession, sync: &InboxSync) -> Step<()> {
        let limit = session.connector.inbox().map_or(0, |inbox| inbox.deletion_check_limit());
        let position = Position::read(sync.cursors.get(CURSOR));
        let account = session.account.id;
        let now = self.store.now();
        if limit == 0 || position.due.is_some_and(|due| now < due) {
            return Ok(());
        }
        let times = (now - MAX_AGE, position.until.unwrap_or(now));
        let size = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = match position.due {
            Some(_) => deletions::candidates(&mut self.store.read().await?, account, times, size).await?,
            // The first sync has just read all messages.
            None => Vec::new(),
        };
        let ids: Vec<String> = found.iter().map(|one| one.external_id.clone()).collect();
        let checked = match ids.is_empty() {
            true => Ok(Vec::new()),
            false => self.deleted(run, session, &ids).await,
        };
        let (deleted, next) = match &checked {
            Ok(deleted) => (deleted.as_slice(), position.after(&found, limit, now)),
            Err(SyncStop::Call(_)) => (&[] as &[String], position.again(now)),
            Err(SyncStop::Failed(_)) => return checked.map(drop),
        };
        let mut tx = self.store.begin().await?;
        let Some(sync) = inbox_syncs::lock(&mut tx, account).await? else {
            return Err(RunError::cancelled("the account no longer exists").into());
        };
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(RunError::lease_lost().into());
        }
        deletions::delete(&mut tx, account, deleted).await?;
        let mut cursors = sync.cursors;
        cursors.insert(CURSOR.to_owned(), next);
        inbox_syncs::set_cursors(&mut tx, account, &cursors).await?;
        tx.commit().await?;
        checked.map(drop)
    }

    /// Queries the platform for which of the messages were deleted. Retries once after refreshing an expired access
    /// token.
    async fn deleted(&self, run: &Run, session: &mut AccountSession, ids: &[String]) -> Step<Vec<String>> {
        loop {
            let connector = session.connector.clone();
            let Some(inbox) = connector.inbox() else { return Ok(Vec::new()) };
            let timeout = self.timeout.to_std().unwrap_or_default();
            let request = tokio::time::timeout(timeout, inbox.deleted(&session.connector_account, ids));
            let response = run.wait_without_slot(request).await;
            match response.unwrap_or_else(|_| Err(CallError::network("The platform did not respond in time."))) {
                Ok(deleted) => return Ok(deleted),
                Err(CallError::AuthExpired(failure)) => session.refresh(run, failure).await?,
                Err(error) => return Err(SyncStop::Call(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(100) + TimeDelta::minutes(minutes)
    }

    fn found(minutes: &[i64]) -> Vec<Candidate> {
        minutes.iter().map(|n| Candidate { sent_at: at(*n), external_id: n.to_string() }).collect()
    }

    #[test]
    fn checks_continue_at_the_position_and_begin_again() {
        let first = Position::read(None);
        assert_eq!(first, Position { due: None, until: None });
        let next = Position::read(Some(&first.after(&found(&[9, 8, 7]), 3, at(10))));
        assert_eq!(next, Position { due: Some(at(70)), until: Some(at(7)) });
        let same = Position::read(Some(&next.after(&found(&[7, 7, 7]), 3, at(70))));
        assert_eq!(same.until, Some(at(7) - TimeDelta::microseconds(1)), "the same messages are not checked forever");
        assert_eq!(Position::read(Some(&next.again(at(75)))), Position { due: Some(at(135)), until: Some(at(7)) });
        let last = Position::read(Some(&next.after(&found(&[7, 6]), 3, at(70))));
        assert_eq!(last.until, None);
    }
}
