//! Decides which of a feed's articles are new, changed or surplus.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use crier_base::hexadecimal;
use crier_domain::feed::{FoundArticle, KnownArticle, MAX_ARTICLES};
use crier_store::articles::{ArticleRow, Changes};

/// Compares the parsed articles, in the order of the feed, with the stored ones. Returns the changes to write, and the
/// number of articles afterwards.
///
/// An article is identified by its guid; the first of duplicates counts. An article without a date, or with a future
/// one, counts as published when it was first seen. Feeds list the newest first, so only the first 200 undated articles
/// are used. (The others would seem newer at each fetch than those stored at the last.)
pub fn compare(known: &[KnownArticle], found: Vec<FoundArticle>, now: DateTime<Utc>) -> (Changes, usize) {
    let by_guid: HashMap<&str, &KnownArticle> = known.iter().map(|k| (k.guid.as_str(), k)).collect();
    let (mut seen, mut fresh, mut changed) = (HashSet::new(), Vec::new(), HashMap::new());
    let mut undated = 0;
    for article in found {
        if !seen.insert(article.guid.clone()) {
            continue;
        }
        let dated = article.published_at.filter(|at| *at <= now);
        undated += usize::from(dated.is_none());
        if dated.is_none() && undated > MAX_ARTICLES {
            continue;
        }
        let digest = digest(&article, dated);
        match by_guid.get(article.guid.as_str()) {
            None => fresh.push(ArticleRow { published_at: dated.unwrap_or(now), found: article, digest }),
            Some(known) if known.digest != digest => {
                changed.insert(
                    known.id,
                    ArticleRow { published_at: dated.unwrap_or(known.published_at), found: article, digest },
                );
            }
            Some(_) => {}
        }
    }
    let at = |k: &KnownArticle| changed.get(&k.id).map_or(k.published_at, |row| row.published_at);
    // New articles in the order of the feed, then stored ones: the order in which they are listed.
    let new = fresh.iter().enumerate().map(|(n, row)| (row.published_at, ArticleRef::New(n)));
    let mut old: Vec<&KnownArticle> = known.iter().collect();
    old.sort_by_key(|k| std::cmp::Reverse(k.id));
    let mut all: Vec<(DateTime<Utc>, ArticleRef)> =
        new.chain(old.into_iter().map(|k| (at(k), ArticleRef::Known(k.id)))).collect();
    all.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let over = all.split_off(all.len().min(MAX_ARTICLES));
    let mut delete = Vec::new();
    for (_, which) in over {
        if let ArticleRef::Known(id) = which {
            changed.remove(&id);
            delete.push(id);
        }
    }
    let mut insert = Vec::new();
    let mut fresh: Vec<Option<ArticleRow>> = fresh.into_iter().map(Some).collect();
    for (_, which) in all.iter().rev() {
        if let ArticleRef::New(n) = which {
            insert.extend(fresh[*n].take());
        }
    }
    let mut update: Vec<(i64, ArticleRow)> = changed.into_iter().collect();
    update.sort_by_key(|(id, _)| *id);
    delete.sort_unstable();
    (Changes { insert, update, delete }, all.len())
}

enum ArticleRef {
    New(usize),
    Known(i64),
}

/// Hashes all stored fields; the date only if it is used.
fn digest(article: &FoundArticle, dated: Option<DateTime<Utc>>) -> String {
    let a = article;
    let parts = serde_json::json!([a.title, a.url, a.summary, a.author, a.image_url, dated]);
    hexadecimal::sha256(parts.to_string(), 16)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_781_000_000, 0).unwrap()
    }

    fn found(guid: &str, hours_ago: Option<i64>) -> FoundArticle {
        let published_at = hours_ago.map(|hours| now() - TimeDelta::hours(hours));
        FoundArticle {
            guid: guid.to_owned(),
            title: Some(format!("Title of {guid}")),
            published_at,
            ..Default::default()
        }
    }

    fn known(id: i64, article: &FoundArticle) -> KnownArticle {
        let (changes, _) = compare(&[], vec![article.clone()], now());
        let row = &changes.insert[0];
        KnownArticle { id, guid: article.guid.clone(), published_at: row.published_at, digest: row.digest.clone() }
    }

    fn guids(changes: &Changes) -> Vec<&str> {
        changes.insert.iter().map(|row| row.found.guid.as_str()).collect()
    }

    #[test]
    fn new_articles_are_inserted_once_oldest_first() {
        let all = vec![
            found("c", Some(1)),
            found("b", Some(2)),
            found("b", Some(0)),
            found("none", None),
            found("a", Some(3)),
        ];
        let (changes, count) = compare(&[], all, now());
        assert_eq!((guids(&changes), count), (vec!["a", "b", "c", "none"], 4));
        assert_eq!(changes.insert[3].published_at, now());
        let same_time = vec![found("x", None), found("y", None), found("z", Some(-5))];
        let (changes, _) = compare(&[], same_time, now());
        assert_eq!(guids(&changes), ["z", "y", "x"], "the first of the feed gets the highest id");
        assert!(changes.insert.iter().all(|row| row.published_at == now()), "what is to come was not published");
    }

    #[test]
    fn unchanged_articles_are_skipped_and_updates_keep_their_date() {
        let (a, b, c) = (found("a", Some(5)), found("b", None), found("c", Some(-1)));
        let stored = [known(1, &a), known(2, &b), known(3, &c)];
        let (changes, count) = compare(&stored, vec![c.clone(), b.clone(), a.clone()], now() + TimeDelta::minutes(5));
        assert!(changes.is_empty() && count == 3, "{changes:?}");
        let changed = FoundArticle { title: Some("New".into()), ..b };
        let (changes, _) = compare(&stored, vec![changed, c], now() + TimeDelta::hours(2));
        assert!(changes.insert.is_empty() && changes.delete.is_empty());
        let updates: Vec<_> = changes.update.iter().map(|(id, row)| (*id, row.published_at)).collect();
        assert_eq!(updates, [(2, now()), (3, now() + TimeDelta::hours(1))], "an announced date has come");
    }

    #[test]
    fn only_the_newest_articles_are_kept() {
        let all: Vec<_> = (0..230).map(|n| found(&format!("g{n}"), Some(230 - n))).collect();
        let (changes, count) = compare(&[], all.clone(), now());
        assert_eq!((changes.insert.len(), count, guids(&changes)[0]), (200, 200, "g30"));
        let stored: Vec<_> = all[30..].iter().zip(1..).map(|(a, id)| known(id, a)).collect();
        let (changes, count) = compare(&stored, all, now());
        assert!(changes.is_empty() && count == 200, "those that are too old do not come and go");
        let more = (0..3).map(|n| found(&format!("new{n}"), Some(0))).collect();
        let (changes, count) = compare(&stored, more, now());
        assert_eq!((changes.insert.len(), changes.delete, count), (3, vec![1, 2, 3], 200));
    }

    #[test]
    fn undated_articles_are_stable_across_fetches() {
        let hours_ahead = |n: usize| n.is_multiple_of(2).then_some(-1);
        let all: Vec<_> = (0..500).map(|n| found(&format!("g{n}"), hours_ahead(n))).collect();
        let (changes, count) = compare(&[], all.clone(), now());
        assert_eq!((guids(&changes)[0], guids(&changes)[199], count), ("g199", "g0", 200), "the first of the feed");
        let stored: Vec<_> = all[..200].iter().rev().zip(1..).map(|(a, id)| known(id, a)).collect();
        let (changes, count) = compare(&stored, all.clone(), now() + TimeDelta::minutes(15));
        assert!(changes.is_empty() && count == 200, "{changes:?}");
        let with_one_more = std::iter::once(found("new", None)).chain(all).collect();
        let (changes, _) = compare(&stored, with_one_more, now() + TimeDelta::minutes(15));
        assert_eq!((guids(&changes), &changes.delete), (vec!["new"], &vec![1]));
    }
}
