//! `GET /brands/{brand}/analytics/accounts`

use std::collections::HashMap;

use chrono::NaiveDate;
use crier_domain::access::Scope;
use crier_domain::analytics::AccountMetrics;
use crier_domain::platform::Platform;
use crier_store::{Conn, PageRequest, accounts, analytics};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FEATURES, TAG, Window};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::response::{One, Reply};

/// The maximum number of accounts in a response. The newest accounts are included.
const MAX_ACCOUNTS: i64 = 500;

/// The metrics of an account at the end of a day. A metric is null if it is unknown.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AccountPoint {
    pub date: NaiveDate,
    pub followers: Option<i64>,
    pub following: Option<i64>,
    pub posts: Option<i64>,
}

/// The metrics of an account.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AccountSeries {
    pub account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    /// One entry per day, oldest first.
    pub points: Vec<AccountPoint>,
    /// The metrics that the platform does not provide for this account. Crier requests them again after a day.
    #[schemars(extend("x-extension" = true))]
    pub unavailable: Vec<String>,
}

/// The metrics of a brand's accounts, by day.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AccountsSeries {
    pub start: NaiveDate,
    pub end: NaiveDate,
    pub granularity: &'static str,
    pub timezone: String,
    /// The number of days for which the plan shows metrics.
    pub retention_days: u64,
    pub series: Vec<AccountSeries>,
}

pub fn endpoint() -> Endpoint<(), One<AccountsSeries>> {
    Endpoint::get("/brands/{brand}/analytics/accounts", "getAccountAnalytics", Scope::AnalyticsRead)
        .tag(TAG)
        .summary("Get the metrics of a brand's accounts for the last 30 days")
        .features(FEATURES)
        .reads(show)
}

async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<AccountsSeries>> {
    let window = Window::newest(cx);
    let days = window.days();
    let page = PageRequest { page: 1, per_page: MAX_ACCOUNTS };
    let listed = accounts::list(conn, cx.brand()?.id, page).await?.rows;
    let ids: Vec<i64> = listed.iter().map(|account| account.id).collect();
    let found = analytics::of_accounts(conn, &ids, (window.starts_at(), window.ends_at())).await?;
    // The last snapshot of a day counts.
    let mut by_day: HashMap<(i64, NaiveDate), AccountMetrics> = HashMap::new();
    for snapshot in found {
        let day = snapshot.at.with_timezone(&window.zone).date_naive();
        by_day.insert((snapshot.account_id, day), snapshot.metrics);
    }
    let mut unavailable: HashMap<i64, Vec<String>> = HashMap::new();
    for (account, name) in analytics::unavailable_metrics_of(conn, &ids, cx.now).await? {
        // A field of the platform's response is named as in docs/analytics.md.
        unavailable.entry(account).or_default().push(name.trim_start_matches('/').replace('/', "."));
    }
    let point = |account: i64, date: NaiveDate| {
        let AccountMetrics { followers, following, posts } = by_day.get(&(account, date)).copied().unwrap_or_default();
        AccountPoint { date, followers, following, posts }
    };
    let series = listed.iter().map(|account| AccountSeries {
        account_id: account.id,
        platform: account.platform,
        points: days.iter().map(|day| point(account.id, *day)).collect(),
        unavailable: unavailable.remove(&account.id).unwrap_or_default(),
    });
    Ok(Reply::from(AccountsSeries {
        start: window.start,
        end: window.end,
        granularity: "day",
        timezone: window.zone.to_string(),
        retention_days: window.retention_days,
        series: series.collect(),
    }))
}
