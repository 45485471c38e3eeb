//! `GET /brands/{brand}/conversations`

use std::str::FromStr;

use crier_domain::access::Scope;
use crier_domain::conversation::{ConversationStatus, MAX_TAG};
use crier_domain::platform::{ConversationType, Platform};
use crier_domain::words;
use crier_store::conversations::list::{ConversationFilter, list};
use crier_store::{Conn, Page};

use super::{Conversation, FEATURES, TAG};
use crate::context::{Context, Query};
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, FieldProblems, Result};
use crate::openapi::schema::TextEnum;
use crate::pagination;
use crate::response::{Listed, Paged, Reply};

/// The maximum length of a search text, in characters.
const MAX_SEARCH_CHARS: usize = 200;

pub fn endpoint() -> Endpoint<QUERY, Paged<Conversation>> {
    Endpoint::get("/brands/{brand}/conversations", "listConversations", Scope::InboxRead)
        .tag(TAG)
        .summary("List a brand's conversations, newest message first")
        .description(
            "`search` returns conversations that contain all search words in the participant's name or in the messages. A \
             search word matches the beginning of a word, ignoring case and accents. In scripts without spaces, it matches \
             any part of the text. Only the first eight search words are used.",
        )
        .features(FEATURES)
        .pages()
        .query::<TextEnum<ConversationStatus>>("status", "Only conversations with this status.")
        .query::<TextEnum<ConversationType>>("type", "Only conversations of this type.")
        .query::<TextEnum<Platform>>("platform", "Only conversations on this platform.")
        .query::<String>("search", "Only conversations that contain these words. Maximum: 200 characters.")
        .extension_query::<i64>("assignee_id", "Only conversations assigned to this user.")
        .extension_query::<String>("tag", "Only conversations with this tag.")
        .extension_query::<i64>("account_id", "Only conversations of this account.")
        .extension_query::<bool>("unread", "Only conversations with (true) or without (false) unread messages.")
        .error_codes(&[ErrorCode::ValidationFailed])
        .reads(conversations)
}

/// Parses a parameter. Adds a problem if it does not have the form that `form` describes.
fn param<T: FromStr>(query: &Query, name: &str, form: &str, problems: &mut FieldProblems) -> Option<T> {
    let parsed = query.get(name)?.parse().ok();
    if parsed.is_none() {
        problems.insert(name.to_owned(), vec![format!("Must be {form}.")]);
    }
    parsed
}

fn text(query: &Query, name: &str, max: usize, problems: &mut FieldProblems) -> Option<String> {
    let text = query.get(name)?;
    if text.contains('\0') || text.chars().count() > max {
        problems.insert(name.to_owned(), vec![format!("Must have at most {max} characters and no NUL character.")]);
        return None;
    }
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

async fn conversations(cx: &Context, conn: &mut Conn) -> Result<Reply<Listed<Conversation>>> {
    let (query, mut problems) = (&cx.query, cx.name_problems());
    let page = pagination::requested_page(query, &mut problems);
    let mut filter = ConversationFilter {
        status: pagination::enum_param(query, "status", &mut problems),
        kind: pagination::enum_param(query, "type", &mut problems),
        platform: pagination::enum_param(query, "platform", &mut problems),
        account_id: param(query, "account_id", "an ID", &mut problems),
        assignee_id: param(query, "assignee_id", "an ID", &mut problems),
        unread: param(query, "unread", "true or false", &mut problems),
        tag: text(query, "tag", MAX_TAG, &mut problems),
        words: Vec::new(),
    };
    let search = text(query, "search", MAX_SEARCH_CHARS, &mut problems);
    if !problems.is_empty() {
        return Err(ApiError::validation(problems));
    }
    if let Some(search) = search {
        filter.words = words::search_terms(&search);
        if filter.words.is_empty() {
            return pagination::respond(cx, page, Page { rows: Vec::<Conversation>::new(), total: 0 });
        }
    }
    let found = list(conn, cx.brand()?.id, &filter, page).await?;
    let rows = Conversation::load(cx, conn, found.rows).await?;
    pagination::respond(cx, page, Page { rows, total: found.total })
}
