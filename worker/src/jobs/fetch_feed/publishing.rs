//! Decides which new articles of a feed become posts, in the transaction that stores the articles.
//!
//! The filters search the whole texts of the articles, so [`Filtered`] applies them before the transaction.
//!
//! The row of an article in `feed_posts` has unique keys, so an article is decided on once, whatever the feed does
//! later. A `post_article` job creates each post, because a post may be rejected, and its checks would keep this
//! transaction open.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use crier_domain::analytics::{day_start, zone};
use crier_domain::auto_post::{ArticleKeys, ArticleText, AutoPost, FeedPostStatus, MAX_ARTICLE_AGE};
use crier_domain::feed::{Feed, FoundArticle, KnownArticle};
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_html::plain_text;
use crier_store::articles::{ArticleRow, Changes};
use crier_store::feed_posts::{self, NewFeedPost};
use crier_store::{Result, Tx, articles, brands, feeds, jobs};

const TOO_OLD: &str = "The article is dated more than 7 days before it appeared in the feed.";

/// Why the filters exclude articles, found before the transaction.
#[derive(Debug, Default)]
pub struct Filtered {
    /// `None` if no article was filtered.
    settings: Option<AutoPost>,
    reasons: HashMap<FilteredTexts, Option<String>>,
}

/// What the filters search: the title and the summary.
type FilteredTexts = (Option<String>, Option<String>);

fn texts(found: &FoundArticle) -> FilteredTexts {
    (found.title.clone(), found.summary.clone())
}

impl Filtered {
    /// Applies filters to articles. Takes time: call it on a thread for such work.
    pub fn new(settings: AutoPost, articles: &[ArticleRow]) -> Self {
        let reason = |row: &ArticleRow| (texts(&row.found), excluded(&settings, &row.found));
        let reasons = articles.iter().map(reason).collect();
        Self { settings: Some(settings), reasons }
    }

    /// Returns why the filters exclude an article. They are applied again if they or the article are not those from before
    /// the transaction, which is rare.
    fn reason(&self, settings: &AutoPost, found: &FoundArticle) -> Option<String> {
        let known = self.reasons.get(&texts(found)).filter(|_| self.settings.as_ref() == Some(settings));
        known.cloned().unwrap_or_else(|| excluded(settings, found))
    }
}

fn excluded(settings: &AutoPost, found: &FoundArticle) -> Option<String> {
    let summary = found.summary.as_deref().map(plain_text).unwrap_or_default();
    settings.excluded(&ArticleText::new(found.title.as_deref(), found.url.as_deref(), summary, found.author.as_deref()))
}

/// Enqueues the posts of new articles, if the feed publishes. `known`: the articles that were stored before the fetch.
/// The caller has locked the feed, and has written `changes`.
pub async fn publish(
    tx: &mut Tx,
    feed: &Feed,
    known: &[KnownArticle],
    changes: &Changes,
    filtered: &Filtered,
    trace: Option<&str>,
) -> Result<()> {
    let Some(settings) = feed.active_auto_post() else { return Ok(()) };
    if feed.auto_post_since.is_none() {
        return begin(tx, feed).await;
    }
    if changes.insert.is_empty() {
        return Ok(());
    }
    // An article whose guid changes has the link of a stored article.
    let links: HashSet<String> = known.iter().filter_map(|article| link_of(article.url.as_deref())).collect();
    let is_new = |row: &&ArticleRow| link_of(row.found.url.as_deref()).is_none_or(|link| !links.contains(&link));
    let decided: Vec<_> =
        changes.insert.iter().filter(is_new).map(|row| decide(settings, row, filtered, tx.now)).collect();
    let stored = feed_posts::remember(tx, feed.id, &decided).await?;
    let waiting: HashSet<&str> =
        decided.iter().filter(|one| one.status == Some(FeedPostStatus::Waiting)).map(|one| one.guid).collect();
    // Ids ascend in the order of the articles, oldest first.
    let mut ids: Vec<i64> =
        stored.iter().filter(|(_, guid)| waiting.contains(guid.as_str())).map(|(id, _)| *id).collect();
    ids.sort_unstable();
    enqueue(tx, feed, settings, ids, trace).await?;
    feed_posts::forget_oldest(tx, feed.id).await
}

/// Remembers all stored articles: only those that appear later are posted.
async fn begin(tx: &mut Tx, feed: &Feed) -> Result<()> {
    let stored = articles::list(tx, feed.id).await?;
    let remembered: Vec<_> = stored.iter().map(NewFeedPost::known).collect();
    feed_posts::remember(tx, feed.id, &remembered).await?;
    feed_posts::forget_oldest(tx, feed.id).await?;
    let now = tx.now;
    feeds::set_auto_post_since(tx, feed.id, Some(now)).await
}

fn link_of(url: Option<&str>) -> Option<String> {
    ArticleKeys::of(url, None).link
}

/// Decides on an article by its date and the filters.
fn decide<'a>(settings: &AutoPost, row: &'a ArticleRow, filtered: &Filtered, now: DateTime<Utc>) -> NewFeedPost<'a> {
    let found = &row.found;
    let (title, url) = (found.title.as_deref(), found.url.as_deref());
    let is_old = now - row.published_at > MAX_ARTICLE_AGE;
    let reason = if is_old { Some(TOO_OLD.to_owned()) } else { filtered.reason(settings, found) };
    NewFeedPost {
        status: Some(if reason.is_some() { FeedPostStatus::Skipped } else { FeedPostStatus::Waiting }),
        guid: &found.guid,
        keys: ArticleKeys::of(url, title),
        title,
        url,
        reason,
    }
}

/// Enqueues the jobs of waiting articles, oldest first. The newest are posted if there are more than the daily maximum
/// allows.
async fn enqueue(tx: &mut Tx, feed: &Feed, settings: &AutoPost, ids: Vec<i64>, trace: Option<&str>) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let Some(brand) = brands::find(tx, feed.brand_id).await? else { return Ok(()) };
    let zone = zone(Some(&brand.timezone));
    let today = day_start(tx.now.with_timezone(&zone).date_naive(), zone);
    let count = i64::try_from(ids.len()).unwrap_or(i64::MAX);
    // The new articles are already counted.
    let earlier = feed_posts::count_since(tx, feed.id, today).await? - count;
    let room = usize::try_from((settings.max_per_day - earlier).max(0)).unwrap_or_default();
    let (skipped, posted) = ids.split_at(ids.len().saturating_sub(room));
    if !skipped.is_empty() {
        let max = settings.max_per_day;
        let noun = if max == 1 { "post" } else { "posts" };
        let reason = format!("The feed reached its maximum of {max} {noun} per day.");
        // A feed may be at its maximum at each fetch of the day. One notice per day is enough.
        let is_known = feed_posts::has_skipped_since(tx, feed.id, today, &reason).await?;
        feed_posts::skip(tx, skipped, &reason).await?;
        let problem = match skipped.len() {
            1 => format!("{reason} 1 article was not posted."),
            count => format!("{reason} {count} articles were not posted."),
        };
        match is_known {
            true => feeds::record_auto_post_problem(tx, feed.id, &problem).await.map(drop)?,
            false => feeds::set_auto_post_problem(tx, feed.id, &problem).await?,
        }
    }
    for id in posted {
        let job = NewJob::new(JobKind::PostArticle, *id, tx.now)
            .lane(Lane::Feed(feed.id))
            .workspace(brand.workspace_id)
            .trace(trace.map(str::to_owned));
        jobs::enqueue(tx, &job).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crier_domain::auto_post::FeedDestination;

    use super::*;

    fn settings(exclude: &str) -> AutoPost {
        AutoPost {
            is_active: true,
            template: "{title}".to_owned(),
            accounts: Vec::new(),
            destination: FeedDestination::Draft,
            include: Vec::new(),
            exclude: vec![exclude.to_owned()],
            max_per_day: 1,
        }
    }

    fn row(title: &str) -> ArticleRow {
        let found = FoundArticle { title: Some(title.to_owned()), ..FoundArticle::default() };
        ArticleRow { found, published_at: DateTime::UNIX_EPOCH, digest: String::new() }
    }

    #[test]
    fn changed_filters_and_articles_are_filtered_again() {
        let (bread, rolls) = (row("Bread"), row("Rolls"));
        let mut filtered = Filtered::new(settings("bread"), std::slice::from_ref(&bread));
        assert!(filtered.reason(&settings("bread"), &bread.found).is_some());
        assert_eq!(filtered.reason(&settings("rolls"), &bread.found), None);
        assert!(filtered.reason(&settings("rolls"), &rolls.found).is_some());
        assert!(Filtered::default().reason(&settings("bread"), &bread.found).is_some());
        // The transaction uses what was found before it.
        let found = filtered.reasons.values_mut().next().expect("a reason");
        *found = Some("stored".to_owned());
        assert_eq!(filtered.reason(&settings("bread"), &bread.found).as_deref(), Some("stored"));
    }
}
