//! Reads the record into a document. What several widgets show is read once.
//!
//! **To add a widget:** its line in `WidgetType` (`common/domain/src/report.rs`), its columns in
//! `worker/reports/src/columns.rs`, its default title and its arm in [`Builder::widget`]. The writers draw it by its
//! view.

use std::collections::{HashMap, HashSet};

use chrono::NaiveDate;
use crier_domain::analytics::{AccountFigures, Figures};
use crier_domain::report::{Report, ReportWidget, WidgetType};
use crier_domain::{catalogue, report_naming as naming};
use crier_reports::columns::{self, columns};
use crier_reports::{Cell, Chart, ChartType, Document, Period, Table, View, Widget};
use crier_store::analytics::{self, DayOfPosts};
use crier_store::report_deliveries::DeliveryNames;
use crier_store::{Conn, PageRequest, Result, accounts, report_figures};

use super::period::ExportScope;
use super::tables::{self, MAX_TEXT, count, text};
use crate::report_mail::Headline;

/// Maximum number of rows of all posts tables of a report together.
const MAX_ROWS: usize = 10_000;
const TOP_POSTS: i64 = 10;
/// How many accounts are shown, the newest.
const MAX_ACCOUNTS: i64 = 500;
/// How many accounts the chart of followers shows, those with the most.
const MAX_LINES: usize = 20;
const HEADLINES: usize = 3;

const NO_POSTS: &str = "No posts were published in this period.";
const NO_FIGURES: &str = "No platform gave figures for the posts of this period.";
const NO_FOLLOWERS: &str = "No numbers of followers were recorded in this period.";
const NO_ACCOUNTS: &str = "No accounts are connected, and nothing was published in this period.";

/// A document, and the figures that its mails show.
pub struct BuiltReport {
    pub document: Document,
    pub headlines: Vec<Headline>,
}

/// Reads what a report shows.
pub async fn build(
    conn: &mut Conn,
    scope: &ExportScope,
    report: &Report,
    names: &DeliveryNames,
) -> Result<BuiltReport> {
    let totals = PeriodTotals::read(conn, scope).await?;
    let mut builder = Builder { conn, scope, totals: &totals, rows_left: MAX_ROWS };
    let mut widgets = Vec::with_capacity(report.widgets.len());
    for wanted in &report.widgets {
        widgets.push(builder.widget(wanted).await?);
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

/// An account and its numbers of followers.
struct AccountFollowers {
    id: i64,
    /// `Sunrise Bakery (Bluesky)`
    label: String,
    name: String,
    platform: &'static str,
    by_day: HashMap<NaiveDate, i64>,
    before: Option<i64>,
    first: Option<i64>,
    last: Option<i64>,
}

impl AccountFollowers {
    /// Returns how many followers came; `None` if there are not two numbers to compare.
    fn growth(&self) -> Option<i64> {
        Some(self.last?.saturating_sub(self.before.or(self.first)?))
    }
}

/// What several widgets show.
struct PeriodTotals {
    days: Vec<DayOfPosts>,
    posts: i64,
    figures: Figures,
    /// Of the period before; `None`: the plan does not show it.
    before: Option<(i64, Figures)>,
    accounts: Vec<AccountFollowers>,
}

impl PeriodTotals {
    async fn read(conn: &mut Conn, scope: &ExportScope) -> Result<Self> {
        let days = analytics::days_of_posts(conn, scope.brand_id, &scope.bounds()).await?;
        let sum = |days: &[DayOfPosts]| {
            days.iter().fold((0, Figures::default()), |(posts, all), day| (posts + day.posts, all.plus(&day.figures)))
        };
        let (posts, figures) = sum(&days);
        let before = match scope.range_before() {
            Some(range) => Some(sum(&analytics::days_of_posts(conn, scope.brand_id, &[range]).await?)),
            None => None,
        };
        Ok(Self { days, posts, figures, before, accounts: read_accounts(conn, scope).await? })
    }

    /// Returns `(label, value, value before)`.
    fn rows(&self) -> Vec<(&'static str, Option<i64>, Option<i64>)> {
        let (now, before) = (&self.figures, self.before.map(|(_, figures)| figures).unwrap_or_default());
        let sum = |value: fn(&AccountFollowers) -> Option<i64>| {
            self.accounts.iter().filter_map(value).reduce(i64::saturating_add)
        };
        vec![
            ("Posts", Some(self.posts), self.before.map(|(posts, _)| posts)),
            ("Impressions", now.impressions, before.impressions),
            ("Reach", now.reach, before.reach),
            ("Engagements", now.engagements(), before.engagements()),
            ("Likes", now.likes, before.likes),
            ("Comments", now.comments, before.comments),
            ("Shares", now.shares, before.shares),
            ("Clicks", now.clicks, before.clicks),
            ("Followers", sum(|account| account.last), sum(|account| account.before)),
        ]
    }

    /// Returns the first figures that are known, of those that matter most.
    fn headlines(&self) -> Vec<Headline> {
        let rows = self.rows();
        let of = |name: &&str| rows.iter().find(|(label, ..)| label == name).copied();
        let wanted = ["Posts", "Engagements", "Followers", "Impressions", "Reach", "Clicks"];
        let known = wanted.iter().filter_map(of).filter(|(_, value, _)| value.is_some());
        let headline = |(label, value, before): (&str, Option<i64>, Option<i64>)| Headline {
            label: label.to_owned(),
            value: value.map_or_else(|| "–".to_owned(), naming::count),
            change: value.zip(before).and_then(|(value, before)| change(value, before)),
        };
        known.take(HEADLINES).map(headline).collect()
    }
}

/// Returns a change in words: `+12 % on the period before`.
fn change(value: i64, before: i64) -> Option<String> {
    if before <= 0 {
        return None;
    }
    let percent = (value.saturating_sub(before)).saturating_mul(100) / before;
    Some(match percent {
        0 => "as in the period before".to_owned(),
        percent => {
            let sign = if percent > 0 { "+" } else { "" };
            format!("{sign}{} % on the period before", naming::count(percent))
        }
    })
}

/// Reads the brand's accounts with their followers in the period and before it. The last number of a day is the day's.
async fn read_accounts(conn: &mut Conn, scope: &ExportScope) -> Result<Vec<AccountFollowers>> {
    let page = PageRequest { page: 1, per_page: MAX_ACCOUNTS };
    let listed = accounts::list(conn, scope.brand_id, page).await?.rows;
    let ids: Vec<i64> = listed.iter().map(|account| account.id).collect();
    let (start, end) = scope.range();
    let from = scope.range_before().map_or(start, |(before, _)| before);
    let mut found: Vec<AccountFollowers> = listed
        .into_iter()
        .map(|account| {
            let platform = catalogue::descriptor(account.platform).name;
            AccountFollowers {
                id: account.id,
                label: format!("{} ({platform})", account.name),
                name: account.name,
                platform,
                by_day: HashMap::new(),
                before: None,
                first: None,
                last: None,
            }
        })
        .collect();
    let places: HashMap<i64, usize> = found.iter().enumerate().map(|(place, account)| (account.id, place)).collect();
    for snapshot in analytics::of_accounts(conn, &ids, (from, end)).await? {
        let AccountFigures { followers: Some(followers), .. } = snapshot.figures else { continue };
        let Some(account) = places.get(&snapshot.account_id).and_then(|place| found.get_mut(*place)) else { continue };
        if snapshot.at < start {
            account.before = Some(followers);
        } else {
            account.by_day.insert(scope.local(snapshot.at).date(), followers);
            account.first.get_or_insert(followers);
            account.last = Some(followers);
        }
    }
    Ok(found)
}

struct Builder<'a> {
    conn: &'a mut Conn,
    scope: &'a ExportScope,
    totals: &'a PeriodTotals,
    /// How many rows the posts tables may still have.
    rows_left: usize,
}

impl Builder<'_> {
    async fn widget(&mut self, wanted: &ReportWidget) -> Result<Widget> {
        let (title, view, table, remark) = match wanted.widget_type {
            WidgetType::Summary => ("At a glance", View::Figures, self.summary(), self.no_posts()),
            WidgetType::PostsOverTime => {
                ("Posts", chart(ChartType::Columns, 1, "Posts"), self.posts_over_time(), self.no_posts())
            }
            WidgetType::EngagementOverTime => {
                let table = self.engagement_over_time();
                let remark = self.no_posts().or_else(|| none_in(&table, NO_FIGURES));
                ("Engagement", chart(ChartType::Columns, 4, "Interactions"), table, remark)
            }
            WidgetType::FollowersOverTime => {
                let (table, remark) = self.followers_over_time();
                let lines = table.columns.len().saturating_sub(1);
                ("Followers", chart(ChartType::Lines, lines, "Followers"), table, remark)
            }
            WidgetType::TopPosts => {
                let range = self.scope.range();
                let top = report_figures::most_engaging(self.conn, self.scope.brand_id, range, TOP_POSTS, READ_TEXT);
                let table = tables::posts(self.scope, top.await?);
                let remark = self.no_posts().or_else(|| none_in(&table, NO_FIGURES));
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
            WidgetType::Note => ("Note", View::Text, note(wanted.text.as_deref().unwrap_or_default()), None),
        };
        let title = wanted.title.clone().unwrap_or_else(|| title.to_owned());
        let remark = if view == View::Text { None } else { self.with_retention(remark) };
        Ok(Widget { widget_type: wanted.widget_type, title, view, table: without_empty_rows(table), remark })
    }

    fn no_posts(&self) -> Option<String> {
        (self.totals.posts == 0).then(|| NO_POSTS.to_owned())
    }

    /// Adds how far back the plan shows, if that cuts the report.
    fn with_retention(&self, remark: Option<String>) -> Option<String> {
        let Some(days) = self.scope.cut_to_days else { return remark };
        let cut = format!("The plan shows figures of the last {days} days only.");
        Some(remark.map_or_else(|| cut.clone(), |remark| format!("{remark} {cut}")))
    }

    fn summary(&self) -> Table {
        let row = |(label, value, before): (&str, Option<i64>, Option<i64>)| {
            vec![Cell::Text(label.to_owned()), count(value), count(before)]
        };
        Table {
            columns: columns(columns::FIGURES),
            rows: self.totals.rows().into_iter().map(row).collect(),
            totals: None,
        }
    }

    /// Returns the posts and figures of each day, also of those without posts.
    fn by_day(&self) -> impl Iterator<Item = (NaiveDate, DayOfPosts)> {
        let found: HashMap<i64, DayOfPosts> = self.totals.days.iter().map(|day| (day.day, *day)).collect();
        (0..).zip(&self.scope.days).map(move |(place, date)| (*date, found.get(&place).copied().unwrap_or_default()))
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
        let cells = |f: &Figures| [f.likes, f.comments, f.shares, f.clicks].map(count);
        let row = |(date, day): (NaiveDate, DayOfPosts)| {
            [Cell::Date(date)].into_iter().chain(cells(&day.figures)).collect::<Vec<_>>()
        };
        let is_known = self.totals.figures.engagements().is_some();
        let totals = || [Cell::Text("Total".to_owned())].into_iter().chain(cells(&self.totals.figures)).collect();
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
        let left_out = shown.len().saturating_sub(MAX_LINES);
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
            (left_out > 0)
                .then(|| format!("The {MAX_LINES} accounts with the most followers; {left_out} more are left out."))
        };
        (Table { columns: all, rows, totals: None }, remark)
    }

    async fn posts_table(&mut self) -> Result<(Table, Option<String>)> {
        let (brand, range) = (self.scope.brand_id, self.scope.range());
        // One more than can be shown, to see whether there are more.
        let limit = i64::try_from(self.rows_left + 1).unwrap_or(i64::MAX);
        let mut posts = report_figures::newest(self.conn, brand, range, limit, READ_TEXT).await?;
        let is_cut = posts.len() > self.rows_left;
        posts.truncate(self.rows_left);
        self.rows_left -= posts.len();
        let shown = posts.len();
        let table = tables::posts(self.scope, posts);
        let remark = match (is_cut, shown) {
            (true, 0) => Some("The tables before show as many posts as a report can have.".to_owned()),
            (true, shown) => Some(format!("The newest {} posts; there are more.", naming::count(shown as i64))),
            (false, _) => self.no_posts(),
        };
        Ok((table, remark))
    }

    async fn accounts_table(&mut self) -> Result<Table> {
        let published = report_figures::by_account(self.conn, self.scope.brand_id, self.scope.range()).await?;
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
                count(posts.and_then(|posts| posts.figures.impressions)),
                count(posts.and_then(|posts| posts.figures.engagements())),
            ]);
        }
        let gone = published.iter().filter(|posts| !known.contains(&posts.account_id));
        let (number, figures) = gone.fold((0, Figures::default()), |(n, all), p| (n + p.posts, all.plus(&p.figures)));
        if number > 0 {
            let name = Cell::Text("Accounts that are no longer connected".to_owned());
            let cells = [Some(number), figures.impressions, figures.engagements()].map(count);
            rows.push([name, Cell::Empty, Cell::Empty, Cell::Empty].into_iter().chain(cells).collect());
        }
        Ok(Table { columns: columns(columns::ACCOUNTS), rows, totals: None })
    }
}

/// How much of a text is read: one character more than is shown, so that a cut is seen.
const READ_TEXT: i32 = MAX_TEXT as i32 + 1;

fn chart(chart_type: ChartType, series: usize, unit: &str) -> View {
    View::Chart(Chart { chart_type, series: (1..=series).collect(), unit: unit.to_owned() })
}

fn note(text: &str) -> Table {
    Table { columns: columns(columns::NOTE), rows: vec![vec![Cell::Text(text.to_owned())]], totals: None }
}

/// Returns a remark if a table has no rows.
fn none_in(table: &Table, remark: &str) -> Option<String> {
    table.rows.is_empty().then(|| remark.to_owned())
}

/// A table without rows has no totals either.
fn without_empty_rows(table: Table) -> Table {
    let totals = table.totals.filter(|_| !table.rows.is_empty());
    Table { totals, ..table }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_needs_something_to_compare_with() {
        assert_eq!(change(12, 10).as_deref(), Some("+20 % on the period before"));
        assert_eq!(change(5, 10).as_deref(), Some("−50 % on the period before"));
        assert_eq!(change(1_000, 1_001).as_deref(), Some("as in the period before"));
        assert_eq!(change(5, 0), None);
        assert_eq!(change(i64::MAX, 1).map(|text| text.len() > 5), Some(true));
    }
}
