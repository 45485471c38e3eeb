//! The filters by status and account of the list of posts and of the calendar.

use crier_domain::post::PostStatus;
use crier_endpoints::error::Result;
use crier_store::{Conn, PageRequest, accounts};

use super::post_rows::chip;
use super::shared::{Badge, Choice};
use super::visit::Visit;

/// The maximum number of accounts to choose from.
const MAX_ACCOUNTS: i64 = 100;

pub struct PostFilters {
    pub status: Option<PostStatus>,
    pub account_id: Option<i64>,
    /// The first choice is "All", with an empty value.
    pub statuses: Vec<Choice>,
    /// The first choice is "All", with an empty value.
    pub accounts: Vec<Choice>,
    pub has_account: bool,
}

impl PostFilters {
    /// Reads the filters in the query. Unknown statuses and accounts of other brands are ignored.
    pub async fn load(visit: &Visit, conn: &mut Conn) -> Result<Self> {
        let brand = visit.brand()?.0.id;
        let status: Option<PostStatus> = visit.query.get("status").and_then(|word| word.parse().ok());
        let wanted: Option<i64> = visit.query.get("account").and_then(|id| id.parse().ok());
        let mut found = accounts::list(conn, brand, PageRequest { page: 1, per_page: MAX_ACCOUNTS }).await?.rows;
        let mut account_id = wanted.filter(|id| found.iter().any(|account| account.id == *id));
        if let (None, Some(id)) = (account_id, wanted) {
            let older = accounts::find(conn, brand, id).await?;
            account_id = older.as_ref().map(|account| account.id);
            found.extend(older);
        }
        let all_statuses = PostStatus::ALL.iter().map(|of| {
            let word = of.as_str();
            Choice::new(word, &Badge::post(word).text, status == Some(*of))
        });
        let all_accounts = found.iter().map(|account| {
            let chip = chip(account);
            let label = format!("{} ({})", chip.name, chip.platform.name);
            Choice::new(&account.id.to_string(), &label, account_id == Some(account.id))
        });
        Ok(Self {
            status,
            account_id,
            statuses: [Choice::new("", "All", status.is_none())].into_iter().chain(all_statuses).collect(),
            accounts: [Choice::new("", "All", account_id.is_none())].into_iter().chain(all_accounts).collect(),
            has_account: !found.is_empty(),
        })
    }

    pub fn is_filtered(&self) -> bool {
        self.status.is_some() || self.account_id.is_some()
    }

    /// Returns a URL with the filters and these parameters.
    pub fn href(&self, path: &str, others: &[(&str, &str)]) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(others);
        if let Some(status) = self.status {
            query.append_pair("status", status.as_str());
        }
        if let Some(id) = self.account_id {
            query.append_pair("account", &id.to_string());
        }
        match query.finish().as_str() {
            "" => path.to_owned(),
            query => format!("{path}?{query}"),
        }
    }
}
