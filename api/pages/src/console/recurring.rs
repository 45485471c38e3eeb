//! `/brands/{brand}/recurring`: the rules for recurring posts.

use askama::Template;
use crier_domain::recurrence::Frequency;
use crier_endpoints::error::Result;
use crier_endpoints::routes::recurring_posts::{self, RecurringPost};

use super::lists;
use super::post_rows::beginning;
use super::route::PageRoute;
use super::shared::{Badge, Pages, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};
use super::wording::in_quotes;

/// The maximum length of a text in the list, in characters.
const MAX_TEXT_SHOWN: usize = 200;
/// The names of the weekdays, from Monday.
pub const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

#[derive(Template)]
#[template(path = "console/recurring.html")]
struct RecurringPosts {
    shell: Shell,
    rules: Vec<RuleRow>,
    pages: Pages,
}

struct RuleRow {
    id: i64,
    name: String,
    status: Badge,
    /// "Every day at 09:00".
    when: String,
    next: Option<Time>,
    /// The beginning of the first text.
    text: String,
    problem: Option<String>,
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/brands/{brand}/recurring", list)]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let all = visit.call().read(recurring_posts::list::endpoint(), ()).await?;
    let shell = visit.shell(Section::Posts, "Recurring posts");
    let (rows, pages) = lists::paginate(visit, &shell.at("recurring"), all);
    let view = RecurringPosts { rules: rows.into_iter().map(|rule| row(visit, rule)).collect(), pages, shell };
    visit.page(&view)
}

fn row(visit: &Visit, rule: RecurringPost) -> RuleRow {
    let next = rule.next_occurrences.first().map(|at| visit.time(at.0));
    let status = match (&rule.problem, &next) {
        (Some(_), _) => Badge::new(Tone::Bad, "Problem"),
        (None, Some(_)) => Badge::new(Tone::Good, "Active"),
        (None, None) if rule.is_active => Badge::new(Tone::Plain, "Ended"),
        (None, None) => Badge::new(Tone::Plain, "Paused"),
    };
    RuleRow {
        id: rule.id,
        status,
        when: when(&rule),
        next,
        text: rule.variations.first().map_or_else(String::new, |first| beginning(&first.content, MAX_TEXT_SHOWN)),
        problem: rule.problem.as_deref().map(in_quotes),
        name: rule.name,
    }
}

/// Describes the times of a rule.
fn when(rule: &RecurringPost) -> String {
    let time = rule.time.as_deref().unwrap_or_default();
    let name = |day: &i64| WEEKDAYS.get(usize::try_from(day - 1).unwrap_or(usize::MAX)).copied();
    match rule.frequency {
        Frequency::Daily => format!("Every day at {time}"),
        Frequency::Weekly => {
            let days: Vec<&str> = rule.weekdays.iter().filter_map(name).collect();
            format!("Every {} at {time}", days.join(", "))
        }
        Frequency::Monthly => format!("On day {} of each month at {time}", rule.day.unwrap_or(1)),
        Frequency::Cron => format!("Custom schedule ({})", rule.cron.as_deref().unwrap_or_default()),
    }
}
