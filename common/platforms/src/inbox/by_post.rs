//! Reads comments from platforms that list them by post: first a page of the account's posts, then the comments of each
//! post, both newest first.
//!
//! Each sync reads the newest page of posts. Once per hour, a long walk covers all posts of the last 30 days, and
//! includes comments that became visible up to a day late. The cursor contains what remains to be read.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::MAX_CURSOR;

/// The period of the first walk, and the maximum age of posts.
const HISTORY: TimeDelta = TimeDelta::days(30);
const OVERLAP: TimeDelta = TimeDelta::minutes(10);
const LONG_OVERLAP: TimeDelta = TimeDelta::hours(24);
const LONG_INTERVAL: TimeDelta = TimeDelta::hours(1);
/// The maximum number of pages per sync, unless a connector sets another ([`Walk::pages_per_sync`]). The next sync
/// continues there.
const PAGES_PER_SYNC: u64 = 20;
/// The maximum length of a page token, a post's id or a URL, in bytes.
const MAX_NAME: usize = 512;
/// The maximum number of lists of comments in a cursor, and their maximum size in bytes of JSON. The rest of a cursor
/// has a page token and a few times.
const MAX_LISTS: usize = 50;
const MAX_LISTS_SIZE: usize = MAX_CURSOR - 4 * 1024;

/// A list of comments to read: those of a post, or the replies to one comment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommentList {
    pub post: String,
    pub url: Option<String>,
    /// The comment whose replies are listed. `None` lists all comments of the post.
    pub thread: Option<String>,
    /// The platform's page token. `None` for the first page.
    pub page: Option<String>,
}

/// A walk over the posts.
#[derive(Clone, Debug, PartialEq)]
pub struct Walk {
    /// Older comments have been read.
    pub until: DateTime<Utc>,
    /// Whether the walk covers all posts.
    pub is_long: bool,
    /// The platform's token of the next page of posts. `None` for the first page.
    pub page: Option<String>,
    /// The maximum number of pages per sync.
    pub pages_per_sync: u64,
    /// Whether a page of posts is read after the lists.
    has_posts: bool,
    lists: Vec<CommentList>,
    began: DateTime<Utc>,
    long: Option<DateTime<Utc>>,
    /// The time of the newest comment read so far.
    seen: Option<DateTime<Utc>>,
    pages: u64,
}

impl Walk {
    /// Continues the walk of a cursor, or begins one.
    pub fn read(cursor: Option<&Value>, now: DateTime<Utc>) -> Self {
        let time = |name: &str| cursor.and_then(|c| c[name].as_str()).and_then(|text| text.parse().ok());
        let (seen, long): (Option<DateTime<Utc>>, Option<DateTime<Utc>>) = (time("seen"), time("long"));
        let lists = cursor.and_then(|c| Vec::deserialize(&c["lists"]).ok()).unwrap_or_default();
        if let (Some(until), Some(began)) = (time("until"), time("began")) {
            let flag = |name: &str| cursor.is_some_and(|c| c[name] == true);
            let page = cursor.and_then(|c| c["page"].as_str()).map(str::to_owned);
            let pages = cursor.and_then(|c| c["pages"].as_u64()).unwrap_or(0);
            let (is_long, has_posts) = (flag("is_long"), flag("has_posts"));
            let pages_per_sync = PAGES_PER_SYNC;
            return Self { until, is_long, page, pages_per_sync, has_posts, lists, began, long, seen, pages };
        }
        let is_long = long.is_none_or(|long| now - long >= LONG_INTERVAL);
        let overlap = if is_long { LONG_OVERLAP } else { OVERLAP };
        let until = seen.map_or(now - HISTORY, |seen| seen.min(now) - overlap);
        // A restarted walk covers the same period as before.
        let until = time("until").map_or(until, |before: DateTime<Utc>| before.min(until));
        let (page, pages_per_sync, has_posts, lists, began, pages) = (None, PAGES_PER_SYNC, true, Vec::new(), now, 0);
        Self { until, is_long, page, pages_per_sync, has_posts, lists, began, long, seen, pages }
    }

    /// Returns the next list of comments. `None` if the next step is a page of posts.
    pub fn list(&self) -> Option<&CommentList> {
        self.lists.first()
    }

    /// Returns the time from which posts are read.
    pub fn posts_since(&self) -> DateTime<Utc> {
        self.began - HISTORY
    }

    /// Returns whether the next page of a list is read, given the times of the comments on this page.
    pub fn continues(&self, times: &[DateTime<Utc>]) -> bool {
        !times.is_empty() && times.iter().all(|at| *at >= self.until)
    }

    /// Records the times of comments that were read.
    pub fn record_times(&mut self, times: &[DateTime<Utc>]) {
        // A comment with a time in the future would hide all others until then.
        let newest = times.iter().copied().max().map(|newest| newest.min(self.began));
        self.seen = newest.max(self.seen);
    }

    /// Returns the cursor after a page of posts, and whether more follows now. `next` is the token of the next page,
    /// `oldest` the time of the oldest post on this page, and `lists` the comments that were not on it.
    pub fn after_posts(
        mut self,
        next: Option<String>,
        oldest: Option<DateTime<Utc>>,
        lists: Vec<CommentList>,
    ) -> (Value, bool) {
        let is_over = !self.is_long || oldest.is_some_and(|oldest| oldest < self.posts_since());
        let next = next.filter(|next| !is_over && next.len() <= MAX_NAME && self.page.as_ref() != Some(next));
        self.has_posts = next.is_some();
        self.page = next;
        self.add(lists);
        self.step()
    }

    /// Returns the cursor after a page of a list, and whether more follows now. `next` is the token of the list's next
    /// page, if it is read, and `lists` the comments that were not on this page.
    pub fn after_list(mut self, next: Option<String>, lists: Vec<CommentList>) -> (Value, bool) {
        let list = if self.lists.is_empty() { CommentList::default() } else { self.lists.remove(0) };
        if let Some(next) = next.filter(|next| next.len() <= MAX_NAME && list.page.as_ref() != Some(next)) {
            self.lists.insert(0, CommentList { page: Some(next), ..list });
        }
        self.add(lists);
        self.step()
    }

    /// Like [`Walk::after_list`], but reads `below` before the other lists, so that there are never more lists than one
    /// page of posts and one page of comments have.
    pub fn after_list_with_below(mut self, next: Option<String>, below: Vec<CommentList>) -> (Value, bool) {
        let list = if self.lists.is_empty() { CommentList::default() } else { self.lists.remove(0) };
        let waiting = std::mem::take(&mut self.lists);
        self.add(below);
        let next = next.filter(|next| list.page.as_ref() != Some(next));
        self.add(next.map(|next| CommentList { page: Some(next), ..list }).into_iter().chain(waiting).collect());
        self.step()
    }

    fn add(&mut self, lists: Vec<CommentList>) {
        let is_short = |text: &Option<String>| text.as_ref().is_none_or(|text| text.len() <= MAX_NAME);
        let usable = |list: &CommentList| list.post.len() <= MAX_NAME && is_short(&list.url) && is_short(&list.page);
        self.lists.extend(lists.into_iter().filter(usable));
        self.lists.truncate(MAX_LISTS);
        let mut size = 0;
        self.lists.retain(|list| {
            size += json!(list).to_string().len() + 1;
            size <= MAX_LISTS_SIZE
        });
    }

    /// Returns the cursor that restarts the walk, for a page token that is no longer valid or a stream that is denied.
    pub fn restart(&self) -> Value {
        json!({ "seen": self.seen.map(text), "long": self.long.map(text), "until": text(self.until) })
    }

    fn step(mut self) -> (Value, bool) {
        self.pages += 1;
        if self.lists.is_empty() && !self.has_posts {
            let long = if self.is_long { Some(self.began) } else { self.long };
            return (json!({ "seen": self.seen.map(text), "long": long.map(text) }), false);
        }
        let cursor = json!({
            "seen": self.seen.map(text),
            "long": self.long.map(text),
            "until": text(self.until),
            "began": text(self.began),
            "is_long": self.is_long,
            "has_posts": self.has_posts,
            "page": self.page,
            "lists": self.lists,
            "pages": self.pages,
        });
        (cursor, !self.pages.is_multiple_of(self.pages_per_sync.max(1)))
    }
}

fn text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(100) + TimeDelta::minutes(minutes)
    }

    fn list(post: &str, page: Option<&str>) -> CommentList {
        CommentList { post: post.to_owned(), page: page.map(str::to_owned), ..CommentList::default() }
    }

    #[test]
    fn a_long_walk_reads_every_page_and_what_each_post_has_more() {
        let mut first = Walk::read(None, at(0));
        assert_eq!((first.until, first.is_long, first.list()), (at(0) - HISTORY, true, None));
        first.record_times(&[at(-5)]);
        let (cursor, more) = first.after_posts(Some("p2".into()), Some(at(-60)), vec![list("a", Some("c2"))]);
        assert!(more);
        let walk = Walk::read(Some(&cursor), at(1));
        assert_eq!((walk.list().unwrap(), walk.began), (&list("a", Some("c2")), at(0)));
        let (cursor, _) = walk.after_list(Some("c3".into()), Vec::new());
        let walk = Walk::read(Some(&cursor), at(1));
        assert_eq!(walk.list().unwrap(), &list("a", Some("c3")));
        let (cursor, more) = walk.after_list(None, Vec::new());
        let walk = Walk::read(Some(&cursor), at(1));
        assert_eq!((more, walk.list(), walk.page.as_deref()), (true, None, Some("p2")));
        let (cursor, more) = walk.after_posts(Some("p3".into()), Some(at(0) - HISTORY - OVERLAP), Vec::new());
        assert!(!more, "older posts are of no interest");
        let next = Walk::read(Some(&cursor), at(2));
        assert_eq!((next.until, next.is_long), (at(-5) - OVERLAP, false));
        let (quiet, more) = next.after_posts(Some("p2".into()), Some(at(-60)), Vec::new());
        assert_eq!((&quiet, more), (&cursor, false), "one page of posts, nothing to be written");
        let long = Walk::read(Some(&cursor), at(60));
        assert_eq!((long.until, long.is_long), (at(-5) - LONG_OVERLAP, true));
    }

    #[test]
    fn a_list_ends_at_what_is_known() {
        let (cursor, _) = Walk::read(None, at(0)).after_posts(None, None, Vec::new());
        let mut walk = Walk::read(Some(&cursor), at(1));
        walk.until = at(-10);
        assert!(walk.continues(&[at(0), at(-10)]));
        assert!(!walk.continues(&[at(0), at(-11)]) && !walk.continues(&[]));
        walk.record_times(&[at(500)]);
        assert_eq!(walk.restart()["seen"], text(at(1)), "not what a server claims");
        let restart = Walk::read(Some(&walk.restart()), at(2));
        assert_eq!(
            (restart.until, restart.list(), restart.page.as_ref()),
            (at(-10), None, None),
            "nothing is left out"
        );
    }

    #[test]
    fn what_is_below_a_comment_is_read_before_the_lists_that_wait() {
        let (cursor, _) = Walk::read(None, at(0)).after_posts(None, None, vec![list("a", None), list("b", None)]);
        let below = CommentList { thread: Some("c".to_owned()), ..list("a", None) };
        let (cursor, _) = Walk::read(Some(&cursor), at(1)).after_list_with_below(Some("2".into()), vec![below.clone()]);
        let walk = Walk::read(Some(&cursor), at(1));
        assert_eq!(walk.lists, [below, list("a", Some("2")), list("b", None)]);
        let (cursor, _) = walk.after_list_with_below(None, Vec::new());
        let walk = Walk::read(Some(&cursor), at(1));
        assert_eq!(walk.list().unwrap(), &list("a", Some("2")));
        let (cursor, _) = walk.after_list_with_below(Some("2".into()), Vec::new());
        assert_eq!(Walk::read(Some(&cursor), at(1)).list().unwrap(), &list("b", None), "a page that names itself ends");
    }

    #[test]
    fn an_endless_server_pauses_and_long_names_end() {
        let mut cursor = None;
        for n in 1..=PAGES_PER_SYNC {
            let (next, more) = Walk::read(cursor.as_ref(), at(0)).after_posts(Some(format!("p{n}")), None, Vec::new());
            assert_eq!(more, n < PAGES_PER_SYNC);
            cursor = Some(next);
        }
        let walk = Walk::read(cursor.as_ref(), at(0));
        let many = (0..99).map(|n| list(&n.to_string(), None)).collect();
        let long = Some("x".repeat(MAX_NAME + 1));
        let (next, _) = walk.after_posts(long.clone(), None, many);
        assert_eq!((next["lists"].as_array().unwrap().len(), &next["has_posts"]), (MAX_LISTS, &Value::from(false)));
        let (next, _) = Walk::read(Some(&next), at(0)).after_list(long, Vec::new());
        assert_eq!(next["lists"][0]["post"], "1");
    }

    #[test]
    fn a_cursor_is_never_too_large_to_be_stored() {
        let name = |n: usize| format!("{n:\">512}");
        let long = |n| CommentList { url: Some(name(n)), ..list(&name(n), Some(&name(n))) };
        let walk = Walk::read(None, at(0));
        let (cursor, more) = walk.after_posts(Some(name(99)), None, (0..MAX_LISTS).map(long).collect());
        assert!(more && cursor.to_string().len() <= MAX_CURSOR, "{} bytes", cursor.to_string().len());
        let walk = Walk::read(Some(&cursor), at(0));
        assert_eq!((walk.list(), walk.lists.len()), (Some(&long(0)), 3));
        let (cursor, _) = walk.after_list(Some(name(7)), Vec::new());
        assert!(cursor.to_string().len() <= MAX_CURSOR);
        assert_eq!(Walk::read(Some(&cursor), at(0)).list().unwrap().page, Some(name(7)));
    }
}
