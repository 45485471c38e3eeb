//! Reads the stored data of a report into a document. Data that several widgets show is read once.
//!
//! **To add a widget:** its line in `WidgetType` (`common/domain/src/report.rs`), its columns in
//! `worker/reports/src/columns.rs`, its default title and its arm in [`Builder::widget`]. The writers draw it according
//! to its view.

use std::collections::{HashMap, HashSet};

use chrono::NaiveDate;
use crier_domain::analytics::PostMetrics;
use crier_domain::report::{Report, ReportWidget, WidgetType};
use crier_domain::report_naming as naming;
use crier_reports::columns::{self, columns};
use crier_reports::{Cell, Chart, ChartType, Document, Period, Table, View, Widget};
use crier_store::analytics::DayOfPosts;
use crier_store::report_deliveries::DeliveryNames;
use crier_store::{Conn, Result, report_metrics};

use super::scope::ExportScope;
use super::tables::{self, MAX_TEXT, count, text};
use super::totals::{AccountFollowers, PeriodTotals, SummaryRow};
use crate::report_mail::Headline;

/// The maximum number of rows of all posts tables of a report together.
const MAX_ROWS: usize = 10_000;
const TOP_POSTS: i64 = 10;
/// The maximum number of accounts in the chart of followers, which shows those with the most followers.
const MAX_LINES: usize = 20;

const NO_POSTS: &str = "No posts were published in this period.";
const NO_METRICS: &str = "No platform reported metrics for the posts of this period.";
const NEW_ACCOUNTS: &str = "The change in followers covers only accounts that were connected before this period.";
const NOT_COMPARED: &str = "The plan does not include the previous period, so there are no changes.";
const NO_FOLLOWERS: &str = "No follower counts were recorded in this period.";
const NO_ACCOUNTS: &str = "No accounts are connected, and nothing was published in this period.";

/// A document, and the metrics in its emails.
pub struct BuiltReport {
    pub document: Document,
    pub headlines: Vec<Headline>,
}

/// Reads the data of a report.
pub async fn build(
    conn: &mut Conn,
    scope: &ExportScope,
    report: &Report,
    names: &DeliveryNames,
) -> Result<BuiltReport> {
    let totals = PeriodTotals::read(conn, scope).await?;
    let mut builder = Builder { conn, scope, totals: &totals, rows_left: MAX_ROWS };
    let mut widgets = Vec::with_capacity(report.widgets.len());
    for report_widget in &report.widgets {
        widgets.push(builder.widget(report_widget).await?);
    }
    let document = Document {
        title: report.name.clone(),
        brand: names.brand.clone(),
        workspace: names.workspace.clone(),
        period: Period { start: scope.starts_on, end: scope.ends_on },
        timezone: scope.zone.name().to_owned(),
        created_at: scope.local(scope.now),
        widgets,
    };
    Ok(BuiltReport { document, headlines: totals.headlines() })
}

/// Returns the maximum number of rows of the posts tables of a report.
pub async fn max_rows(conn: &mut Conn, scope: &ExportScope, report: &Report) -> Result<usize> {
    let tables = report.widgets.iter().filter(|widget| widget.widget_type == WidgetType::PostsTable).count();
    let limit = i64::try_from(MAX_ROWS).unwrap_or(i64::MAX);
    let posts = match tables {
        0 => 0,
        _ => report_metrics::count(conn, scope.brand_id, scope.range(), limit).await?,
    };
    Ok((usize::try_from(posts).unwrap_or(MAX_ROWS) * tables).min(MAX_ROWS))
}

struct Builder<'a> {
    conn: &'a mut Conn,
    scope: &'a ExportScope,
    totals: &'a PeriodTotals,
    /// The number of rows that the posts tables may still have.
    rows_left: usize,
}

impl Builder<'_> {
    async fn widget(&mut self, report_widget: &ReportWidget) -> Result<Widget> {
        let (title, view, table, remark) = match report_widget.widget_type {
            WidgetType::Summary => ("At a glance", View::Metrics, self.summary(), self.summary_remark()),
            WidgetType::PostsOverTime => {
                ("Posts", chart(ChartType::Columns, 1, "Posts"), self.posts_over_time(), self.no_posts())
            }
            WidgetType::EngagementOverTime => {
                let table = self.engagement_over_time();
                let remark = self.no_posts().or_else(|| none_in(&table, NO_METRICS));
                ("Engagement", chart(ChartType::Columns, 4, "Interactions"), table, remark)
            }
            WidgetType::FollowersOverTime => {
                let (table, remark) = self.followers_over_time();
                let lines = table.columns.len().saturating_sub(1);
                ("Followers", chart(ChartType::Lines, lines, "Followers"), table, remark)
            }
            WidgetType::TopPosts => {
                let range = self.scope.range();
                let top = report_metrics::most_engaging(self.conn, self.scope.brand_id, range, TOP_POSTS, READ_TEXT);
                let table = tables::posts(self.scope, top.await?);
                let remark = self.no_posts().or_else(|| none_in(&table, NO_METRICS));
                ("Top posts", View::Table, table, remark)
            }
            WidgetType::PostsTable => {
                let (table, remark) = self.posts_table().await?;
                ("All posts", View::Table, table, remark)
            }
            WidgetType::AccountsTable => {
                let table = self.accounts_table().await?;
                let remark = none_in(&table, NO_ACCOUNTS);
                ("Accounts", View::Table, table, remark)
            }
            WidgetType::Note => ("Note", View::Text, note(report_widget.text.as_deref().unwrap_or_default()), None),
        };
        let title = report_widget.title.clone().unwrap_or_else(|| title.to_owned());
        let remark = if view == View::Text { None } else { self.with_retention(remark) };
        Ok(Widget {
            widget_type: report_widget.widget_type,
            title,
            view,
            table: without_totals_if_empty(table),
            remark,
        })
    }

    fn no_posts(&self) -> Option<String> {
        (self.totals.posts == 0).then(|| NO_POSTS.to_owned())
    }

    /// Adds the number of days that the plan includes, if it limits the report.
    fn with_retention(&self, remark: Option<String>) -> Option<String> {
        let Some(days) = self.scope.cut_to_days() else { return remark };
        sentences([remark, Some(format!("The plan includes metrics for the last {days} days only."))])
    }

    fn summary_remark(&self) -> Option<String> {
        let is_compared = self.totals.before.is_some();
        let is_whole = self.scope.cut_to_days().is_none() && !self.scope.days.is_empty();
        sentences([
            self.no_posts(),
            (is_compared && self.totals.has_new_accounts()).then(|| NEW_ACCOUNTS.to_owned()),
            (!is_compared && is_whole).then(|| NOT_COMPARED.to_owned()),
        ])
    }

    fn summary(&self) -> Table {
        let row = |row: SummaryRow| {
            let change = row.change.map_or(Cell::Empty, Cell::Percent);
            vec![Cell::Text(row.label.to_owned()), count(row.value), count(row.before), change]
        };
        Table {
            columns: columns(columns::SUMMARY),
            rows: self.totals.rows().into_iter().map(row).collect(),
            totals: None,
        }
    }

    /// Returns the posts and metrics of each day, including days without posts.
    fn by_day(&self) -> impl Iterator<Item = (NaiveDate, DayOfPosts)> {
        let found: HashMap<i64, DayOfPosts> = self.totals.days.iter().map(|day| (day.day, *day)).collect();
        (0..).zip(&self.scope.days).map(move |(index, date)| (*date, found.get(&index).copied().unwrap_or_default()))
    }

    fn posts_over_time(&self) -> Table {
        let has_posts = self.totals.posts > 0;
        let row = |(date, day): (NaiveDate, DayOfPosts)| vec![Cell::Date(date), Cell::Count(day.posts)];
        Table {
            columns: columns(columns::POSTS_OVER_TIME),
            rows: self.by_day().filter(|_| has_posts).map(row).collect(),
            totals: has_posts.then(|| vec![Cell::Text("Total".to_owned()), Cell::Count(self.totals.posts)]),
        }
    }

    fn engagement_over_time(&self) -> Table {
        let cells = |m: &PostMetrics| [m.likes, m.comments, m.shares, m.clicks].map(count);
        let row = |(date, day): (NaiveDate, DayOfPosts)| {
            [Cell::Date(date)].into_iter().chain(cells(&day.metrics)).collect::<Vec<_>>()
        };
        let is_known = self.totals.metrics.engagements().is_some();
        let totals = || [Cell::Text("Total".to_owned())].into_iter().chain(cells(&self.totals.metrics)).collect();
        Table {
            columns: columns(columns::ENGAGEMENT_OVER_TIME),
            rows: self.by_day().filter(|_| is_known).map(row).collect(),
            totals: is_known.then(totals),
        }
    }

    fn followers_over_time(&self) -> (Table, Option<String>) {
        let mut shown: Vec<&AccountFollowers> =
            self.totals.accounts.iter().filter(|account| account.last.is_some()).collect();
        shown.sort_by_key(|account| (std::cmp::Reverse(account.last), account.id));
        let omitted = shown.len().saturating_sub(MAX_LINES);
        shown.truncate(MAX_LINES);
        let all = columns::followers_over_time(shown.iter().map(|account| (account.id, account.label.clone())));
        let row = |date: &NaiveDate| {
            let followers = shown.iter().map(|account| count(account.by_day.get(date).copied()));
            [Cell::Date(*date)].into_iter().chain(followers).collect()
        };
        let rows = self.scope.days.iter().filter(|_| !shown.is_empty()).map(row).collect();
        let remark = if shown.is_empty() {
            Some(NO_FOLLOWERS.to_owned())
        } else {
            (omitted > 0)
                .then(|| format!("The {MAX_LINES} accounts with the most followers. {omitted} more are not shown."))
        };
        (Table { columns: all, rows, totals: None }, remark)
    }

    async fn posts_table(&mut self) -> Result<(Table, Option<String>)> {
        let (brand, range) = (self.scope.brand_id, self.scope.range());
        // One more than can be shown, to detect whether there are more.
        let limit = i64::try_from(self.rows_left + 1).unwrap_or(i64::MAX);
        let mut posts = report_metrics::newest(self.conn, brand, range, limit, READ_TEXT).await?;
        let is_cut = posts.len() > self.rows_left;
        posts.truncate(self.rows_left);
        self.rows_left -= posts.len();
        let shown = posts.len();
        let table = tables::posts(self.scope, posts);
        let remark = match (is_cut, shown) {
            (true, 0) => Some("The previous tables already show the maximum number of posts in a report.".to_owned()),
            (true, shown) => Some(format!("Only the newest {} posts are shown.", naming::count(shown as i64))),
            (false, _) => self.no_posts(),
        };
        Ok((table, remark))
    }

    async fn accounts_table(&mut self) -> Result<Table> {
        let published = report_metrics::by_account(self.conn, self.scope.brand_id, self.scope.range()).await?;
        let by_id: HashMap<i64, _> = published.iter().map(|posts| (posts.account_id, posts)).collect();
        let known: HashSet<i64> = self.totals.accounts.iter().map(|account| account.id).collect();
        let mut rows: Vec<Vec<Cell>> = Vec::with_capacity(known.len());
        for account in &self.totals.accounts {
            let posts = by_id.get(&account.id);
            rows.push(vec![
                text(&account.name),
                Cell::Text(account.platform.to_owned()),
                count(account.last),
                count(account.growth()),
                Cell::Count(posts.map_or(0, |posts| posts.posts)),
                count(posts.and_then(|posts| posts.metrics.impressions)),
                count(posts.and_then(|posts| posts.metrics.engagements())),
            ]);
        }
        let disconnected = published.iter().filter(|posts| !known.contains(&posts.account_id));
        let (number, metrics) =
            disconnected.fold((0, PostMetrics::default()), |(n, all), p| (n + p.posts, all.plus(&p.metrics)));
        if number > 0 {
            let name = Cell::Text("Accounts that are no longer connected".to_owned());
            let cells = [Some(number), metrics.impressions, metrics.engagements()].map(count);
            rows.push([name, Cell::Empty, Cell::Empty, Cell::Empty].into_iter().chain(cells).collect());
        }
        Ok(Table { columns: columns(columns::ACCOUNTS), rows, totals: None })
    }
}

/// The number of characters of a text to read: one more than is shown, to detect longer texts.
const READ_TEXT: i32 = MAX_TEXT as i32 + 1;

fn chart(chart_type: ChartType, series: usize, unit: &str) -> View {
    View::Chart(Chart { chart_type, series: (1..=series).collect(), unit: unit.to_owned() })
}

fn note(text: &str) -> Table {
    Table { columns: columns(columns::NOTE), rows: vec![vec![Cell::Text(text.to_owned())]], totals: None }
}

/// Joins sentences; `None` if there are none.
fn sentences<const N: usize>(all: [Option<String>; N]) -> Option<String> {
    all.into_iter().flatten().reduce(|all, next| format!("{all} {next}"))
}

/// Returns a remark if a table has no rows.
fn none_in(table: &Table, remark: &str) -> Option<String> {
    table.rows.is_empty().then(|| remark.to_owned())
}

/// Removes the totals of a table without rows.
fn without_totals_if_empty(table: Table) -> Table {
    let totals = table.totals.filter(|_| !table.rows.is_empty());
    Table { totals, ..table }
}
