//! The columns of each widget's table. Their keys are part of the JSON format and must not change.

use crate::document::Column;
use crate::document::ColumnType::{self, Count, Date, Link, Percent, Text, Time};

/// `(key, label, type)`.
pub type ColumnSpec = (&'static str, &'static str, ColumnType);

pub const SUMMARY: &[ColumnSpec] = &[
    ("metric", "Metric", Text),
    ("value", "This period", Count),
    ("previous", "Previous period", Count),
    ("change", "Change", Percent),
];

pub const POSTS_OVER_TIME: &[ColumnSpec] = &[DATE, ("posts", "Posts", Count)];

pub const ENGAGEMENT_OVER_TIME: &[ColumnSpec] = &[
    DATE,
    ("likes", "Likes", Count),
    ("comments", "Comments", Count),
    ("shares", "Shares", Count),
    ("clicks", "Clicks", Count),
];

pub const POSTS: &[ColumnSpec] = &[
    ("published_at", "Published", Time),
    ("account", "Account", Text),
    ("platform", "Platform", Text),
    ("text", "Text", Text),
    ("url", "Link", Link),
    ("impressions", "Impressions", Count),
    ("likes", "Likes", Count),
    ("comments", "Comments", Count),
    ("shares", "Shares", Count),
    ("clicks", "Clicks", Count),
    ("engagements", "Engagements", Count),
];

pub const ACCOUNTS: &[ColumnSpec] = &[
    ("account", "Account", Text),
    ("platform", "Platform", Text),
    ("followers", "Followers", Count),
    ("new_followers", "New followers", Count),
    ("posts", "Posts", Count),
    ("impressions", "Impressions", Count),
    ("engagements", "Engagements", Count),
];

pub const NOTE: &[ColumnSpec] = &[("text", "Text", Text)];

const DATE: ColumnSpec = ("date", "Date", Date);

pub fn columns(specs: &[ColumnSpec]) -> Vec<Column> {
    let column = |(key, label, column_type): &ColumnSpec| Column {
        key: (*key).to_owned(),
        label: (*label).to_owned(),
        column_type: *column_type,
    };
    specs.iter().map(column).collect()
}

/// Returns the columns of the followers over time, one per account `(id, label)`.
pub fn followers_over_time(accounts: impl IntoIterator<Item = (i64, String)>) -> Vec<Column> {
    let account = |(id, label)| Column { key: format!("account_{id}"), label, column_type: Count };
    columns(&[DATE]).into_iter().chain(accounts.into_iter().map(account)).collect()
}
