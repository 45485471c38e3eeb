//! Workspaces, users and brands. A workspace has a plan, users and brands; a brand has members.

use chrono::{DateTime, Utc};

/// The maximum number of brands of a workspace on any plan. The list of brands is not paginated.
pub const MAX_BRANDS: u64 = 1_000;

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Brand {
    pub id: i64,
    pub workspace_id: i64,
    pub name: String,
    pub description: Option<String>,
    pub website: Option<String>,
    pub timezone: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct User {
    pub id: i64,
    pub workspace_id: i64,
    pub email: String,
    pub name: String,
    pub plan: String,
    pub created_at: DateTime<Utc>,
}
