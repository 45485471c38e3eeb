//! The measured lists.

use chrono::TimeDelta;
use crier_domain::post::{PostSort, PostStatus};
use crier_domain::words;
use crier_store::calendar::{self, CalendarQuery};
use crier_store::posts::{self, PostFilter};
use crier_store::{Conn, PageRequest, StoreError, targets};

use super::sample::{FREQUENT, LABEL, RARE, SamplePosts, UNCOMMON};

/// The maximum number of posts in a view of the console's calendar, and one more.
const CALENDAR_LIMIT: i64 = 1_001;

pub struct Case {
    pub name: String,
    list: List,
}

enum List {
    /// A page of the API's list: 0.0 is the first one, 1.0 the last.
    Page(PostFilter, f64),
    Calendar(CalendarQuery),
}

impl Case {
    fn page(name: impl Into<String>, filter: &PostFilter, depth: f64) -> Self {
        Self { name: name.into(), list: List::Page(filter.clone(), depth) }
    }

    fn search(name: impl Into<String>, search: &str, filter: &PostFilter, depth: f64) -> Self {
        Self::page(name, &PostFilter { words: words::search_terms(search), ..filter.clone() }, depth)
    }

    /// Returns the page to measure of a list with this many posts.
    pub fn page_of(&self, total: i64, per_page: i64) -> i64 {
        match self.list {
            List::Page(_, depth) => ((total as f64 * depth) as i64 / per_page).max(1),
            List::Calendar(_) => 1,
        }
    }

    /// Reads a page with the statements of the API, or a view of the calendar. Returns the number of posts in the list.
    pub async fn read(&self, conn: &mut Conn, brand_id: i64, page: PageRequest) -> Result<i64, StoreError> {
        let filter = match &self.list {
            List::Page(filter, _) => filter,
            List::Calendar(query) => return calendar::between(conn, query, CALENDAR_LIMIT).await.map(|_| 0),
        };
        let found = posts::list(conn, brand_id, filter, page).await?;
        let ids: Vec<i64> = found.rows.iter().map(|post| post.id).collect();
        targets::target_summaries(conn, &ids).await?;
        Ok(found.total)
    }
}

pub fn all(sample: &SamplePosts) -> Vec<Case> {
    let all = PostFilter::default();
    let mut cases = vec![
        Case::page("all", &all, 0.0),
        Case::page("all, in the middle", &all, 0.5),
        Case::page("all, the last page", &all, 1.0),
    ];
    let filters = filters(sample);
    for (name, filter) in &filters {
        cases.push(Case::page(*name, filter, 0.0));
        cases.push(Case::page(format!("{name}, in the middle"), filter, 0.5));
    }
    for (name, search) in [
        ("a word in half of the posts", FREQUENT),
        ("a word in 1 % of the posts", UNCOMMON),
        ("a word in one of 10,000 posts", RARE),
        ("a word that does not occur", "zzz"),
        ("two frequent words", "bread fresh"),
        ("a frequent and a rare word", "bread unicorn"),
        ("a prefix of one frequent word", "bre"),
        ("a prefix of three letters", "bab"),
        ("a prefix of two letters", "ba"),
        ("a frequent word and a prefix of two letters", "bread ba"),
    ] {
        cases.push(Case::search(name, search, &all, 0.0));
    }
    cases.push(Case::search("a word in half of the posts, in the middle", FREQUENT, &all, 0.5));
    cases.push(Case::search("a word in half of the posts, the last page", FREQUENT, &all, 1.0));
    for (name, filter) in &filters {
        cases.push(Case::search(format!("a word in half of the posts, {name}"), FREQUENT, filter, 0.0));
        cases.push(Case::search(format!("a word in half of the posts, {name}, in the middle"), FREQUENT, filter, 0.5));
        cases.push(Case::search(format!("a word in 1 % of the posts, {name}"), UNCOMMON, filter, 0.0));
        cases.push(Case::search(format!("a prefix of two letters, {name}"), "ba", filter, 0.0));
    }
    cases.extend(months(sample));
    cases
}

/// Returns each filter and each order alone, and all filters together.
fn filters(sample: &SamplePosts) -> Vec<(&'static str, PostFilter)> {
    let all = PostFilter::default();
    let (status, label, account_id) = (Some(PostStatus::Published), Some(LABEL.to_owned()), Some(sample.account_id));
    let (from, to) = (Some(sample.now - TimeDelta::days(30)), Some(sample.now));
    vec![
        ("published", PostFilter { status, ..all.clone() }),
        ("with a label", PostFilter { label: label.clone(), ..all.clone() }),
        ("of an account", PostFilter { account_id, ..all.clone() }),
        ("of a month", PostFilter { from, to, ..all.clone() }),
        ("by scheduled time", PostFilter { sort: Some(PostSort::ScheduledAt), ..all.clone() }),
        ("last published first", PostFilter { sort: Some(PostSort::LastPublished), ..all.clone() }),
        ("with all filters", PostFilter { status, label, account_id, from, to, ..all }),
    ]
}

/// Returns a month of the calendar, of all accounts and of one.
fn months(sample: &SamplePosts) -> [Case; 2] {
    let (half, now) = (TimeDelta::days(15), sample.now);
    let month =
        CalendarQuery { brand_id: sample.brand_id, from: now - half, to: now + half, status: None, account_id: None };
    let of_account = CalendarQuery { account_id: Some(sample.account_id), ..month };
    [("calendar, a month", month), ("calendar, a month of an account", of_account)]
        .map(|(name, query)| Case { name: name.to_owned(), list: List::Calendar(query) })
}
