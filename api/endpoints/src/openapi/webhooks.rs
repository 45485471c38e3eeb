//! The `webhooks` section of the document: the requests that Crier sends to a webhook endpoint, one for each event.

use crier_domain::event::EventName;
use serde_json::{Map, Value, json};

use super::components::{Components, pascal_case};
use super::object;
use super::schema::TextEnum;
use crate::routes::webhooks::{TAG, payloads};

pub(super) fn section(components: &mut Components) -> Map<String, Value> {
    let webhook = |event: &EventName| (event.to_string(), json!({ "post": operation(*event, components) }));
    EventName::ALL.iter().map(webhook).collect()
}

fn operation(event: EventName, components: &mut Components) -> Value {
    let (subject, change) = event.as_str().split_once('.').unwrap_or((event.as_str(), ""));
    let data = payloads::schema(event)(&mut components.schemas);
    let schema = object(json!({ "event": { "type": "string", "const": event }, "data": data }), &["event", "data"]);
    let mut operation = json!({
        "operationId": format!("{subject}{}", pascal_case(change)),
        "tags": [TAG],
        "summary": format!("{} {}", pascal_case(subject), change.replace('_', " ")),
        "description": event.description(),
        "security": [],
        "parameters": parameters(components),
        "requestBody": {
            "required": true,
            "content": { "application/json": { "schema": schema, "example": event.sample() } },
        },
        "responses": responses(components),
    });
    if is_extension(event) {
        operation["x-extension"] = true.into();
    }
    operation
}

fn is_extension(event: EventName) -> bool {
    matches!(
        event,
        EventName::PostUnpublished
            | EventName::PostFirstCommentFailed
            | EventName::PostRejectedByPlatform
            | EventName::AccountExpiring
            | EventName::AccountExpired
    )
}

/// Returns the headers of a delivery.
fn parameters(components: &mut Components) -> Vec<Value> {
    let event_name = components.schemas.response::<TextEnum<EventName>>();
    let integer = json!({ "type": "integer", "format": "int64" });
    [
        ("X-Webhook-Event", "WebhookEvent", "The name of the event, as in the body.", event_name),
        (
            "X-Webhook-Delivery-Id",
            "WebhookDeliveryId",
            "The ID of the delivery: one event to one endpoint. It is the same at each attempt.",
            integer.clone(),
        ),
        (
            "X-Webhook-Event-Id",
            "WebhookEventId",
            "The ID of the event. It is the same for all endpoints that receive the event.",
            integer.clone(),
        ),
        (
            "X-Webhook-Timestamp",
            "WebhookTimestamp",
            "The Unix time, in seconds, when this attempt was signed.",
            integer,
        ),
        (
            "X-Webhook-Signature",
            "WebhookSignature",
            "The signature of this attempt: `t=<timestamp>,v1=<hex>`. `v1` is the HMAC-SHA256 of the timestamp, a period \
             and the unmodified body. The key is the whole secret of the endpoint.",
            json!({ "type": "string" }),
        ),
    ]
    .into_iter()
    .map(|(name, component, description, schema)| {
        let mut parameter = json!({
            "name": name, "in": "header", "required": true, "description": description, "schema": schema,
        });
        if name == "X-Webhook-Event-Id" {
            parameter["x-extension"] = true.into();
        }
        components.parameter(component, parameter)
    })
    .collect()
}

/// Returns the effect of each response of an endpoint.
fn responses(components: &mut Components) -> Map<String, Value> {
    [
        ("2XX", "WebhookDelivered", "Crier marks the delivery as delivered. It does not evaluate the body."),
        ("410", "WebhookGone", "Crier does not retry the delivery, and disables the endpoint."),
        (
            "default",
            "WebhookFailed",
            "Crier retries the delivery. After 429 or 503, it retries at the time in the `Retry-After` header of the \
             response.",
        ),
    ]
    .into_iter()
    .map(|(status, name, description)| {
        (status.to_owned(), components.response(name, json!({ "description": description })))
    })
    .collect()
}
