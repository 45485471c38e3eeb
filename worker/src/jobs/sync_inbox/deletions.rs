//! Follows what was deleted at the platform: once an hour it is asked of some of the account's newest messages whether
//! they are still there, from the newest on, some further each hour, until those of the last 30 days were asked for.
//!
//! How far that has come is a cursor beside those of the streams.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use crier_platforms::CallError;
use crier_store::conversations::deletions::{self, Candidate};
use crier_store::inbox_syncs::{self, InboxSync};
use crier_store::jobs::engine as rows;
use serde_json::{Value, json};

use super::{AccountSession, Run, Step, SyncInbox, SyncStop};

/// The name of the cursor; no connector calls a stream so.
const CURSOR: &str = "deletions";
const INTERVAL: TimeDelta = TimeDelta::hours(1);
/// Older messages are not asked for.
const HISTORY: TimeDelta = TimeDelta::days(30);

/// Where the next messages are.
#[derive(Debug, PartialEq)]
struct Round {
    /// Since when the next ones may be asked for; `None`: this is the first look.
    due: Option<DateTime<Utc>>,
    /// Newer messages were asked for; `None`: it begins with the newest.
    until: Option<DateTime<Utc>>,
}

impl Round {
    fn read(cursor: Option<&Value>) -> Self {
        let time = |name: &str| cursor.and_then(|c| c[name].as_str()).and_then(|text| text.parse().ok());
        Self { due: time("due"), until: time("until") }
    }

    /// Returns the cursor after these messages, the newest first, of which at most `limit` were wanted.
    fn after(&self, found: &[Candidate], limit: usize, now: DateTime<Utc>) -> Value {
        let text = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Micros, true);
        let last = found.last().filter(|_| found.len() >= limit).map(|last| last.sent_at);
        // Others of the same time may come next; more of them than are asked for at once are left behind.
        let until = last.map(|at| if self.until == Some(at) { at - TimeDelta::microseconds(1) } else { at });
        json!({ "due": text(now + INTERVAL), "until": until.map(text) })
    }
}

impl SyncInbox {
    /// Asks for the next messages, if it is time, and stores which of them were deleted.
    pub(super) async fn follow_deletions(&self, run: &Run, session: &mut AccountSession, sync: &InboxSync) -> Step<()> {
        let limit = session.connector.inbox().map_or(0, |inbox| inbox.checked_at_once());
        let round = Round::read(sync.cursors.get(CURSOR));
        let account = session.account.id;
        let now = self.store.now();
        if limit == 0 || round.due.is_some_and(|due| now < due) {
            return Ok(());
        }
        let times = (now - HISTORY, round.until.unwrap_or(now));
        let size = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = match round.due {
            Some(_) => deletions::candidates(&mut self.store.read().await?, account, times, size).await?,
            // What there is has just been read.
            None => Vec::new(),
        };
        let ids: Vec<String> = found.iter().map(|one| one.external_id.clone()).collect();
        let deleted = match ids.is_empty() {
            true => Vec::new(),
            false => self.deleted(run, session, &ids).await?,
        };
        let mut tx = self.store.begin().await?;
        let Some(sync) = inbox_syncs::lock(&mut tx, account).await? else {
            return Err(SyncStop::Over("the account no longer exists"));
        };
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(SyncStop::Over("the lease was lost"));
        }
        deletions::delete(&mut tx, account, &deleted).await?;
        let mut cursors = sync.cursors;
        cursors.insert(CURSOR.to_owned(), round.after(&found, limit, now));
        inbox_syncs::set_cursors(&mut tx, account, &cursors).await?;
        Ok(tx.commit().await?)
    }

    /// Asks the platform which of these were deleted; once more after an expired access token was renewed.
    async fn deleted(&self, run: &Run, session: &mut AccountSession, ids: &[String]) -> Step<Vec<String>> {
        loop {
            let connector = session.connector.clone();
            let Some(inbox) = connector.inbox() else { return Ok(Vec::new()) };
            let timeout = self.timeout.to_std().unwrap_or_default();
            let request = tokio::time::timeout(timeout, inbox.deleted(&session.connector_account, ids));
            let asked = run.wait_without_slot(request).await;
            match asked.unwrap_or_else(|_| Err(CallError::network("The platform did not respond in time."))) {
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
    fn a_round_goes_on_where_it_was_and_begins_again() {
        let first = Round::read(None);
        assert_eq!(first, Round { due: None, until: None });
        let next = Round::read(Some(&first.after(&found(&[9, 8, 7]), 3, at(10))));
        assert_eq!(next, Round { due: Some(at(70)), until: Some(at(7)) });
        let same = Round::read(Some(&next.after(&found(&[7, 7, 7]), 3, at(70))));
        assert_eq!(same.until, Some(at(7) - TimeDelta::microseconds(1)), "never the same ones for ever");
        let last = Round::read(Some(&next.after(&found(&[7, 6]), 3, at(70))));
        assert_eq!(last.until, None);
    }
}
