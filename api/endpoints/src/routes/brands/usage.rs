//! `GET /brands/{brand}/usage`

use crier_domain::access::Scope;
use crier_domain::plan::Feature;
use crier_store::{Conn, accounts, ai_credits, brands, files, mail_counts, usage};
use schemars::JsonSchema;
use serde::Serialize;

use super::TAG;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::response::{One, Reply};

/// A cap of the plan and its usage.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Cap {
    pub used: i64,
    /// The maximum. Null if the plan has no limit.
    pub limit: Option<u64>,
}

/// The caps of the workspace's plan and their usage.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Usage {
    /// The plan's name.
    pub plan: String,
    #[schemars(with = "Vec<TextEnum<Feature>>")]
    pub features: Vec<Feature>,
    pub brands: Cap,
    /// The social accounts of this brand.
    pub social_accounts: Cap,
    /// The posts in this calendar month (UTC).
    pub posts_per_month: Cap,
    pub storage_mib: Cap,
    /// The AI credits in this calendar month, in the workspace's time zone. Credits of running requests count as used.
    pub ai_credits: Cap,
    /// The AI credits that remain this month. Null if the plan has no limit.
    pub credits_remaining: Option<u64>,
    pub requests_per_minute: Option<u64>,
    /// The report emails on this day (UTC). Each recipient counts.
    pub report_mails_per_day: Cap,
}

pub fn endpoint() -> Endpoint<(), One<Usage>> {
    Endpoint::get("/brands/{brand}/usage", "getUsage", Scope::BrandsRead)
        .tag(TAG)
        .summary("Get the usage of the plan")
        .extension()
        .reads(show)
}

async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<Usage>> {
    let (plan, workspace) = (&cx.plan, cx.caller.workspace_id);
    let credits = ai_credits::used(conn, workspace, cx.now).await?;
    Ok(Reply::from(Usage {
        plan: plan.name.clone(),
        features: plan.features.iter().copied().collect(),
        brands: Cap { used: brands::count(conn, workspace).await?, limit: plan.brands },
        social_accounts: Cap { used: accounts::count(conn, cx.brand()?.id).await?, limit: plan.social_accounts },
        posts_per_month: Cap { used: usage::posts(conn, workspace, cx.now).await?, limit: plan.posts_per_month },
        storage_mib: Cap { used: files::usage(conn, workspace).await?.mib(), limit: plan.storage_mib },
        ai_credits: Cap { used: credits, limit: plan.ai_credits },
        credits_remaining: plan.credits_left(credits),
        requests_per_minute: plan.requests_per_minute,
        report_mails_per_day: Cap {
            used: mail_counts::reports(conn, workspace, cx.now).await?,
            limit: plan.report_mails_per_day,
        },
    }))
}
