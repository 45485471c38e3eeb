//! `/brands/{brand}/accounts`: the accounts of the brand, and the platforms that can be connected.

use std::collections::HashMap;

use askama::Template;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::{AccountStatus, SocialAccount};
use crier_domain::platform::{Descriptor, Mode, Platform as PlatformKey};
use crier_endpoints::admission;
use crier_endpoints::error::Result;
use crier_endpoints::routes;
use crier_platforms::permissions::{self, Action};
use crier_store::account_tokens::{self, AccountAccess};
use crier_store::{Conn, PageRequest, accounts, applications};

use super::avatar::avatar_url;
use super::lists;
use super::paging;
use super::route::{Access, PageRoute};
use super::shared::{Badge, Pages, Platform, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};
use crate::numbers::counted;

/// An account is marked if its access expires within this time.
const SOON: TimeDelta = TimeDelta::days(14);

#[derive(Template)]
#[template(path = "console/accounts.html")]
struct Accounts {
    shell: Shell,
    accounts: Vec<Account>,
    pages: Pages,
    /// All platforms, the configured ones first.
    platforms: Vec<ConnectTile>,
    /// The message if the limit of the plan permits no further account.
    full: Option<String>,
    /// Whether the user may connect and disconnect accounts.
    can_change: bool,
}

struct Account {
    id: i64,
    platform: Platform,
    name: String,
    username: Option<String>,
    kind: String,
    profile_url: Option<String>,
    /// The URL of the avatar.
    avatar: Option<String>,
    status: Badge,
    connected: Time,
    /// The time at which the access expires. `None` if it does not expire or is renewed automatically.
    expires: Option<Time>,
    error: Option<String>,
    /// What the account cannot do because permissions are missing. Empty if none are.
    not_permitted: String,
    /// The name of the signature.
    signature: Option<String>,
    needs_reconnect: bool,
    /// The URL of the page that reconnects the account.
    reconnect: String,
    /// Whether Crier can renew or check the access.
    can_refresh: bool,
    /// Whether other brands have the account too, so that a disconnect affects only this brand.
    is_shared: bool,
}

struct ConnectTile {
    platform: Platform,
    needs: String,
    /// The reason why the platform cannot be connected.
    unavailable: Option<String>,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/accounts", list),
        PageRoute::post("/brands/{brand}/accounts/{account}/disconnect", disconnect).access(Access::Publisher),
        PageRoute::post("/brands/{brand}/accounts/{account}/refresh", refresh).access(Access::Publisher),
    ]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let brand = visit.brand()?.0.id;
    let page = paging::number(visit);
    let mut conn = visit.app.store.read().await?;
    let found = accounts::list(&mut conn, brand, PageRequest { page, per_page: paging::PER_PAGE }).await?;
    let ids: Vec<i64> = found.rows.iter().map(|account| account.id).collect();
    let access = account_tokens::access(&mut conn, brand, &ids).await?;
    let access: HashMap<i64, AccountAccess> = access.into_iter().map(|one| (one.account_id, one)).collect();
    let platforms = tiles(visit, &mut conn).await?;
    drop(conn);
    let signatures = signatures(visit, &found.rows).await?;
    let cap = admission::plan(&visit.app, &visit.authenticated.caller)?.social_accounts;
    let is_full = cap.filter(|cap| u64::try_from(found.total).unwrap_or_default() >= *cap);
    let view = Accounts {
        shell: visit.shell(Section::Accounts, "Accounts"),
        pages: lists::links(&format!("/brands/{brand}/accounts"), &[], page, ids.len(), found.total),
        platforms,
        full: is_full.map(|cap| {
            format!(
                "The plan allows {} for each brand. Disconnect one, or ask the operator for a larger plan.",
                counted(cap, "account", "accounts")
            )
        }),
        accounts: found
            .rows
            .into_iter()
            .map(|row| Account {
                signature: row.signature_id.and_then(|id| signatures.get(&id).cloned()),
                ..account(visit, brand, access.get(&row.id), row)
            })
            .collect(),
        can_change: visit.can_publish(),
    };
    visit.page(&view)
}

/// Returns the names of the brand's snippets, by ID. Empty if no account has a signature.
async fn signatures(visit: &Visit, accounts: &[SocialAccount]) -> Result<HashMap<i64, String>> {
    if accounts.iter().all(|account| account.signature_id.is_none()) {
        return Ok(HashMap::new());
    }
    let all = visit.call().read(routes::snippets::list::endpoint(), ()).await?;
    Ok(all.into_iter().map(|snippet| (snippet.id, snippet.name)).collect())
}

fn account(visit: &Visit, brand: i64, access: Option<&AccountAccess>, row: SocialAccount) -> Account {
    let ends_at = access.and_then(AccountAccess::ends_at);
    let is_expired = row.status == AccountStatus::Expired;
    let has_connector = visit.app.platforms.get(row.platform).is_some();
    let not_permitted = not_permitted(&row);
    let avatar = avatar_url(brand, &row);
    Account {
        id: row.id,
        platform: Platform::of(row.platform.as_str()),
        status: status(row.status, ends_at, visit.now),
        kind: row.kind.to_string(),
        profile_url: row.profile_url.filter(|url| url.starts_with("https://") || url.starts_with("http://")),
        avatar,
        connected: visit.time(row.connected_at),
        expires: ends_at.map(|at| visit.time(at)),
        error: row.last_error.filter(|_| is_expired).map(|error| error.message),
        not_permitted,
        signature: None,
        needs_reconnect: is_expired,
        reconnect: format!("/brands/{brand}/accounts/connect/{}?account={}", row.platform, row.id),
        can_refresh: has_connector && access.is_some_and(AccountAccess::can_refresh),
        is_shared: access.is_some_and(|access| access.is_shared),
        name: row.name,
        username: row.username,
    }
}

/// Returns what an account cannot do because permissions are missing.
fn not_permitted(row: &SocialAccount) -> String {
    let is_missing =
        |action: &Action| permissions::rejection(row.platform, row.granted_scopes.as_deref(), *action).is_some();
    let words = Action::ALL.into_iter().filter(is_missing).map(|action| match action {
        Action::Thread => "threads",
        Action::FirstComment => "first comments",
        Action::Unpublish => "deletion of posts",
    });
    words.collect::<Vec<_>>().join(", ")
}

fn status(status: AccountStatus, ends_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Badge {
    let left = ends_at.map(|end| end - now).filter(|left| *left <= SOON);
    match (status, left.map(|left| left.num_days())) {
        (AccountStatus::Expired, _) => Badge::new(Tone::Bad, "Expired"),
        (AccountStatus::Active, None) => Badge::new(Tone::Good, "Active"),
        (AccountStatus::Active, Some(..1)) => Badge::new(Tone::Warn, "Expires within a day"),
        (AccountStatus::Active, Some(days)) => {
            Badge::new(Tone::Warn, &format!("Expires in {}", counted(days, "day", "days")))
        }
    }
}

async fn tiles(visit: &Visit, conn: &mut Conn) -> Result<Vec<ConnectTile>> {
    let registry = &visit.app.platforms;
    let workspace = visit.authenticated.caller.workspace_id;
    let set = applications::platforms(conn, workspace, visit.brand()?.0.id).await?;
    let tile = |descriptor: &Descriptor| {
        let is_configured = registry.is_configured(descriptor.platform, set.contains(&descriptor.platform));
        ConnectTile {
            platform: Platform::of(descriptor.platform.as_str()),
            needs: needs(descriptor),
            unavailable: (!is_configured).then(|| not_configured(descriptor)),
        }
    };
    let mut tiles: Vec<ConnectTile> = registry.all().iter().map(tile).collect();
    tiles.sort_by_key(|tile| tile.unavailable.is_some());
    Ok(tiles)
}

/// Returns what a user needs to connect an account.
fn needs(descriptor: &Descriptor) -> String {
    match descriptor.mode {
        Mode::SelfConnect => {
            let required = descriptor.credential_fields.iter().filter(|field| field.required);
            let labels: Vec<String> = required.map(|field| lower_first(field.label)).collect();
            format!("Required: {}.", labels.join("; "))
        }
        Mode::SelfConnectOauth if descriptor.platform == PlatformKey::Shopify => {
            "Enter your shop's domain and authorize Crier there.".to_owned()
        }
        Mode::SelfConnectOauth => "Enter your server and sign in there.".to_owned(),
        Mode::Oauth => format!("Sign in to {}.", descriptor.name),
    }
}

/// Returns a label as it is within a sentence: `Bot token` becomes `bot token`, but `URL` stays the same.
pub fn lower_first(label: &str) -> String {
    match label.split_at_checked(1) {
        Some((first, rest)) if rest.starts_with(char::is_lowercase) => format!("{}{rest}", first.to_lowercase()),
        _ => label.to_owned(),
    }
}

/// Returns the reason why a platform is not configured, and what to do.
pub fn not_configured(descriptor: &Descriptor) -> String {
    let text = match descriptor.platform {
        PlatformKey::Sandbox => {
            "The sandbox is disabled on this installation. Its operator can enable it with CRIER_SANDBOX=true."
        }
        _ => "Not set up on this installation. Ask the operator to add an application.",
    };
    text.to_owned()
}

async fn disconnect(visit: &Visit) -> Result<PageReply> {
    visit.call().write(routes::accounts::disconnect::endpoint(), ()).await?;
    visit.to("accounts", "account-disconnected")
}

async fn refresh(visit: &Visit) -> Result<PageReply> {
    visit.call().write(routes::accounts::refresh::endpoint(), ()).await?;
    visit.to("accounts", "account-refreshed")
}
