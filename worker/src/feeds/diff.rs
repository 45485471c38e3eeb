//! Decides which of a feed's articles are new, changed or surplus.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use crier_base::hexadecimal;
use crier_domain::feed::{FoundArticle, KnownArticle, MAX_ARTICLES};
use crier_store::articles::{ArticleRow, Changes};

/// Compares the parsed articles, in the order of the feed, with the stored ones. Returns the changes to write, and the
/// number of articles afterward.
///
/// An article is identified by its guid, and also by its URL in a feed that repeats guids ([`Identities`]). Only the
/// first of several duplicates is used. An article without a date, or with a future date, counts as published when it
/// was first seen. Feeds list the newest articles first, so only the first 200 undated articles are used; at each
/// fetch, the others would otherwise seem newer than the ones stored before.
pub fn compare(known: &[KnownArticle], found: Vec<FoundArticle>, now: DateTime<Utc>) -> (Changes, usize) {
    let identities = Identities::new(known, &found);
    let (mut seen, mut fresh, mut changed) = (HashSet::new(), Vec::new(), HashMap::new());
    let mut undated = 0;
    for mut article in found {
        let (guid, stored) = identities.of(&article);
        article.guid = guid;
        if !seen.insert(article.guid.clone()) {
            continue;
        }
        let dated = article.published_at.filter(|at| *at <= now);
        undated += usize::from(dated.is_none());
        if dated.is_none() && undated > MAX_ARTICLES {
            continue;
        }
        let digest = digest(&article, dated);
        match stored {
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
    let surplus = all.split_off(all.len().min(MAX_ARTICLES));
    let mut delete = Vec::new();
    for (_, which) in surplus {
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

/// Identifies articles. In some feeds, several articles with different URLs have the same guid. They are stored with a
/// hash of both. None of them is stored with the guid only, because each new article would then replace the previous
/// one.
struct Identities<'a> {
    stored: HashMap<&'a str, &'a KnownArticle>,
    /// The guids that occur with several URLs in this document.
    repeated: HashSet<String>,
}

impl<'a> Identities<'a> {
    fn new(known: &'a [KnownArticle], found: &[FoundArticle]) -> Self {
        let (mut urls, mut repeated) = (HashMap::new(), HashSet::new());
        for FoundArticle { guid, url, .. } in found {
            if urls.insert(guid, url).is_some_and(|other| other != url) {
                repeated.insert(guid.clone());
            }
        }
        Self { stored: known.iter().map(|k| (k.guid.as_str(), k)).collect(), repeated }
    }

    /// Returns the guid under which an article is stored, and the stored article. A guid may be repeated in one
    /// document and not in the next, so an article that was stored with only its guid keeps it and is recognized by its
    /// URL.
    fn of(&self, article: &FoundArticle) -> (String, Option<&'a KnownArticle>) {
        let FoundArticle { guid, url, .. } = article;
        let hash = hash_of(guid, url.as_deref());
        let by_guid = self.stored.get(guid.as_str()).copied();
        let has_other_url = by_guid.is_some_and(|known| known.url != *url);
        let is_repeated = self.repeated.contains(guid) || has_other_url && self.was_repeated(guid);
        let stored = self.stored.get(hash.as_str()).copied().or(by_guid.filter(|_| !(is_repeated && has_other_url)));
        let own = stored.map(|known| known.guid.clone());
        (own.unwrap_or_else(|| if is_repeated { hash } else { guid.clone() }), stored)
    }

    /// Returns whether other articles were stored with this guid and their URLs.
    fn was_repeated(&self, guid: &str) -> bool {
        self.stored.values().any(|known| known.guid == hash_of(guid, known.url.as_deref()))
    }
}

fn hash_of(guid: &str, url: Option<&str>) -> String {
    format!("sha256:{}", hexadecimal::sha256(format!("{guid}\n{}", url.unwrap_or_default()), 32))
}

enum ArticleRef {
    New(usize),
    Known(i64),
}

/// Returns a hash of all stored fields, with the date only if it is used.
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
        let (published_at, digest) = (row.published_at, row.digest.clone());
        KnownArticle { id, guid: row.found.guid.clone(), url: article.url.clone(), published_at, digest }
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
        assert!(changes.insert.iter().all(|row| row.published_at == now()), "a future date is not used");
    }

    /// An article with the guid `g`.
    fn same(n: i64) -> FoundArticle {
        FoundArticle {
            guid: "g".to_owned(),
            url: Some(format!("https://a.example/{n}")),
            ..found(&n.to_string(), Some(n))
        }
    }

    /// Stores the articles of each document in turn. Returns the numbers of the articles that each document added.
    fn added(documents: &[&[i64]]) -> Vec<Vec<String>> {
        let (mut stored, mut all) = (Vec::new(), Vec::new());
        for numbers in documents {
            let found: Vec<FoundArticle> = numbers.iter().map(|n| same(*n)).collect();
            let (changes, count) = compare(&stored, found, now());
            assert!(changes.update.is_empty() && changes.delete.is_empty(), "{documents:?}");
            let mut new = Vec::new();
            for row in changes.insert {
                new.push(row.found.title.clone().unwrap_or_default().replace("Title of ", ""));
                let id = i64::try_from(stored.len()).unwrap() + 1;
                let ArticleRow { found: FoundArticle { guid, url, .. }, published_at, digest } = row;
                stored.push(KnownArticle { id, guid, url, published_at, digest });
            }
            assert_eq!(count, stored.len());
            all.push(new);
        }
        all
    }

    #[test]
    fn articles_with_one_guid_are_told_apart_by_their_urls() {
        let all: Vec<i64> = (1..=10).rev().collect();
        assert_eq!(added(&[&all, &all])[0].len(), 10);
        // Newest first: each new article is added once, and no earlier one again.
        let one_by_one: Vec<&[i64]> = (0..9).rev().map(|n| &all[n..n + 2]).collect();
        let new = added(&one_by_one);
        assert_eq!(new[0], ["2", "1"], "oldest first, by their dates");
        assert!(new[1..].iter().all(|new| new.len() == 1), "{new:?}");
        // The guid belongs to one article at first, or for some time.
        let documents: [&[i64]; 6] = [&[1], &[2, 1], &[2], &[3, 2, 1], &[3, 2], &[4]];
        assert_eq!(added(&documents), [vec!["1"], vec!["2"], vec![], vec!["3"], vec![], vec!["4"]]);
        // Without a URL they are duplicates.
        let bare = |title: &str| FoundArticle { title: Some(title.to_owned()), ..found("g", Some(1)) };
        assert_eq!(compare(&[], vec![bare("a"), bare("b")], now()).1, 1);
        assert_eq!(compare(&[], vec![same(1), same(1), bare("a")], now()).1, 2);
    }

    /// An article with a repeated guid may be stored under the guid only.
    #[test]
    fn an_article_stored_with_a_repeated_guid_stays_the_same() {
        let stored = KnownArticle { guid: "g".to_owned(), ..known(7, &same(2)) };
        let (changes, count) = compare(&[stored], vec![same(3), same(2), same(1)], now());
        assert!(changes.update.is_empty() && changes.delete.is_empty());
        assert_eq!((changes.insert.len(), count), (2, 3));
        assert!(changes.insert.iter().all(|row| row.found.guid.starts_with("sha256:")));
    }

    #[test]
    fn an_article_whose_url_changes_stays_the_same() {
        let (changes, count) = compare(&[known(1, &same(1))], vec![same(2)], now());
        assert_eq!((changes.insert.len(), changes.update.len(), count), (0, 1, 1));
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
