//! `/brands/{brand}/settings/members`: the members and open invitations of the brand.
//!
//! Owners and admins change members. Only owners may add, change or remove owners, and the last owner cannot be
//! removed. If an email address belongs to no user of the workspace, the person is invited with a link
//! ([`invitations`]). Whoever has the link can accept it, so with a mail server only the owner of the address gets it.

use askama::Template;
use crier_domain::access::Role;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_mail::mailbox;
use crier_store::mail_counts::{self, MAX_PER_ADDRESS, MailDecision};
use crier_store::mails::{self, NewMail};
use crier_store::{Tx, brands, invitations, users};
use http::StatusCode;
use secrecy::{ExposeSecret, SecretString};

use super::developers::NewSecret;
use super::form_write::{FormWrite, Submission};
use super::lists;
use super::route::{Access, PageRoute};
use super::settings::tabs;
use super::shared::{Choice, FieldErrors, Link, Pages, Time, role_label, role_with_article};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors, see_other};
use crate::numbers::counted;

/// The maximum number of members in a choice.
const MAX_CHOICES: usize = 100;
/// The maximum length of an email address, in bytes.
const MAX_EMAIL: usize = 254;
/// The maximum number of open invitations of a brand.
const MAX_INVITATIONS: usize = 50;
/// The maximum number of users and open invitations of a workspace, because each user has API keys, webhooks and rate
/// limits of their own. The operator may add more users.
const MAX_PEOPLE: i64 = 100;
/// The maximum number of invitations that a workspace sends by email per UTC day.
const MAX_MAILS: u64 = 50;
const MAIL_SUBJECT: &str = "Your invitation to Crier";
/// What a form stores if it sent an invitation by email.
const MAILED: &str = "mailed";

#[derive(Template)]
#[template(path = "console/members.html")]
struct Members {
    shell: Shell,
    errors: FieldErrors,
    members: Vec<Member>,
    pages: Pages,
    can_change: bool,
    /// Whether invitations are sent by email.
    has_mailer: bool,
    /// The email address in the form that adds a member.
    email: String,
    roles: Vec<Choice>,
    invitations: Vec<InvitationRow>,
}

#[derive(Template)]
#[template(path = "invitation_mail.txt")]
struct InvitationMail<'a> {
    inviter: &'a str,
    brand: &'a str,
    /// The role with its article.
    role: &'a str,
    url: &'a str,
    days: i64,
}

struct InvitationRow {
    id: i64,
    email: String,
    role: &'static str,
    expires: Time,
}

struct Member {
    id: i64,
    name: String,
    email: String,
    role: &'static str,
    /// The roles that the user may assign.
    roles: Vec<Choice>,
    is_self: bool,
    is_last_owner: bool,
    /// Whether the user may change the role of this member and remove the member.
    can_change: bool,
    since: Time,
}

impl Members {
    fn tabs(&self) -> Vec<Choice> {
        tabs(&self.shell, "members")
    }

    /// Returns the hint of the email address in the form that adds a member.
    fn hint(&self) -> &'static str {
        if self.has_mailer {
            "A person who is not yet a user of this workspace gets an invitation link by email."
        } else {
            "A person who is not yet a user of this workspace gets an invitation link. You can copy it on the next page."
        }
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::form("/brands/{brand}/settings/members", render),
        PageRoute::post("/brands/{brand}/settings/members", add).access(Access::Manager),
        PageRoute::post("/brands/{brand}/settings/invitations/{invitation}/cancel", cancel).access(Access::Manager),
        PageRoute::post("/brands/{brand}/settings/members/{member}/role", change).access(Access::Manager),
        PageRoute::post("/brands/{brand}/settings/members/{member}/remove", remove).access(Access::Manager),
    ]
}

/// Returns the choices of a member: none, the user, the selected one, and the newest others up to [`MAX_CHOICES`].
pub fn choices(visit: &Visit, members: &[users::Member], none: &str, chosen: &str) -> Vec<Choice> {
    let is_chosen = |member: &users::Member| member.id.to_string() == chosen;
    let is_first = |member: &users::Member| member.id == visit.user_id() || is_chosen(member);
    let (first, others): (Vec<_>, Vec<_>) = members.iter().partition(|member| is_first(member));
    let all = first.into_iter().chain(others).take(MAX_CHOICES);
    let all = all.map(|member| Choice::new(&member.id.to_string(), &member.name, is_chosen(member)));
    [Choice::new("", none, chosen.is_empty())].into_iter().chain(all).collect()
}

async fn render(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let (brand, own_role) = visit.brand()?;
    let mut conn = visit.app.store.read().await?;
    let mut all = users::members(&mut conn, brand.id).await?;
    let open = match visit.can_manage() {
        true => invitations::list(&mut conn, brand.id, visit.now).await?,
        false => Vec::new(),
    };
    drop(conn);
    all.reverse();
    let owners = all.iter().filter(|member| member.role == Role::Owner).count();
    let shell = visit.shell(Section::Settings, "Members");
    let (rows, pages) = lists::paginate(visit, &shell.at("settings/members"), all);
    let member = |row: users::Member| {
        let is_last_owner = row.role == Role::Owner && owners == 1;
        Member {
            id: row.id,
            roles: roles(own_role, row.role.as_str()),
            is_self: row.id == visit.user_id(),
            is_last_owner,
            can_change: visit.can_manage() && !is_last_owner && can_assign(own_role, row.role),
            since: visit.time(row.created_at),
            name: row.name,
            email: row.email,
            role: role_label(row.role),
        }
    };
    let page = Members {
        errors,
        members: rows.into_iter().map(member).collect(),
        pages,
        can_change: visit.can_manage(),
        has_mailer: visit.app.mailer.is_some(),
        email: visit.form.get("email").to_owned(),
        roles: roles(own_role, visit.form.text("role").unwrap_or(Role::Editor.as_str())),
        invitations: open
            .into_iter()
            .map(|row| InvitationRow {
                id: row.id,
                email: row.email,
                role: role_label(row.role),
                expires: visit.time(row.expires_at),
            })
            .collect(),
        shell,
    };
    visit.page_with(status, &page)
}

/// Returns whether a member with the role `own` may assign and remove this role.
const fn can_assign(own: Role, role: Role) -> bool {
    match own {
        Role::Owner => true,
        Role::Admin => !matches!(role, Role::Owner),
        Role::Editor | Role::Contributor => false,
    }
}

/// Returns the roles that a member with the role `own` may assign.
fn roles(own: Role, chosen: &str) -> Vec<Choice> {
    let choice = |role: &Role| {
        let hint = match role {
            Role::Owner => "Has full access and manages owners.",
            Role::Admin => "Has full access, but does not manage owners. Approves posts.",
            Role::Editor => "Publishes posts and replies to messages.",
            Role::Contributor => "Writes drafts and submits them for approval.",
        };
        let choice = Choice::new(role.as_str(), role_label(*role), role.as_str() == chosen);
        Choice { hint: hint.to_owned(), ..choice }
    };
    Role::ALL.iter().filter(|role| can_assign(own, **role)).map(choice).collect()
}

fn read_role(visit: &Visit, own: Role) -> Result<Role> {
    let role = visit.form.get("role").parse().ok().filter(|role| can_assign(own, *role));
    role.ok_or_else(|| ApiError::field("role", "Choose a role that you can assign."))
}

/// Responds to a write: redirects to the list, or shows it with the errors.
async fn respond(visit: &Visit, written: Result<()>, note: &'static str) -> Result<PageReply> {
    match written {
        Ok(()) => visit.to("settings/members", note),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?).await,
    }
}

/// The result of adding an email address.
enum AddedMember {
    Member,
    /// The link was sent by email.
    Mailed,
    /// Without a mail server, the user sends the link. Contains its token.
    Invited(SecretString),
}

impl AddedMember {
    /// Returns what the form stores.
    fn stored(&self) -> &str {
        match self {
            Self::Member => "",
            Self::Mailed => MAILED,
            Self::Invited(token) => token.expose_secret(),
        }
    }

    /// Returns the result of a form that was sent before.
    fn from_stored(stored: &[u8]) -> Self {
        let stored = String::from_utf8_lossy(stored).into_owned();
        match stored.as_str() {
            "" => Self::Member,
            MAILED => Self::Mailed,
            _ => Self::Invited(stored.into()),
        }
    }
}

async fn add(visit: &Visit) -> Result<PageReply> {
    match try_add(visit).await {
        Ok(AddedMember::Member) => visit.to("settings/members", "member-added"),
        Ok(AddedMember::Mailed) => visit.to("settings/members", "invitation-sent"),
        Ok(AddedMember::Invited(token)) => show_link(visit, &token),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?).await,
    }
}

fn link(visit: &Visit, token: &SecretString) -> String {
    format!("{}/invitation/{}", visit.app.public_url, token.expose_secret())
}

/// Shows the link. It cannot be shown again, because only its hash is stored.
fn show_link(visit: &Visit, token: &SecretString) -> Result<PageReply> {
    let (email, days) = (visit.form.get("email").trim(), invitations::LIFETIME.num_days());
    let shell = visit.shell(Section::Settings, "Invitation");
    let page = NewSecret {
        lead: format!("Send this link to {email}. It works once, for {}.", counted(days, "day", "days")),
        label: "Link",
        secret: link(visit, token),
        example: None,
        done: Link::new("Back to members", &shell.at("settings/members")),
        shell,
    };
    visit.page(&page)
}

async fn try_add(visit: &Visit) -> Result<AddedMember> {
    let email = visit.form.text("email").ok_or_else(|| ApiError::field("email", "This field is required."))?;
    let mut write = match FormWrite::begin(visit).await? {
        Submission::First(write) => write,
        Submission::Repeated(stored) => return Ok(AddedMember::from_stored(&stored)),
    };
    match add_in(visit, &mut write.tx, email).await {
        Ok(added) => {
            write.finish(added.stored()).await?;
            Ok(added)
        }
        Err(error) => write.reject(error).await,
    }
}

async fn add_in(visit: &Visit, tx: &mut Tx, email: &str) -> Result<AddedMember> {
    let brand = visit.brand()?.0;
    // The lock prevents two concurrent requests from exceeding the limit of users and invitations.
    brands::lock_workspace(tx, brand.workspace_id).await?;
    let (own, members) = lock(visit, tx).await?;
    let role = read_role(visit, own)?;
    let is_address = email.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty());
    if !is_address || email.len() > MAX_EMAIL || email.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(ApiError::field("email", "Enter an email address, such as ann@example.com."));
    }
    // The address of a user of another workspace is invited like any other, so that users are not revealed.
    let user = users::find_by_email(tx, email).await?.filter(|user| user.workspace_id == brand.workspace_id);
    let Some(user) = user else { return invite(visit, tx, email, role).await };
    if members.iter().any(|member| member.id == user.id) {
        return Err(ApiError::field("email", "This person is already a member. Change the role in the list."));
    }
    brands::set_member(tx, brand.id, user.id, role).await?;
    Ok(AddedMember::Member)
}

/// Creates the invitation, and an email with its link if a mail server is configured.
async fn invite(visit: &Visit, tx: &mut Tx, email: &str, role: Role) -> Result<AddedMember> {
    let (brand, user) = (visit.brand()?.0, visit.user_id());
    let open = invitations::list(tx, brand.id, visit.now).await?;
    let is_new = open.iter().all(|one| one.email != email.to_lowercase());
    if is_new && open.len() >= MAX_INVITATIONS {
        let message = format!("{MAX_INVITATIONS} invitations are open, the maximum. Cancel one of them first.");
        return Err(ApiError::field("email", message));
    }
    if is_new && invitations::count_people(tx, brand.workspace_id, visit.now).await? >= MAX_PEOPLE {
        let message = format!(
            "The workspace has {MAX_PEOPLE} users and open invitations. Cancel an invitation, or ask the operator to add \
             the person."
        );
        return Err(ApiError::field("email", message));
    }
    let token = invitations::create(tx, brand.id, user, email, role).await?;
    if let Some(mailer) = &visit.app.mailer {
        let problem = match mail_counts::take_invitation(tx, brand.workspace_id, MAX_MAILS, mailbox(email)).await? {
            MailDecision::Allowed => None,
            MailDecision::WorkspaceLimit => {
                Some(format!("The workspace has sent {MAX_MAILS} invitations today (UTC)."))
            }
            MailDecision::AddressLimit => {
                Some(format!("This address received {MAX_PER_ADDRESS} invitations today (UTC)."))
            }
        };
        if let Some(problem) = problem {
            return Err(ApiError::field("email", format!("{problem} Send more tomorrow.")));
        }
        let (url, days) = (link(visit, &token), invitations::LIFETIME.num_days());
        let inviter = &visit.authenticated.caller.user_name;
        let text = InvitationMail { inviter, brand: &brand.name, role: role_with_article(role), url: &url, days };
        let body_text = text.render().map_err(|error| ApiError::bug(format!("failed to write an email: {error}")))?;
        let message_id =
            mailer.message_id().map_err(|error| ApiError::bug(format!("failed to write an email: {error}")))?;
        let new = NewMail {
            recipient: email,
            subject: MAIL_SUBJECT,
            body_text: &body_text,
            message_id: &message_id,
            ..NewMail::default()
        };
        mails::enqueue_mail(tx, user, &new, None).await?;
        return Ok(AddedMember::Mailed);
    }
    Ok(AddedMember::Invited(token))
}

async fn cancel(visit: &Visit) -> Result<PageReply> {
    if let Submission::First(mut write) = FormWrite::begin(visit).await? {
        let brand = visit.brand()?.0.id;
        lock(visit, &mut write.tx).await?;
        let id = visit.id("invitation").unwrap_or_default();
        let is_deleted = invitations::delete(&mut write.tx, brand, id).await?;
        write.end(is_deleted.then_some(()).ok_or_else(|| ApiError::not_found("invitation"))).await?;
    }
    visit.to("settings/members", "invitation-canceled")
}

/// Locks the brand, and returns the user's role and the members.
async fn lock(visit: &Visit, tx: &mut Tx) -> Result<(Role, Vec<users::Member>)> {
    let brand = visit.brand()?.0.id;
    brands::lock(tx, brand).await?;
    let members = users::members(tx, brand).await?;
    let own = members.iter().find(|member| member.id == visit.user_id()).map(|member| member.role);
    let own = own.filter(|role| role.can_manage());
    Ok((own.ok_or_else(ApiError::brand_forbidden)?, members))
}

/// Returns the member in the path. Fails if the user may not change this member.
fn changeable<'m>(visit: &Visit, own: Role, members: &'m [users::Member]) -> Result<&'m users::Member> {
    let member = members.iter().find(|member| Some(member.id) == visit.id("member"));
    let member = member.ok_or_else(|| ApiError::not_found("member"))?;
    if !can_assign(own, member.role) {
        let message = "Only an owner can change or remove an owner. Ask an owner.";
        return Err(ApiError::new(ErrorCode::InsufficientScope, message));
    }
    Ok(member)
}

/// Returns an error if this member is the last owner.
fn check_owner_stays(member: &users::Member, members: &[users::Member]) -> Result<()> {
    let mut others = members.iter().filter(|other| other.id != member.id);
    if member.role != Role::Owner || others.any(|other| other.role == Role::Owner) {
        return Ok(());
    }
    let message = "This is the only owner of the brand. Make another member an owner first.";
    Err(ApiError::new(ErrorCode::InsufficientScope, message))
}

async fn change(visit: &Visit) -> Result<PageReply> {
    respond(visit, try_change(visit).await, "member-saved").await
}

async fn try_change(visit: &Visit) -> Result<()> {
    let Submission::First(mut write) = FormWrite::begin(visit).await? else { return Ok(()) };
    let changed = change_in(visit, &mut write.tx).await;
    write.end(changed).await
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
        // The user has no access to the pages of the brand anymore.
        return Ok(see_other("/", ""));
    }
    respond(visit, removed, "member-removed").await
}

async fn try_remove(visit: &Visit) -> Result<()> {
    let Submission::First(mut write) = FormWrite::begin(visit).await? else { return Ok(()) };
    let removed = remove_in(visit, &mut write.tx).await;
    write.end(removed).await
}

async fn remove_in(visit: &Visit, tx: &mut Tx) -> Result<()> {
    let (own, members) = lock(visit, tx).await?;
    let member = changeable(visit, own, &members)?;
    check_owner_stays(member, &members)?;
    brands::remove_member(tx, visit.brand()?.0.id, member.id).await?;
    Ok(())
}
