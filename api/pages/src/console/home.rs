//! `/brands/{brand}`: upcoming posts, and problems that require an action.

use askama::Template;
use crier_domain::account::AccountStatus;
use crier_domain::brand::Brand;
use crier_domain::post::PostStatus;
use crier_endpoints::error::Result;
use crier_endpoints::routes::recurring_posts;
use crier_store::posts::{self, PostFilter};
use crier_store::{Conn, PageRequest, accounts, calendar, feeds, keys, webhooks};

use super::brand_new::zones;
use super::post_rows::{chip, rows};
use super::route::PageRoute;
use super::shared::{AccountChip, Badge, Choice, Link, PostRow, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};
use super::wording::in_quotes;

/// The maximum number of posts in a section of the page.
const SHOWN: i64 = 5;
/// The maximum number of accounts that are checked. The list of accounts shows all.
const ACCOUNTS: i64 = 100;

#[derive(Template)]
#[template(path = "console/home.html")]
struct Home {
    shell: Shell,
    /// Empty if all steps are done, and for those who cannot publish.
    checklist: Vec<Step>,
    /// The time zones of the first step. `None` if it is done.
    zones: Option<Vec<Choice>>,
    /// Failed or partially published posts, newest first.
    failed: Vec<PostRow>,
    /// Accounts whose access has expired.
    accounts: Vec<AccountNotice>,
    /// Recurring posts whose next posts cannot be created or published.
    recurring: Vec<ProblemNotice>,
    /// Feeds that fail, or whose last articles were not posted.
    feeds: Vec<ProblemNotice>,
    webhooks: Vec<WebhookNotice>,
    /// Posts pending approval.
    pending: Vec<PostRow>,
    /// Whether the user may approve posts.
    can_approve: bool,
    /// The next scheduled posts.
    next: Vec<PostRow>,
}

/// A step of the first-run checklist.
struct Step {
    title: &'static str,
    text: &'static str,
    done: bool,
    /// `None` if the step has a form.
    action: Option<Link>,
}

/// What the user has done so far.
struct Progress {
    has_zone: bool,
    has_account: bool,
    has_published: bool,
    /// `None` if the user does not use the API.
    has_webhook: Option<bool>,
}

struct AccountNotice {
    account: AccountChip,
    status: Badge,
    /// The reason, in plain language.
    text: String,
    reconnect: String,
}

struct ProblemNotice {
    id: i64,
    name: String,
    text: String,
}

struct WebhookNotice {
    id: i64,
    url: String,
    text: String,
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/brands/{brand}", home)]
}

async fn home(visit: &Visit) -> Result<PageReply> {
    let (brand, role) = visit.brand()?;
    let rules = visit.call().read(recurring_posts::list::endpoint(), ()).await?;
    let mut conn = visit.app.store.read().await?;
    let mut failed = with_status(&mut conn, brand.id, PostStatus::Failed).await?;
    failed.extend(with_status(&mut conn, brand.id, PostStatus::PartiallyPublished).await?);
    failed.sort_by_key(|post| std::cmp::Reverse(post.id));
    failed.truncate(SHOWN.unsigned_abs() as usize);
    let pending = with_status(&mut conn, brand.id, PostStatus::PendingApproval).await?;
    let next = calendar::upcoming(&mut conn, brand.id, SHOWN).await?;
    let accounts = accounts::list(&mut conn, brand.id, PageRequest { page: 1, per_page: ACCOUNTS }).await?;
    let feeds = feeds::with_problem(&mut conn, brand.id, SHOWN).await?;
    let hooks = webhooks::list(&mut conn, visit.user_id()).await?;
    let has_published = !with_status(&mut conn, brand.id, PostStatus::Published).await?.is_empty();
    let keys = keys::list(&mut conn, Some(visit.user_id())).await?;
    let is_developer = !hooks.is_empty() || keys.iter().any(|key| key.last_used_at.is_some());
    let progress = Progress {
        has_zone: !visit.can_manage() || is_zone_chosen(brand),
        has_account: accounts.total > 0,
        has_published,
        has_webhook: is_developer.then_some(!hooks.is_empty()),
    };
    let expired = accounts.rows.iter().filter(|account| account.status == AccountStatus::Expired);
    let page = Home {
        shell: visit.shell(Section::Home, "Home"),
        checklist: if visit.can_publish() { checklist(brand.id, &progress) } else { Vec::new() },
        zones: (!progress.has_zone).then(|| zones(&brand.timezone)),
        failed: rows(visit, &mut conn, failed).await?,
        accounts: expired
            .map(|account| AccountNotice {
                account: chip(account),
                status: Badge::new(Tone::Bad, "Expired"),
                text: account.last_error.as_ref().map_or_else(String::new, |error| error.message.clone()),
                reconnect: format!("/brands/{}/accounts/connect/{}?account={}", brand.id, account.platform, account.id),
            })
            .collect(),
        recurring: rules
            .into_iter()
            .filter_map(|rule| Some(ProblemNotice { id: rule.id, name: rule.name, text: in_quotes(&rule.problem?) }))
            .collect(),
        feeds: feeds.into_iter().map(|(id, name, text)| ProblemNotice { id, name, text: in_quotes(&text) }).collect(),
        webhooks: hooks
            .into_iter()
            .filter_map(|hook| {
                let text = hook.disabled_reason.filter(|_| !hook.is_active)?;
                Some(WebhookNotice { id: hook.id, url: hook.url, text })
            })
            .collect(),
        pending: rows(visit, &mut conn, pending).await?,
        can_approve: role.can_manage(),
        next: rows(visit, &mut conn, next).await?,
    };
    visit.page(&page)
}

async fn with_status(conn: &mut Conn, brand_id: i64, status: PostStatus) -> Result<Vec<crier_domain::post::Post>> {
    let filter = PostFilter { status: Some(status), ..PostFilter::default() };
    Ok(posts::list(conn, brand_id, &filter, PageRequest { page: 1, per_page: SHOWN }).await?.rows)
}

/// Returns whether a user chose the time zone. The first brand of an installation has UTC.
fn is_zone_chosen(brand: &Brand) -> bool {
    brand.timezone != "UTC" || brand.updated_at > brand.created_at
}

/// Returns the steps of a new brand. Empty if all are done.
fn checklist(brand: i64, progress: &Progress) -> Vec<Step> {
    let &Progress { has_zone, has_account, has_published, has_webhook } = progress;
    if has_zone && has_account && has_published && has_webhook.unwrap_or(true) {
        return Vec::new();
    }
    let step = |title: &'static str, text: &'static str, done: bool, label: &str, path: &str| Step {
        title,
        text,
        done,
        action: Some(Link::new(label, &format!("/brands/{brand}/{path}"))),
    };
    let zone = Step {
        title: "Choose a time zone",
        text: "Post times are entered and shown in this time zone.",
        done: has_zone,
        action: None,
    };
    let mut steps = vec![
        zone,
        step(
            "Connect an account",
            "Choose a platform that you publish to. To try Crier first, choose the sandbox, if it is available.",
            has_account,
            "Connect",
            "accounts",
        ),
        step(
            "Publish a post",
            "Write a post, choose an account and publish.",
            has_published,
            "Write a post",
            "posts/new",
        ),
    ];
    steps.extend(has_webhook.map(|has_webhook| {
        step(
            "Create a webhook",
            "Crier notifies your own systems when a post is published or fails, and when a message arrives.",
            has_webhook,
            "Create a webhook",
            "developers/webhooks",
        )
    }));
    steps
}
