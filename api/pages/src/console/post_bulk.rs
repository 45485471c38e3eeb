//! `/brands/{brand}/posts/bulk`: an action on the selected posts of the list. The query is that of the list.
//!
//! The buttons of the form set the field `action`: an action of the endpoint, or `later` or `earlier`, which move the
//! posts by `amount` and `unit`. `all` selects all posts on the page (`shown`) instead of those in `ids`.
//! `shown` also has the versions of the posts: an action that decides what becomes public rejects posts that were changed
//! after the page was opened.

use std::collections::HashMap;

use crier_endpoints::error::Result;
use crier_endpoints::openapi::Error;
use crier_endpoints::response::Timestamp;
use crier_endpoints::routes::posts::bulk::{self, BulkChange};
use crier_endpoints::runner::call::Written;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::form::Form;
use super::post_list_filter::ListFilter;
use super::posts::{Selection, show};
use super::route::PageRoute;
use super::visit::{PageReply, Visit, form_errors};
use super::wording::in_quotes;

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::post("/brands/{brand}/posts/bulk", change)]
}

/// Changes the posts. If all were changed, shows the list with a message; otherwise with the reasons, and the other
/// posts stay selected.
async fn change(visit: &Visit) -> Result<PageReply> {
    let ids = selected(&visit.form);
    let request = visit.parse::<BulkChange>(&request(&visit.form, &ids));
    let written = visit.call().versions(versions(&visit.form, &ids)).write(bulk::endpoint(), request).await;
    let results = match written.and_then(Written::into_value) {
        Ok(results) => results,
        Err(error) => {
            let status = error.code.status();
            let errors = form_errors(error)?;
            return show(visit, status, Selection { ids, errors, ..Selection::default() }).await;
        }
    };
    let unchanged = results.iter().filter_map(|result| Some((result.id, reason(result.error.as_ref()?))));
    let unchanged: Vec<(i64, String)> = unchanged.collect();
    if unchanged.is_empty() {
        let filter = ListFilter::load(visit).await?;
        return visit.to(&filter.address("posts"), flash_key(visit.form.get("action")));
    }
    let selection = Selection {
        ids: unchanged.iter().map(|(id, _)| *id).collect(),
        changed: results.len() - unchanged.len(),
        unchanged,
        ..Selection::default()
    };
    show(visit, StatusCode::OK, selection).await
}

fn selected(form: &Form) -> Vec<i64> {
    if form.has("all") {
        return form.shown().map(|(id, _)| id).collect();
    }
    form.ids("ids")
}

/// Returns the versions that the posts must have: those on the page, for actions that decide what becomes public.
fn versions(form: &Form, ids: &[i64]) -> HashMap<i64, Timestamp> {
    if !matches!(form.get("action"), "schedule" | "approve" | "reject") {
        return HashMap::new();
    }
    let shown: HashMap<i64, Timestamp> = form.shown().collect();
    ids.iter().map(|id| (*id, shown.get(id).copied().unwrap_or_default())).collect()
}

/// Returns the request, with the fields that the action has.
fn request(form: &Form, ids: &[i64]) -> Map<String, Value> {
    let word = form.get("action");
    let mut request = Map::new();
    match word {
        "schedule" => request.extend(form.texts(&["scheduled_at"])),
        "later" | "earlier" => _ = request.insert("shift_minutes".to_owned(), minutes(form, word == "earlier")),
        "label" | "unlabel" => request.extend(form.texts(&["label"])),
        _ => {}
    }
    let action = if request.contains_key("shift_minutes") { "shift" } else { word };
    request.insert("action".to_owned(), json!(action));
    request.insert("ids".to_owned(), json!(ids));
    request
}

/// Returns the number of minutes. Another text is returned as it is, and null if there is none, so that the endpoint
/// rejects it.
fn minutes(form: &Form, is_earlier: bool) -> Value {
    let unit = match form.get("unit") {
        "days" => 24 * 60,
        "hours" => 60,
        _ => 1,
    };
    let Some(typed) = form.text("amount") else { return Value::Null };
    let amount = typed.parse::<i64>().ok().filter(|amount| *amount > 0);
    match amount.and_then(|amount| amount.checked_mul(unit)) {
        Some(minutes) => Value::from(if is_earlier { -minutes } else { minutes }),
        None => Value::from(typed),
    }
}

/// Returns why a post was not changed.
fn reason(error: &Error) -> String {
    let problems: Vec<String> = error.fields.values().flatten().map(|problem| in_quotes(problem)).collect();
    if problems.is_empty() { in_quotes(&error.message) } else { problems.join(" ") }
}

/// Returns the key of the message after an action ([`super::flash`]).
fn flash_key(action: &str) -> &'static str {
    match action {
        "delete" => "posts-deleted",
        "draft" => "posts-unscheduled",
        "submit" => "posts-submitted",
        "approve" => "posts-approved",
        "reject" => "posts-rejected",
        "schedule" => "posts-scheduled",
        "label" => "posts-labeled",
        "unlabel" => "posts-unlabeled",
        _ => "posts-moved",
    }
}
