//! `/brands/{brand}/developers/webhooks`: the user's webhook endpoints, which receive the events of all their brands.

use std::collections::HashMap;

use askama::Template;
use crier_domain::plan::Feature;
use crier_endpoints::admission;
use crier_endpoints::error::Result;
use crier_endpoints::routes::webhooks::{self, Webhook, WebhookFields};
use crier_store::webhooks::{WebhookActivity, activity as activity_of_user};

use super::developers::tabs;
use super::route::PageRoute;
use super::shared::{Badge, Choice, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};
use crate::numbers::counted;

#[derive(Template)]
#[template(path = "console/webhooks.html")]
struct Webhooks {
    shell: Shell,
    /// Whether the plan includes webhooks. Otherwise endpoints can only be deleted.
    is_in_plan: bool,
    webhooks: Vec<WebhookRow>,
}

struct WebhookRow {
    id: i64,
    url: String,
    description: Option<String>,
    events: String,
    status: Badge,
    last_delivery: Option<Time>,
}

impl Webhooks {
    fn tabs(&self) -> Vec<Choice> {
        tabs(&self.shell, "webhooks")
    }
}

pub fn status(webhook: &WebhookFields, activity: Option<&WebhookActivity>) -> Badge {
    let is_failing = activity.is_some_and(|activity| activity.failing_since.is_some());
    match (webhook.is_active, &webhook.disabled_reason) {
        (false, Some(_)) => Badge::new(Tone::Bad, "Disabled"),
        (false, None) => Badge::new(Tone::Plain, "Paused"),
        (true, _) if is_failing => Badge::new(Tone::Warn, "Failing"),
        (true, _) => Badge::new(Tone::Good, "Active"),
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/brands/{brand}/developers/webhooks", list)]
}

/// Returns the activity of the user's endpoints, by endpoint ID.
pub async fn activity(visit: &Visit) -> Result<HashMap<i64, WebhookActivity>> {
    let all = activity_of_user(&mut visit.app.store.read().await?, visit.user_id()).await?;
    Ok(all.into_iter().map(|one| (one.id, one)).collect())
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let all = visit.call().read(webhooks::list::endpoint(), ()).await?;
    let activity = activity(visit).await?;
    let row = |webhook: Webhook| {
        let activity = activity.get(&webhook.id);
        WebhookRow {
            id: webhook.id,
            status: status(&webhook.fields, activity),
            events: counted(webhook.fields.events.len(), "event", "events"),
            last_delivery: activity.and_then(|one| one.last_delivery_at).map(|at| visit.time(at)),
            url: webhook.fields.url,
            description: webhook.fields.description,
        }
    };
    let shell = visit.shell(Section::Developers, "Webhooks");
    visit.page(&Webhooks { shell, is_in_plan: is_in_plan(visit)?, webhooks: all.into_iter().map(row).collect() })
}

/// Returns whether the plan of the user's workspace includes webhooks.
pub fn is_in_plan(visit: &Visit) -> Result<bool> {
    Ok(admission::plan(&visit.app, &visit.authenticated.caller)?.has(Feature::Webhooks))
}
