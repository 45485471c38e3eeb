//! `/brands/{brand}/inbox`: the conversations of the brand, with filters.

use std::collections::HashMap;

use askama::Template;
use chrono::{DateTime, Utc};
use crier_domain::account::SocialAccount;
use crier_domain::conversation::{ConversationStatus, MAX_TAG, MessageDirection};
use crier_domain::platform::{ConversationType, Platform as PlatformKey};
use crier_store::{PageRequest, accounts, conversations, users};
use serde::Deserialize;
use serde_json::json;

use super::paging;
use super::post_rows::chip;
use super::route::PageRoute;
use super::shared::{AccountChip, Badge, Choice, Pages, Platform, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};
use super::{lists, members};
use crate::error::{ApiError, Result};

/// The maximum number of accounts and tags in the filters.
const MAX_CHOICES: i64 = 100;
/// The maximum length of the search text, in characters. The rest is ignored, as in the API.
const MAX_SEARCH: usize = 200;

#[derive(Template)]
#[template(path = "console/inbox.html")]
struct Inbox {
    shell: Shell,
    /// The values are URLs that keep the other filters.
    statuses: Vec<Choice>,
    status: &'static str,
    types: Vec<Choice>,
    platforms: Vec<Choice>,
    accounts: Vec<Choice>,
    assignees: Vec<Choice>,
    tags: Vec<Choice>,
    is_unread: bool,
    search: String,
    /// Whether a filter other than the status is set.
    is_filtered: bool,
    conversations: Vec<ConversationRow>,
    pages: Pages,
    /// Whether the brand has an account on a platform with an inbox.
    has_account: bool,
    /// The account that the button syncs.
    sync_account: Option<i64>,
}

struct ConversationRow {
    id: i64,
    participant: String,
    account: AccountChip,
    kind: &'static str,
    status: Badge,
    preview: String,
    /// Whether the brand wrote the message in the preview.
    is_own: bool,
    unread: i64,
    assignee: Option<String>,
    tags: Vec<String>,
    at: Time,
}

/// The other participant of a conversation.
#[derive(Deserialize)]
pub struct Participant {
    pub name: Option<String>,
    pub username: Option<String>,
}

impl Participant {
    pub fn label(&self) -> String {
        let names = [&self.name, &self.username].into_iter().flatten();
        names.map(String::as_str).find(|name| !name.trim().is_empty()).unwrap_or("Unknown").to_owned()
    }
}

/// A conversation in the list that the API returns.
#[derive(Deserialize)]
struct Conversation {
    id: i64,
    r#type: ConversationType,
    platform: PlatformKey,
    account_id: i64,
    status: ConversationStatus,
    participant: Participant,
    assignee_id: Option<i64>,
    tags: Vec<String>,
    unread_count: i64,
    last_message_at: DateTime<Utc>,
    last_message_preview: String,
    last_message_direction: Option<MessageDirection>,
}

/// The filters in the query. Invalid values are empty.
struct Filters {
    status: &'static str,
    kind: &'static str,
    platform: &'static str,
    account: String,
    assignee: String,
    tag: String,
    is_unread: bool,
    search: String,
}

impl Filters {
    fn read(visit: &Visit) -> Self {
        let get = |name| visit.query.get(name).unwrap_or_default();
        let id =
            |name| get(name).parse::<i64>().ok().filter(|id| *id > 0).map_or_else(String::new, |id| id.to_string());
        let text = |name, max| get(name).trim().chars().filter(|c| *c != '\0').take(max).collect::<String>();
        Self {
            status: get("status").parse().map_or("", ConversationStatus::as_str),
            kind: get("type").parse().map_or("", ConversationType::as_str),
            platform: get("platform").parse().map_or("", PlatformKey::as_str),
            account: id("account_id"),
            assignee: id("assignee_id"),
            tag: text("tag", MAX_TAG),
            is_unread: get("unread") == "true",
            search: text("search", MAX_SEARCH),
        }
    }

    fn pairs(&self) -> [(&'static str, &str); 8] {
        [
            ("status", self.status),
            ("type", self.kind),
            ("platform", self.platform),
            ("account_id", &self.account),
            ("assignee_id", &self.assignee),
            ("tag", &self.tag),
            ("unread", if self.is_unread { "true" } else { "" }),
            ("search", &self.search),
        ]
    }

    /// Returns the URL with this status and the other filters.
    fn with_status(&self, path: &str, status: &str) -> String {
        let rest = self.pairs().into_iter().filter(|(name, value)| *name != "status" && !value.is_empty());
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(Some(("status", status)).filter(|_| !status.is_empty())).extend_pairs(rest);
        match query.finish().as_str() {
            "" => path.to_owned(),
            query => format!("{path}?{query}"),
        }
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/brands/{brand}/inbox", list), PageRoute::post("/brands/{brand}/inbox/sync", sync)]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let brand = visit.brand()?.0.id;
    let (filters, page) = (Filters::read(visit), paging::number(visit));
    let listed = visit.api("listConversations").query("page", page).query("per_page", paging::PER_PAGE);
    let listed = listed.queries(filters.pairs()).list::<Conversation>().await?;
    let mut conn = visit.app.store.read().await?;
    let request = PageRequest { page: 1, per_page: MAX_CHOICES };
    let connected = accounts::list(&mut conn, brand, request).await?.rows;
    let ids: Vec<i64> = listed.data.iter().map(|conversation| conversation.account_id).collect();
    let named = accounts::find_many(&mut conn, brand, &ids).await?;
    let members = users::members(&mut conn, brand).await?;
    let tags = conversations::tags_of_brand(&mut conn, brand, MAX_CHOICES).await?;
    drop(conn);
    let readable: Vec<SocialAccount> = connected.into_iter().filter(|account| has_inbox(visit, account)).collect();
    let chips: HashMap<i64, AccountChip> = named.iter().map(|account| (account.id, chip(account))).collect();
    let names: HashMap<i64, &str> = members.iter().map(|member| (member.id, member.name.as_str())).collect();
    let mut platforms: Vec<PlatformKey> = readable.iter().map(|account| account.platform).collect();
    platforms.sort_by_key(|platform| platform.as_str());
    platforms.dedup();
    let shell = visit.shell(Section::Inbox, "Inbox");
    let path = shell.at("inbox");
    let view = Inbox {
        statuses: statuses(&filters, &path),
        status: filters.status,
        types: choices("All", ConversationType::ALL.iter().map(|one| (one.as_str(), kind_plural(*one))), filters.kind),
        platforms: choices(
            "All",
            platforms.iter().map(|one| (one.as_str(), Platform::of(one.as_str()).name)),
            filters.platform,
        ),
        accounts: choices(
            "All",
            readable.iter().map(|one| (one.id.to_string(), account_label(&chip(one)))),
            &filters.account,
        ),
        assignees: members::choices(visit, &members, "Anyone", &filters.assignee),
        tags: choices("All", tags.iter().map(|tag| (tag, tag)), &filters.tag),
        is_unread: filters.is_unread,
        is_filtered: filters.pairs().iter().any(|(name, value)| *name != "status" && !value.is_empty()),
        pages: lists::links(&path, &filters.pairs(), page, listed.data.len(), listed.meta.total),
        conversations: listed.data.into_iter().map(|one| row(visit, one, &chips, &names)).collect(),
        has_account: !readable.is_empty(),
        sync_account: match readable.as_slice() {
            [only] => Some(only.id),
            all => all.iter().map(|account| account.id).find(|id| id.to_string() == filters.account),
        },
        search: filters.search,
        shell,
    };
    visit.page(&view)
}

fn has_inbox(visit: &Visit, account: &SocialAccount) -> bool {
    visit.app.platforms.get(account.platform).is_some_and(|connector| connector.inbox().is_some())
}

/// Returns the choices of a filter. The first one has an empty value.
fn choices<V: AsRef<str>, L: AsRef<str>>(none: &str, all: impl Iterator<Item = (V, L)>, chosen: &str) -> Vec<Choice> {
    let all = all.map(|(value, label)| Choice::new(value.as_ref(), label.as_ref(), value.as_ref() == chosen));
    [Choice::new("", none, chosen.is_empty())].into_iter().chain(all).collect()
}

fn statuses(filters: &Filters, path: &str) -> Vec<Choice> {
    let all = ConversationStatus::ALL.iter().map(|one| (one.as_str(), status(*one).text));
    let tab =
        |(word, label): (&str, String)| Choice::new(&filters.with_status(path, word), &label, word == filters.status);
    [("", "All".to_owned())].into_iter().chain(all).map(tab).collect()
}

pub fn status(status: ConversationStatus) -> Badge {
    match status {
        ConversationStatus::Open => Badge::new(Tone::Info, "Open"),
        ConversationStatus::Assigned => Badge::new(Tone::Info, "Assigned"),
        ConversationStatus::Snoozed => Badge::new(Tone::Warn, "Snoozed"),
        ConversationStatus::Resolved => Badge::new(Tone::Good, "Resolved"),
        ConversationStatus::Spam => Badge::new(Tone::Plain, "Spam"),
    }
}

pub const fn kind(kind: ConversationType) -> &'static str {
    match kind {
        ConversationType::Dm => "Direct message",
        ConversationType::Comment => "Comment",
        ConversationType::Mention => "Mention",
    }
}

const fn kind_plural(kind: ConversationType) -> &'static str {
    match kind {
        ConversationType::Dm => "Direct messages",
        ConversationType::Comment => "Comments",
        ConversationType::Mention => "Mentions",
    }
}

fn account_label(chip: &AccountChip) -> String {
    format!("{} ({})", chip.name, chip.platform.name)
}

/// Returns the chip for an account that was disconnected.
pub fn disconnected_account(platform: PlatformKey) -> AccountChip {
    AccountChip { platform: Platform::of(platform.as_str()), name: "Disconnected account".to_owned() }
}

fn row(
    visit: &Visit,
    one: Conversation,
    chips: &HashMap<i64, AccountChip>,
    names: &HashMap<i64, &str>,
) -> ConversationRow {
    ConversationRow {
        id: one.id,
        participant: one.participant.label(),
        account: chips.get(&one.account_id).cloned().unwrap_or_else(|| disconnected_account(one.platform)),
        kind: kind(one.r#type),
        status: status(one.status),
        is_own: one.last_message_direction == Some(MessageDirection::Outbound),
        preview: one.last_message_preview,
        unread: one.unread_count,
        assignee: one.assignee_id.and_then(|id| names.get(&id)).map(|name| (*name).to_owned()),
        tags: one.tags,
        at: visit.time(one.last_message_at),
    }
}

/// Syncs an account immediately.
async fn sync(visit: &Visit) -> Result<PageReply> {
    let account = visit.form.get("account_id").parse().ok().filter(|id: &i64| *id > 0);
    let account = account.ok_or_else(|| ApiError::not_found("social account"))?;
    visit.api("syncSocialAccount").id("account", account).write("", &json!({})).await?;
    visit.to(&format!("inbox?account_id={account}"), "inbox-synced")
}
