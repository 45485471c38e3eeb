//! `/brands/{brand}/queue`: the slots of the week, and the posts that wait in the queue.
//!
//! The grid has the full hours for every account. All other slots are in a list below it. Both are check boxes of one
//! form, whose values are slots: `WEEKDAY-HH:MM` or `WEEKDAY-HH:MM-ACCOUNT,ACCOUNT`. The field `_action` is `save`, `add`
//! (with a new slot) or `best` (with the brand's best times). The script paints several hours, moves the focus between
//! them with the arrow keys, and moves posts by dragging.

use std::collections::HashMap;

use askama::Template;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::response::Timestamp;
use crier_endpoints::routes::analytics::{RequestedAccount, best_times as best_times_endpoint};
use crier_endpoints::routes::queue::move_post::{self, QueueMove};
use crier_endpoints::routes::queue::{SlotBody, show as show_endpoint, update as update_endpoint};
use crier_store::{PageRequest, accounts, posts};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::best_times::{WEEKDAYS, best_hours};
use super::form::Form;
use super::lists;
use super::paging::PER_PAGE;
use super::post_rows::{self, chip};
use super::route::{Access, PageRoute};
use super::shared::{Choice, FieldErrors, Pages, PostRow};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

/// The maximum number of accounts to choose from.
const MAX_CHOICES: i64 = 100;
/// The maximum number of slots that the form reads, one more than the API accepts.
const MAX_READ: usize = 201;
const CHANGED: &str = "The slots were changed after you opened this page. To see the changes, open the queue in another \
     tab. If you submit this form again, it replaces them.";

#[derive(Template)]
#[template(path = "console/queue.html")]
struct QueuePage {
    shell: Shell,
    errors: FieldErrors,
    can_change: bool,
    hours: Vec<HourRow>,
    /// The slots that the grid does not have.
    others: Vec<Choice>,
    weekdays: Vec<Choice>,
    time: String,
    accounts: Vec<Choice>,
    /// Whether the brand's best times are known.
    has_best: bool,
    posts: Vec<QueueRow>,
    pages: Pages,
    /// The post after those of the page. Empty if there is none.
    after: String,
    /// The version of the slots that the page shows ([`Form::seen`]).
    seen: String,
}

/// An hour of the day.
struct HourRow {
    label: String,
    /// Monday to Sunday.
    days: Vec<Choice>,
}

struct QueueRow {
    row: PostRow,
    /// The values of the buttons, `POST:BEFORE`. Empty if the post cannot move in this direction.
    up: String,
    down: String,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/queue", show),
        PageRoute::post("/brands/{brand}/queue", update).access(Access::Publisher),
        PageRoute::post("/brands/{brand}/queue/move", move_queued).access(Access::Publisher),
    ]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    render(visit, StatusCode::OK, FieldErrors::default(), None).await
}

/// `seen`: the version of the slots that the user saw, if the form does not replace the current one.
async fn render(visit: &Visit, status: StatusCode, errors: FieldErrors, seen: Option<&str>) -> Result<PageReply> {
    let queue = visit.call().read(show_endpoint::endpoint(), ()).await?;
    let best = best(visit).await?;
    let brand = visit.brand()?.0.id;
    let shell = visit.shell(Section::Calendar, "Queue");
    let mut conn = visit.app.store.read().await?;
    let request = PageRequest { page: 1, per_page: MAX_CHOICES };
    let own: Vec<(i64, String)> =
        accounts::list(&mut conn, brand, request).await?.rows.iter().map(|own| (own.id, chip(own).name)).collect();
    let ids: Vec<i64> = queue.posts.iter().map(|post| post.id).collect();
    let (shown, pages) = lists::paginate(visit, &shell.at("queue"), ids.clone());
    let found = posts::find_each(&mut conn, brand, &shown).await?;
    let rows = post_rows::rows(visit, &mut conn, found).await?;
    drop(conn);
    let form = &visit.form;
    let slots = if form.has("_action") { submitted_slots(form) } else { queue.slots.iter().map(value_of).collect() };
    let chosen = form.ids("accounts");
    let page = QueuePage {
        can_change: visit.can_publish(),
        hours: (0..24).map(|hour| HourRow::new(hour, &slots)).collect(),
        others: others(&slots, &own),
        weekdays: weekdays(form.get("weekday")),
        time: form.get("time").to_owned(),
        accounts: own.iter().map(|(id, name)| Choice::new(&id.to_string(), name, chosen.contains(id))).collect(),
        has_best: !best.is_empty(),
        after: following(&ids, shown.last()).map_or_else(String::new, |id| id.to_string()),
        posts: rows.into_iter().map(|row| QueueRow::new(row, &ids)).collect(),
        pages,
        seen: seen.map_or_else(|| version(queue.updated_at), str::to_owned),
        errors,
        shell,
    };
    visit.page_with(status, &page)
}

/// Returns the version of the slots for the form. 0 if the brand never had slots.
fn version(updated_at: Option<Timestamp>) -> String {
    updated_at.map_or(0, |at| at.0.timestamp_micros()).to_string()
}

/// Returns the brand's best times as values of slots. Empty if they are not known, or the plan has no analytics.
async fn best(visit: &Visit) -> Result<Vec<String>> {
    let times = visit.call().read(best_times_endpoint::endpoint(), RequestedAccount::default()).await;
    match times {
        Ok(times) => Ok(best_hours(&times).map(|(weekday, hour)| format!("{weekday}-{hour:02}:00")).collect()),
        Err(error) if error.code.status().is_client_error() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns the value of a slot in the form.
fn value_of(slot: &SlotBody) -> String {
    let base = format!("{}-{}", slot.weekday, slot.time);
    match &slot.account_ids {
        None => base,
        Some(ids) => format!("{base}-{}", ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",")),
    }
}

fn submitted_slots(form: &Form) -> Vec<String> {
    form.all("slots").take(MAX_READ).map(str::to_owned).collect()
}

/// Returns a slot of the request for its value in the form.
fn slot_of(value: &str) -> Value {
    let mut parts = value.splitn(3, '-');
    let weekday = parts.next().and_then(|day| day.parse::<i64>().ok());
    let time = parts.next().unwrap_or_default();
    let ids = parts.next().map(|ids| ids.split(',').filter_map(|id| id.parse().ok()).collect::<Vec<i64>>());
    json!({ "weekday": weekday, "time": time, "account_ids": ids })
}

impl HourRow {
    fn new(hour: u32, slots: &[String]) -> Self {
        let label = format!("{hour:02}:00");
        let day = |(number, name): (usize, &&str)| {
            let value = format!("{number}-{label}");
            Choice::new(&value, &format!("{name} {label}"), slots.contains(&value))
        };
        Self { days: (1..).zip(&WEEKDAYS).map(day).collect(), label }
    }
}

impl QueueRow {
    /// `ids`: all posts of the queue, in order.
    fn new(row: PostRow, ids: &[i64]) -> Self {
        let position = ids.iter().position(|id| *id == row.id).unwrap_or_default();
        let before = position.checked_sub(1).and_then(|position| ids.get(position));
        let is_last = position + 1 >= ids.len();
        let after = ids.get(position + 2).map_or_else(String::new, |id| id.to_string());
        Self {
            up: before.map_or_else(String::new, |before| format!("{}:{before}", row.id)),
            down: if is_last { String::new() } else { format!("{}:{after}", row.id) },
            row,
        }
    }
}

/// Returns the post that follows another one.
fn following(ids: &[i64], last: Option<&i64>) -> Option<i64> {
    let position = ids.iter().position(|id| Some(id) == last)?;
    ids.get(position + 1).copied()
}

fn weekdays(chosen: &str) -> Vec<Choice> {
    let choice = |(number, name): (usize, &&str)| {
        let number = number.to_string();
        Choice::new(&number, name, number == chosen)
    };
    (1..).zip(&WEEKDAYS).map(choice).collect()
}

/// Returns the slots that the grid does not have, with their accounts by name.
fn others(slots: &[String], own: &[(i64, String)]) -> Vec<Choice> {
    let names: HashMap<String, &str> = own.iter().map(|(id, name)| (id.to_string(), name.as_str())).collect();
    let other = |value: &String| {
        let mut parts = value.splitn(3, '-');
        let weekday = parts.next().and_then(|day| day.parse::<usize>().ok())?;
        let (time, ids) = (parts.next()?, parts.next());
        if ids.is_none() && time.ends_with(":00") {
            return None;
        }
        let day = WEEKDAYS.get(weekday.checked_sub(1)?)?;
        let of = |id: &str| names.get(id).map_or_else(|| format!("account {id}"), |name| (*name).to_owned());
        let accounts =
            ids.map_or_else(|| "all accounts".to_owned(), |ids| ids.split(',').map(of).collect::<Vec<_>>().join(", "));
        Some(Choice::new(value, &format!("{day} {time}, {accounts}"), true))
    };
    slots.iter().filter_map(other).collect()
}

async fn update(visit: &Visit) -> Result<PageReply> {
    let form = &visit.form;
    let mut slots = submitted_slots(form);
    let added = slots.len();
    let time = form.get("time").trim();
    match form.get("_action") {
        // Enter in the field of the time presses the first button, which saves. The new slot is not lost.
        action if action == "add" || (action == "save" && !time.is_empty()) => {
            let ids = form.ids("accounts").iter().map(i64::to_string).collect::<Vec<_>>().join(",");
            let base = format!("{}-{time}", form.get("weekday"));
            slots.push(if ids.is_empty() { base } else { format!("{base}-{ids}") });
        }
        "best" => slots.extend(best(visit).await?.into_iter().filter(|slot| !form.all("slots").any(|own| own == slot))),
        _ => {}
    }
    let slots: Vec<Value> = slots.iter().map(|value| slot_of(value)).collect();
    let body = Map::from_iter([("slots".to_owned(), Value::from(slots))]);
    let error = match visit.call().version(form.seen()).write(update_endpoint::endpoint(), visit.parse(&body)).await {
        Ok(_) => return visit.to("queue", "queue-saved"),
        Err(error) => error,
    };
    let (errors, seen) = match error.code {
        ErrorCode::PostNotEditable => (FieldErrors::general(CHANGED), None),
        // The form itself made the last change, with other slots.
        ErrorCode::IdempotencyKeyReused => (form_errors(error)?, None),
        _ => (form_errors(at_fields(error, added))?, Some(form.get("seen"))),
    };
    render(visit, StatusCode::UNPROCESSABLE_ENTITY, errors, seen).await
}

/// Names the problems of the added slot by the fields in which it was entered, because it has no box.
fn at_fields(error: ApiError, added: usize) -> ApiError {
    let slot = format!("slots.{added}.");
    let at_field = |path: &str| Some(path.strip_prefix(slot.as_str())?.to_owned());
    let fields = error.fields.into_iter().map(|(path, problems)| (at_field(&path).unwrap_or(path), problems)).collect();
    ApiError { fields, ..error }
}

async fn move_queued(visit: &Visit) -> Result<PageReply> {
    let (post_id, before) = visit.form.get("move").split_once(':').unwrap_or_default();
    let post_id = post_id.parse().unwrap_or_default();
    let request = QueueMove { post_id, before: before.parse().ok() };
    match visit.call().write(move_post::endpoint(), request).await {
        Ok(_) => visit.to(&place_of(visit, post_id).await?, "queue-moved"),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?, None).await,
    }
}

/// Returns the page of the queue that shows a post. The focus is on the post, which may be moved again.
async fn place_of(visit: &Visit, post_id: i64) -> Result<String> {
    let queue = visit.call().read(show_endpoint::endpoint(), ()).await?;
    let position = (0_i64..).zip(&queue.posts).find(|(_, post)| post.id == post_id).map_or(0, |(position, _)| position);
    Ok(format!("queue?page={}#post-{post_id}", position / PER_PAGE + 1))
}
