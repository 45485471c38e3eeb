//! `/operator/plans`: the usage of the workspaces, as shown by `crier plan usage`, and the limits of the plans.

use std::collections::BTreeMap;

use askama::Template;
use crier_domain::plan::Plan;
use crier_endpoints::error::Result;
use crier_store::{ai_credits, brands, files, mail_counts, usage, users};

use super::lists;
use super::operator::{shell, tabs};
use super::route::{Access, PageRoute};
use super::settings::Cap;
use super::shared::{Choice, Pages, feature_label};
use super::shell::Shell;
use super::visit::{PageReply, Visit};
use crate::numbers::number;

/// The maximum number of users of a workspace that are listed.
const MAX_USERS: usize = 5;

#[derive(Template)]
#[template(path = "console/operator_plans.html")]
struct OperatorPlans {
    shell: Shell,
    workspaces: Vec<WorkspaceUsage>,
    pages: Pages,
    plans: Vec<PlanRow>,
}

struct WorkspaceUsage {
    id: i64,
    plan: String,
    users: Vec<String>,
    more_users: usize,
    caps: Vec<Cap>,
}

struct PlanRow {
    name: String,
    /// In the order of [`OperatorPlans::columns`].
    limits: Vec<String>,
    features: String,
}

impl OperatorPlans {
    fn tabs(&self) -> Vec<Choice> {
        tabs("plans")
    }

    fn columns(&self) -> [&'static str; 8] {
        [
            "Brands",
            "Accounts per brand",
            "Posts per month",
            "Storage",
            "AI credits per month",
            "Requests per minute",
            "Days of analytics",
            "Report emails per day",
        ]
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/operator/plans", list).access(Access::Operator)]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let mut conn = visit.app.store.read().await?;
    let mut all: BTreeMap<i64, (String, Vec<String>)> = BTreeMap::new();
    for user in users::list(&mut conn).await? {
        all.entry(user.workspace_id).or_insert_with(|| (user.plan, Vec::new())).1.push(user.email);
    }
    let (rows, pages) = lists::paginate(visit, "/operator/plans", all.into_iter().collect());
    let mut workspaces = Vec::new();
    for (id, (plan, mut users)) in rows {
        let limits = visit.app.plans.get(&plan);
        let cap = |label, used, limit: fn(&Plan) -> Option<u64>, unit| Cap {
            label,
            used,
            limit: limits.and_then(limit),
            unit,
        };
        let caps = vec![
            cap("Brands", brands::count(&mut conn, id).await?, |plan| plan.brands, ""),
            cap("Posts", usage::posts(&mut conn, id, visit.now).await?, |plan| plan.posts_per_month, "this month"),
            cap("Storage", files::usage(&mut conn, id).await?.mib(), |plan| plan.storage_mib, "MiB"),
            cap("AI credits", ai_credits::used(&mut conn, id, visit.now).await?, |plan| plan.ai_credits, "this month"),
            cap(
                "Report emails",
                mail_counts::reports(&mut conn, id, visit.now).await?,
                |plan| plan.report_mails_per_day,
                "today (UTC)",
            ),
        ];
        let more_users = users.len().saturating_sub(MAX_USERS);
        users.truncate(MAX_USERS);
        workspaces.push(WorkspaceUsage { id, plan, users, more_users, caps });
    }
    drop(conn);
    let plans = visit.app.plans.iter().map(plan_row).collect();
    visit.page(&OperatorPlans { shell: shell(visit), workspaces, pages, plans })
}

fn plan_row(plan: &Plan) -> PlanRow {
    let limit = |limit: Option<u64>| limit.map_or_else(|| "No limit".to_owned(), number);
    let storage = plan.storage_mib.map_or_else(|| "No limit".to_owned(), |mib| format!("{} MiB", number(mib)));
    let names: Vec<&str> = plan.features.iter().map(|one| feature_label(*one)).collect();
    PlanRow {
        name: plan.name.clone(),
        limits: vec![
            limit(plan.brands),
            limit(plan.social_accounts),
            limit(plan.posts_per_month),
            storage,
            limit(plan.ai_credits),
            limit(plan.requests_per_minute),
            limit(plan.analytics_days),
            limit(plan.report_mails_per_day),
        ],
        features: if names.is_empty() { "None".to_owned() } else { names.join(", ") },
    }
}
