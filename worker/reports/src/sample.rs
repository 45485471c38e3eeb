//! Sample documents for tests and benchmarks: three accounts of a bakery over a month, with every type of widget. The
//! same number of posts always results in the same document.

use chrono::{Days, NaiveDate, TimeDelta};
use crier_domain::report::WidgetType;
use crier_domain::report_naming as naming;

use crate::columns::{self, columns};
use crate::document::{Cell, Chart, ChartType, Document, Period, Table, View, Widget};

const ACCOUNTS: [(&str, &str, i64); 3] = [
    ("Bäckerei Sonnenaufgang", "Bluesky", 4_210),
    ("sonnenaufgang@brot.example", "Mastodon", 1_873),
    ("Sonnenaufgang Berlin", "Facebook", 12_940),
];
const TEXTS: [&str; 8] = [
    "Fresh rye bread from six in the morning. Come early, it was gone by nine yesterday.",
    "Our sourdough is three days old before it sees the oven. Here is why that matters, in eleven photos.",
    "Heute neu: Kürbiskernbrot mit Möhre, nur solange der Vorrat reicht! 🥕",
    "Σήμερα ψήνουμε ψωμί με ελιές και δεντρολίβανο.",
    "Сегодня у нас ржаной хлеб с тмином и мёдом.",
    "焼きたてのパンを毎朝六時からご用意しています。",
    "خبز طازج كل صباح من الساعة السادسة.",
    "לחם טרי בכל בוקר החל מהשעה שש.",
];

/// Returns a report over `posts` posts in October 2026.
pub fn document(posts: usize) -> Document {
    let start = NaiveDate::from_ymd_opt(2026, 10, 1).unwrap_or_default();
    let days: Vec<NaiveDate> = start.iter_days().take(31).collect();
    let all: Vec<Vec<Cell>> = (0..posts).map(|n| post(n, posts, start)).collect();
    Document {
        title: "Monthly report".to_owned(),
        brand: "Bäckerei Sonnenaufgang".to_owned(),
        workspace: "Agentur Müller & Söhne".to_owned(),
        period: Period { start, end: start + Days::new(30) },
        timezone: "Europe/Berlin".to_owned(),
        created_at: (start + Days::new(31)).and_hms_opt(9, 0, 4).unwrap_or_default(),
        widgets: vec![
            widget(WidgetType::Summary, "At a glance", View::Metrics, summary(posts)),
            widget(
                WidgetType::Note,
                "What we learned",
                View::Text,
                Table {
                    columns: columns(columns::NOTE),
                    rows: vec![vec![Cell::Text(
                        "Posts before seven in the morning did best.\n\nNext month we try two a day, and fewer links."
                            .to_owned(),
                    )]],
                    totals: None,
                },
            ),
            chart(WidgetType::PostsOverTime, "Posts", "Posts", ChartType::Columns, posts_over_time(&days, posts)),
            chart(
                WidgetType::EngagementOverTime,
                "Engagement",
                "Interactions",
                ChartType::Columns,
                engagement_over_time(&days),
            ),
            chart(WidgetType::FollowersOverTime, "Followers", "Followers", ChartType::Lines, followers(&days)),
            widget(WidgetType::TopPosts, "Top posts", View::Table, posts_table(all.iter().take(10).cloned().collect())),
            widget(WidgetType::AccountsTable, "Accounts", View::Table, accounts_table(posts)),
            widget(WidgetType::PostsTable, "All posts", View::Table, posts_table(all)),
        ],
    }
}

/// Returns a report over a period in which nothing happened.
pub fn empty_document() -> Document {
    let mut document = document(0);
    for widget in &mut document.widgets {
        if widget.widget_type != WidgetType::Note {
            widget.table.rows.clear();
            widget.table.totals = None;
            widget.remark = Some("No posts were published in this period.".to_owned());
        }
    }
    document
}

fn widget(widget_type: WidgetType, title: &str, view: View, table: Table) -> Widget {
    Widget { widget_type, title: title.to_owned(), view, table, remark: None }
}

fn chart(widget_type: WidgetType, title: &str, unit: &str, chart_type: ChartType, table: Table) -> Widget {
    let series = (1..table.columns.len()).collect();
    widget(widget_type, title, View::Chart(Chart { chart_type, series, unit: unit.to_owned() }), table)
}

/// Returns a reproducible pseudorandom number below `below`.
fn number(seed: usize, below: u64) -> i64 {
    let mixed = (seed as u64).wrapping_add(0x9e37_79b9).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 29)) % below) as i64
}

fn summary(posts: usize) -> Table {
    let count = posts as i64;
    let row = |metric: &str, value: Cell, previous: Cell| {
        let change = match (&value, &previous) {
            (Cell::Count(value), Cell::Count(previous)) => naming::change(*value, *previous),
            _ => None,
        };
        vec![Cell::Text(metric.to_owned()), value, previous, change.map_or(Cell::Empty, Cell::Percent)]
    };
    Table {
        columns: columns(columns::SUMMARY),
        rows: vec![
            row("Posts", Cell::Count(count), Cell::Count(count * 4 / 5)),
            row("Impressions", Cell::Count(count * 1_204), Cell::Count(count * 1_310)),
            row("Engagements", Cell::Count(count * 61), Cell::Count(count * 48)),
            row("Clicks", Cell::Count(count * 9), Cell::Empty),
            row("Followers", Cell::Count(19_023), Cell::Count(18_711)),
            row("Reach", Cell::Empty, Cell::Empty),
        ],
        totals: None,
    }
}

fn posts_over_time(days: &[NaiveDate], posts: usize) -> Table {
    let per_day = posts.div_ceil(days.len().max(1)) as u64;
    Table {
        columns: columns(columns::POSTS_OVER_TIME),
        rows: days
            .iter()
            .enumerate()
            .map(|(n, day)| vec![Cell::Date(*day), Cell::Count(number(n, per_day + 3))])
            .collect(),
        totals: Some(vec![Cell::Text("Total".to_owned()), Cell::Count(posts as i64)]),
    }
}

fn engagement_over_time(days: &[NaiveDate]) -> Table {
    let row = |(n, day): (usize, &NaiveDate)| {
        let clicks = if n % 9 == 4 { Cell::Empty } else { Cell::Count(number(n + 90, 60)) };
        vec![
            Cell::Date(*day),
            Cell::Count(number(n, 400)),
            Cell::Count(number(n + 31, 90)),
            Cell::Count(number(n + 62, 70)),
            clicks,
        ]
    };
    Table {
        columns: columns(columns::ENGAGEMENT_OVER_TIME),
        rows: days.iter().enumerate().map(row).collect(),
        totals: None,
    }
}

fn followers(days: &[NaiveDate]) -> Table {
    let accounts = (1..).zip(&ACCOUNTS).map(|(n, (name, platform, _))| (n, format!("{name} ({platform})")));
    let all = columns::followers_over_time(accounts);
    let row = |(n, day): (usize, &NaiveDate)| {
        let followers = ACCOUNTS.iter().enumerate().map(|(account, (.., base))| match (account, n) {
            (2, 11..=14) => Cell::Empty,
            _ => Cell::Count(base + n as i64 * (5 + account as i64 * 4) + number(n + account * 40, 9)),
        });
        [Cell::Date(*day)].into_iter().chain(followers).collect()
    };
    Table { columns: all, rows: days.iter().enumerate().map(row).collect(), totals: None }
}

fn posts_table(rows: Vec<Vec<Cell>>) -> Table {
    Table { columns: columns(columns::POSTS), rows, totals: None }
}

fn post(n: usize, of: usize, start: NaiveDate) -> Vec<Cell> {
    let minutes = 31 * 24 * 60 * n / of.max(1);
    let published = start.and_hms_opt(0, 0, 0).unwrap_or_default() + TimeDelta::minutes(minutes as i64);
    let (account, platform, _) = ACCOUNTS[n % ACCOUNTS.len()];
    let [likes, comments, shares, clicks] = [400, 90, 70, 60].map(|below| number(n * 4 + below as usize, below));
    let impressions = if n % 3 == 1 { Cell::Empty } else { Cell::Count(number(n, 9_000) + 300) };
    vec![
        Cell::Time(published),
        Cell::Text(account.to_owned()),
        Cell::Text(platform.to_owned()),
        Cell::Text(TEXTS[n % TEXTS.len()].to_owned()),
        Cell::Link(format!("https://brot.example/posts/{n}")),
        impressions,
        Cell::Count(likes),
        Cell::Count(comments),
        Cell::Count(shares),
        Cell::Count(clicks),
        Cell::Count(likes + comments + shares + clicks),
    ]
}

fn accounts_table(posts: usize) -> Table {
    let row = |(n, (name, platform, followers)): (usize, &(&str, &str, i64))| {
        vec![
            Cell::Text((*name).to_owned()),
            Cell::Text((*platform).to_owned()),
            Cell::Count(followers + 400),
            Cell::Count(number(n, 90) + 210),
            Cell::Count(posts as i64 / 3),
            if n == 1 { Cell::Empty } else { Cell::Count(number(n, 90_000)) },
            Cell::Count(number(n + 7, 9_000)),
        ]
    };
    Table { columns: columns(columns::ACCOUNTS), rows: ACCOUNTS.iter().enumerate().map(row).collect(), totals: None }
}
