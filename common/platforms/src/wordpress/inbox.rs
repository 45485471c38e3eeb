//! The comments of a WordPress site. A comment without a parent begins a thread, which contains the comments below it.
//!
//! A public list returns 200 even with invalid credentials, so `/users/me` is requested once per hour. It shows whether
//! the credentials are valid, and which comments are the account's own.
//!
//! Source: REST API handbook, "Comments".

use async_trait::async_trait;
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::platform::ConversationType;
use crier_html::plain_text;
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Wordpress;
use super::comments::{Comment, FIELDS, MAX_RECENT_COMMENTS, PATH, comments, newest, own_id, send};
use crate::call::Effect;
use crate::inbox::parents::{MAX_LEVELS, Parents};
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, no_context};
use crate::window::{CallWindow, find};
use crate::wp::deletions::{self, CommentEndpoint};
use crate::wp::oldest_first::{Pass, parse_gmt};
use crate::wp::{Rest, WpBody, html, visibility_error};
use crate::{CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, Published, ReconcileResult, time_marker};

const COMMENTS: &str = "comments";

/// The parent of a comment.
#[derive(Deserialize)]
struct ParentLink {
    id: i64,
    #[serde(default)]
    parent: i64,
}

impl ParentLink {
    fn add_to(&self, parents: &mut Parents) {
        let parent = Some(self.parent).filter(|parent| *parent != 0).map(|parent| parent.to_string());
        parents.insert(&self.id.to_string(), parent.as_deref());
    }
}

impl Comment {
    fn message(self, own: i64, parents: &Parents) -> Option<FetchedMessage> {
        let id = self.id.to_string();
        let is_own = self.author == own;
        // A top-level comment of the account is not part of a conversation.
        if is_own && self.parent == 0 {
            return None;
        }
        // Visitors have no id, so the name is used. It is not secret and does not reliably identify a visitor.
        let person =
            if self.author > 0 { format!("user:{}", self.author) } else { format!("name:{}", self.author_name) };
        let name = Some(plain_text(&self.author_name)).filter(|name| !name.trim().is_empty());
        let participant = Participant {
            external_id: person,
            name: name.clone(),
            username: None,
            avatar_url: self.author_avatar_urls["96"].as_str().map(str::to_owned),
        };
        let url = self.link.as_deref().map(|link| link.split('#').next().unwrap_or(link).to_owned());
        Some(FetchedMessage {
            kind: ConversationType::Comment,
            thread_id: parents.top(&id).to_owned(),
            direction: if is_own { MessageDirection::Outbound } else { MessageDirection::Inbound },
            participant: (!is_own).then_some(participant),
            subject: Some(Subject { external_id: self.post.to_string(), url }),
            author_name: name,
            body: plain_text(&self.content.rendered),
            sent_at: parse_gmt(&self.date_gmt)?,
            reply_context: Map::from_iter([
                ("comment".to_owned(), Value::from(self.id)),
                ("post".to_owned(), Value::from(self.post)),
            ]),
            external_id: id,
        })
    }
}

/// Looks up the ancestors of a page's comments.
async fn parents_of(rest: &Rest<'_>, found: &[Comment]) -> Result<Parents, CallError> {
    let mut parents = Parents::default();
    for comment in found {
        ParentLink { id: comment.id, parent: comment.parent }.add_to(&mut parents);
    }
    let ids: Vec<String> = found.iter().map(|comment| comment.id.to_string()).collect();
    for _ in 0..MAX_LEVELS {
        let missing = parents.missing(ids.iter().map(String::as_str));
        if missing.is_empty() {
            break;
        }
        // If an ancestor was deleted or is no longer approved, its child begins the thread.
        missing.iter().for_each(|id| parents.insert(id, None));
        let include = missing.join(",");
        let query = [("include", include.as_str()), ("per_page", "100"), ("_fields", "id,parent")];
        let above: Vec<ParentLink> = rest.call(Effect::Repeatable, Method::GET, PATH, &query, WpBody::None).await?;
        let requested = above.iter().filter(|link| missing.contains(&link.id.to_string()));
        requested.for_each(|link| link.add_to(&mut parents));
    }
    Ok(parents)
}

#[async_trait]
impl InboxConnector for Wordpress {
    fn streams(&self) -> &'static [&'static str] {
        &[COMMENTS]
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        _stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        let rest = self.rest(&account.secrets)?;
        let pass = Pass::read(cursor, self.caller.now());
        let own = match cursor.and_then(|cursor| cursor["own"].as_i64()) {
            Some(own) if !pass.is_long_start => own,
            _ => own_id(&rest).await?,
        };
        let filter = pass.query();
        let mut query: Vec<(&str, &str)> = filter.iter().map(|(name, value)| (*name, value.as_str())).collect();
        query.push(("_fields", FIELDS));
        let found = comments(&rest, &query).await?;
        let times: Vec<_> = found.iter().filter_map(|comment| parse_gmt(&comment.date_gmt)).collect();
        let parents = parents_of(&rest, &found).await?;
        let messages = found.into_iter().filter_map(|comment| comment.message(own, &parents)).collect();
        let (mut cursor, has_more) = pass.next(&times);
        cursor["own"] = Value::from(own);
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    fn deletion_check_limit(&self) -> usize {
        deletions::IDS_PER_CALL
    }

    async fn deleted(&self, account: &ConnectorAccount, ids: &[String]) -> Result<Vec<String>, CallError> {
        let comments = CommentEndpoint { path: PATH, visible_status: "approve", no_such_id: "rest_comment_invalid_id" };
        comments.deleted(&self.rest(&account.secrets)?, ids).await
    }

    /// `comment_content` allows 65,525 characters, more than Crier allows in a reply.
    fn check_text(&self, _thread: &ReplyThread, _text: &str) -> Result<(), String> {
        Ok(())
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        let rest = self.rest(&account.secrets)?;
        let number = |name: &str| reply.thread.context.get(name).and_then(Value::as_i64).ok_or_else(no_context);
        let body = json!({
            "post": number("post")?,
            "parent": number("comment")?,
            "content": html::escape(&reply.text),
        });
        let sent = send(&rest, &body).await?;
        match visibility_error("WordPress", "reply", &sent.status) {
            Some(error) => Err(error),
            None => Ok(sent.published()),
        }
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        let rest = self.rest(&account.secrets)?;
        let post = reply.thread.subject_external_id.as_deref().ok_or_else(no_context)?;
        let parent = reply.thread.context.get("comment").and_then(Value::as_i64).ok_or_else(no_context)?;
        let listed = newest(&rest, post, &reply.text, parent).await?;
        Ok(find(CallWindow::of(reply.called_at), listed, MAX_RECENT_COMMENTS))
    }
}
