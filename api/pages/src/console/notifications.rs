//! `/brands/{brand}/settings/notifications`: how often the user gets emails about problems, in all brands.

use askama::Template;
use crier_domain::notice::NoticeFrequency;
use crier_endpoints::error::{ApiError, Result};
use crier_store::notices;

use super::form_write::{FormWrite, Submission};
use super::route::PageRoute;
use super::settings::tabs;
use super::shared::Choice;
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};

#[derive(Template)]
#[template(path = "console/notifications.html")]
struct Notifications {
    shell: Shell,
    frequencies: Vec<Choice>,
    has_mail: bool,
}

impl Notifications {
    fn tabs(&self) -> Vec<Choice> {
        tabs(&self.shell, "notifications")
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/settings/notifications", show),
        PageRoute::post("/brands/{brand}/settings/notifications", update),
    ]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    let stored = notices::frequency(&mut visit.app.store.read().await?, visit.user_id()).await?;
    let choice = |one: &NoticeFrequency| {
        let (label, hint) = match one {
            NoticeFrequency::Immediately => ("Immediately", "Within a minute, but at most one email per hour."),
            NoticeFrequency::Hourly => ("Hourly", "One email per hour, if there are new problems."),
            NoticeFrequency::Daily => ("Daily", "One email per day, if there are new problems."),
            NoticeFrequency::Never => ("Never", "Home shows the problems of each brand."),
        };
        Choice { hint: hint.to_owned(), ..Choice::new(one.as_str(), label, Some(*one) == stored) }
    };
    let page = Notifications {
        shell: visit.shell(Section::Settings, "Notifications"),
        frequencies: NoticeFrequency::ALL.iter().map(choice).collect(),
        has_mail: visit.app.mailer.is_some(),
    };
    visit.page(&page)
}

async fn update(visit: &Visit) -> Result<PageReply> {
    let chosen: std::result::Result<NoticeFrequency, _> = visit.form.get("frequency").parse();
    let frequency = chosen.map_err(|_| ApiError::field("frequency", "Choose how often you want emails."))?;
    if let Submission::First(mut write) = FormWrite::begin(visit).await? {
        notices::set_frequency(&mut write.tx, visit.user_id(), frequency).await?;
        write.finish("").await?;
    }
    visit.to("settings/notifications", "notifications-saved")
}
