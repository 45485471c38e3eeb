//! `/brands/{brand}/developers/webhooks/{webhook}`: a webhook endpoint with its deliveries, and the actions on it.

use askama::Template;
use chrono::TimeDelta;
use crier_domain::event::EventName;
use crier_domain::webhook::{DeliveryOutcome, DeliveryStatus};
use crier_endpoints::error::Result;
use crier_endpoints::fields::PatchField;
use crier_endpoints::routes::webhooks::deliveries::{self, Delivery, ListDeliveries};
use crier_endpoints::routes::webhooks::test::WebhookTest;
use crier_endpoints::routes::webhooks::update::WebhookChange;
use crier_endpoints::routes::webhooks::{self, Webhook};
use http::StatusCode;

use super::lists;
use super::paging;
use super::route::PageRoute;
use super::shared::{Badge, Choice, FieldErrors, Pages, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};
use super::webhooks::{self as webhooks_page, activity, is_in_plan};

/// The default period of the form that retries failed deliveries.
const RECOVER_SINCE: TimeDelta = TimeDelta::days(1);
/// The maximum number of attempts that are shown, the latest ones.
const MAX_ATTEMPTS: usize = 30;

#[derive(Template)]
#[template(path = "console/webhook.html")]
struct WebhookPage {
    shell: Shell,
    /// Whether the plan includes webhooks. Otherwise the endpoint can only be deleted, and its deliveries are not
    /// shown.
    is_in_plan: bool,
    /// Errors of the form that retries failed deliveries: `since`.
    errors: FieldErrors,
    id: i64,
    url: String,
    description: Option<String>,
    events: Vec<String>,
    is_active: bool,
    status: Badge,
    /// The reason why Crier disabled the endpoint.
    disabled_reason: Option<String>,
    created: Time,
    /// The value of `since`, in the brand's time zone.
    since: String,
    statuses: Vec<Choice>,
    event_choices: Vec<Choice>,
    is_filtered: bool,
    deliveries: Vec<DeliveryRow>,
    pages: Pages,
}

struct DeliveryRow {
    id: i64,
    event: String,
    status: Badge,
    response_code: Option<i32>,
    attempts: i32,
    max_attempts: i32,
    /// The time of the last attempt.
    at: Option<Time>,
    duration: String,
}

#[derive(Template)]
#[template(path = "console/delivery.html")]
struct DeliveryPage {
    shell: Shell,
    webhook: i64,
    url: String,
    delivery: DeliveryRow,
    next_attempt: Option<Time>,
    error: Option<String>,
    /// The headers that are the same in each attempt.
    headers: Vec<(&'static str, String)>,
    /// The envelope, indented.
    payload: String,
    response_body: Option<String>,
    attempts: Vec<AttemptRow>,
    /// Whether the endpoint is active, so that the delivery can be retried.
    can_replay: bool,
}

struct AttemptRow {
    number: i32,
    at: Time,
    duration: String,
    outcome: Badge,
    response_code: Option<i32>,
    error: Option<String>,
    response_body: Option<String>,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::form("/brands/{brand}/developers/webhooks/{webhook}", render),
        PageRoute::post("/brands/{brand}/developers/webhooks/{webhook}/test", test),
        PageRoute::post("/brands/{brand}/developers/webhooks/{webhook}/pause", pause),
        PageRoute::post("/brands/{brand}/developers/webhooks/{webhook}/activate", activate),
        PageRoute::post("/brands/{brand}/developers/webhooks/{webhook}/delete", delete),
        PageRoute::post("/brands/{brand}/developers/webhooks/{webhook}/recover", recover),
        PageRoute::get("/brands/{brand}/developers/webhooks/{webhook}/deliveries/{delivery}", show_delivery),
        PageRoute::post("/brands/{brand}/developers/webhooks/{webhook}/deliveries/{delivery}/retry", retry),
    ]
}

async fn render(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let Webhook { id, fields: webhook, created_at, .. } = visit.call().read(webhooks::show::endpoint(), ()).await?;
    let page = paging::number(visit);
    // Unknown values of filters are ignored.
    let status_filter: Option<DeliveryStatus> = visit.query.get("status").and_then(|word| word.parse().ok());
    let event_filter: Option<EventName> = visit.query.get("event").and_then(|word| word.parse().ok());
    let filters = [
        ("status", status_filter.map_or("", DeliveryStatus::as_str)),
        ("event", event_filter.map_or("", EventName::as_str)),
    ];
    let is_in_plan = is_in_plan(visit)?;
    let (deliveries, total) = if is_in_plan {
        let request = ListDeliveries { pages: paging::pages(page), status: status_filter, event: event_filter };
        let listed = visit.call().read(deliveries::endpoint(), request).await?;
        (listed.rows, listed.total)
    } else {
        (Vec::new(), 0)
    };
    let activity = activity(visit).await?;
    let shell = visit.shell(Section::Developers, "Webhook");
    let since = visit.now.with_timezone(&visit.zone()) - RECOVER_SINCE;
    let view = WebhookPage {
        is_in_plan,
        errors,
        id,
        status: webhooks_page::status(&webhook, activity.get(&id)),
        created: visit.time(created_at.0),
        since: visit.form.text("since").map_or_else(|| since.format("%Y-%m-%dT%H:%M").to_string(), str::to_owned),
        statuses: choices("All", DeliveryStatus::ALL.iter().map(|one| one.as_str()), filters[0].1, |word| {
            Badge::delivery(word).text
        }),
        event_choices: choices("All", EventName::ALL.iter().map(|one| one.as_str()), filters[1].1, str::to_owned),
        is_filtered: status_filter.is_some() || event_filter.is_some(),
        pages: lists::links(&shell.webhook(id, ""), &filters, page, deliveries.len(), total),
        deliveries: deliveries.iter().map(|delivery| row(visit, delivery)).collect(),
        url: webhook.url,
        description: webhook.description,
        events: webhook.events.iter().map(|event| event.to_string()).collect(),
        is_active: webhook.is_active,
        disabled_reason: webhook.disabled_reason.filter(|_| !webhook.is_active),
        shell,
    };
    visit.page_with(status, &view)
}

/// Returns the choices of a filter. The first one has an empty value.
fn choices<'w>(
    none: &str,
    words: impl Iterator<Item = &'w str>,
    chosen: &str,
    label: impl Fn(&str) -> String,
) -> Vec<Choice> {
    let all = words.map(|word| Choice::new(word, &label(word), word == chosen));
    [Choice::new("", none, chosen.is_empty())].into_iter().chain(all).collect()
}

fn row(visit: &Visit, delivery: &Delivery) -> DeliveryRow {
    DeliveryRow {
        id: delivery.id,
        event: delivery.event.to_string(),
        status: Badge::delivery(delivery.status.as_str()),
        response_code: delivery.response_code,
        attempts: delivery.attempts,
        max_attempts: delivery.max_attempts,
        at: delivery.last_attempt_at.map(|at| visit.time(at.0)),
        duration: delivery.duration_ms.map_or_else(|| "–".to_owned(), duration),
    }
}

fn duration(ms: i64) -> String {
    if ms < 10_000 { format!("{ms} ms") } else { format!("{} s", ms / 1_000) }
}

async fn show_delivery(visit: &Visit) -> Result<PageReply> {
    let webhook = visit.call().read(webhooks::show::endpoint(), ()).await?;
    let delivery = visit.call().read(webhooks::delivery::endpoint(), ()).await?;
    let mut attempts = visit.call().read(webhooks::attempts::endpoint(), ()).await?;
    attempts.drain(..attempts.len().saturating_sub(MAX_ATTEMPTS));
    let attempt = |attempt: webhooks::attempts::DeliveryAttempt| AttemptRow {
        number: attempt.number,
        at: visit.time(attempt.started_at.0),
        duration: duration(attempt.duration_ms),
        outcome: outcome(attempt.outcome),
        response_code: attempt.response_code,
        error: attempt.error,
        response_body: attempt.response_body.filter(|body| !body.is_empty()),
    };
    let view = DeliveryPage {
        shell: visit.shell(Section::Developers, format!("Delivery {}", delivery.id)),
        webhook: webhook.id,
        url: webhook.fields.url,
        next_attempt: delivery.next_attempt_at.map(|at| visit.time(at.0)),
        headers: vec![
            ("Content-Type", "application/json".to_owned()),
            ("X-Webhook-Event", delivery.event.to_string()),
            ("X-Webhook-Delivery-Id", delivery.id.to_string()),
        ],
        payload: serde_json::to_string_pretty(&delivery.payload).unwrap_or_default(),
        attempts: attempts.into_iter().map(attempt).collect(),
        can_replay: webhook.fields.is_active,
        delivery: row(visit, &delivery),
        error: delivery.error,
        response_body: delivery.response_body.filter(|body| !body.is_empty()),
    };
    visit.page(&view)
}

fn outcome(outcome: DeliveryOutcome) -> Badge {
    let text = match outcome {
        DeliveryOutcome::Success => return Badge::new(Tone::Good, "Delivered"),
        DeliveryOutcome::Redirect | DeliveryOutcome::ClientError | DeliveryOutcome::ServerError => "Rejected",
        DeliveryOutcome::Timeout => "Timed out",
        DeliveryOutcome::Dns => "Unknown host",
        DeliveryOutcome::Connect => "No connection",
        DeliveryOutcome::Tls => "TLS error",
        DeliveryOutcome::Blocked => "Blocked",
    };
    Badge::new(Tone::Bad, text)
}

/// Redirects to the page of the endpoint, or to a page below it.
fn back(visit: &Visit, below: &str, note: &'static str) -> Result<PageReply> {
    visit.to(&format!("developers/webhooks/{}{below}", visit.id("webhook").unwrap_or_default()), note)
}

/// Sends a sample of the first event to which the endpoint is subscribed.
async fn test(visit: &Visit) -> Result<PageReply> {
    let webhook = visit.call().read(webhooks::show::endpoint(), ()).await?;
    let event = webhook.fields.events.first().copied().unwrap_or(EventName::PostPublished);
    visit.call().write(webhooks::test::endpoint(), WebhookTest { event }).await?;
    back(visit, "", "webhook-tested")
}

async fn pause(visit: &Visit) -> Result<PageReply> {
    set_active(visit, false).await?;
    back(visit, "", "webhook-saved")
}

async fn activate(visit: &Visit) -> Result<PageReply> {
    set_active(visit, true).await?;
    back(visit, "", "webhook-saved")
}

async fn set_active(visit: &Visit, is_active: bool) -> Result<()> {
    let change = WebhookChange { is_active: PatchField::Value(is_active), ..WebhookChange::default() };
    visit.call().write(webhooks::update::endpoint(), change).await.map(drop)
}

async fn delete(visit: &Visit) -> Result<PageReply> {
    visit.call().write(webhooks::delete::endpoint(), ()).await?;
    // If the plan does not include webhooks, there is no list page without endpoints.
    let list = if is_in_plan(visit)? { "developers/webhooks" } else { "developers" };
    visit.to(list, "webhook-deleted")
}

async fn recover(visit: &Visit) -> Result<PageReply> {
    let request = visit.parse(&visit.form.texts(&["since"]));
    match visit.call().write(webhooks::recover::endpoint(), request).await {
        Ok(_) => back(visit, "", "deliveries-recovered"),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?).await,
    }
}

async fn retry(visit: &Visit) -> Result<PageReply> {
    visit.call().write(webhooks::retry::endpoint(), ()).await?;
    back(visit, &format!("/deliveries/{}", visit.id("delivery").unwrap_or_default()), "delivery-retried")
}
