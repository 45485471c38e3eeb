//! `/brands/{brand}/analytics?start=YYYY-MM-DD&end=YYYY-MM-DD&account=&metric=`: the metrics of the brand's posts and
//! accounts, or those of one account, the top posts by a metric, and the best times to post.

use std::collections::HashMap;

use askama::Template;
use chrono::{Datelike, Days, NaiveDate};
use crier_domain::analytics::PostMetric;
use crier_endpoints::error::Result;
use crier_endpoints::routes::analytics::accounts::{AccountPoint, AccountSeries};
use crier_endpoints::routes::analytics::posts::{DayOfPosts, PostSeries, PostTotals};
use crier_endpoints::routes::analytics::{self, RequestedDays};
use crier_store::accounts;
use http::StatusCode;

use super::analytics_filter::Filter;
use super::analytics_top::{self, TopPosts};
use super::analytics_totals::{Comparison, Total, totals};
use super::best_times::{self, Hour};
use super::charts::{Chart, ChartKind, MAX_COLUMNS, MAX_POINTS, Series};
use super::post_rows::chip;
use super::route::PageRoute;
use super::shared::{Choice, FieldErrors, Platform};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

/// The maximum length of an account's name in a chart, in characters.
const MAX_NAME: usize = 60;
/// The maximum number of accounts whose missing metrics are listed.
const MAX_REMARKS: usize = 20;
/// The ranges to choose from: the number of days and the label.
const RANGES: [(u64, &str); 4] = [(7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "1 year")];

#[derive(Template)]
#[template(path = "console/analytics.html")]
struct Analytics {
    shell: Shell,
    /// Errors of `start` and `end`.
    errors: FieldErrors,
    ranges: Vec<Choice>,
    /// The choices of the filter `account`. The first one is "All", with an empty value.
    choices: Vec<Choice>,
    metric: PostMetric,
    start: NaiveDate,
    end: NaiveDate,
    /// The first day that the plan permits.
    earliest: NaiveDate,
    /// Today.
    latest: NaiveDate,
    days: String,
    totals: Vec<Total>,
    /// The period with which the totals are compared, or why there is none.
    comparison: String,
    top: TopPosts,
    posts: Vec<Chart>,
    /// Over the last 30 days.
    accounts: Vec<Chart>,
    /// The metrics that accounts do not report.
    remarks: Vec<String>,
    hours: Vec<Hour>,
    /// The best times, the best first.
    best: Vec<String>,
}

impl Analytics {
    fn weekdays(&self) -> [&'static str; 7] {
        best_times::WEEKDAYS
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/brands/{brand}/analytics", show)]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    let accounts = visit.call().read(analytics::accounts::endpoint(), ()).await?.series;
    let filter = Filter::read(visit, &accounts);
    let mut fields = visit.query.fields();
    fields.retain(|name, day| matches!(name.as_str(), "start" | "end") && *day != "");
    fields.extend(filter.account_id.map(|id| ("account_id".to_owned(), id.into())));
    match visit.call().read(analytics::posts::endpoint(), visit.parse(&fields)).await {
        Ok(posts) => render(visit, StatusCode::OK, FieldErrors::default(), &filter, (posts, accounts)).await,
        Err(error) => {
            let errors = form_errors(error)?;
            // Show the default range. An error that does not depend on the range occurs again.
            let default = filter.posts(RequestedDays::default());
            let posts = visit.call().read(analytics::posts::endpoint(), default).await?;
            render(visit, StatusCode::UNPROCESSABLE_ENTITY, errors, &filter, (posts, accounts)).await
        }
    }
}

async fn render(
    visit: &Visit,
    status: StatusCode,
    errors: FieldErrors,
    filter: &Filter,
    (posts, mut accounts): (PostSeries, Vec<AccountSeries>),
) -> Result<PageReply> {
    let latest = visit.now.with_timezone(&visit.zone()).date_naive();
    let earliest = latest - Days::new(posts.retention_days.saturating_sub(1));
    let comparison = Comparison::read(visit, filter, &posts, earliest).await?;
    let times = visit.call().read(analytics::best_times::endpoint(), filter.account()).await?;
    let names = names(visit, &accounts).await?;
    let choices = filter.accounts(&accounts, &names);
    accounts.retain(|one| filter.includes(one.account_id));
    let shell = visit.shell(Section::Analytics, "Analytics");
    let path = shell.at("analytics");
    let view = Analytics {
        errors,
        ranges: ranges(&path, filter, &posts, earliest, latest),
        choices,
        metric: filter.metric,
        start: posts.start,
        end: posts.end,
        earliest,
        latest,
        days: format!("{} to {}", posts.start.format("%-d %b %Y"), posts.end.format("%-d %b %Y")),
        totals: totals(&posts.totals, comparison.totals.as_ref()),
        comparison: comparison.text,
        top: analytics_top::read(visit, &path, filter, (posts.start, posts.end)).await?,
        posts: post_charts(&posts.series),
        remarks: remarks(&accounts, &names),
        accounts: account_charts(accounts, &names),
        best: best_times::best(&times),
        hours: best_times::hours(&times),
        shell,
    };
    visit.page_with(status, &view)
}

/// Returns the names of the accounts, by ID.
async fn names(visit: &Visit, series: &[AccountSeries]) -> Result<HashMap<i64, String>> {
    let ids: Vec<i64> = series.iter().map(|one| one.account_id).collect();
    let found = accounts::find_many(&mut visit.app.store.read().await?, visit.brand()?.0.id, &ids).await?;
    let name = |account| {
        let chip = chip(account);
        let name: String = chip.name.chars().take(MAX_NAME).collect();
        format!("{name} ({})", chip.platform.name)
    };
    Ok(found.iter().map(|account| (account.id, name(account))).collect())
}

/// Returns the ranges that the plan permits completely.
fn ranges(path: &str, filter: &Filter, posts: &PostSeries, earliest: NaiveDate, latest: NaiveDate) -> Vec<Choice> {
    let choice = |(days, label): (u64, &str)| {
        let start = latest - Days::new(days - 1);
        let href = filter.href(path, (start, latest));
        (start >= earliest).then(|| Choice::new(&href, label, (posts.start, posts.end) == (start, latest)))
    };
    RANGES.into_iter().filter_map(choice).collect()
}

/// The time that a point of a chart covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Day,
    Week,
    Month,
    Quarter,
}

impl Unit {
    /// Returns the shortest unit for which a chart has enough points.
    fn of(days: usize) -> Self {
        match days {
            _ if days <= MAX_POINTS => Self::Day,
            // A range may begin and end in the middle of a week or month.
            _ if days <= (MAX_POINTS - 1) * 7 => Self::Week,
            _ if days <= (MAX_POINTS - 1) * 28 => Self::Month,
            _ => Self::Quarter,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Day => "Day",
            Self::Week => "Week from",
            Self::Month => "Month",
            Self::Quarter => "Quarter",
        }
    }

    /// Returns the label of the point that contains a date. All days of the point have the same label.
    fn point(self, date: NaiveDate) -> String {
        match self {
            Self::Day => date.format("%-d %b").to_string(),
            Self::Week => date.week(chrono::Weekday::Mon).first_day().format("%-d %b").to_string(),
            Self::Month => date.format("%b %Y").to_string(),
            Self::Quarter => format!("Q{} {}", date.month0() / 3 + 1, date.year()),
        }
    }
}

/// Returns the points of the charts, each with the metrics of its days.
fn points(days: &[DayOfPosts]) -> (Unit, Vec<(String, PostTotals)>) {
    let unit = Unit::of(days.len());
    let mut points: Vec<(String, PostTotals)> = Vec::new();
    for day in days {
        let label = unit.point(day.date);
        match points.last_mut() {
            Some((last, sum)) if *last == label => add(sum, day),
            _ => points.push((label, PostTotals { posts: day.posts, metrics: day.metrics.clone() })),
        }
    }
    (unit, points)
}

/// Adds the metrics of a day. A sum includes only known values.
fn add(sum: &mut PostTotals, day: &DayOfPosts) {
    sum.posts += day.posts;
    let (sum, day) = (&mut sum.metrics, &day.metrics);
    for (sum, value) in [
        (&mut sum.impressions, day.impressions),
        (&mut sum.reach, day.reach),
        (&mut sum.likes, day.likes),
        (&mut sum.comments, day.comments),
        (&mut sum.shares, day.shares),
        (&mut sum.clicks, day.clicks),
        (&mut sum.engagements, day.engagements),
    ] {
        *sum = sum.map_or(value, |sum| Some(sum.saturating_add(value.unwrap_or(0))));
    }
}

fn post_charts(days: &[DayOfPosts]) -> Vec<Chart> {
    let (unit, points) = points(days);
    let labels: Vec<String> = points.iter().map(|(label, _)| label.clone()).collect();
    let series = |name: &str, of: fn(&PostTotals) -> Option<i64>| Series {
        name: name.to_owned(),
        values: points.iter().map(|(_, totals)| of(totals)).collect(),
    };
    let chart = |id: &str, title: &str, text: &str, series| Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        text: text.to_owned(),
        kind: ChartKind::Bars,
        unit: unit.label().to_owned(),
        labels: labels.clone(),
        series,
    };
    let engagements = vec![
        series("Engagements", |totals| totals.metrics.engagements),
        series("Likes", |totals| totals.metrics.likes),
        series("Comments", |totals| totals.metrics.comments),
        series("Shares", |totals| totals.metrics.shares),
        series("Clicks", |totals| totals.metrics.clicks),
    ];
    let impressions = vec![
        series("Impressions", |totals| totals.metrics.impressions),
        series("Reach", |totals| totals.metrics.reach),
    ];
    let published = vec![series("Posts", |totals| Some(totals.posts))];
    vec![
        chart("c-engagements", "Engagements", "By date of publication.", engagements),
        chart("c-impressions", "Impressions", "Number of times the posts were shown.", impressions),
        chart("c-posts", "Published posts", "A post on several accounts counts once per day.", published),
    ]
}

fn account_charts(mut all: Vec<AccountSeries>, names: &HashMap<i64, String>) -> Vec<Chart> {
    // The largest accounts first, because the number of lines is limited.
    let last = |one: &AccountSeries| one.points.iter().rev().find_map(|point| point.followers);
    all.sort_by_key(|one| std::cmp::Reverse(last(one)));
    let Some(first) = all.first() else { return Vec::new() };
    let labels: Vec<String> = first.points.iter().map(|point| Unit::Day.point(point.date)).collect();
    let chart = |id: &str, title: &str, text: &str, of: fn(&AccountPoint) -> Option<i64>| Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        text: text.to_owned(),
        kind: ChartKind::Lines,
        unit: Unit::Day.label().to_owned(),
        labels: labels.clone(),
        series: all
            .iter()
            .take(MAX_COLUMNS)
            .map(|one| Series { name: name(one, names), values: one.points.iter().map(of).collect() })
            .collect(),
    };
    vec![
        chart("c-followers", "Followers", "As of the last update of each day.", |point| point.followers),
        chart("c-account-posts", "Posts on each account", "As of the last update of each day.", |point| point.posts),
    ]
}

fn name(one: &AccountSeries, names: &HashMap<i64, String>) -> String {
    names.get(&one.account_id).cloned().unwrap_or_else(|| Platform::of(one.platform.as_str()).name)
}

fn remarks(all: &[AccountSeries], names: &HashMap<i64, String>) -> Vec<String> {
    let incomplete = all.iter().filter(|one| !one.unavailable.is_empty()).take(MAX_REMARKS);
    incomplete.map(|one| format!("{} does not report: {}.", name(one, names), one.unavailable.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use crier_domain::analytics::PostMetrics;

    use super::*;

    fn days(count: u64) -> Vec<DayOfPosts> {
        let first = NaiveDate::from_ymd_opt(2024, 1, 31).unwrap_or_default();
        let day = |n| DayOfPosts {
            date: first + Days::new(n),
            posts: 1,
            metrics: PostMetrics { likes: (n % 2 == 0).then_some(2), ..PostMetrics::default() }.into(),
        };
        (0..count).map(day).collect()
    }

    #[test]
    fn long_ranges_are_grouped_and_keep_their_sums() {
        for (count, unit) in [(45, Unit::Day), (46, Unit::Week), (365, Unit::Month), (3_650, Unit::Quarter)] {
            let (of, points) = points(&days(count));
            assert_eq!(of, unit);
            assert!(points.len() <= MAX_POINTS, "{count} days: {}", points.len());
            let posts: i64 = points.iter().map(|(_, totals)| totals.posts).sum();
            assert_eq!(u64::try_from(posts), Ok(count));
        }
    }

    #[test]
    fn a_sum_is_unknown_only_if_all_its_metrics_are() {
        let (_, points) = points(&days(60));
        assert!(points.iter().all(|(_, totals)| totals.metrics.likes.is_some() && totals.metrics.reach.is_none()));
    }
}
