//! Content plans and their items.
//!
//! Changing a plan or its items locks the plan's row, so that their size is checked one at a time. Creating a post from
//! an item locks that item. No request locks a plan while it has locked an item, or the brand before a plan.

use chrono::{DateTime, NaiveDate, Utc};
use crier_domain::content_plan::{ContentPlan, PlanItem, PlanItemHead, PlanSize};
use serde_json::json;

use super::db::{execute, run, time_text};
use super::jobs::{id_list, list_sql};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, Tx};

const PLAN: &str = "id, name, description, starts_on, ends_on, created_at, updated_at";

/// Selects items. Ignores a deleted post, whose row may remain for a while.
const ITEM: &str = "
    SELECT i.id, i.plan_id, i.title, i.content, i.planned_at, p.id AS post_id, i.created_at, i.updated_at
    FROM content_plan_items i
    LEFT JOIN posts p ON p.id = i.post_id AND p.deleted_at IS NULL";

/// The display order: by time. Items without a time come last.
const IN_ORDER: &str = "ORDER BY i.plan_id DESC, i.planned_at IS NULL, i.planned_at, i.id";

/// A plan as a client sends it.
#[derive(Clone, Debug)]
pub struct NewPlan<'a> {
    pub name: &'a str,
    pub description: Option<&'a str>,
    pub starts_on: Option<NaiveDate>,
    pub ends_on: Option<NaiveDate>,
}

/// An item as a client sends it.
#[derive(Clone, Debug)]
pub struct NewItem {
    pub title: String,
    pub content: Option<String>,
    pub planned_at: Option<DateTime<Utc>>,
}

/// Lists the brand's plans, newest first.
pub async fn list(conn: &mut Conn, brand_id: i64) -> Result<Vec<ContentPlan>> {
    let sql = sql!("SELECT {PLAN} FROM content_plans WHERE brand_id = $1 ORDER BY id DESC", PLAN);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).fetch_all(c))?)
}

/// Returns the items of all of the brand's plans without their contents, grouped by plan and ordered within each.
pub async fn items_of_brand(conn: &mut Conn, brand_id: i64) -> Result<Vec<PlanItemHead>> {
    let sql = sql!(
        "
        SELECT i.id, i.plan_id, i.title, i.planned_at, p.id AS post_id, i.created_at, i.updated_at
        FROM content_plan_items i
        LEFT JOIN posts p ON p.id = i.post_id AND p.deleted_at IS NULL
        WHERE i.plan_id IN (SELECT id FROM content_plans WHERE brand_id = $1)
        {IN_ORDER}",
        IN_ORDER
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).fetch_all(c))?)
}

pub async fn find(conn: &mut Conn, brand_id: i64, plan_id: i64) -> Result<Option<ContentPlan>> {
    let sql = sql!("SELECT {PLAN} FROM content_plans WHERE brand_id = $1 AND id = $2", PLAN);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(plan_id).fetch_optional(c))?)
}

/// Finds a plan and locks its row.
pub async fn find_for_update(tx: &mut Tx, brand_id: i64, plan_id: i64) -> Result<Option<ContentPlan>> {
    let sql =
        locking_sql!(tx, "SELECT {PLAN} FROM content_plans WHERE brand_id = $1 AND id = $2 {LOCK}", "FOR UPDATE", PLAN);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(brand_id).bind(plan_id).fetch_optional(c))?)
}

/// Returns the items of a plan, in order.
pub async fn items(conn: &mut Conn, plan_id: i64) -> Result<Vec<PlanItem>> {
    let sql = sql!("{ITEM} WHERE i.plan_id = $1 {IN_ORDER}", ITEM, IN_ORDER);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(plan_id).fetch_all(c))?)
}

pub async fn create(tx: &mut Tx, brand_id: i64, plan: &NewPlan<'_>) -> Result<ContentPlan> {
    let sql = sql!(
        "
            INSERT INTO content_plans (
                brand_id, name, description, starts_on, ends_on, created_at, updated_at
            )
            VALUES ($1, $2, $3, $4, $5, $6, $6)
            RETURNING {PLAN}",
        PLAN
    );
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_as(sql).bind(brand_id).bind(plan.name).bind(plan.description)
        .bind(plan.starts_on).bind(plan.ends_on).bind(now).fetch_one(c))?)
}

/// Stores the mutable fields of a plan.
pub async fn update(tx: &mut Tx, plan: &ContentPlan) -> Result<()> {
    const SQL: &str = "
        UPDATE content_plans
        SET name = $2, description = $3, starts_on = $4, ends_on = $5, updated_at = $6
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, plan.id, &plan.name, &plan.description, plan.starts_on, plan.ends_on, now)?;
    Ok(())
}

/// Deletes a plan with its items; posts created from them remain. Returns `false` if the plan does not exist.
pub async fn delete(tx: &mut Tx, brand_id: i64, plan_id: i64) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM content_plans WHERE brand_id = $1 AND id = $2", brand_id, plan_id)? > 0)
}

/// Adds items to a plan whose row is locked. Returns their ids, in the order of the items.
pub async fn add_items(tx: &mut Tx, plan_id: i64, items: &[NewItem]) -> Result<Vec<i64>> {
    let rows: Vec<_> =
        items.iter().map(|item| json!([item.title, item.content, item.planned_at.map(time_text)])).collect();
    let sql = tx.for_engine(
        "
            INSERT INTO content_plan_items (plan_id, title, content, planned_at, created_at, updated_at)
            SELECT $2, value ->> 0, value ->> 1, (value ->> 2)::timestamptz, $3, $3
            FROM json_array_elements($1::json) WITH ORDINALITY AS new (value, n)
            ORDER BY n
            RETURNING id",
        "
            INSERT INTO content_plan_items (plan_id, title, content, planned_at, created_at, updated_at)
            SELECT $2, value ->> 0, value ->> 1, value ->> 2, $3, $3
            FROM json_each($1)
            ORDER BY key
            RETURNING id",
    );
    let (list, now) = (serde_json::Value::from(rows).to_string(), tx.now);
    let mut ids: Vec<i64> = run!(tx, c => sqlx::query_scalar(sql).bind(&list).bind(plan_id).bind(now).fetch_all(c))?;
    // Ids ascend in the order of the items; `RETURNING` has no defined order.
    ids.sort_unstable();
    Ok(ids)
}

/// Finds an item of the brand's plan.
pub async fn find_item(conn: &mut Conn, brand_id: i64, plan_id: i64, item_id: i64) -> Result<Option<PlanItem>> {
    let sql = sql!(
        "{ITEM} WHERE i.id = $3 AND i.plan_id = (SELECT id FROM content_plans WHERE brand_id = $1 AND id = $2)",
        ITEM
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(plan_id).bind(item_id)
        .fetch_optional(c))?)
}

/// Finds items of the brand's plan, in the order of their ids. Leaves out those that the plan does not have.
pub async fn find_items(conn: &mut Conn, brand_id: i64, plan_id: i64, items: &[i64]) -> Result<Vec<PlanItem>> {
    let sql = list_sql!(
        conn,
        "{ITEM} WHERE i.id",
        "AND i.plan_id = (SELECT id FROM content_plans WHERE brand_id = $2 AND id = $3) ORDER BY i.id",
        ITEM
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(id_list(items)).bind(brand_id).bind(plan_id)
        .fetch_all(c))?)
}

/// Locks an item's row, then reads it, so that it contains a post that another request created from it meanwhile.
pub async fn find_item_for_update(tx: &mut Tx, brand_id: i64, plan_id: i64, item_id: i64) -> Result<Option<PlanItem>> {
    const LOCK: &str = "
        UPDATE content_plan_items
        SET updated_at = updated_at
        WHERE id = $3
            AND plan_id = (SELECT id FROM content_plans WHERE brand_id = $1 AND id = $2)";
    execute!(tx, LOCK, brand_id, plan_id, item_id)?;
    find_item(tx, brand_id, plan_id, item_id).await
}

/// Stores the mutable fields of an item.
pub async fn update_item(tx: &mut Tx, item: &PlanItem) -> Result<()> {
    const SQL: &str = "
            UPDATE content_plan_items
            SET title = $2, content = $3, planned_at = $4, updated_at = $5
            WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, item.id, &item.title, &item.content, item.planned_at, now)?;
    Ok(())
}

/// Stores the post that was created from an item whose row is locked.
pub async fn set_post(tx: &mut Tx, item_id: i64, post_id: i64) -> Result<()> {
    let now = tx.now;
    execute!(tx, "UPDATE content_plan_items SET post_id = $2, updated_at = $3 WHERE id = $1", item_id, post_id, now)?;
    Ok(())
}

/// Deletes an item; a post created from it remains. Returns `false` if the item does not exist.
pub async fn delete_item(tx: &mut Tx, brand_id: i64, plan_id: i64, item_id: i64) -> Result<bool> {
    const SQL: &str = "
        DELETE FROM content_plan_items
        WHERE id = $3
            AND plan_id = (SELECT id FROM content_plans WHERE brand_id = $1 AND id = $2)";
    Ok(execute!(tx, SQL, brand_id, plan_id, item_id)? > 0)
}

/// Returns how many items a plan has, and the size of their texts in bytes.
pub async fn size(conn: &mut Conn, plan_id: i64) -> Result<PlanSize> {
    const SQL: &str = "
        SELECT count(*), coalesce(sum(octet_length(title) + coalesce(octet_length(content), 0)), 0)
        FROM content_plan_items
        WHERE plan_id = $1";
    let (items, text): (i64, i64) = run!(conn, c => sqlx::query_as(SQL).bind(plan_id).fetch_one(c))?;
    Ok(PlanSize { items: whole(items), text: whole(text) })
}

/// Returns how many plans the brand has.
pub async fn count(conn: &mut Conn, brand_id: i64) -> Result<i64> {
    const SQL: &str = "SELECT count(*) FROM content_plans WHERE brand_id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).fetch_one(c))?)
}

/// Returns how many items all of the brand's plans have.
pub async fn count_items_of_brand(conn: &mut Conn, brand_id: i64) -> Result<i64> {
    const SQL: &str = "
        SELECT count(*)
        FROM content_plan_items
        WHERE plan_id IN (SELECT id FROM content_plans WHERE brand_id = $1)";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).fetch_one(c))?)
}

fn whole(count: i64) -> usize {
    usize::try_from(count).unwrap_or_default()
}
