//! Data that several widgets of a report show: the metrics of the period and of the previous one, and the followers of
//! each account.

use std::collections::HashMap;

use chrono::NaiveDate;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::{catalogue, report_naming as naming};
use crier_store::analytics::{self, DayOfPosts, PostsByDay};
use crier_store::{Conn, PageRequest, Result, accounts};

use super::scope::ExportScope;
use crate::report_mail::Headline;

/// The maximum number of accounts, which are the newest.
const MAX_ACCOUNTS: i64 = 500;
const HEADLINES: usize = 3;

/// An account and its follower counts.
pub struct AccountFollowers {
    pub id: i64,
    /// `Sunrise Bakery (Bluesky)`
    pub label: String,
    pub name: String,
    pub platform: &'static str,
    pub by_day: HashMap<NaiveDate, i64>,
    pub before: Option<i64>,
    pub first: Option<i64>,
    pub last: Option<i64>,
}

impl AccountFollowers {
    /// Returns the change in followers; `None` if there are not two counts to compare.
    pub fn growth(&self) -> Option<i64> {
        Some(self.last?.saturating_sub(self.before.or(self.first)?))
    }
}

/// The data that several widgets show.
pub struct PeriodTotals {
    pub days: Vec<DayOfPosts>,
    pub posts: i64,
    pub metrics: PostMetrics,
    /// The posts and metrics of the previous period; `None` if the plan does not include it.
    pub before: Option<(i64, PostMetrics)>,
    pub accounts: Vec<AccountFollowers>,
}

impl PeriodTotals {
    pub async fn read(conn: &mut Conn, scope: &ExportScope) -> Result<Self> {
        let PostsByDay { days, total } = analytics::posts_by_day(conn, scope.brand_id, None, &scope.bounds()).await?;
        let before = match scope.range_before() {
            Some(range) => {
                let found = analytics::days_of_posts(conn, scope.brand_id, None, &[range]).await?;
                let before = found.first().copied().unwrap_or_default();
                Some((before.posts, before.metrics))
            }
            None => None,
        };
        let accounts = read_accounts(conn, scope).await?;
        Ok(Self { days, posts: total.posts, metrics: total.metrics, before, accounts })
    }

    pub fn rows(&self) -> Vec<SummaryRow> {
        let (now, before) = (&self.metrics, self.before.map(|(_, metrics)| metrics).unwrap_or_default());
        let row = |label, value: Option<i64>, before: Option<i64>| SummaryRow {
            label,
            value,
            before,
            change: value.zip(before).and_then(|(value, before)| naming::change(value, before)),
        };
        vec![
            row("Posts", Some(self.posts), self.before.map(|(posts, _)| posts)),
            row("Impressions", now.impressions, before.impressions),
            row("Reach", now.reach, before.reach),
            row("Engagements", now.engagements(), before.engagements()),
            row("Likes", now.likes, before.likes),
            row("Comments", now.comments, before.comments),
            row("Shares", now.shares, before.shares),
            row("Clicks", now.clicks, before.clicks),
            self.followers(),
        ]
    }

    /// Returns the followers of all accounts. The change covers only accounts with both counts, because the followers
    /// of an account that was connected in the period are not growth.
    pub fn followers(&self) -> SummaryRow {
        let sum = |numbers: &mut dyn Iterator<Item = i64>| numbers.reduce(i64::saturating_add);
        let both = || self.accounts.iter().filter_map(|account| account.last.zip(account.before));
        let before = sum(&mut both().map(|(_, before)| before));
        let compared = sum(&mut both().map(|(last, _)| last));
        SummaryRow {
            label: "Followers",
            value: sum(&mut self.accounts.iter().filter_map(|account| account.last)),
            before,
            change: compared.zip(before).and_then(|(last, before)| naming::change(last, before)),
        }
    }

    /// Returns whether some accounts can be compared with the previous period and others cannot.
    pub fn has_new_accounts(&self) -> bool {
        let known = || self.accounts.iter().filter(|account| account.last.is_some());
        known().any(|account| account.before.is_none()) && known().any(|account| account.before.is_some())
    }

    /// Returns the first known metrics, in the order of their importance.
    pub fn headlines(&self) -> Vec<Headline> {
        let rows = self.rows();
        let of = |name: &&str| rows.iter().find(|row| row.label == *name);
        let by_importance = ["Posts", "Engagements", "Followers", "Impressions", "Reach", "Clicks"];
        let known = by_importance.iter().filter_map(of).filter(|row| row.value.is_some());
        let headline = |row: &SummaryRow| Headline {
            label: row.label.to_owned(),
            value: row.value.map_or_else(|| "–".to_owned(), naming::count),
            change: row.change.map(change),
        };
        known.take(HEADLINES).map(headline).collect()
    }
}

/// A metric of the summary.
pub struct SummaryRow {
    pub label: &'static str,
    pub value: Option<i64>,
    /// The value in the previous period.
    pub before: Option<i64>,
    /// In tenths of a percent.
    pub change: Option<i64>,
}

/// Returns a change as text: `+12% from the previous period`.
fn change(tenths: i64) -> String {
    match tenths {
        0 => "same as in the previous period".to_owned(),
        tenths => format!("{} from the previous period", naming::percent(tenths)),
    }
}

/// Reads the brand's accounts with their followers in the period and before it. The last count of a day is used.
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
    let indexes: HashMap<i64, usize> = found.iter().enumerate().map(|(index, account)| (account.id, index)).collect();
    for snapshot in analytics::of_accounts(conn, &ids, (from, end)).await? {
        let AccountMetrics { followers: Some(followers), .. } = snapshot.metrics else { continue };
        let Some(account) = indexes.get(&snapshot.account_id).and_then(|index| found.get_mut(*index)) else { continue };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_put_in_words() {
        assert_eq!(change(200), "+20% from the previous period");
        assert_eq!(change(-505), "−50.5% from the previous period");
        assert_eq!(change(0), "same as in the previous period");
    }

    #[test]
    fn a_new_account_is_no_growth() {
        let account = |before, last| AccountFollowers {
            id: 1,
            label: String::new(),
            name: String::new(),
            platform: "",
            by_day: HashMap::new(),
            before,
            first: last,
            last,
        };
        let of = |accounts| {
            let (days, metrics) = (Vec::new(), PostMetrics::default());
            let totals = PeriodTotals { days, posts: 0, metrics, before: Some((0, metrics)), accounts };
            let row = totals.followers();
            (row.value, row.before, row.change, totals.has_new_accounts())
        };
        let (old, new) = (|| account(Some(100), Some(110)), || account(None, Some(5_000)));
        assert_eq!(of(vec![old()]), (Some(110), Some(100), Some(100), false));
        assert_eq!(of(vec![old(), new()]), (Some(5_110), Some(100), Some(100), true));
        assert_eq!(of(vec![new()]), (Some(5_000), None, None, false));
        // An account whose followers are no longer read is not a loss.
        assert_eq!(of(vec![old(), account(Some(900), None)]), (Some(110), Some(100), Some(100), false));
        assert_eq!(of(vec![]), (None, None, None, false));
    }
}
