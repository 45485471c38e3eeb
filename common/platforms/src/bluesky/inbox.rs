//! The inbox of Bluesky: replies, mentions and quotes from the notifications, the account's own replies from its feed,
//! and direct messages ([`chats`](super::chats)).
//!
//! A reply to one of the account's posts begins a thread, which contains everything below that reply. A record names
//! only its root and its parent, so the posts between them are looked up. A thread under another author's post is a
//! mention. Times are those at which the server indexed a post, because the author chooses the time in the record.
//!
//! Sources: lexicons `app.bsky.notification.listNotifications`, `app.bsky.feed.getAuthorFeed`,
//! `app.bsky.feed.getPosts`, `app.bsky.feed.getPostThread` (error `NotFound`), `app.bsky.feed.defs#notFoundPost`,
//! `app.bsky.feed.post#replyRef`.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use crier_domain::catalogue;
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::platform::{ConversationType, Platform};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::record::Mentions;
use super::xrpc::XrpcError;
use super::{Bluesky, COLLECTION, published, record_marker};
use crate::call::Effect;
use crate::inbox::newest_first::Pass;
use crate::inbox::parents::{MAX_LEVELS, Parents};
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, check_length, no_context};
use crate::{
    CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, Published, ReconcileResult, marker_field,
};

const NOTIFICATIONS: &str = "notifications";
const OWN_REPLIES: &str = "own_replies";
const CHATS: &str = "direct_messages";
const REASONS: [&str; 3] = ["reply", "mention", "quote"];
const PAGE: &str = "50";
/// The maximum number of entries read from a page, because each entry may cause calls.
const MAX_ENTRIES: usize = 100;
/// The maximum number of posts per call of `getPosts`.
const POSTS_PER_CALL: usize = 25;
const NOT_FOUND_POST: &str = "app.bsky.feed.defs#notFoundPost";

/// A user.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Profile {
    pub did: String,
    #[serde(default)]
    pub handle: String,
    pub display_name: Option<String>,
    pub avatar: Option<String>,
}

impl Profile {
    pub fn name(&self) -> String {
        self.display_name.clone().filter(|name| !name.trim().is_empty()).unwrap_or_else(|| self.handle.clone())
    }

    pub fn participant(&self) -> Participant {
        Participant {
            external_id: self.did.clone(),
            name: Some(self.name()),
            username: Some(self.handle.clone()).filter(|handle| !handle.is_empty()),
            avatar_url: self.avatar.clone(),
        }
    }
}

/// A post in notifications, feeds and `getPosts`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostView {
    uri: String,
    cid: String,
    author: Profile,
    #[serde(default)]
    record: Value,
    indexed_at: DateTime<Utc>,
    /// Only in notifications.
    #[serde(default)]
    reason: String,
    reason_subject: Option<String>,
}

impl PostView {
    fn root(&self) -> &str {
        self.record["reply"]["root"]["uri"].as_str().unwrap_or(&self.uri)
    }

    fn parent(&self) -> Option<&str> {
        self.record["reply"]["parent"]["uri"].as_str()
    }

    /// Adds this post's parent. A reply to the root begins a thread.
    fn add_to(&self, parents: &mut Parents) {
        parents.insert(&self.uri, self.parent().filter(|parent| *parent != self.root()));
    }

    /// Returns the message in its thread.
    fn message(self, own: &str, parents: &Parents) -> FetchedMessage {
        let is_own = self.author.did == own;
        let under_own = self.parent().is_some() && author_of(self.root()) == own;
        let (kind, thread_id) = match under_own {
            true => (ConversationType::Comment, parents.top(&self.uri)),
            false => (ConversationType::Mention, self.root()),
        };
        let quoted = self.reason_subject.as_deref().filter(|_| self.reason == "quote");
        let subject = quoted.unwrap_or_else(|| self.root());
        FetchedMessage {
            kind,
            thread_id: thread_id.to_owned(),
            direction: if is_own { MessageDirection::Outbound } else { MessageDirection::Inbound },
            participant: (!is_own).then(|| self.author.participant()),
            subject: Some(Subject { external_id: subject.to_owned(), url: url(subject) }),
            author_name: Some(self.author.name()),
            body: self.record["text"].as_str().unwrap_or_default().to_owned(),
            sent_at: self.indexed_at,
            reply_context: self.context(),
            external_id: self.uri,
        }
    }

    /// Returns the references that a reply to this post needs.
    fn context(&self) -> Map<String, Value> {
        let this = json!({ "uri": self.uri, "cid": self.cid });
        let root = &self.record["reply"]["root"];
        let root = match (root["uri"].as_str(), root["cid"].as_str()) {
            (Some(uri), Some(cid)) => json!({ "uri": uri, "cid": cid }),
            _ => this.clone(),
        };
        Map::from_iter([("root".to_owned(), root), ("parent".to_owned(), this)])
    }
}

/// Returns the DID in `at://<did>/<collection>/<key>`.
fn author_of(uri: &str) -> &str {
    uri.strip_prefix("at://").and_then(|rest| rest.split('/').next()).unwrap_or_default()
}

fn url(uri: &str) -> Option<String> {
    let (did, rest) = uri.strip_prefix("at://")?.split_once('/')?;
    let (collection, key) = rest.split_once('/')?;
    (collection == COLLECTION).then(|| format!("https://bsky.app/profile/{did}/post/{key}"))
}

#[derive(Deserialize)]
struct Notifications {
    notifications: Vec<Value>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct Feed {
    feed: Vec<Value>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct Posts {
    posts: Vec<Value>,
}

/// Returns the entries that are posts. Others are skipped.
fn posts<'a>(entries: impl IntoIterator<Item = &'a Value>) -> Vec<PostView> {
    entries.into_iter().take(MAX_ENTRIES).filter_map(|entry| PostView::deserialize(entry).ok()).collect()
}

impl Bluesky {
    async fn notifications(&self, account: &ConnectorAccount, pass: Pass) -> Result<InboxPage, XrpcError> {
        let (server, access) = (self.server(&account.secrets), account.secrets.require("access_jwt")?);
        let mut request = server.get("app.bsky.notification.listNotifications").query(&[("limit", PAGE)]);
        request = request.query(&REASONS.map(|reason| ("reasons", reason)));
        if let Some(page) = &pass.page {
            request = request.query(&[("cursor", page)]);
        }
        let found: Notifications = server.call(Effect::Repeatable, request.bearer_auth(access.expose_secret())).await?;
        let found_posts = posts(&found.notifications);
        let times: Vec<_> = found_posts.iter().map(|post| post.indexed_at).collect();
        // Older servers ignore the filter.
        let wanted = |post: &PostView| REASONS.contains(&post.reason.as_str()) && post.indexed_at >= pass.until;
        let wanted: Vec<_> = found_posts.into_iter().filter(wanted).collect();
        let messages = self.thread_messages(account, wanted, Parents::default()).await?;
        let (cursor, has_more) = pass.after(&times, found.cursor);
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    /// Reads the account's replies to others below its own posts.
    async fn own_replies(&self, account: &ConnectorAccount, pass: Pass) -> Result<InboxPage, XrpcError> {
        let (server, access) = (self.server(&account.secrets), account.secrets.require("access_jwt")?);
        let own = account.external_id.as_str();
        let query = [("actor", own), ("filter", "posts_with_replies"), ("limit", PAGE)];
        let mut request = server.get("app.bsky.feed.getAuthorFeed").query(&query);
        if let Some(page) = &pass.page {
            request = request.query(&[("cursor", page)]);
        }
        let found: Feed = server.call(Effect::Repeatable, request.bearer_auth(access.expose_secret())).await?;
        let mut parents = Parents::default();
        for above in posts(found.feed.iter().map(|entry| &entry["reply"]["parent"])) {
            above.add_to(&mut parents);
        }
        // For a repost, the time of the repost counts.
        let shared_at = |entry: &Value| entry["reason"]["indexedAt"].as_str().and_then(|text| text.parse().ok());
        let entries = found.feed.iter().take(MAX_ENTRIES).filter_map(|entry| {
            Some((PostView::deserialize(&entry["post"]).ok()?, entry["reason"].is_object(), shared_at(entry)))
        });
        let entries: Vec<(PostView, bool, Option<DateTime<Utc>>)> = entries.collect();
        let times: Vec<_> = entries.iter().map(|(post, _, shared)| shared.unwrap_or(post.indexed_at)).collect();
        let is_reply_to_other = |post: &PostView| {
            let has_other_parent = post.parent().is_some_and(|parent| author_of(parent) != own);
            has_other_parent && author_of(post.root()) == own && post.author.did == own && post.indexed_at >= pass.until
        };
        let wanted = entries.into_iter().filter(|(post, is_shared, _)| !is_shared && is_reply_to_other(post));
        let messages = self.thread_messages(account, wanted.map(|(post, ..)| post).collect(), parents).await?;
        let (cursor, has_more) = pass.after(&times, found.cursor);
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    /// Returns the posts as messages in their threads.
    async fn thread_messages(
        &self,
        account: &ConnectorAccount,
        posts: Vec<PostView>,
        mut parents: Parents,
    ) -> Result<Vec<FetchedMessage>, XrpcError> {
        let own = account.external_id.as_str();
        posts.iter().for_each(|post| post.add_to(&mut parents));
        let under_own = |post: &&PostView| author_of(post.root()) == own;
        for _ in 0..MAX_LEVELS {
            let missing = parents.missing(posts.iter().filter(under_own).map(|post| post.uri.as_str()));
            if missing.is_empty() {
                break;
            }
            for uris in missing.chunks(POSTS_PER_CALL) {
                self.look_up_parents(account, uris, &mut parents).await?;
            }
        }
        // Oldest first: messages with the same time are stored in this order.
        Ok(posts.into_iter().rev().map(|post| post.message(own, &parents)).collect())
    }

    /// Returns the URIs of the posts that the server returns.
    async fn visible_posts(&self, account: &ConnectorAccount, uris: &[String]) -> Result<Vec<String>, XrpcError> {
        let (server, access) = (self.server(&account.secrets), account.secrets.require("access_jwt")?);
        let query: Vec<_> = uris.iter().map(|uri| ("uris", uri.as_str())).collect();
        let request = server.get("app.bsky.feed.getPosts").query(&query).bearer_auth(access.expose_secret());
        let found: Posts = server.call(Effect::Repeatable, request).await?;
        Ok(found.posts.iter().filter_map(|post| post["uri"].as_str()).map(str::to_owned).collect())
    }

    async fn look_up_parents(
        &self,
        account: &ConnectorAccount,
        uris: &[String],
        parents: &mut Parents,
    ) -> Result<(), XrpcError> {
        let (server, access) = (self.server(&account.secrets), account.secrets.require("access_jwt")?);
        // The response omits deleted posts, so what is below one begins a thread.
        uris.iter().for_each(|uri| parents.insert(uri, None));
        let query: Vec<_> = uris.iter().map(|uri| ("uris", uri.as_str())).collect();
        let request = server.get("app.bsky.feed.getPosts").query(&query).bearer_auth(access.expose_secret());
        let found: Posts = server.call(Effect::Repeatable, request).await?;
        let requested = posts(&found.posts).into_iter().filter(|post| uris.contains(&post.uri));
        requested.for_each(|post| post.add_to(parents));
        Ok(())
    }

    /// Returns whether the server reports a post as not found, and not as blocked.
    async fn is_not_found(&self, account: &ConnectorAccount, uri: &str) -> Result<bool, XrpcError> {
        let (server, access) = (self.server(&account.secrets), account.secrets.require("access_jwt")?);
        let query = [("uri", uri), ("depth", "0"), ("parentHeight", "0")];
        let request = server.get("app.bsky.feed.getPostThread").query(&query).bearer_auth(access.expose_secret());
        match server.call::<Value>(Effect::Repeatable, request).await {
            Ok(found) => {
                let thread = &found["thread"];
                Ok(thread["$type"] == NOT_FOUND_POST && thread["notFound"] == true && thread["uri"] == uri)
            }
            Err(failed) if failed.name == "NotFound" => Ok(true),
            Err(failed) => Err(failed),
        }
    }

    /// Replies to a post.
    async fn reply_to_post(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        let at = marker_field(&reply.marker, "created_at")?;
        let reference = |name: &str| reply.thread.context.get(name).filter(|reference| reference["uri"].is_string());
        let (Some(root), Some(parent)) = (reference("root"), reference("parent")) else { return Err(no_context()) };
        let server = self.server(&account.secrets);
        let mut record = self.text_record(&server, &reply.text, at, &mut Mentions::new()).await;
        record["reply"] = json!({ "root": root, "parent": parent });
        Ok(self.put_record(account, &reply.marker, record).await?)
    }
}

#[async_trait]
impl InboxConnector for Bluesky {
    fn streams(&self) -> &'static [&'static str] {
        &[NOTIFICATIONS, OWN_REPLIES, CHATS]
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        let pass = Pass::read(cursor, self.trusted.now());
        let (restart, has_page) = (pass.restart(), pass.page.is_some());
        let read = match stream {
            CHATS => return self.chats(account, cursor).await,
            OWN_REPLIES => self.own_replies(account, pass).await,
            _ => self.notifications(account, pass).await,
        };
        match read {
            Ok(page) => Ok(page),
            // The page token is no longer valid.
            Err(XrpcError { error: CallError::Permanent(_), .. }) if has_page => {
                Ok(InboxPage { cursor: restart, ..InboxPage::default() })
            }
            Err(failed) => Err(failed.error),
        }
    }

    fn deletion_check_limit(&self) -> usize {
        POSTS_PER_CALL
    }

    /// Checks posts only. A direct message is deleted only for the participant who deletes it.
    async fn deleted(&self, account: &ConnectorAccount, ids: &[String]) -> Result<Vec<String>, CallError> {
        let uris = ids.iter().filter(|id| id.starts_with("at://")).take(POSTS_PER_CALL);
        let uris: Vec<String> = uris.cloned().collect();
        if uris.is_empty() {
            return Ok(Vec::new());
        }
        let visible_posts = self.visible_posts(account, &uris).await?;
        let mut deleted = Vec::new();
        for uri in uris.into_iter().filter(|uri| !visible_posts.contains(uri)) {
            if self.is_not_found(account, &uri).await? {
                deleted.push(uri);
            }
        }
        Ok(deleted)
    }

    fn check_text(&self, thread: &ReplyThread, text: &str) -> Result<(), String> {
        let rules = match thread.kind {
            ConversationType::Dm => super::chats::TEXT,
            ConversationType::Comment | ConversationType::Mention => {
                catalogue::descriptor(Platform::Bluesky).capabilities.text
            }
        };
        check_length(Platform::Bluesky, &rules, text)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        // Avoids the key of a post of the same time.
        record_marker(MarkerSeed { target_id: (seed.random & 0x3ff) as i64, ..seed })
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        match reply.thread.kind {
            ConversationType::Dm => self.send_message(account, reply).await,
            ConversationType::Comment | ConversationType::Mention => self.reply_to_post(account, reply).await,
        }
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        if reply.thread.kind == ConversationType::Dm {
            return self.find_message(account, reply).await;
        }
        let rkey = marker_field(&reply.marker, "rkey")?;
        let found = self.look_up(&self.server(&account.secrets), account, rkey).await?;
        Ok(found.map_or(ReconcileResult::Absent, |record| ReconcileResult::Found(published(account, rkey, record.uri))))
    }
}
