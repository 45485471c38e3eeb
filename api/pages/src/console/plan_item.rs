//! `/brands/{brand}/plans/{plan}/items/{item}`: an item of a content plan, and the action that creates a post from it.

use askama::Template;
use crier_domain::account::{AccountStatus, SocialAccount};
use crier_domain::content_plan::Destination;
use crier_domain::plan::Feature;
use crier_endpoints::admission;
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::routes::content_plans;
use crier_endpoints::runner::call::Written;
use crier_store::{Conn, PageRequest, accounts};
use http::StatusCode;

use super::avatar::avatar_url;
use super::content_plan::{post_statuses, status};
use super::post_rows::chip;
use super::route::PageRoute;
use super::shared::{AccountChip, Badge, Choice, FieldErrors};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

/// The maximum number of accounts to choose from.
const ACCOUNTS: i64 = 100;

#[derive(Template)]
#[template(path = "console/plan_item.html")]
struct PlanItemPage {
    shell: Shell,
    /// Errors of `title`, `content`, `planned_at`; and of the form that creates a post: `account_ids`, `destination`.
    errors: FieldErrors,
    plan: i64,
    plan_name: String,
    id: i64,
    title: String,
    content: String,
    planned_at: String,
    status: Badge,
    post: Option<i64>,
    accounts: Vec<AccountPick>,
    /// `calendar`, `draft`, and `approval` if the plan includes it.
    destinations: Vec<Choice>,
}

struct AccountPick {
    id: i64,
    account: AccountChip,
    /// The URL of the avatar.
    avatar: Option<String>,
    checked: bool,
    /// The reason why the account cannot be chosen.
    disabled: Option<&'static str>,
}

impl PlanItemPage {
    /// Returns the path of the item, or of an action on it.
    fn action(&self, action: &str) -> String {
        self.shell.page(format!("plans/{}/items", self.plan), self.id, action)
    }
}

/// The form that was submitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SubmittedForm {
    None,
    Item,
    CreatePost,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/plans/{plan}/items/{item}", show),
        PageRoute::post("/brands/{brand}/plans/{plan}/items/{item}", update),
        PageRoute::post("/brands/{brand}/plans/{plan}/items/{item}/delete", delete),
        PageRoute::post("/brands/{brand}/plans/{plan}/items/{item}/schedule", schedule),
    ]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    render(visit, SubmittedForm::None, FieldErrors::default()).await
}

async fn render(visit: &Visit, submitted: SubmittedForm, errors: FieldErrors) -> Result<PageReply> {
    let plan = visit.call().read(content_plans::show::endpoint(), ()).await?;
    let found = plan.items.into_iter().find(|item| Some(item.id) == visit.id("item"));
    let item = found.ok_or_else(|| ApiError::not_found("plan item"))?;
    let mut conn = visit.app.store.read().await?;
    let posts = post_statuses(visit, &mut conn, [&item]).await?;
    let accounts = picks(visit, &mut conn, submitted).await?;
    drop(conn);
    let value = |name: &str, saved: String| {
        if submitted == SubmittedForm::Item { visit.form.get(name).to_owned() } else { saved }
    };
    let local = item.planned_at.map(|at| at.0.with_timezone(&visit.zone()).format("%Y-%m-%dT%H:%M").to_string());
    let is_planned = item.planned_at.is_some_and(|at| at.0 > visit.now);
    let view = PlanItemPage {
        shell: visit.shell(Section::Plans, item.title.clone()),
        errors,
        plan: plan.id,
        plan_name: plan.name,
        id: item.id,
        status: status(&item, &posts),
        post: item.post_id,
        title: value("title", item.title),
        content: value("content", item.content.unwrap_or_default()),
        planned_at: value("planned_at", local.unwrap_or_default()),
        accounts,
        destinations: destinations(visit, submitted, is_planned)?,
    };
    let code = if submitted == SubmittedForm::None { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    visit.page_with(code, &view)
}

async fn picks(visit: &Visit, conn: &mut Conn, submitted: SubmittedForm) -> Result<Vec<AccountPick>> {
    let page = PageRequest { page: 1, per_page: ACCOUNTS };
    let brand = visit.brand()?.0.id;
    let found = accounts::list(conn, brand, page).await?;
    let chosen = if submitted == SubmittedForm::CreatePost { visit.form.ids("account_ids") } else { Vec::new() };
    let pick = |account: SocialAccount| {
        let is_expired = account.status == AccountStatus::Expired;
        AccountPick {
            id: account.id,
            checked: chosen.contains(&account.id) && !is_expired,
            disabled: is_expired.then_some("Expired. Reconnect it to publish."),
            account: chip(&account),
            avatar: avatar_url(brand, &account),
        }
    };
    Ok(found.rows.into_iter().map(pick).collect())
}

/// Returns the choices of what to create. The default is a scheduled post if the time of the item is in the future.
fn destinations(visit: &Visit, submitted: SubmittedForm, is_planned: bool) -> Result<Vec<Choice>> {
    let has_approvals = admission::plan(&visit.app, &visit.authenticated.caller)?.has(Feature::Approvals);
    let can_publish = visit.can_publish();
    let proposed = if is_planned && can_publish { Destination::Calendar } else { Destination::Draft };
    let chosen = if submitted == SubmittedForm::CreatePost { visit.form.get("destination") } else { proposed.as_str() };
    let choice = |one: &Destination| {
        let (label, hint) = match one {
            Destination::Calendar => ("Scheduled post", "The post is published at the item's time."),
            Destination::Draft => ("Draft", "You can continue editing it."),
            Destination::Approval => ("Post pending approval", "An owner or admin approves it."),
        };
        Choice { hint: hint.to_owned(), ..Choice::new(one.as_str(), label, one.as_str() == chosen) }
    };
    let is_offered = |one: &&Destination| match one {
        Destination::Calendar => can_publish,
        Destination::Draft => true,
        Destination::Approval => has_approvals,
    };
    Ok(Destination::ALL.iter().filter(is_offered).map(choice).collect())
}

/// Returns the path of the item's plan, relative to the brand.
fn plan(visit: &Visit) -> String {
    format!("plans/{}", visit.id("plan").unwrap_or_default())
}

async fn update(visit: &Visit) -> Result<PageReply> {
    let mut body = visit.form.texts(&["title", "content", "planned_at"]);
    // Null would keep the title; an empty title is rejected.
    body.insert("title".to_owned(), visit.form.text("title").unwrap_or_default().into());
    match visit.call().write(content_plans::update_item::endpoint(), visit.parse(&body)).await {
        Ok(_) => visit.to(&format!("{}/items/{}", plan(visit), visit.id("item").unwrap_or_default()), "item-saved"),
        Err(error) => render(visit, SubmittedForm::Item, form_errors(error)?).await,
    }
}

async fn delete(visit: &Visit) -> Result<PageReply> {
    visit.call().write(content_plans::delete_item::endpoint(), ()).await?;
    visit.to(&plan(visit), "item-deleted")
}

/// Creates a post and redirects to it.
async fn schedule(visit: &Visit) -> Result<PageReply> {
    let mut body = visit.form.texts(&["destination"]);
    body.insert("account_ids".to_owned(), visit.form.ids("account_ids").into());
    let created = visit.call().write(content_plans::schedule::endpoint(), visit.parse(&body)).await;
    match created.and_then(Written::into_value) {
        Ok(post) => {
            let note = match visit.form.text("destination").and_then(|word| word.parse().ok()) {
                Some(Destination::Draft) => "draft-saved",
                Some(Destination::Approval) => "post-submitted",
                Some(Destination::Calendar) | None => "post-scheduled",
            };
            visit.to(&format!("posts/{}", post.id), note)
        }
        Err(error) => render(visit, SubmittedForm::CreatePost, form_errors(error)?).await,
    }
}
