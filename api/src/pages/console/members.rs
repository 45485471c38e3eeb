//! `/brands/{brand}/settings/members`: who belongs to the brand.
//!
//! Owners and admins change members; only an owner may make, change or remove an owner, and one owner always stays.

use askama::Template;
use crier_domain::access::Role;
use crier_store::{Tx, brands, users};
use http::StatusCode;

use super::lists;
use super::once::{Once, Sent};
use super::route::{Access, PageRoute};
use super::settings::tabs;
use super::shared::{Choice, FieldErrors, Pages, Time};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors, see_other};
use crate::error::{ApiError, ErrorCode, Result};

/// How many members a choice lists.
const MAX_CHOICES: usize = 100;

#[derive(Template)]
#[template(path = "console/members.html")]
struct Members {
    shell: Shell,
    errors: FieldErrors,
    members: Vec<Member>,
    pages: Pages,
    can_change: bool,
    /// Of the form that adds a member.
    email: String,
    roles: Vec<Choice>,
    /// Where the operator adds users.
    workspace: i64,
}

struct Member {
    id: i64,
    name: String,
    email: String,
    role: Role,
    /// The roles that the user may give.
    roles: Vec<Choice>,
    is_self: bool,
    is_last_owner: bool,
    /// The user may change the role of this member, and remove the member.
    can_change: bool,
    since: Time,
}

impl Members {
    fn tabs(&self) -> Vec<Choice> {
        tabs(&self.shell, "members")
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/settings/members", list),
        PageRoute::post("/brands/{brand}/settings/members", add).access(Access::Manager),
        PageRoute::post("/brands/{brand}/settings/members/{member}/role", change).access(Access::Manager),
        PageRoute::post("/brands/{brand}/settings/members/{member}/remove", remove).access(Access::Manager),
    ]
}

/// Returns the choices of a member: none, the user, the chosen one, and the newest others up to [`MAX_CHOICES`].
pub fn choices(visit: &Visit, members: &[users::Member], none: &str, chosen: &str) -> Vec<Choice> {
    let is_chosen = |member: &users::Member| member.id.to_string() == chosen;
    let is_first = |member: &users::Member| member.id == visit.user_id() || is_chosen(member);
    let (first, others): (Vec<_>, Vec<_>) = members.iter().partition(|member| is_first(member));
    let all = first.into_iter().chain(others).take(MAX_CHOICES);
    let all = all.map(|member| Choice::new(&member.id.to_string(), &member.name, is_chosen(member)));
    [Choice::new("", none, chosen.is_empty())].into_iter().chain(all).collect()
}

async fn list(visit: &Visit) -> Result<PageReply> {
    render(visit, StatusCode::OK, FieldErrors::default()).await
}

async fn render(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let (brand, own_role) = visit.brand()?;
    let mut all = users::members(&mut visit.app.store.read().await?, brand.id).await?;
    all.reverse();
    let owners = all.iter().filter(|member| member.role == Role::Owner).count();
    let shell = visit.shell(Section::Settings, "Members");
    let (rows, pages) = lists::cut(visit, &shell.at("settings/members"), all);
    let member = |row: users::Member| {
        let is_last_owner = row.role == Role::Owner && owners == 1;
        Member {
            id: row.id,
            roles: roles(own_role, row.role.as_str()),
            is_self: row.id == visit.user_id(),
            is_last_owner,
            can_change: visit.can_manage() && !is_last_owner && may_give(own_role, row.role),
            since: visit.time(row.created_at),
            name: row.name,
            email: row.email,
            role: row.role,
        }
    };
    let page = Members {
        errors,
        members: rows.into_iter().map(member).collect(),
        pages,
        can_change: visit.can_manage(),
        email: visit.form.get("email").to_owned(),
        roles: roles(own_role, visit.form.text("role").unwrap_or(Role::Editor.as_str())),
        workspace: brand.workspace_id,
        shell,
    };
    visit.page_with(status, &page)
}

/// Returns whether a member may give and take this role.
const fn may_give(own: Role, role: Role) -> bool {
    match own {
        Role::Owner => true,
        Role::Admin => !matches!(role, Role::Owner),
        Role::Editor => false,
    }
}

/// Returns the roles that a member may give.
fn roles(own: Role, chosen: &str) -> Vec<Choice> {
    let choice = |role: &Role| {
        let (label, hint) = match role {
            Role::Owner => ("Owner", "Everything, and owners."),
            Role::Admin => ("Admin", "Everything but owners; approves posts."),
            Role::Editor => ("Editor", "Writes posts and answers messages."),
        };
        let choice = Choice::new(role.as_str(), label, role.as_str() == chosen);
        Choice { hint: hint.to_owned(), ..choice }
    };
    Role::ALL.iter().filter(|role| may_give(own, **role)).map(choice).collect()
}

fn read_role(visit: &Visit, own: Role) -> Result<Role> {
    let role = visit.form.get("role").parse().ok().filter(|role| may_give(own, *role));
    role.ok_or_else(|| ApiError::field("role", "Choose one of the roles that you may give."))
}

/// Answers a write: leads to the list, or shows it with what is wrong.
async fn answer(visit: &Visit, written: Result<()>, note: &'static str) -> Result<PageReply> {
    match written {
        Ok(()) => visit.to("settings/members", note),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?).await,
    }
}

async fn add(visit: &Visit) -> Result<PageReply> {
    answer(visit, try_add(visit).await, "member-added").await
}

async fn try_add(visit: &Visit) -> Result<()> {
    let email = visit.form.text("email").ok_or_else(|| ApiError::field("email", "This field is required."))?;
    let Sent::First(mut once) = Once::begin(visit).await? else { return Ok(()) };
    let added = add_in(visit, &mut once.tx, email).await;
    once.end(added).await
}

async fn add_in(visit: &Visit, tx: &mut Tx, email: &str) -> Result<()> {
    let brand = visit.brand()?.0;
    let (own, members) = lock(visit, tx).await?;
    let role = read_role(visit, own)?;
    let is_possible = email.len() <= 254 && !email.contains(char::is_control);
    let found = if is_possible { users::find_by_email(tx, email).await? } else { None };
    // A user of another workspace is not revealed.
    let user = found.filter(|user| user.workspace_id == brand.workspace_id).ok_or_else(|| {
        let workspace = brand.workspace_id;
        let message = format!(
            "No user of this workspace has this address. The operator adds one with: crier user add EMAIL \
             --workspace {workspace}"
        );
        ApiError::field("email", message)
    })?;
    if members.iter().any(|member| member.id == user.id) {
        return Err(ApiError::field("email", "This person is a member already. Change the role in the list."));
    }
    Ok(brands::set_member(tx, brand.id, user.id, role).await?)
}

/// Locks the brand, and returns the user's role in it and the members as they are now.
async fn lock(visit: &Visit, tx: &mut Tx) -> Result<(Role, Vec<users::Member>)> {
    let brand = visit.brand()?.0.id;
    brands::lock(tx, brand).await?;
    let members = users::members(tx, brand).await?;
    let own = members.iter().find(|member| member.id == visit.user_id()).map(|member| member.role);
    let own = own.filter(|role| *role != Role::Editor);
    Ok((own.ok_or_else(ApiError::brand_forbidden)?, members))
}

/// Returns the member in the path, whom the user may change.
fn changeable<'m>(visit: &Visit, own: Role, members: &'m [users::Member]) -> Result<&'m users::Member> {
    let member = members.iter().find(|member| Some(member.id) == visit.id("member"));
    let member = member.ok_or_else(|| ApiError::not_found("member"))?;
    if !may_give(own, member.role) {
        let message = "Only an owner may change or remove an owner. Ask one of them.";
        return Err(ApiError::new(ErrorCode::InsufficientScope, message));
    }
    Ok(member)
}

/// Fails if no owner would stay without this member.
fn check_owner_stays(member: &users::Member, members: &[users::Member]) -> Result<()> {
    let mut others = members.iter().filter(|other| other.id != member.id);
    if member.role != Role::Owner || others.any(|other| other.role == Role::Owner) {
        return Ok(());
    }
    let message = "This is the only owner of the brand. Make another member an owner first.";
    Err(ApiError::new(ErrorCode::InsufficientScope, message))
}

async fn change(visit: &Visit) -> Result<PageReply> {
    answer(visit, try_change(visit).await, "member-saved").await
}

async fn try_change(visit: &Visit) -> Result<()> {
    let Sent::First(mut once) = Once::begin(visit).await? else { return Ok(()) };
    let changed = change_in(visit, &mut once.tx).await;
    once.end(changed).await
}

async fn change_in(visit: &Visit, tx: &mut Tx) -> Result<()> {
    let (own, members) = lock(visit, tx).await?;
    let member = changeable(visit, own, &members)?;
    let role = read_role(visit, own)?;
    if role != Role::Owner {
        check_owner_stays(member, &members)?;
    }
    Ok(brands::set_member(tx, visit.brand()?.0.id, member.id, role).await?)
}

async fn remove(visit: &Visit) -> Result<PageReply> {
    let removed = try_remove(visit).await;
    if removed.is_ok() && visit.id("member") == Some(visit.user_id()) {
        // The brand's pages are no longer this user's.
        return Ok(see_other("/", ""));
    }
    answer(visit, removed, "member-removed").await
}

async fn try_remove(visit: &Visit) -> Result<()> {
    let Sent::First(mut once) = Once::begin(visit).await? else { return Ok(()) };
    let removed = remove_in(visit, &mut once.tx).await;
    once.end(removed).await
}

async fn remove_in(visit: &Visit, tx: &mut Tx) -> Result<()> {
    let (own, members) = lock(visit, tx).await?;
    let member = changeable(visit, own, &members)?;
    check_owner_stays(member, &members)?;
    brands::remove_member(tx, visit.brand()?.0.id, member.id).await?;
    Ok(())
}
