//! `/brands/{brand}/developers/requests`: the latest write requests of the user's API keys.

use askama::Template;
use crier_endpoints::error::Result;
use crier_store::{PageRequest, idempotency, keys};

use super::developers::tabs;
use super::keys::called;
use super::lists;
use super::paging;
use super::route::PageRoute;
use super::shared::{Choice, Pages, Time};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};
use crate::numbers::counted;

/// The maximum number of keys in the filter, newest first.
const MAX_KEYS: usize = 100;

#[derive(Template)]
#[template(path = "console/requests.html")]
struct Requests {
    shell: Shell,
    keys: Vec<Choice>,
    is_filtered: bool,
    rows: Vec<RequestRow>,
    pages: Pages,
    /// The retention of the requests: "24 hours".
    kept: String,
}

struct RequestRow {
    at: Time,
    /// The method and path. A dash if they were not stored.
    line: String,
    status: i32,
    key: String,
    idempotency_key: String,
}

impl RequestRow {
    const fn tone(&self) -> &'static str {
        match self.status {
            200..=299 => "good",
            400..=499 => "warn",
            500.. => "bad",
            _ => "plain",
        }
    }
}

impl Requests {
    fn tabs(&self) -> Vec<Choice> {
        tabs(&self.shell, "requests")
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/brands/{brand}/developers/requests", list)]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let (page, user) = (paging::number(visit), visit.user_id());
    let filter = visit.query.get("key").unwrap_or_default();
    // An invalid ID matches no key.
    let key_id =
        Some(filter).filter(|text| !text.is_empty()).map(|text| text.parse().ok().filter(|id| *id > 0).unwrap_or(-1));
    let mut conn = visit.app.store.read().await?;
    let request = PageRequest { page, per_page: paging::PER_PAGE };
    let found = idempotency::list(&mut conn, user, key_id, request, visit.now).await?;
    let all = keys::list(&mut conn, Some(user)).await?;
    let choice = |key: &keys::KeyRow| {
        let id = key.id.to_string();
        Choice::new(&id, &called(key.name.as_deref(), &key.prefix, &key.last4), id == filter)
    };
    let row = |write: idempotency::WriteRow| RequestRow {
        at: visit.time(write.created_at),
        line: match (write.method, write.path) {
            (Some(method), Some(path)) => format!("{method} {path}"),
            _ => "—".to_owned(),
        },
        status: write.status,
        key: called(write.name.as_deref(), &write.prefix, &write.last4),
        idempotency_key: write.key,
    };
    let shell = visit.shell(Section::Developers, "Requests");
    let view = Requests {
        keys: [Choice::new("", "All", filter.is_empty())]
            .into_iter()
            .chain(all.iter().rev().take(MAX_KEYS).map(choice))
            .collect(),
        is_filtered: !filter.is_empty(),
        pages: lists::links(&shell.at("developers/requests"), &[("key", filter)], page, found.rows.len(), found.total),
        rows: found.rows.into_iter().map(row).collect(),
        kept: counted(idempotency::RETENTION.num_hours(), "hour", "hours"),
        shell,
    };
    visit.page(&view)
}
