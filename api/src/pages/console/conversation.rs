//! `/brands/{brand}/inbox/{conversation}`: a conversation with its messages, and what can be done with it.

use askama::Template;
use chrono::{DateTime, Days, Utc};
use crier_domain::conversation::{ConversationStatus, MessageDirection, MessageStatus};
use crier_domain::platform::{ConversationType, Platform as PlatformKey};
use crier_store::{accounts, users};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::inbox::{Participant, disconnected_account, kind, status};
use super::members;
use super::post_rows::chip;
use super::route::PageRoute;
use super::shared::{AccountChip, Badge, Choice, FieldErrors, Link, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};
use crate::error::{ApiError, ErrorCode, Result};

/// How much text of messages a page has, in bytes, and how many messages.
const MAX_TEXT: usize = 40_000;
const MAX_MESSAGES: usize = 100;

#[derive(Template)]
#[template(path = "console/conversation.html")]
struct ConversationPage {
    shell: Shell,
    /// Of all its forms.
    errors: FieldErrors,
    id: i64,
    participant: String,
    username: Option<String>,
    account: AccountChip,
    kind: &'static str,
    status: Badge,
    snoozed_until: Option<Time>,
    unread: i64,
    /// What it is about.
    subject: Option<Link>,
    /// Oldest first.
    messages: Vec<MessageRow>,
    /// The address that shows earlier ones.
    earlier: Option<String>,
    /// Why it cannot be replied to.
    refusal: Option<String>,
    /// What was typed as a reply.
    body: String,
    members: Vec<Choice>,
    statuses: Vec<Choice>,
    /// In the brand's zone: tomorrow at nine, or as typed.
    snooze: String,
    /// Separated by commas.
    tags: String,
}

struct MessageRow {
    is_outbound: bool,
    is_deleted: bool,
    body: String,
    author: String,
    at: Time,
    /// Of a reply that is not sent.
    status: Option<Badge>,
    error: Option<String>,
}

/// A conversation as the API shows it.
#[derive(Deserialize)]
struct Detail {
    id: i64,
    r#type: ConversationType,
    platform: PlatformKey,
    account_id: i64,
    status: ConversationStatus,
    participant: Participant,
    subject: Option<Subject>,
    assignee_id: Option<i64>,
    tags: Vec<String>,
    unread_count: i64,
    reply_refusal: Option<String>,
    snoozed_until: Option<DateTime<Utc>>,
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Subject {
    url: Option<String>,
    post_id: Option<i64>,
}

#[derive(Deserialize)]
struct Message {
    id: i64,
    direction: MessageDirection,
    body: String,
    author: Author,
    status: MessageStatus,
    error: Option<MessageError>,
    sent_at: DateTime<Utc>,
    deleted_at: Option<DateTime<Utc>>,
}

#[derive(Deserialize)]
struct Author {
    name: Option<String>,
}

#[derive(Deserialize)]
struct MessageError {
    message: String,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/inbox/{conversation}", show),
        PageRoute::post("/brands/{brand}/inbox/{conversation}/reply", reply),
        PageRoute::post("/brands/{brand}/inbox/{conversation}/status", set_status),
        PageRoute::post("/brands/{brand}/inbox/{conversation}/assign", assign),
        PageRoute::post("/brands/{brand}/inbox/{conversation}/tags", set_tags),
        PageRoute::post("/brands/{brand}/inbox/{conversation}/read", read),
    ]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    render(visit, StatusCode::OK, FieldErrors::default()).await
}

async fn render(visit: &Visit, code: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let brand = visit.brand()?.0.id;
    let mut detail: Detail = visit.api("showConversation").get().await?;
    let mut conn = visit.app.store.read().await?;
    let account = accounts::find(&mut conn, brand, detail.account_id).await?;
    let members = users::members(&mut conn, brand).await?;
    drop(conn);
    let (shown, has_earlier) = newest(std::mem::take(&mut detail.messages), visit.query.get("before"));
    let form = &visit.form;
    let participant = detail.participant.label();
    let shell = visit.shell(Section::Inbox, participant.clone());
    let assignee = detail.assignee_id.map(|id| id.to_string()).unwrap_or_default();
    let chosen = if form.has("status") { form.get("status") } else { detail.status.as_str() };
    let tomorrow = visit.now.with_timezone(&visit.zone()).date_naive() + Days::new(1);
    let view = ConversationPage {
        errors,
        id: detail.id,
        account: account.as_ref().map_or_else(|| disconnected_account(detail.platform), chip),
        kind: kind(detail.r#type),
        status: status(detail.status),
        snoozed_until: detail.snoozed_until.map(|at| visit.time(at)),
        unread: detail.unread_count,
        subject: detail.subject.and_then(|subject| link(&shell, subject)),
        earlier: shown
            .first()
            .filter(|_| has_earlier)
            .map(|first| format!("{}?before={}", shell.page("inbox", detail.id, ""), first.id)),
        messages: shown.into_iter().map(|message| row(visit, message, &participant)).collect(),
        refusal: detail.reply_refusal,
        body: form.get("body").to_owned(),
        members: members::choices(
            visit,
            &members,
            "No one",
            if form.has("user_id") { form.get("user_id") } else { &assignee },
        ),
        statuses: ConversationStatus::ALL
            .iter()
            .map(|one| Choice::new(one.as_str(), &status(*one).text, one.as_str() == chosen))
            .collect(),
        snooze: form.text("snoozed_until").map_or_else(|| format!("{tomorrow}T09:00"), str::to_owned),
        tags: if form.has("tags") { form.get("tags").to_owned() } else { detail.tags.join(", ") },
        username: detail.participant.username,
        participant,
        shell,
    };
    visit.page_with(code, &view)
}

/// Returns the newest messages before the one with this id, or of all, and whether there are earlier ones.
fn newest(mut all: Vec<Message>, before: Option<&str>) -> (Vec<Message>, bool) {
    let before = before.and_then(|id| id.parse::<i64>().ok());
    if let Some(end) = all.iter().position(|message| Some(message.id) == before) {
        all.truncate(end);
    }
    let mut size = 0_usize;
    let fits = |message: &&Message| {
        size += message.body.len();
        size <= MAX_TEXT
    };
    let count = all.iter().rev().take(MAX_MESSAGES).take_while(fits).count().max(1);
    let start = all.len().saturating_sub(count);
    (all.split_off(start), start > 0)
}

/// Returns a link to what a conversation is about: the post here, else its address at the platform.
fn link(shell: &Shell, subject: Subject) -> Option<Link> {
    if let Some(id) = subject.post_id {
        return Some(Link::new(&format!("Post {id}"), &shell.post(id, "")));
    }
    let url = subject.url?;
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    is_web.then(|| Link::new("The post at the platform", &url))
}

fn row(visit: &Visit, message: Message, participant: &str) -> MessageRow {
    let is_outbound = message.direction == MessageDirection::Outbound;
    let unnamed = if is_outbound { "The account" } else { participant };
    MessageRow {
        is_outbound,
        is_deleted: message.deleted_at.is_some(),
        body: message.body,
        author: message.author.name.unwrap_or_else(|| unnamed.to_owned()),
        at: visit.time(message.sent_at),
        status: match message.status {
            MessageStatus::Received | MessageStatus::Sent => None,
            MessageStatus::Pending => Some(Badge::new(Tone::Info, "Being sent")),
            MessageStatus::Failed => Some(Badge::new(Tone::Bad, "Failed")),
        },
        error: message.error.map(|error| match message.status {
            MessageStatus::Failed => format!("{} To try again, write the reply again.", error.message),
            _ => error.message,
        }),
    }
}

/// Answers a write: leads to the conversation, or shows it with what is wrong.
async fn answer<T>(visit: &Visit, written: Result<T>, note: &'static str) -> Result<PageReply> {
    match written {
        Ok(_) => visit.to(&format!("inbox/{}", visit.id("conversation").unwrap_or_default()), note),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?).await,
    }
}

async fn reply(visit: &Visit) -> Result<PageReply> {
    let body = json!({ "body": visit.form.get("body") });
    let written = visit.api("replyToConversation").write("", &body).await;
    // What the platform does not take is a problem of the text.
    let written = written.map_err(|error| match error.code {
        ErrorCode::PlatformCapabilityUnavailable => ApiError::field("body", error.message.to_string()),
        _ => error,
    });
    answer(visit, written, "reply-sent").await
}

async fn set_status(visit: &Visit) -> Result<PageReply> {
    let names: &[&'static str] = match visit.form.get("status") {
        "snoozed" => &["status", "snoozed_until"],
        // The form has a time always.
        _ => &["status"],
    };
    let body = Value::from(visit.form.texts(names));
    answer(visit, visit.api("setConversationStatus").write("", &body).await, "conversation-saved").await
}

async fn assign(visit: &Visit) -> Result<PageReply> {
    let user = visit.form.text("user_id").map(|text| text.parse::<i64>().map_or_else(|_| json!(text), Value::from));
    let body = json!({ "user_id": user });
    answer(visit, visit.api("assignConversation").write("", &body).await, "conversation-saved").await
}

async fn set_tags(visit: &Visit) -> Result<PageReply> {
    let all = visit.form.get("tags").split(',').map(str::trim).filter(|tag| !tag.is_empty());
    let body = json!({ "tags": all.collect::<Vec<_>>() });
    answer(visit, visit.api("tagConversation").write("", &body).await, "conversation-saved").await
}

async fn read(visit: &Visit) -> Result<PageReply> {
    answer(visit, visit.api("readConversation").write("", &json!({})).await, "conversation-read").await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: i64, length: usize) -> Message {
        Message {
            id,
            direction: MessageDirection::Inbound,
            body: "a".repeat(length),
            author: Author { name: None },
            status: MessageStatus::Received,
            error: None,
            deleted_at: None,
            sent_at: DateTime::<Utc>::UNIX_EPOCH,
        }
    }

    #[test]
    fn long_conversations_are_shown_in_parts() {
        let ids = |lengths: &[usize], before| {
            let all = (1..).zip(lengths).map(|(id, length)| message(id, *length)).collect();
            let (shown, has_earlier) = newest(all, before);
            (shown.iter().map(|message| message.id).collect::<Vec<_>>(), has_earlier)
        };
        assert_eq!(ids(&[10, 10], None), (vec![1, 2], false));
        assert_eq!(ids(&[30_000, 30_000, 10_000], None), (vec![2, 3], true));
        assert_eq!(ids(&[30_000, 30_000, 10_000], Some("2")), (vec![1], false));
        assert_eq!(ids(&[90_000], Some("x")), (vec![1], false), "one is always shown");
        assert_eq!(ids(&[], None), (vec![], false));
    }
}
