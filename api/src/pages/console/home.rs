//! `/brands/{brand}`: what goes out next, and what needs a person.

use askama::Template;
use crier_domain::account::AccountStatus;
use crier_domain::post::PostStatus;
use crier_store::{Conn, PageRequest, accounts, calendar, posts, webhooks};

use super::post_rows::{chip, rows};
use super::route::PageRoute;
use super::shared::{AccountChip, Badge, Link, PostRow, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};
use crate::error::Result;

/// How many posts a part of the page shows.
const SHOWN: i64 = 5;
/// How many accounts are looked at; the list of accounts has them all.
const ACCOUNTS: i64 = 100;

#[derive(Template)]
#[template(path = "console/home.html")]
struct Home {
    shell: Shell,
    /// Shown until all its steps are done.
    checklist: Vec<Step>,
    /// Failed or partly published posts, newest first.
    failed: Vec<PostRow>,
    /// Accounts without access.
    accounts: Vec<AccountNotice>,
    webhooks: Vec<WebhookNotice>,
    /// Posts that wait for approval.
    pending: Vec<PostRow>,
    /// The user may approve posts.
    can_approve: bool,
    /// The next scheduled posts.
    next: Vec<PostRow>,
}

/// A step of the first-run checklist.
struct Step {
    title: String,
    text: String,
    done: bool,
    action: Link,
}

struct AccountNotice {
    account: AccountChip,
    status: Badge,
    /// What is wrong, in plain words.
    text: String,
    reconnect: String,
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
    let mut conn = visit.app.store.read().await?;
    let mut failed = with_status(&mut conn, brand.id, PostStatus::Failed).await?;
    failed.extend(with_status(&mut conn, brand.id, PostStatus::PartiallyPublished).await?);
    failed.sort_by_key(|post| std::cmp::Reverse(post.id));
    failed.truncate(SHOWN.unsigned_abs() as usize);
    let pending = with_status(&mut conn, brand.id, PostStatus::PendingApproval).await?;
    let next = calendar::upcoming(&mut conn, brand.id, SHOWN).await?;
    let accounts = accounts::list(&mut conn, brand.id, PageRequest { page: 1, per_page: ACCOUNTS }).await?;
    let hooks = webhooks::list(&mut conn, visit.user_id()).await?;
    let has_published = !with_status(&mut conn, brand.id, PostStatus::Published).await?.is_empty();
    let expired = accounts.rows.iter().filter(|account| account.status == AccountStatus::Expired);
    let page = Home {
        shell: visit.shell(Section::Home, "Home"),
        checklist: checklist(visit, accounts.total > 0, has_published, !hooks.is_empty())?,
        failed: rows(visit, &mut conn, failed).await?,
        accounts: expired
            .map(|account| AccountNotice {
                account: chip(account),
                status: Badge::new(Tone::Bad, "Expired"),
                text: account.last_error.as_ref().map_or_else(String::new, |error| error.message.clone()),
                reconnect: format!("/brands/{}/accounts/connect/{}", brand.id, account.platform),
            })
            .collect(),
        webhooks: hooks
            .into_iter()
            .filter_map(|hook| {
                let text = hook.disabled_reason.filter(|_| !hook.is_active)?;
                Some(WebhookNotice { id: hook.id, url: hook.url, text })
            })
            .collect(),
        pending: rows(visit, &mut conn, pending).await?,
        can_approve: role.can_approve(),
        next: rows(visit, &mut conn, next).await?,
    };
    visit.page(&page)
}

async fn with_status(conn: &mut Conn, brand_id: i64, status: PostStatus) -> Result<Vec<crier_domain::post::Post>> {
    Ok(posts::list(conn, brand_id, Some(status), PageRequest { page: 1, per_page: SHOWN }).await?.rows)
}

/// Returns the steps of a new brand; none once all are done.
fn checklist(visit: &Visit, has_account: bool, has_published: bool, has_webhook: bool) -> Result<Vec<Step>> {
    if has_account && has_published && has_webhook {
        return Ok(Vec::new());
    }
    let brand = visit.brand()?.0.id;
    let has_sandbox = visit.app.platforms.get(crier_domain::platform::Platform::Sandbox).is_some();
    let (title, text, path) = if has_sandbox {
        (
            "Connect an account",
            "The sandbox is a platform of this server's own, to try things out.",
            "accounts/connect/sandbox",
        )
    } else {
        ("Connect an account", "An account at a platform, where posts are published.", "accounts")
    };
    let step = |title: &str, text: &str, done, label: &str, path: &str| Step {
        title: title.to_owned(),
        text: text.to_owned(),
        done,
        action: Link::new(label, &format!("/brands/{brand}/{path}")),
    };
    Ok(vec![
        step(title, text, has_account, "Connect", path),
        step(
            "Publish a post",
            "Write a text, choose the account, and publish it.",
            has_published,
            "Write a post",
            "posts/new",
        ),
        step(
            "Add a webhook",
            "Your own systems are notified of what was published, what failed, and who wrote to you.",
            has_webhook,
            "Add a webhook",
            "developers/webhooks",
        ),
    ])
}
