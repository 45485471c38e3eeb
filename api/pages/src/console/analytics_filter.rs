//! The filter by account and the metric of the top posts, in the address of the analytics page.

use std::collections::HashMap;

use chrono::NaiveDate;
use crier_domain::analytics::PostMetric;
use crier_endpoints::routes::analytics::accounts::AccountSeries;
use crier_endpoints::routes::analytics::{RequestedAccount, RequestedDays, RequestedPosts};

use super::shared::Choice;
use super::visit::Visit;

/// The maximum number of accounts to choose from.
const MAX_CHOICES: usize = 100;

#[derive(Clone, Copy, Debug)]
pub struct Filter {
    pub account_id: Option<i64>,
    /// The metric by which the top posts are ranked.
    pub metric: PostMetric,
}

impl Filter {
    /// Reads the filter in the query. Unknown metrics and accounts that are not in the list are ignored.
    pub fn read(visit: &Visit, accounts: &[AccountSeries]) -> Self {
        let wanted: Option<i64> = visit.query.get("account").and_then(|id| id.parse().ok());
        let metric: Option<PostMetric> = visit.query.get("metric").and_then(|word| word.parse().ok());
        Self {
            account_id: wanted.filter(|id| accounts.iter().any(|one| one.account_id == *id)),
            metric: metric.unwrap_or_default(),
        }
    }

    /// Returns whether the filter includes the account.
    pub fn includes(&self, account_id: i64) -> bool {
        self.account_id.is_none_or(|id| id == account_id)
    }

    pub fn account(&self) -> RequestedAccount {
        RequestedAccount { account_id: self.account_id }
    }

    /// Returns the request for the posts of these days.
    pub fn posts(&self, days: RequestedDays) -> RequestedPosts {
        RequestedPosts { days, account: self.account() }
    }

    /// Returns the URL of the page with this filter and these days.
    pub fn href(&self, path: &str, (start, end): (NaiveDate, NaiveDate)) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("start", &start.to_string()).append_pair("end", &end.to_string());
        if let Some(id) = self.account_id {
            query.append_pair("account", &id.to_string());
        }
        if self.metric != PostMetric::default() {
            query.append_pair("metric", self.metric.as_str());
        }
        format!("{path}?{}", query.finish())
    }

    /// Returns the choices of the filter. The first one is "All", with an empty value.
    pub fn accounts(&self, accounts: &[AccountSeries], names: &HashMap<i64, String>) -> Vec<Choice> {
        let is_shown = |(index, id): &(usize, i64)| *index < MAX_CHOICES || self.account_id == Some(*id);
        let ids = accounts.iter().map(|one| one.account_id).enumerate().filter(is_shown);
        let choice = |(_, id): (usize, i64)| {
            let name = names.get(&id).cloned().unwrap_or_default();
            Choice::new(&id.to_string(), &name, self.account_id == Some(id))
        };
        [Choice::new("", "All", self.account_id.is_none())].into_iter().chain(ids.map(choice)).collect()
    }
}
