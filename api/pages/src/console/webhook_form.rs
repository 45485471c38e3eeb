//! `/brands/{brand}/developers/webhooks/new` and `…/{webhook}/edit`; and the page that shows a new signing secret.

use askama::Template;
use crier_domain::event::EventName;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::routes::webhooks::{self, WebhookWithSecret};
use crier_endpoints::runner::call::Written;
use http::StatusCode;
use serde_json::{Map, Value};

use super::developers::NewSecret;
use super::route::PageRoute;
use super::shared::{Choice, FieldErrors, Link};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

#[derive(Template)]
#[template(path = "console/webhook_form.html")]
struct WebhookForm {
    shell: Shell,
    errors: FieldErrors,
    id: Option<i64>,
    url: String,
    description: String,
    is_active: bool,
    /// All events with their descriptions.
    events: Vec<Choice>,
}

/// The values of the form.
#[derive(Default)]
struct Values {
    url: String,
    description: String,
    is_active: bool,
    events: Vec<String>,
}

pub fn routes() -> Vec<PageRoute> {
    let new = "/brands/{brand}/developers/webhooks/new";
    let edit = "/brands/{brand}/developers/webhooks/{webhook}/edit";
    vec![
        PageRoute::get(new, show_new),
        PageRoute::post(new, create),
        PageRoute::get(edit, show_edit),
        PageRoute::post(edit, update),
        PageRoute::post("/brands/{brand}/developers/webhooks/{webhook}/rotate-secret", rotate),
    ]
}

async fn show_new(visit: &Visit) -> Result<PageReply> {
    let values = Values { is_active: true, ..Values::default() };
    render(visit, StatusCode::OK, values, FieldErrors::default()).await
}

async fn show_edit(visit: &Visit) -> Result<PageReply> {
    let webhook = visit.call().read(webhooks::show::endpoint(), ()).await?.fields;
    let values = Values {
        url: webhook.url,
        description: webhook.description.unwrap_or_default(),
        is_active: webhook.is_active,
        events: webhook.events.iter().map(|event| event.to_string()).collect(),
    };
    render(visit, StatusCode::OK, values, FieldErrors::default()).await
}

async fn render(visit: &Visit, status: StatusCode, values: Values, errors: FieldErrors) -> Result<PageReply> {
    let choice = |event: &EventName| {
        let name = event.as_str();
        let is_chosen = values.events.iter().any(|chosen| chosen == name);
        Choice { hint: event.description().to_owned(), ..Choice::new(name, name, is_chosen) }
    };
    let events = EventName::ALL.iter().map(choice).collect();
    let id = visit.id("webhook");
    let title = if id.is_some() { "Edit webhook" } else { "New webhook" };
    let shell = visit.shell(Section::Developers, title);
    let Values { url, description, is_active, .. } = values;
    visit.page_with(status, &WebhookForm { shell, errors, id, url, description, is_active, events })
}

/// Shows the form with the submitted values and their errors.
async fn render_errors(visit: &Visit, error: ApiError) -> Result<PageReply> {
    let errors = match error.code {
        ErrorCode::InvalidWebhookUrl => FieldErrors::new([("url", vec![error.message.into_owned()])]),
        _ => form_errors(error)?,
    };
    let form = &visit.form;
    let values = Values {
        url: form.get("url").to_owned(),
        description: form.get("description").to_owned(),
        is_active: form.has("is_active"),
        events: form.all("events").map(str::to_owned).collect(),
    };
    render(visit, StatusCode::UNPROCESSABLE_ENTITY, values, errors).await
}

fn fields(visit: &Visit) -> Map<String, Value> {
    let mut fields = visit.form.texts(&["url", "description"]);
    fields.insert("events".to_owned(), visit.form.all("events").collect());
    fields
}

async fn create(visit: &Visit) -> Result<PageReply> {
    let mut body = fields(visit);
    body.insert("is_active".to_owned(), Value::from(visit.form.has("is_active")));
    let created = visit.call().write(webhooks::create::endpoint(), visit.parse(&body)).await;
    match created.and_then(Written::into_value) {
        Ok(created) => show_secret(visit, created),
        Err(error) => render_errors(visit, error).await,
    }
}

async fn update(visit: &Visit) -> Result<PageReply> {
    let mut body = fields(visit);
    // Null would keep the URL; an empty URL is rejected.
    body.insert("url".to_owned(), Value::from(visit.form.text("url").unwrap_or_default()));
    match visit.call().write(webhooks::update::endpoint(), visit.parse(&body)).await {
        Ok(_) => visit.to(&format!("developers/webhooks/{}", visit.id("webhook").unwrap_or_default()), "webhook-saved"),
        Err(error) => render_errors(visit, error).await,
    }
}

async fn rotate(visit: &Visit) -> Result<PageReply> {
    let rotated = visit.call().write(webhooks::rotate_secret::endpoint(), ()).await?;
    show_secret(visit, rotated.into_value()?)
}

fn show_secret(visit: &Visit, created: WebhookWithSecret) -> Result<PageReply> {
    let shell = visit.shell(Section::Developers, "Signing secret");
    let page = NewSecret {
        lead: "Use this secret in the receiver to verify the signature of each delivery.".to_owned(),
        label: "Signing secret",
        secret: created.secret,
        example: None,
        done: Link::new("Go to webhook", &shell.webhook(created.id, "")),
        shell,
    };
    visit.page(&page)
}
