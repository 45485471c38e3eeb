//! `crier plan list | set | usage`

use std::collections::BTreeMap;

use crier_domain::ai::Operation;
use crier_domain::plan::Plan;
use crier_store::{Conn, StoreError, ai_credits, brands, files, mail_counts, usage, users};
use serde::Serialize;

use super::{Context, Result, fail, find_user, no_user};
use crate::cli::PlanCommand;
use crate::output::{print_line, print_rows};

#[derive(Serialize)]
struct PlanRow {
    id: String,
    brands: Option<u64>,
    social_accounts: Option<u64>,
    posts_per_month: Option<u64>,
    storage_mib: Option<u64>,
    ai_credits: Option<u64>,
    requests_per_minute: Option<u64>,
    analytics_days: Option<u64>,
    report_mails_per_day: Option<u64>,
    features: Vec<&'static str>,
}

#[derive(Serialize)]
struct UsageRow {
    /// Workspace id.
    id: i64,
    plan: String,
    users: Vec<String>,
    brands: i64,
    brands_cap: Option<u64>,
    posts_this_month: i64,
    posts_per_month: Option<u64>,
    storage_used_mib: i64,
    storage_mib: Option<u64>,
    ai_credits_this_month: i64,
    ai_credits: Option<u64>,
    report_mails_today: i64,
    report_mails_per_day: Option<u64>,
    /// In JSON output only; without `--json`, `--brands` prints a separate table.
    #[serde(skip_serializing_if = "Option::is_none")]
    ai_brands: Option<Vec<BrandRow>>,
}

/// A brand's usage of one operation this month.
#[derive(Serialize)]
struct BrandRow {
    brand_id: i64,
    workspace_id: i64,
    operation: Operation,
    requests: i64,
    credits: i64,
}

pub async fn run(cx: &Context, command: PlanCommand) -> Result {
    match command {
        PlanCommand::List(format) => {
            let list: Vec<PlanRow> = cx.config.plans.iter().map(row).collect();
            print_rows(&list, format.json);
            Ok(())
        }
        PlanCommand::Set { user, plan, timezone } => {
            check_plan_exists(cx, &plan)?;
            let mut tx = cx.store.begin().await?;
            let found = find_user(&mut tx, &user).await?;
            users::set_plan(&mut tx, found.workspace_id, &plan).await?;
            if let Some(zone) = &timezone {
                users::set_timezone(&mut tx, found.workspace_id, zone).await?;
            }
            tx.commit().await?;
            let zone =
                timezone.map(|zone| format!(", with monthly AI credits in the time zone {zone}")).unwrap_or_default();
            print_line(format_args!("Workspace {} is on plan {plan}{zone}.", found.workspace_id));
            Ok(())
        }
        PlanCommand::Usage { user, brands, format } => show_usage(cx, user.as_deref(), brands, format.json).await,
    }
}

fn row(plan: &Plan) -> PlanRow {
    PlanRow {
        id: plan.name.clone(),
        brands: plan.brands,
        social_accounts: plan.social_accounts,
        posts_per_month: plan.posts_per_month,
        storage_mib: plan.storage_mib,
        ai_credits: plan.ai_credits,
        requests_per_minute: plan.requests_per_minute,
        analytics_days: plan.analytics_days,
        report_mails_per_day: plan.report_mails_per_day,
        features: plan.features.iter().map(|f| f.as_str()).collect(),
    }
}

/// Fails if the installation does not have the plan.
pub fn check_plan_exists(cx: &Context, plan: &str) -> Result {
    if cx.config.plans.get(plan).is_some() {
        return Ok(());
    }
    let names: Vec<&str> = cx.config.plans.names().collect();
    fail(format!("there is no plan `{plan}`; choose one of: {}", names.join(", ")))
}

async fn brand_rows(
    conn: &mut Conn,
    cx: &Context,
    workspace_id: i64,
) -> std::result::Result<Vec<BrandRow>, StoreError> {
    let used = ai_credits::by_brand(conn, workspace_id, cx.store.now()).await?;
    let row = |one: ai_credits::BrandUse| BrandRow {
        brand_id: one.brand_id,
        workspace_id,
        operation: one.operation,
        requests: one.requests,
        credits: one.credits,
    };
    Ok(used.into_iter().map(row).collect())
}

async fn show_usage(cx: &Context, user: Option<&str>, by_brand: bool, json: bool) -> Result {
    let mut conn = cx.store.read().await?;
    let mut workspaces: BTreeMap<i64, (String, Vec<String>)> = BTreeMap::new();
    for found in users::list(&mut conn).await? {
        let entry = workspaces.entry(found.workspace_id).or_insert_with(|| (found.plan.clone(), Vec::new()));
        entry.1.push(found.email);
    }
    if let Some(email) = user.map(str::to_lowercase) {
        workspaces.retain(|_, (_, emails)| emails.contains(&email));
        if workspaces.is_empty() {
            return Err(no_user(&email));
        }
    }
    let (mut list, mut of_brands) = (Vec::new(), Vec::new());
    for (id, (plan, emails)) in workspaces {
        let caps = cx.config.plans.get(&plan);
        let ai_brands = brand_rows(&mut conn, cx, id).await?;
        if by_brand {
            of_brands.extend(ai_brands);
            continue;
        }
        list.push(UsageRow {
            id,
            users: emails,
            brands: brands::count(&mut conn, id).await?,
            brands_cap: caps.and_then(|p| p.brands),
            posts_this_month: usage::posts(&mut conn, id, cx.store.now()).await?,
            posts_per_month: caps.and_then(|p| p.posts_per_month),
            storage_used_mib: files::usage(&mut conn, id).await?.mib(),
            storage_mib: caps.and_then(|p| p.storage_mib),
            ai_credits_this_month: ai_credits::used(&mut conn, id, cx.store.now()).await?,
            ai_credits: caps.and_then(|p| p.ai_credits),
            report_mails_today: mail_counts::reports(&mut conn, id, cx.store.now()).await?,
            report_mails_per_day: caps.and_then(|p| p.report_mails_per_day),
            ai_brands: json.then_some(ai_brands),
            plan,
        });
    }
    if by_brand {
        print_rows(&of_brands, json);
    } else {
        print_rows(&list, json);
    }
    Ok(())
}
