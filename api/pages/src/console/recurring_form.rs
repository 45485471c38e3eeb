//! `/brands/{brand}/recurring/new` and `/brands/{brand}/recurring/{recurring}`: the form of a rule for recurring posts.

use askama::Template;
use chrono::{DateTime, Utc};
use crier_domain::account::{AccountStatus, SocialAccount};
use crier_domain::content_plan::Destination;
use crier_domain::plan::Feature;
use crier_domain::recurrence::Frequency;
use crier_domain::recurring_post::{MAX_VARIATIONS, OccurrencePlan};
use crier_domain::report_schedule::local_day;
use crier_endpoints::admission;
use crier_endpoints::error::{ErrorCode, Result};
use crier_endpoints::routes::recurring_posts::{self, RecurringPost};
use crier_store::{Conn, recurring_occurrences, recurring_posts as rules};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::account_choices;
use super::form::Form;
use super::post_rows::{beginning, chip};
use super::recurring::WEEKDAYS;
use super::route::PageRoute;
use super::shared::{Choice, FieldErrors, Time};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};
use super::wording::in_quotes;

const DELETED: &str = "The recurring post was deleted after you opened this form. To keep it, save this form as a new \
     recurring post.";
/// The minimum number of texts that the form has room for.
const MIN_TEXTS: usize = 3;
/// The maximum length of the text of a next post, in characters.
const MAX_TEXT_SHOWN: usize = 60;

#[derive(Template)]
#[template(path = "console/recurring_form.html")]
struct RecurringForm {
    shell: Shell,
    errors: FieldErrors,
    /// `None` for a new rule.
    id: Option<i64>,
    values: RuleValues,
    frequencies: Vec<Choice>,
    weekdays: Vec<Choice>,
    destinations: Vec<Choice>,
    accounts: Vec<Choice>,
    next: Vec<NextPost>,
    problem: Option<String>,
}

/// A post that the rule creates, or has created ahead.
struct NextPost {
    at: Time,
    /// The beginning of the text that it gets.
    text: String,
}

/// The values of the form: as submitted, else as stored.
struct RuleValues {
    name: String,
    texts: Vec<RuleText>,
    accounts: Vec<i64>,
    labels: String,
    frequency: String,
    weekdays: Vec<i64>,
    day: String,
    cron: String,
    time: String,
    starts_on: String,
    ends_on: String,
    count: String,
    destination: String,
    is_active: bool,
}

/// A text of the rule. The form keeps its images.
struct RuleText {
    path: String,
    label: String,
    content: String,
    /// The ids of its images, with commas.
    media: String,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/recurring/new", new),
        PageRoute::post("/brands/{brand}/recurring/new", create),
        PageRoute::get("/brands/{brand}/recurring/{recurring}", show),
        PageRoute::post("/brands/{brand}/recurring/{recurring}", update),
        PageRoute::post("/brands/{brand}/recurring/{recurring}/delete", delete),
    ]
}

async fn new(visit: &Visit) -> Result<PageReply> {
    let today = local_day(visit.now, visit.zone());
    let destination = if visit.can_publish() { Destination::Calendar } else { Destination::Draft };
    let values = RuleValues {
        name: String::new(),
        texts: texts(Vec::new()),
        accounts: Vec::new(),
        labels: String::new(),
        frequency: Frequency::Weekly.to_string(),
        weekdays: Vec::new(),
        day: String::new(),
        cron: String::new(),
        time: "09:00".to_owned(),
        starts_on: today.to_string(),
        ends_on: String::new(),
        count: String::new(),
        destination: destination.to_string(),
        is_active: true,
    };
    render(visit, StatusCode::OK, None, values, FieldErrors::default()).await
}

async fn show(visit: &Visit) -> Result<PageReply> {
    let rule = visit.call().read(recurring_posts::show::endpoint(), ()).await?;
    let values = RuleValues::stored(&rule);
    render(visit, StatusCode::OK, Some(rule), values, FieldErrors::default()).await
}

async fn render(
    visit: &Visit,
    status: StatusCode,
    rule: Option<RecurringPost>,
    values: RuleValues,
    errors: FieldErrors,
) -> Result<PageReply> {
    let title = rule.as_ref().map_or_else(|| "New recurring post".to_owned(), |rule| rule.name.clone());
    let mut conn = visit.app.store.read().await?;
    let found = account_choices::load(visit, &mut conn, &values.accounts).await?;
    let accounts = found.iter().map(|account| choice(account, &values.accounts)).collect();
    let next = match &rule {
        Some(rule) => next_posts(visit, &mut conn, rule).await?,
        None => Vec::new(),
    };
    drop(conn);
    let view = RecurringForm {
        shell: visit.shell(Section::Posts, title),
        errors,
        id: rule.as_ref().map(|rule| rule.id),
        frequencies: frequencies(&values.frequency),
        weekdays: (1..).zip(WEEKDAYS).map(|(day, name)| weekday(day, name, &values.weekdays)).collect(),
        destinations: destinations(visit, &values.destination)?,
        accounts,
        next,
        problem: rule.and_then(|rule| rule.problem.as_deref().map(in_quotes)),
        values,
    };
    visit.page_with(status, &view)
}

/// Returns the next posts of a rule, each with its text.
async fn next_posts(visit: &Visit, conn: &mut Conn, rule: &RecurringPost) -> Result<Vec<NextPost>> {
    let times: Vec<DateTime<Utc>> = rule.next_occurrences.iter().map(|at| at.0).collect();
    let Some(stored) = rules::find(conn, visit.brand()?.0.id, rule.id).await? else { return Ok(Vec::new()) };
    let occurrences = recurring_occurrences::since(conn, rule.id, OccurrencePlan::since(visit.now)).await?;
    let numbers = stored.numbers(visit.zone(), &occurrences, visit.now, &times);
    let next = |(at, number): (DateTime<Utc>, i64)| {
        let text = stored.variation(number).map(|variation| beginning(&variation.content, MAX_TEXT_SHOWN));
        let text = text.filter(|text| !text.is_empty()).unwrap_or_else(|| "No text".to_owned());
        NextPost { at: visit.time(at), text }
    };
    Ok(times.into_iter().zip(numbers).map(next).collect())
}

fn frequencies(chosen: &str) -> Vec<Choice> {
    let label = |one: Frequency| match one {
        Frequency::Daily => "Every day",
        Frequency::Weekly => "Every week",
        Frequency::Monthly => "Every month",
        Frequency::Cron => "Custom schedule",
    };
    Frequency::ALL.iter().map(|one| Choice::new(one.as_str(), label(*one), one.as_str() == chosen)).collect()
}

fn weekday(day: i64, name: &str, chosen: &[i64]) -> Choice {
    Choice::new(&day.to_string(), name, chosen.contains(&day))
}

fn choice(account: &SocialAccount, chosen: &[i64]) -> Choice {
    let shown = chip(account);
    let expired = if account.status == AccountStatus::Expired { " Expired. Reconnect it to publish." } else { "" };
    let hint = format!("{}.{expired}", shown.platform.name);
    Choice { hint, ..Choice::new(&account.id.to_string(), &shown.name, chosen.contains(&account.id)) }
}

/// Returns the choices of what each post becomes.
fn destinations(visit: &Visit, chosen: &str) -> Result<Vec<Choice>> {
    let has_approvals = admission::plan(&visit.app, &visit.authenticated.caller)?.has(Feature::Approvals);
    let label = |one: Destination| match one {
        Destination::Calendar => "Scheduled posts",
        Destination::Draft => "Drafts",
        Destination::Approval => "Posts pending approval",
    };
    let is_offered = |one: &&Destination| match one {
        Destination::Calendar => visit.can_publish(),
        Destination::Draft => true,
        Destination::Approval => has_approvals,
    };
    let offered = Destination::ALL.iter().filter(is_offered);
    Ok(offered.map(|one| Choice::new(one.as_str(), label(*one), one.as_str() == chosen)).collect())
}

/// Returns the fields of texts, with room for one more.
fn texts(stored: Vec<(String, String)>) -> Vec<RuleText> {
    let count = (stored.len() + 1).clamp(MIN_TEXTS, MAX_VARIATIONS.max(stored.len()));
    let mut stored = stored.into_iter();
    let text = |n: usize| {
        let (content, media) = stored.next().unwrap_or_default();
        RuleText { path: format!("variations.{n}.content"), label: format!("Text {}", n + 1), content, media }
    };
    (0..count).map(text).collect()
}

/// Returns the texts in a form that are not empty, each with its images.
fn submitted_texts(form: &Form) -> Vec<(String, String)> {
    let all = form.all("text").zip(form.all("images"));
    let all = all.map(|(content, media)| (content.to_owned(), media.to_owned()));
    all.filter(|(content, media)| !content.trim().is_empty() || !media.is_empty()).collect()
}

/// Returns the ids in a list with commas.
fn ids(list: &str) -> Vec<i64> {
    list.split(',').filter_map(|id| id.parse().ok()).collect()
}

impl RuleValues {
    fn stored(rule: &RecurringPost) -> Self {
        let media = |ids: &[i64]| ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let number = |value: Option<i64>| value.map_or_else(String::new, |value| value.to_string());
        let stored = rule.variations.iter().map(|one| (one.content.clone(), media(&one.media)));
        Self {
            name: rule.name.clone(),
            texts: texts(stored.collect()),
            accounts: rule.accounts.clone(),
            labels: rule.labels.join(", "),
            frequency: rule.frequency.to_string(),
            weekdays: rule.weekdays.clone(),
            day: number(rule.day),
            cron: rule.cron.clone().unwrap_or_default(),
            time: rule.time.clone().unwrap_or_default(),
            starts_on: rule.starts_on.to_string(),
            ends_on: rule.ends_on.map_or_else(String::new, |day| day.to_string()),
            count: number(rule.count),
            destination: rule.destination.to_string(),
            is_active: rule.is_active,
        }
    }

    fn submitted(form: &Form) -> Self {
        let text = |name: &str| form.get(name).to_owned();
        Self {
            name: text("name"),
            texts: texts(submitted_texts(form)),
            accounts: form.ids("accounts"),
            labels: text("labels"),
            frequency: text("frequency"),
            weekdays: form.ids("weekdays"),
            day: text("day"),
            cron: text("cron"),
            time: text("time"),
            starts_on: text("starts_on"),
            ends_on: text("ends_on"),
            count: text("count"),
            destination: text("destination"),
            is_active: form.has("is_active"),
        }
    }
}

/// Returns the request that a form makes. The form has the fields of all frequencies, and the request those of its own.
fn body(form: &Form) -> Map<String, Value> {
    let mut body = form.texts(&["frequency", "starts_on", "ends_on", "destination"]);
    // Null would keep the name; an empty one is rejected.
    body.insert("name".to_owned(), form.text("name").unwrap_or_default().into());
    // A number that cannot be read stays a text, so that it is reported.
    let number = |name: &str| match form.text(name) {
        Some(text) => text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from),
        None => Value::Null,
    };
    body.insert("count".to_owned(), number("count"));
    let is = |frequency: Frequency| form.get("frequency") == frequency.as_str();
    if is(Frequency::Weekly) {
        body.insert("weekdays".to_owned(), json!(form.ids("weekdays")));
    }
    if is(Frequency::Monthly) {
        body.insert("day".to_owned(), number("day"));
    }
    let timed = if is(Frequency::Cron) { "cron" } else { "time" };
    body.insert(timed.to_owned(), form.text(timed).map_or(Value::Null, Value::from));
    let variations = submitted_texts(form).into_iter();
    let variations = variations.map(|(content, media)| json!({ "content": content, "media": ids(&media) }));
    body.insert("variations".to_owned(), variations.collect());
    body.insert("accounts".to_owned(), json!(form.ids("accounts")));
    let labels = form.get("labels").split(',').map(str::trim).filter(|label| !label.is_empty());
    body.insert("labels".to_owned(), labels.collect());
    body.insert("is_active".to_owned(), form.has("is_active").into());
    body
}

async fn create(visit: &Visit) -> Result<PageReply> {
    match visit.call().write(recurring_posts::create::endpoint(), visit.parse(&body(&visit.form))).await {
        Ok(_) => visit.to("recurring", "recurring-added"),
        Err(error) => {
            let values = RuleValues::submitted(&visit.form);
            render(visit, StatusCode::UNPROCESSABLE_ENTITY, None, values, form_errors(error)?).await
        }
    }
}

async fn update(visit: &Visit) -> Result<PageReply> {
    match visit.call().write(recurring_posts::update::endpoint(), visit.parse(&body(&visit.form))).await {
        Ok(_) => visit.to("recurring", "recurring-saved"),
        // The form becomes that of a new rule: otherwise, its texts would be lost.
        Err(error) if error.code == ErrorCode::NotFound => {
            let values = RuleValues::submitted(&visit.form);
            render(visit, StatusCode::NOT_FOUND, None, values, FieldErrors::general(DELETED)).await
        }
        Err(error) => {
            let errors = form_errors(error)?;
            let rule = visit.call().read(recurring_posts::show::endpoint(), ()).await?;
            let values = RuleValues::submitted(&visit.form);
            render(visit, StatusCode::UNPROCESSABLE_ENTITY, Some(rule), values, errors).await
        }
    }
}

async fn delete(visit: &Visit) -> Result<PageReply> {
    visit.call().write(recurring_posts::delete::endpoint(), ()).await?;
    visit.to("recurring", "recurring-deleted")
}
