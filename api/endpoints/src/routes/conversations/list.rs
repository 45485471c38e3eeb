//! `GET /brands/{brand}/conversations`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::conversation::{ConversationStatus, MAX_TAG};
use crier_domain::platform::{ConversationType, Platform};
use crier_domain::words;
use crier_store::Conn;
use crier_store::conversations::list::{ConversationFilter, list};

use super::{Conversation, FEATURES, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, Result};
use crate::request::{Pages, Parsed, Request};
use crate::response::{Listed, Paged, Reply};

/// The maximum length of a search text, in characters.
pub const MAX_SEARCH_CHARS: usize = 200;

/// The conversations to list.
#[derive(Clone, Debug, Default, Request)]
pub struct ListConversations {
    #[field(flatten)]
    pub pages: Pages,
    /// Only conversations with this status.
    #[field(enum_value())]
    pub status: Option<ConversationStatus>,
    /// Only conversations of this type.
    #[field(enum_value())]
    pub r#type: Option<ConversationType>,
    /// Only conversations on this platform.
    #[field(enum_value())]
    pub platform: Option<Platform>,
    /// Only conversations that contain these words. Maximum: 200 characters.
    #[field(text(0..=MAX_SEARCH_CHARS))]
    pub search: Option<String>,
    /// Only conversations assigned to this user.
    #[field(id(), extension)]
    pub assignee_id: Option<i64>,
    /// Only conversations with this tag.
    #[field(text(0..=MAX_TAG), extension)]
    pub tag: Option<String>,
    /// Only conversations of this account.
    #[field(id(), extension)]
    pub account_id: Option<i64>,
    /// Only conversations with (true) or without (false) unread messages.
    #[field(flag(), extension)]
    pub unread: Option<bool>,
}

pub fn endpoint() -> Endpoint<ListConversations, Paged<Conversation>> {
    Endpoint::get("/brands/{brand}/conversations", "listConversations", Scope::InboxRead)
        .tag(TAG)
        .summary("List a brand's conversations, newest message first")
        .description(
            "`search` returns conversations that contain all search words in the participant's name or in the messages. A \
             search word matches the beginning of a word, ignoring case and accents. In scripts without spaces, it matches \
             any part of the text. Only the first eight search words are used.",
        )
        .features(FEATURES)
        .error_codes(&[ErrorCode::ValidationFailed])
        .checks_then_reads(conversations)
}

/// Returns a text without the spaces around it, unless nothing remains.
pub fn trimmed(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

async fn conversations(
    cx: &Context,
    conn: &mut Conn,
    parsed: Arc<Parsed<ListConversations>>,
) -> Result<Reply<Listed<Conversation>>> {
    let request = parsed.valid()?;
    let page = request.pages.request();
    let mut filter = ConversationFilter {
        status: request.status,
        kind: request.r#type,
        platform: request.platform,
        account_id: request.account_id,
        assignee_id: request.assignee_id,
        unread: request.unread,
        tag: trimmed(request.tag.as_deref()).map(str::to_owned),
        words: Vec::new(),
    };
    if let Some(search) = trimmed(request.search.as_deref()) {
        filter.words = words::search_terms(search);
        if filter.words.is_empty() {
            return Ok(Listed { page, rows: Vec::new(), total: 0 }.into());
        }
    }
    let found = list(conn, cx.brand()?.id, &filter, page).await?;
    let rows = Conversation::load(cx, conn, found.rows).await?;
    Ok(Listed { page, rows, total: found.total }.into())
}
