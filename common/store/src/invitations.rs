//! Invitations to a brand: links with which a person becomes a user and a member, once.
//!
//! An invitation creates a user and never signs in an existing one, so its link does not grant the rights of an
//! existing user. It is valid as long as the inviting user may assign the role.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::access::Role;
use secrecy::SecretString;

use super::db::{execute, run};
use super::sessions::{self, Device, Purpose};
use super::{Conn, Result, Tx, brands, users};

/// How long an invitation is valid.
pub const LIFETIME: TimeDelta = TimeDelta::days(7);

/// An invitation as listed.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct InvitationRow {
    pub id: i64,
    pub email: String,
    pub role: Role,
    pub expires_at: DateTime<Utc>,
}

/// The brand and the role to which a link invites.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Invitation {
    pub id: i64,
    pub brand_id: i64,
    pub brand_name: String,
    pub workspace_id: i64,
    pub email: String,
    pub role: Role,
    pub inviter: String,
}

/// Creates an invitation and returns its token. Replaces an earlier invitation of the same email address to the brand.
pub async fn create(tx: &mut Tx, brand_id: i64, user_id: i64, email: &str, role: Role) -> Result<SecretString> {
    const SQL: &str = "
        INSERT INTO invitations (brand_id, user_id, role, expires_at, email, hash)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (brand_id, email)
        DO UPDATE SET user_id = excluded.user_id, role = excluded.role, expires_at = excluded.expires_at,
            hash = excluded.hash";
    let (token, hash) = sessions::new_token(&Purpose::Invitation)?;
    let (expires_at, email) = (tx.now + LIFETIME, email.to_lowercase());
    execute!(tx, SQL, brand_id, user_id, role, expires_at, &email, &hash)?;
    Ok(token)
}

/// Lists the valid invitations to a brand, newest first.
pub async fn list(conn: &mut Conn, brand_id: i64, now: DateTime<Utc>) -> Result<Vec<InvitationRow>> {
    const SQL: &str = "
        SELECT id, email, role, expires_at
        FROM invitations
        WHERE brand_id = $1 AND expires_at > $2
        ORDER BY id DESC";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).bind(now).fetch_all(c))?)
}

/// Returns the number of a workspace's users and of the valid invitations to its brands, in total.
pub async fn count_people(conn: &mut Conn, workspace_id: i64, now: DateTime<Utc>) -> Result<i64> {
    const SQL: &str = "
        SELECT (SELECT count(*) FROM users WHERE workspace_id = $1)
            + (
                SELECT count(*)
                FROM invitations i
                JOIN brands b ON b.id = i.brand_id
                WHERE b.workspace_id = $1 AND i.expires_at > $2
            )";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(workspace_id).bind(now).fetch_one(c))?)
}

/// Deletes an invitation. Returns `false` if the brand has no such invitation.
pub async fn delete(tx: &mut Tx, brand_id: i64, invitation_id: i64) -> Result<bool> {
    const SQL: &str = "DELETE FROM invitations WHERE brand_id = $1 AND id = $2";
    Ok(execute!(tx, SQL, brand_id, invitation_id)? > 0)
}

/// Returns the invitation of a token. Returns `None` if it was used or has expired, or if the inviting user may no
/// longer assign the role.
pub async fn find(conn: &mut Conn, token: &str, now: DateTime<Utc>) -> Result<Option<Invitation>> {
    const SQL: &str = "
        SELECT i.id, i.brand_id, b.name AS brand_name, b.workspace_id, i.email, i.role, u.name AS inviter
        FROM invitations i
        JOIN brands b ON b.id = i.brand_id
        JOIN users u ON u.id = i.user_id
        JOIN brand_members m ON m.brand_id = i.brand_id AND m.user_id = i.user_id
        WHERE i.hash = $1
            AND i.expires_at > $2
            AND (m.role = 'owner' OR m.role = 'admin' AND i.role <> 'owner')";
    let Some(hash) = sessions::hash(token, &Purpose::Invitation) else { return Ok(None) };
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(&hash).bind(now).fetch_optional(c))?)
}

/// Accepts an invitation: deletes it, creates the user and the membership, and begins a session. Returns the session's
/// token and the brand. Returns `None` in the cases of [`find`], or if a user with the email address exists: roll back
/// then.
pub async fn accept(tx: &mut Tx, token: &str, name: &str, device: &Device<'_>) -> Result<Option<(SecretString, i64)>> {
    let now = tx.now;
    let Some(invitation) = find(tx, token, now).await? else { return Ok(None) };
    let is_first = delete(tx, invitation.brand_id, invitation.id).await?;
    if !is_first || users::find_by_email(tx, &invitation.email).await?.is_some() {
        return Ok(None);
    }
    let user = users::create(tx, invitation.workspace_id, &invitation.email, name).await?;
    brands::set_member(tx, invitation.brand_id, user, invitation.role).await?;
    Ok(Some((sessions::create(tx, user, device).await?, invitation.brand_id)))
}

/// Deletes expired invitations, at most `limit`. Returns how many.
pub async fn purge(tx: &mut Tx, limit: i64) -> Result<u64> {
    const SQL: &str = "
        DELETE FROM invitations
        WHERE id IN (SELECT id FROM invitations WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
    let now = tx.now;
    Ok(execute!(tx, SQL, now, limit)?)
}
