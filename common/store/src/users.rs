//! Workspaces and users.

use chrono::{DateTime, Utc};
use crier_domain::brand::User;

use super::db::{execute, run};
use super::sql::sql;
use super::{Conn, Result, Tx};

const FIND: &str = "
    SELECT u.id, u.workspace_id, u.email, u.name, w.plan, u.created_at
    FROM users u
    JOIN workspaces w ON w.id = u.workspace_id";

pub async fn create_workspace(tx: &mut Tx, name: &str, plan: &str) -> Result<i64> {
    const SQL: &str = "
            INSERT INTO workspaces (name, plan, created_at)
            VALUES ($1, $2, $3)
            RETURNING id";
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(name).bind(plan).bind(now).fetch_one(c))?)
}

/// Returns the plan of a workspace. Returns `None` if the workspace does not exist.
pub async fn workspace_plan(conn: &mut Conn, workspace_id: i64) -> Result<Option<String>> {
    const SQL: &str = "SELECT plan FROM workspaces WHERE id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(workspace_id).fetch_optional(c))?)
}

/// Returns the name of a workspace. Returns `None` if the workspace does not exist.
pub async fn workspace_name(conn: &mut Conn, workspace_id: i64) -> Result<Option<String>> {
    const SQL: &str = "SELECT name FROM workspaces WHERE id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(workspace_id).fetch_optional(c))?)
}

pub async fn set_plan(tx: &mut Tx, workspace_id: i64, plan: &str) -> Result<()> {
    execute!(tx, "UPDATE workspaces SET plan = $2 WHERE id = $1", workspace_id, plan)?;
    Ok(())
}

/// Sets the time zone of a workspace's monthly AI credits, an IANA name.
pub async fn set_timezone(tx: &mut Tx, workspace_id: i64, zone: &str) -> Result<()> {
    execute!(tx, "UPDATE workspaces SET timezone = $2 WHERE id = $1", workspace_id, zone)?;
    Ok(())
}

/// Creates a user. The email address is stored in lower case and is unique on the installation.
pub async fn create(tx: &mut Tx, workspace_id: i64, email: &str, name: &str) -> Result<i64> {
    const SQL: &str = "
        INSERT INTO users (workspace_id, email, name, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $4)
        RETURNING id";
    let now = tx.now;
    let email = email.to_lowercase();
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(workspace_id).bind(&email).bind(name).bind(now).fetch_one(c))?)
}

/// Locks the user's row until the end of the transaction, so that the caps per user are checked one at a time.
pub async fn lock(tx: &mut Tx, user_id: i64) -> Result<()> {
    execute!(tx, "UPDATE users SET name = name WHERE id = $1", user_id)?;
    Ok(())
}

pub async fn find_by_email(conn: &mut Conn, email: &str) -> Result<Option<User>> {
    let sql = sql!("{FIND} WHERE u.email = $1", FIND);
    let email = email.to_lowercase();
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&email).fetch_optional(c))?)
}

pub async fn list(conn: &mut Conn) -> Result<Vec<User>> {
    let sql = sql!("{FIND} ORDER BY u.id", FIND);
    Ok(run!(conn, c => sqlx::query_as(sql).fetch_all(c))?)
}

/// Returns the plans in use. A plans file must contain them.
pub async fn plans_in_use(conn: &mut Conn) -> Result<Vec<String>> {
    Ok(run!(conn, c => sqlx::query_scalar("SELECT DISTINCT plan FROM workspaces ORDER BY plan").fetch_all(c))?)
}

/// Deletes a user with the user's keys and endpoints. Returns `false` if the user does not exist. Posts and messages of
/// the user remain.
pub async fn delete(tx: &mut Tx, email: &str) -> Result<bool> {
    let email = email.to_lowercase();
    Ok(execute!(tx, "DELETE FROM users WHERE email = $1", &email)? > 0)
}

/// Returns a brand that has other members, but would have no owner without this user.
pub async fn brand_without_other_owner(conn: &mut Conn, user_id: i64) -> Result<Option<i64>> {
    const SQL: &str = "
        SELECT m.brand_id
        FROM brand_members m
        JOIN brand_members others ON others.brand_id = m.brand_id AND others.user_id <> m.user_id
        WHERE m.user_id = $1
            AND m.role = 'owner'
        GROUP BY m.brand_id
        HAVING sum(CASE WHEN others.role = 'owner' THEN 1 ELSE 0 END) = 0
        ORDER BY m.brand_id
        LIMIT 1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(user_id).fetch_optional(c))?)
}

/// Returns the brands of which nobody else is a member.
pub async fn brands_without_other_member(conn: &mut Conn, user_id: i64) -> Result<Vec<i64>> {
    const SQL: &str = "
        SELECT m.brand_id
        FROM brand_members m
        WHERE m.user_id = $1
            AND NOT EXISTS (
                SELECT 1
                FROM brand_members others
                JOIN users u ON u.id = others.user_id
                WHERE others.brand_id = m.brand_id
                    AND others.user_id <> m.user_id
            )
        ORDER BY m.brand_id";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(user_id).fetch_all(c))?)
}

/// A member of a brand as listed.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct Member {
    pub id: i64,
    pub name: String,
    pub email: String,
    pub role: crier_domain::access::Role,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

pub async fn members(conn: &mut Conn, brand_id: i64) -> Result<Vec<Member>> {
    const SQL: &str = "
        SELECT u.id, u.name, u.email, m.role, m.created_at, u.updated_at
        FROM brand_members m
        JOIN users u ON u.id = m.user_id
        WHERE m.brand_id = $1
        ORDER BY u.id DESC";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).fetch_all(c))?)
}
