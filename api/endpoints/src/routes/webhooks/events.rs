//! `GET /webhook-events`

use crier_domain::access::Scope;
use crier_domain::event::EventName;
use crier_store::Conn;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{FEATURES, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::response::{Many, Reply};

/// An event that a webhook endpoint can subscribe to.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Event {
    #[schemars(with = "TextEnum<EventName>")]
    pub name: EventName,
    pub description: &'static str,
    /// An example of the complete envelope that an endpoint receives.
    #[schemars(extend("type" = "object"))]
    pub sample: Value,
}

pub fn endpoint() -> Endpoint<(), Many<Event>> {
    Endpoint::get("/webhook-events", "listWebhookEvents", Scope::WebhooksRead)
        .tag(TAG)
        .summary("List webhook events")
        .features(FEATURES)
        .for_limited_keys()
        .reads(events)
}

async fn events(_cx: &Context, _conn: &mut Conn) -> Result<Reply<Vec<Event>>> {
    let all = EventName::ALL.iter().map(|&name| Event { name, description: name.description(), sample: name.sample() });
    Ok(Reply::from(all.collect::<Vec<_>>()))
}
