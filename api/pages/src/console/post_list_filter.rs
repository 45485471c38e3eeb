//! The filters of the list of posts, in its address.

use chrono::{Days, NaiveDate, NaiveTime};
use crier_domain::post::{MAX_LABEL, PostSort, PostStatus};
use crier_endpoints::error::Result;
use crier_endpoints::fields::time::in_zone;
use crier_endpoints::routes::conversations::list::MAX_SEARCH_CHARS;
use crier_endpoints::routes::posts::list::ListPosts;
use url::form_urlencoded::Serializer;

use super::calendar_period::parse_date;
use super::paging;
use super::post_filters::PostFilters;
use super::shared::{Badge, Choice};
use super::visit::Visit;

/// The filters in the query. Invalid values are ignored.
pub struct ListFilter {
    pub request: ListPosts,
    /// The choices of the filter `account`. The first one is "All", with an empty value.
    pub accounts: Vec<Choice>,
    pub has_account: bool,
    /// The ID of the account. Empty without this filter.
    account: String,
    /// The first day. Empty without this filter.
    from: String,
    /// The last day. Empty without this filter.
    to: String,
}

impl ListFilter {
    pub async fn load(visit: &Visit) -> Result<Self> {
        let mut conn = visit.app.store.read().await?;
        let common = PostFilters::load(visit, &mut conn).await?;
        drop(conn);
        let day = |name: &str| visit.query.get(name).and_then(parse_date);
        let from = day("from");
        let to = day("to").filter(|to| from.is_none_or(|from| from <= *to));
        let midnight = |date: NaiveDate| in_zone(date.and_time(NaiveTime::MIN), visit.zone());
        let request = ListPosts {
            pages: paging::pages(paging::number(visit)),
            status: common.status,
            search: text(visit, "search", MAX_SEARCH_CHARS),
            label: text(visit, "label", MAX_LABEL),
            account_id: common.account_id,
            from: from.and_then(midnight),
            to: to.and_then(|date| midnight(date + Days::new(1))),
            sort: (common.status == Some(PostStatus::Scheduled)).then_some(PostSort::ScheduledAt),
        };
        let word = |date: Option<NaiveDate>| date.map(|date| date.to_string()).unwrap_or_default();
        Ok(Self {
            accounts: common.accounts,
            has_account: common.has_account,
            account: request.account_id.map(|id| id.to_string()).unwrap_or_default(),
            from: word(from),
            to: word(to),
            request,
        })
    }

    pub fn status(&self) -> &'static str {
        self.request.status.map_or("", PostStatus::as_str)
    }

    pub fn label(&self) -> &str {
        self.request.label.as_deref().unwrap_or_default()
    }

    /// Returns the parameters of the query.
    pub fn pairs(&self) -> [(&'static str, &str); 6] {
        [
            ("status", self.status()),
            ("search", self.request.search.as_deref().unwrap_or_default()),
            ("account", &self.account),
            ("label", self.label()),
            ("from", &self.from),
            ("to", &self.to),
        ]
    }

    /// Returns whether a filter other than the status is set.
    pub fn is_filtered(&self) -> bool {
        self.pairs().into_iter().any(|(name, value)| name != "status" && !value.is_empty())
    }

    /// Returns the tabs. Their values are URLs that keep the other filters.
    pub fn statuses(&self, path: &str) -> Vec<Choice> {
        let tab = |word: &'static str, label: &str| {
            let others = self.pairs().into_iter().filter(|(name, _)| *name != "status");
            let href = with_query(path, [("status", word)].into_iter().chain(others));
            Choice::new(&href, label, word == self.status())
        };
        let all = PostStatus::ALL.iter().map(|of| tab(of.as_str(), &Badge::post(of.as_str()).text));
        [tab("", "All")].into_iter().chain(all).collect()
    }

    /// Returns the choices of the filter `label`: these, and the current one.
    pub fn labels(&self, suggested: &[String]) -> Vec<Choice> {
        let current = self.label();
        let mut labels: Vec<&str> = suggested.iter().map(String::as_str).collect();
        if !current.is_empty() && !labels.contains(&current) {
            labels.push(current);
        }
        let choice = |label: &str| Choice::new(label, label, label == current);
        [Choice::new("", "All", current.is_empty())].into_iter().chain(labels.into_iter().map(choice)).collect()
    }

    /// Returns this path with the filters and the page.
    pub fn address(&self, path: &str) -> String {
        let page = match self.request.pages.page {
            1 => String::new(),
            page => page.to_string(),
        };
        with_query(path, self.pairs().into_iter().chain([("page", page.as_str())]))
    }
}

/// Returns the text of a parameter, at most `max` characters. `None` if it is empty.
fn text(visit: &Visit, name: &str, max: usize) -> Option<String> {
    let text = visit.query.get(name).unwrap_or_default().trim();
    let text: String = text.chars().filter(|c| *c != '\0').take(max).collect();
    Some(text).filter(|text| !text.is_empty())
}

/// Returns a path with the parameters that are not empty.
fn with_query<'a>(path: &str, pairs: impl Iterator<Item = (&'static str, &'a str)>) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(pairs.filter(|(_, value)| !value.is_empty()));
    match query.finish().as_str() {
        "" => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}
