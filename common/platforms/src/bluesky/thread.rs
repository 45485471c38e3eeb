//! Threads, and replies to the account's own posts.
//!
//! One `applyWrites` writes all parts of a thread or none, so the first part tells whether all exist. Each part after
//! the first names the [`cid`] of the first and of the part before. Unlike `putRecord`, the call fails if a record
//! exists: the reference server returns a 500 then.
//!
//! Sources: lexicons `com.atproto.repo.applyWrites` (at most 200 writes), `app.bsky.feed.post#replyRef`,
//! `com.atproto.repo.strongRef`; the reference server's `applyWrites.ts`.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::record::Mentions;
use super::xrpc::Server;
use super::{Bluesky, COLLECTION, cid, own_key, published, time_text, uri, write_error};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount, Marker, OutgoingPost, Published, ReplyTo, marker_field};

impl Bluesky {
    /// Writes the parts of a thread. All have the same marker.
    pub(super) async fn write_thread(
        &self,
        account: &ConnectorAccount,
        parts: &[OutgoingPost],
    ) -> Result<Vec<Published>, CallError> {
        let Some(first) = parts.first() else { return Ok(Vec::new()) };
        let (keys, at) = (record_keys(&first.marker)?, marker_field(&first.marker, "created_at")?);
        let (server, access) = (self.server(&account.secrets), account.secrets.require("access_jwt")?);
        let writes = self.creations(&server, account, parts, &keys, at).await?;
        let body = json!({ "repo": account.external_id, "writes": writes });
        let request = server.post("com.atproto.repo.applyWrites").bearer_auth(access.expose_secret()).json(&body);
        let Err(failed) = server.send(Effect::Publishes, request).await else {
            return Ok(published_parts(account, &keys));
        };
        // The error may be that an earlier call wrote the records.
        if matches!(failed.error, CallError::Permanent(_) | CallError::Unknown(_))
            && let Ok(Some(record)) = self.look_up(&server, account, keys[0]).await
            && record.value["createdAt"] == *at
        {
            return Ok(published_parts(account, &keys));
        }
        Err(write_error(parts, failed))
    }

    /// Returns the writes that create the records of the parts under these keys.
    async fn creations(
        &self,
        server: &Server,
        account: &ConnectorAccount,
        parts: &[OutgoingPost],
        keys: &[&str],
        at: &str,
    ) -> Result<Vec<Value>, CallError> {
        if keys.len() != parts.len() {
            let message = "The number of parts has changed since an earlier attempt. Publish the post again.";
            return Err(CallError::invalid(message));
        }
        let at: DateTime<Utc> = at.parse().map_err(|_| {
            CallError::Transient(Failure::of(Category::Internal, "The marker of the post has no valid time."))
        })?;
        let mut writes = Vec::with_capacity(parts.len());
        let (mut mentions, mut above) = (Mentions::new(), None::<(Value, Value)>);
        for (number, (part, rkey)) in parts.iter().zip(keys).enumerate() {
            let at = time_text(time_of_part(at, number));
            let mut record = self.record(server, part, &at, &mut mentions).await?;
            if let Some((root, parent)) = &above {
                record["reply"] = json!({ "root": root, "parent": parent });
            }
            let this = json!({ "uri": uri(account, rkey), "cid": cid::cid(&record).ok_or_else(unreadable_file)? });
            above = Some((above.map_or_else(|| this.clone(), |(root, _)| root), this));
            writes.push(json!({
                "$type": "com.atproto.repo.applyWrites#create", "collection": COLLECTION, "rkey": rkey, "value": record,
            }));
        }
        Ok(writes)
    }

    /// Returns the parts of a thread, if it exists.
    pub(super) async fn find_thread(
        &self,
        account: &ConnectorAccount,
        parts: &[OutgoingPost],
    ) -> Result<Option<Vec<Published>>, CallError> {
        let Some(first) = parts.first() else { return Ok(None) };
        let keys = record_keys(&first.marker)?;
        let found = self.look_up(&self.server(&account.secrets), account, keys[0]).await?;
        Ok(found.map(|_| published_parts(account, &keys)))
    }

    /// Returns the references of a reply to a post of the account.
    pub(super) async fn reply_references(
        &self,
        server: &Server,
        account: &ConnectorAccount,
        reply_to: &ReplyTo,
    ) -> Result<Value, CallError> {
        let (root, parent) = (&reply_to.root.external_id, &reply_to.parent.external_id);
        let parent_reference = self.reference(server, account, parent).await?;
        let root_reference = match root == parent {
            true => parent_reference.clone(),
            false => self.reference(server, account, root).await?,
        };
        Ok(json!({ "root": root_reference, "parent": parent_reference }))
    }

    /// Returns the reference to a post of the account.
    async fn reference(&self, server: &Server, account: &ConnectorAccount, post: &str) -> Result<Value, CallError> {
        let Some(record) = self.look_up(server, account, own_key(account, post)?).await? else {
            let message = "The post that this one replies to was deleted from Bluesky.";
            let failure = Failure::of(Category::PlatformRejected, message).from_platform("RecordNotFound");
            return Err(CallError::ParentMissing(failure));
        };
        let cid = record.cid.ok_or_else(|| {
            server.caller.classify_unknown_effect(Effect::Repeatable, "returned a post without its CID", None)
        })?;
        Ok(json!({ "uri": post, "cid": cid }))
    }
}

/// Returns the time of a part. Applications sort posts by their times.
pub(super) fn time_of_part(first: DateTime<Utc>, number: usize) -> DateTime<Utc> {
    first + TimeDelta::milliseconds(number as i64)
}

/// Returns the keys of the parts, at least one.
fn record_keys(marker: &Marker) -> Result<Vec<&str>, CallError> {
    let first = marker_field(marker, "rkey")?;
    let others = marker.get("rkeys").and_then(Value::as_array).into_iter().flatten().skip(1);
    Ok(std::iter::once(first).chain(others.filter_map(Value::as_str)).collect())
}

fn published_parts(account: &ConnectorAccount, keys: &[&str]) -> Vec<Published> {
    keys.iter().map(|rkey| published(account, rkey, uri(account, rkey))).collect()
}

fn unreadable_file() -> CallError {
    let message = "Bluesky returned a reference to an image or video that Crier cannot read.";
    CallError::Permanent(Failure::of(Category::Media, message))
}
