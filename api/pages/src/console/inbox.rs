//! `/brands/{brand}/inbox`: the conversations of the brand, with filters.

use std::collections::HashMap;

use askama::Template;
use crier_domain::account::SocialAccount;
use crier_domain::conversation::{ConversationStatus, MAX_TAG, MessageDirection};
use crier_domain::platform::{ConversationType, Platform as PlatformKey};
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::routes::conversations::list::{ListConversations, MAX_SEARCH_CHARS};
use crier_endpoints::routes::conversations::{self, Conversation, Participant};
use crier_store::conversations::tags_of_brand;
use crier_store::{PageRequest, accounts, users};

use super::paging;
use super::post_rows::chip;
use super::route::PageRoute;
use super::shared::{AccountChip, Badge, Choice, Pages, Platform, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};
use super::{lists, members};

/// The maximum number of accounts and tags in the filters.
const MAX_CHOICES: i64 = 100;

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
    unread: i32,
    assignee: Option<String>,
    tags: Vec<String>,
    at: Time,
}

/// Returns the name of the other participant of a conversation.
pub fn participant_label(participant: &Participant) -> String {
    let names = [&participant.name, &participant.username].into_iter().flatten();
    names.map(String::as_str).find(|name| !name.trim().is_empty()).unwrap_or("Unknown").to_owned()
}

/// The filters in the query. Invalid values are ignored.
struct Filters {
    request: ListConversations,
    /// The IDs of the account and the assignee. Empty without such a filter.
    account: String,
    assignee: String,
}

impl Filters {
    fn read(visit: &Visit) -> Self {
        let get = |name| visit.query.get(name).unwrap_or_default();
        let id = |name| get(name).parse::<i64>().ok().filter(|id| *id > 0);
        let text = |name, max| {
            let text: String = get(name).trim().chars().filter(|c| *c != '\0').take(max).collect();
            Some(text).filter(|text| !text.is_empty())
        };
        let request = ListConversations {
            pages: paging::pages(paging::number(visit)),
            status: get("status").parse().ok(),
            r#type: get("type").parse().ok(),
            platform: get("platform").parse().ok(),
            search: text("search", MAX_SEARCH_CHARS),
            assignee_id: id("assignee_id"),
            tag: text("tag", MAX_TAG),
            account_id: id("account_id"),
            unread: (get("unread") == "true").then_some(true),
        };
        let word = |id: Option<i64>| id.map(|id| id.to_string()).unwrap_or_default();
        Self { account: word(request.account_id), assignee: word(request.assignee_id), request }
    }

    fn pairs(&self) -> [(&'static str, &str); 8] {
        let request = &self.request;
        [
            ("status", self.status()),
            ("type", request.r#type.map_or("", ConversationType::as_str)),
            ("platform", request.platform.map_or("", PlatformKey::as_str)),
            ("account_id", &self.account),
            ("assignee_id", &self.assignee),
            ("tag", request.tag.as_deref().unwrap_or_default()),
            ("unread", if request.unread.is_some() { "true" } else { "" }),
            ("search", request.search.as_deref().unwrap_or_default()),
        ]
    }

    fn status(&self) -> &'static str {
        self.request.status.map_or("", ConversationStatus::as_str)
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
    let filters = Filters::read(visit);
    let listed = visit.call().read(conversations::list::endpoint(), filters.request.clone()).await?;
    let mut conn = visit.app.store.read().await?;
    let request = PageRequest { page: 1, per_page: MAX_CHOICES };
    let connected = accounts::list(&mut conn, brand, request).await?.rows;
    let ids: Vec<i64> = listed.rows.iter().map(|conversation| conversation.fields.account_id).collect();
    let named = accounts::find_many(&mut conn, brand, &ids).await?;
    let members = users::members(&mut conn, brand).await?;
    let tags = tags_of_brand(&mut conn, brand, MAX_CHOICES).await?;
    drop(conn);
    let readable: Vec<SocialAccount> = connected.into_iter().filter(|account| has_inbox(visit, account)).collect();
    let chips: HashMap<i64, AccountChip> = named.iter().map(|account| (account.id, chip(account))).collect();
    let names: HashMap<i64, &str> = members.iter().map(|member| (member.id, member.name.as_str())).collect();
    let mut platforms: Vec<PlatformKey> = readable.iter().map(|account| account.platform).collect();
    platforms.sort_by_key(|platform| platform.as_str());
    platforms.dedup();
    let shell = visit.shell(Section::Inbox, "Inbox");
    let path = shell.at("inbox");
    let pairs = filters.pairs();
    let [_, kind, platform, account, assignee, tag, unread, search] = pairs.map(|(_, value)| value);
    let view = Inbox {
        statuses: statuses(&filters, &path),
        status: filters.status(),
        types: choices("All", ConversationType::ALL.iter().map(|one| (one.as_str(), kind_plural(*one))), kind),
        platforms: choices(
            "All",
            platforms.iter().map(|one| (one.as_str(), Platform::of(one.as_str()).name)),
            platform,
        ),
        accounts: choices("All", readable.iter().map(|one| (one.id.to_string(), account_label(&chip(one)))), account),
        assignees: members::choices(visit, &members, "Anyone", assignee),
        tags: choices("All", tags.iter().map(|tag| (tag, tag)), tag),
        is_unread: !unread.is_empty(),
        is_filtered: pairs.iter().any(|(name, value)| *name != "status" && !value.is_empty()),
        pages: lists::links(&path, &pairs, filters.request.pages.page, listed.rows.len(), listed.total),
        conversations: listed.rows.into_iter().map(|one| row(visit, one, &chips, &names)).collect(),
        has_account: !readable.is_empty(),
        sync_account: match readable.as_slice() {
            [only] => Some(only.id),
            all => all.iter().map(|account| account.id).find(|id| Some(*id) == filters.request.account_id),
        },
        search: search.to_owned(),
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
        |(word, label): (&str, String)| Choice::new(&filters.with_status(path, word), &label, word == filters.status());
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
    let Conversation { id, fields: one, .. } = one;
    ConversationRow {
        id,
        participant: participant_label(&one.participant),
        account: chips.get(&one.account_id).cloned().unwrap_or_else(|| disconnected_account(one.platform)),
        kind: kind(one.r#type),
        status: status(one.status),
        is_own: one.last_message_direction == Some(MessageDirection::Outbound),
        preview: one.last_message_preview,
        unread: one.unread_count,
        assignee: one.assignee_id.and_then(|id| names.get(&id)).map(|name| (*name).to_owned()),
        tags: one.tags,
        at: visit.time(one.last_message_at.0),
    }
}

/// Syncs an account immediately.
async fn sync(visit: &Visit) -> Result<PageReply> {
    let account = visit.form.get("account_id").parse().ok().filter(|id: &i64| *id > 0);
    let account = account.ok_or_else(|| ApiError::not_found("social account"))?;
    visit.call().id("account", account).write(conversations::sync::endpoint(), ()).await?;
    visit.to(&format!("inbox?account_id={account}"), "inbox-synced")
}
