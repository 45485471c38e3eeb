//! `/brands/{brand}/inbox/{conversation}`: a conversation with its messages, and the actions on it.

use askama::Template;
use chrono::Days;
use crier_domain::conversation::{ConversationStatus, MessageDirection, MessageStatus};
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::routes::conversations::{
    self, ConversationDetail, ConversationFields, ConversationSubject, Message,
};
use crier_store::conversations::{count_unread, lock, mark_read};
use crier_store::{accounts, users};
use http::StatusCode;
use serde_json::{Map, Value};

use super::form::Form;
use super::inbox::{disconnected_account, kind, participant_label, status};
use super::members;
use super::post_rows::chip;
use super::route::PageRoute;
use super::shared::{AccountChip, Badge, Choice, FieldErrors, Link, Time, Tone};
use super::shell::{MAX_UNREAD, Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

/// The maximum length of the messages on a page, in bytes.
const MAX_TEXT: usize = 40_000;
/// The maximum number of messages on a page.
const MAX_MESSAGES: usize = 100;

#[derive(Template)]
#[template(path = "console/conversation.html")]
struct ConversationPage {
    shell: Shell,
    /// Errors of all forms.
    errors: FieldErrors,
    id: i64,
    participant: String,
    username: Option<String>,
    account: AccountChip,
    kind: &'static str,
    status: Badge,
    snoozed_until: Option<Time>,
    /// The post that the conversation is about.
    subject: Option<Link>,
    /// Oldest first.
    messages: Vec<MessageRow>,
    /// The URL that shows earlier messages.
    earlier: Option<String>,
    /// The reason why replies are not possible.
    reply_problem: Option<String>,
    /// The submitted reply.
    body: String,
    members: Vec<Choice>,
    statuses: Vec<Choice>,
    /// The values of the form: as submitted, else as stored.
    fields: EditedFields,
    /// The stored values.
    stored: EditedFields,
}

/// The fields of the form that changes a conversation.
#[derive(Clone)]
struct EditedFields {
    status: String,
    /// In the brand's time zone. Tomorrow at 9:00 if the conversation is not snoozed.
    snoozed_until: String,
    user_id: String,
    /// Separated by commas.
    tags: String,
}

impl EditedFields {
    fn stored(visit: &Visit, conversation: &ConversationFields) -> Self {
        let zone = visit.zone();
        let tomorrow = visit.now.with_timezone(&zone).date_naive() + Days::new(1);
        let local = conversation.snoozed_until.map(|at| at.0.with_timezone(&zone));
        let until = local.map(|at| at.format("%Y-%m-%dT%H:%M").to_string());
        Self {
            status: conversation.status.to_string(),
            snoozed_until: until.unwrap_or_else(|| format!("{tomorrow}T09:00")),
            user_id: conversation.assignee_id.map(|id| id.to_string()).unwrap_or_default(),
            tags: conversation.tags.join(", "),
        }
    }

    /// Replaces the values by those that the form contains.
    fn with_submitted(self, form: &Form) -> Self {
        let value = |name: &str, stored: String| form.get_or(name, &stored).to_owned();
        Self {
            status: value("status", self.status),
            snoozed_until: value("snoozed_until", self.snoozed_until),
            user_id: value("user_id", self.user_id),
            tags: value("tags", self.tags),
        }
    }
}

struct MessageRow {
    is_outbound: bool,
    is_deleted: bool,
    body: String,
    author: String,
    at: Time,
    /// The status of a reply that has not been sent.
    status: Option<Badge>,
    /// Whether the script updates the page until the reply is sent.
    is_pending: bool,
    error: Option<String>,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::form("/brands/{brand}/inbox/{conversation}", render),
        PageRoute::post("/brands/{brand}/inbox/{conversation}/reply", reply),
        PageRoute::post("/brands/{brand}/inbox/{conversation}/edit", edit),
    ]
}

async fn render(visit: &Visit, code: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let brand = visit.brand()?.0.id;
    let detail = visit.call().read(conversations::show::endpoint(), ()).await?;
    let is_shown_unread = detail.fields.unread_count > 0 && !visit.is_head;
    if is_shown_unread {
        mark_shown(visit, &detail).await?;
    }
    let ConversationDetail { id, fields: conversation, messages, .. } = detail;
    let participant = participant_label(&conversation.participant);
    let mut conn = visit.app.store.read().await?;
    let account = accounts::find(&mut conn, brand, conversation.account_id).await?;
    let members = users::members(&mut conn, brand).await?;
    let mut shell = visit.shell(Section::Inbox, participant.clone());
    if is_shown_unread {
        shell.unread = count_unread(&mut conn, brand, MAX_UNREAD + 1).await?;
    }
    drop(conn);
    let (shown, has_earlier) = newest(messages, visit.query.get("before"));
    let form = &visit.form;
    let stored = EditedFields::stored(visit, &conversation);
    let fields = stored.clone().with_submitted(form);
    let view = ConversationPage {
        errors,
        id,
        account: account.as_ref().map_or_else(|| disconnected_account(conversation.platform), chip),
        kind: kind(conversation.r#type),
        status: status(conversation.status),
        snoozed_until: conversation.snoozed_until.map(|at| visit.time(at.0)),
        subject: conversation.subject.and_then(|subject| link(&shell, subject)),
        earlier: shown
            .first()
            .filter(|_| has_earlier)
            .map(|first| format!("{}?before={}", shell.page("inbox", id, ""), first.id)),
        messages: shown.into_iter().map(|message| row(visit, message, &participant)).collect(),
        reply_problem: if visit.can_publish() {
            conversation.reply_refusal
        } else {
            Some(ApiError::for_publishers().message.into_owned())
        },
        body: form.get("body").to_owned(),
        members: members::choices(visit, &members, "No one", &fields.user_id),
        statuses: ConversationStatus::ALL
            .iter()
            .map(|one| Choice::new(one.as_str(), &status(*one).text, one.as_str() == fields.status))
            .collect(),
        fields,
        stored,
        username: conversation.participant.username,
        participant,
        shell,
    };
    visit.page_with(code, &view)
}

/// Marks a conversation as read, unless it was updated since it was loaded: a message that arrived meanwhile was not
/// shown.
async fn mark_shown(visit: &Visit, shown: &ConversationDetail) -> Result<()> {
    let mut tx = visit.app.store.begin().await?;
    let found = lock(&mut tx, visit.brand()?.0.id, shown.id).await?;
    if found.is_some_and(|conversation| conversation.updated_at == shown.updated_at.0) {
        mark_read(&mut tx, shown.id).await?;
    }
    Ok(tx.commit().await?)
}

/// Returns the newest messages, or the newest before the message with the ID `before`, and whether there are earlier
/// ones.
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

/// Returns a link to the subject of a conversation: the post in Crier, else the post on the platform.
fn link(shell: &Shell, subject: ConversationSubject) -> Option<Link> {
    if let Some(id) = subject.post_id {
        return Some(Link::new(&format!("Post {id}"), &shell.post(id, "")));
    }
    let url = subject.url?;
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    is_web.then(|| Link::new("Post on the platform", &url))
}

fn row(visit: &Visit, message: Message, participant: &str) -> MessageRow {
    let is_outbound = message.direction == MessageDirection::Outbound;
    let unnamed = if is_outbound { "The account" } else { participant };
    MessageRow {
        is_outbound,
        is_deleted: message.deleted_at.is_some(),
        body: message.body,
        author: message.author.name.unwrap_or_else(|| unnamed.to_owned()),
        at: visit.time(message.sent_at.0),
        is_pending: message.status == MessageStatus::Pending,
        status: match message.status {
            MessageStatus::Received | MessageStatus::Sent => None,
            MessageStatus::Pending => Some(Badge::new(Tone::Info, "Sending")),
            MessageStatus::Failed => Some(Badge::new(Tone::Bad, "Failed")),
        },
        error: message.error.map(|error| match message.status {
            MessageStatus::Failed => format!("{} To retry, send the reply again.", error.message),
            _ => error.message,
        }),
    }
}

fn to_conversation(visit: &Visit, note: &'static str) -> Result<PageReply> {
    visit.to(&format!("inbox/{}", visit.id("conversation").unwrap_or_default()), note)
}

async fn reply(visit: &Visit) -> Result<PageReply> {
    let resolve = visit.form.has("resolve");
    let fields = Map::from_iter([
        ("body".to_owned(), Value::from(visit.form.get("body"))),
        ("resolve".to_owned(), Value::from(resolve)),
    ]);
    let written = visit.call().write(conversations::reply::endpoint(), visit.parse(&fields)).await;
    // Show at the text field what the platform does not accept.
    let written = written.map_err(|error| match error.code {
        ErrorCode::PlatformCapabilityUnavailable => ApiError::field("body", error.message.to_string()),
        _ => error,
    });
    match written {
        Ok(_) => to_conversation(visit, if resolve { "reply-resolved" } else { "reply-sent" }),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?).await,
    }
}

/// Saves the fields that the user changed, so that changes that others made meanwhile are kept.
async fn edit(visit: &Visit) -> Result<PageReply> {
    let is_changed = |name: &str| visit.form.get(name) != visit.form.get(&format!("was_{name}"));
    let is_snoozed = visit.form.get("status") == "snoozed";
    let mut written = Vec::new();
    if is_changed("user_id") {
        written.push(assign(visit).await);
    }
    if is_changed("tags") {
        written.push(set_tags(visit).await);
    }
    if is_changed("status") || is_snoozed && is_changed("snoozed_until") {
        written.push(set_status(visit, is_snoozed).await);
    }
    if written.is_empty() {
        // Return 404 if the conversation does not exist.
        visit.call().read(conversations::show::endpoint(), ()).await?;
    }
    let mut problems = FieldErrors::default();
    for error in written.into_iter().filter_map(Result::err) {
        problems.merge(form_errors(error)?);
    }
    match problems.is_empty() {
        true => to_conversation(visit, "conversation-saved"),
        false => render(visit, StatusCode::UNPROCESSABLE_ENTITY, problems).await,
    }
}

async fn assign(visit: &Visit) -> Result<()> {
    let id = |text: &str| text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from);
    let user = visit.form.text("user_id").map_or(Value::Null, id);
    let request = visit.parse(&Map::from_iter([("user_id".to_owned(), user)]));
    visit.call().part("-assign").write(conversations::assign::endpoint(), request).await.map(drop)
}

async fn set_tags(visit: &Visit) -> Result<()> {
    let all = visit.form.get("tags").split(',').map(str::trim).filter(|tag| !tag.is_empty());
    let request = visit.parse(&Map::from_iter([("tags".to_owned(), all.collect::<Value>())]));
    visit.call().part("-tags").write(conversations::tags::endpoint(), request).await.map(drop)
}

async fn set_status(visit: &Visit, is_snoozed: bool) -> Result<()> {
    // The form always contains a time.
    let names: &[&'static str] = if is_snoozed { &["status", "snoozed_until"] } else { &["status"] };
    let request = visit.parse(&visit.form.texts(names));
    visit.call().part("-status").write(conversations::status::endpoint(), request).await.map(drop)
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crier_endpoints::response::Timestamp;
    use crier_endpoints::routes::conversations::MessageAuthor;

    fn message(id: i64, length: usize) -> Message {
        let at = Timestamp(DateTime::UNIX_EPOCH);
        Message {
            id,
            direction: MessageDirection::Inbound,
            body: "a".repeat(length),
            author: MessageAuthor { name: None, user_id: None },
            status: MessageStatus::Received,
            external_id: None,
            error: None,
            sent_at: at,
            deleted_at: None,
            created_at: at,
            updated_at: at,
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
