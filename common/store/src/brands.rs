//! Brands and their members.

use crier_domain::access::Role;
use crier_domain::brand::{Brand, MAX_BRANDS};

use super::db::{execute, run};
use super::{Conn, Result, Tx, inbox_syncs};

/// A brand as a client sends it.
#[derive(Debug, Clone)]
pub struct NewBrand<'a> {
    pub name: &'a str,
    pub description: Option<&'a str>,
    pub website: Option<&'a str>,
    pub timezone: &'a str,
}

/// A brand of which a user is a member, and the user's role in it.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct Membership {
    #[sqlx(flatten)]
    pub brand: Brand,
    pub role: Role,
}

/// Creates a brand with its owner. Returns `None` if the workspace already has `cap` or [`MAX_BRANDS`] brands.
/// Concurrent calls can exceed `MAX_BRANDS`, but never `cap`.
pub async fn create(
    tx: &mut Tx,
    workspace_id: i64,
    owner_id: i64,
    cap: Option<u64>,
    brand: NewBrand<'_>,
) -> Result<Option<Brand>> {
    const SQL: &str = "
        INSERT INTO brands (workspace_id, name, description, website, timezone, created_at, updated_at)
        SELECT $1, $2, $3, $4, $5, $6, $6
        WHERE (SELECT count(*) FROM brands WHERE workspace_id = $1) < $7
        RETURNING *";
    // Inserts both rows in one statement, to save a round trip.
    const WITH_OWNER: &str = "
        WITH brand AS (
            INSERT INTO brands (workspace_id, name, description, website, timezone, created_at, updated_at)
            SELECT $1, $2, $3, $4, $5, $6, $6
            WHERE (SELECT count(*) FROM brands WHERE workspace_id = $1) < $7
            RETURNING *
        ),
        owner AS (
            INSERT INTO brand_members (brand_id, user_id, role, created_at)
            SELECT id, $8, $9, $6
            FROM brand
        )
        SELECT *
        FROM brand";
    let now = tx.now;
    if cap.is_some() {
        // Two concurrent calls must not both create the last brand: the lock on the workspace's row serializes them.
        lock_workspace(tx, workspace_id).await?;
    }
    let limit = i64::try_from(cap.unwrap_or(MAX_BRANDS).min(MAX_BRANDS)).unwrap_or(i64::MAX);
    if tx.is_postgres() {
        let created = run!(tx, c => sqlx::query_as(WITH_OWNER).bind(workspace_id).bind(brand.name)
            .bind(brand.description).bind(brand.website).bind(brand.timezone).bind(now).bind(limit).bind(owner_id)
            .bind(Role::Owner).fetch_optional(c))?;
        return Ok(created);
    }
    let created: Option<Brand> = run!(tx, c => sqlx::query_as(SQL).bind(workspace_id).bind(brand.name)
        .bind(brand.description).bind(brand.website).bind(brand.timezone).bind(now).bind(limit).fetch_optional(c))?;
    if let Some(created) = &created {
        set_member(tx, created.id, owner_id, Role::Owner).await?;
    }
    Ok(created)
}

/// Updates the fields of a brand that a client can change.
pub async fn update(tx: &mut Tx, brand_id: i64, brand: NewBrand<'_>) -> Result<()> {
    const SQL: &str = "
        UPDATE brands
        SET name = $2, description = $3, website = $4, timezone = $5, updated_at = $6
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, brand_id, brand.name, brand.description, brand.website, brand.timezone, now)?;
    Ok(())
}

/// Sets the time zone of a brand, an IANA name.
pub async fn set_timezone(tx: &mut Tx, brand_id: i64, timezone: &str) -> Result<()> {
    let now = tx.now;
    execute!(tx, "UPDATE brands SET timezone = $2, updated_at = $3 WHERE id = $1", brand_id, timezone, now)?;
    Ok(())
}

/// Locks the workspace's row until the end of the transaction, so that caps are checked one at a time.
pub async fn lock_workspace(tx: &mut Tx, workspace_id: i64) -> Result<()> {
    execute!(tx, "UPDATE workspaces SET plan = plan WHERE id = $1", workspace_id)?;
    Ok(())
}

/// Locks the brand's row until the end of the transaction, so that the caps per brand are checked one at a time.
pub async fn lock(tx: &mut Tx, brand_id: i64) -> Result<()> {
    execute!(tx, "UPDATE brands SET name = name WHERE id = $1", brand_id)?;
    Ok(())
}

/// Returns how many brands a workspace has.
pub async fn count(conn: &mut Conn, workspace_id: i64) -> Result<i64> {
    const SQL: &str = "SELECT count(*) FROM brands WHERE workspace_id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(workspace_id).fetch_one(c))?)
}

/// Lists the brands of all workspaces, for the operator's commands.
pub async fn all(conn: &mut Conn) -> Result<Vec<Brand>> {
    Ok(run!(conn, c => sqlx::query_as("SELECT * FROM brands ORDER BY id").fetch_all(c))?)
}

/// Lists the brands that the user is a member of, with the user's roles, newest first.
pub async fn list(conn: &mut Conn, user_id: i64) -> Result<Vec<Membership>> {
    const SQL: &str = "
            SELECT b.*, m.role
            FROM brands b
            JOIN brand_members m ON m.brand_id = b.id
            WHERE m.user_id = $1
            ORDER BY b.id DESC";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(user_id).fetch_all(c))?)
}

/// Lists the brands that a key with limited brands can use, with its user's roles, newest first.
pub async fn list_of_key(conn: &mut Conn, user_id: i64, key_id: i64) -> Result<Vec<Membership>> {
    const SQL: &str = "
            SELECT b.*, m.role
            FROM key_brands kb
            JOIN brands b ON b.id = kb.brand_id
            JOIN brand_members m ON m.brand_id = b.id
            WHERE kb.api_key_id = $2
                AND m.user_id = $1
            ORDER BY b.id DESC";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(user_id).bind(key_id).fetch_all(c))?)
}

/// Returns the workspace of a brand, for the operator's commands.
pub async fn workspace_of(conn: &mut Conn, brand_id: i64) -> Result<Option<i64>> {
    const SQL: &str = "SELECT workspace_id FROM brands WHERE id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).fetch_optional(c))?)
}

/// Returns the workspace of a brand and its plan, for work outside a request.
pub async fn plan_of(conn: &mut Conn, brand_id: i64) -> Result<Option<(i64, String)>> {
    const SQL: &str = "
        SELECT w.id, w.plan
        FROM brands b
        JOIN workspaces w ON w.id = b.workspace_id
        WHERE b.id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).fetch_optional(c))?)
}

/// A member of a brand, with what work in their name needs.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct BrandMember {
    pub name: String,
    pub role: Role,
    pub workspace_id: i64,
    pub plan: String,
    pub timezone: String,
}

/// Finds a member of a brand, for work outside a request.
pub async fn member(conn: &mut Conn, brand_id: i64, user_id: i64) -> Result<Option<BrandMember>> {
    const SQL: &str = "
        SELECT u.name, m.role, b.workspace_id, w.plan, b.timezone
        FROM brand_members m
        JOIN users u ON u.id = m.user_id
        JOIN brands b ON b.id = m.brand_id
        JOIN workspaces w ON w.id = b.workspace_id
        WHERE m.brand_id = $1
            AND m.user_id = $2";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).bind(user_id).fetch_optional(c))?)
}

/// Finds a brand by its id only, for work outside a request.
pub async fn find(conn: &mut Conn, brand_id: i64) -> Result<Option<Brand>> {
    const SQL: &str = "SELECT * FROM brands WHERE id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).fetch_optional(c))?)
}

/// Returns the user id of the first owner of a brand.
pub async fn owner(conn: &mut Conn, brand_id: i64) -> Result<Option<i64>> {
    const SQL: &str = "
        SELECT u.id
        FROM brand_members m
        JOIN users u ON u.id = m.user_id
        WHERE m.brand_id = $1
            AND m.role = 'owner'
        ORDER BY u.id
        LIMIT 1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).fetch_optional(c))?)
}

/// Adds a member, or changes a member's role.
pub async fn set_member(tx: &mut Tx, brand_id: i64, user_id: i64, role: Role) -> Result<()> {
    const SQL: &str = "
        INSERT INTO brand_members (brand_id, user_id, role, created_at)
        VALUES ($1, $2, $3, $4)
        ON CONFLICT (brand_id, user_id)
        DO UPDATE SET role = excluded.role";
    let now = tx.now;
    execute!(tx, SQL, brand_id, user_id, role, now)?;
    Ok(())
}

/// Removes a member, unassigns the member's conversations, and takes the brand from keys and applications that the
/// member limited to some brands: they do not get it back if the user becomes a member again. Returns `false` if the
/// user was not a member.
pub async fn remove_member(tx: &mut Tx, brand_id: i64, user_id: i64) -> Result<bool> {
    const KEYS: &str = "
        DELETE FROM key_brands
        WHERE brand_id = $1 AND api_key_id IN (SELECT id FROM api_keys WHERE user_id = $2)";
    const UNASSIGN: &str = "UPDATE conversations SET assignee_id = NULL WHERE brand_id = $1 AND assignee_id = $2";
    inbox_syncs::lock_of_brand(tx, brand_id).await?;
    execute!(tx, UNASSIGN, brand_id, user_id)?;
    execute!(tx, KEYS, brand_id, user_id)?;
    Ok(execute!(tx, "DELETE FROM brand_members WHERE brand_id = $1 AND user_id = $2", brand_id, user_id)? > 0)
}
