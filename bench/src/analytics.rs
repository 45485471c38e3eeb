//! `crier-bench analytics`: measures the series of a brand with many posts, through the functions that the API calls.
//!
//! **To add a measurement:** a call of `measure` in [`run`], and its figures in `tests/bench/analytics.rs`.

use std::time::Instant;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::analytics::{PostMetrics, Tz, day_start};
use crier_domain::platform::Platform;
use crier_domain::post::{Post, TargetOverride, TargetStatus};
use crier_store::analytics::{self, CollectedMetrics};
use crier_store::brands::{self, NewBrand};
use crier_store::targets::{self, NewTarget, TargetOutcome};
use crier_store::{Store, StoreError, Tx, posts, users};

use super::figure::{Figure, percentile};
use super::{Figures, Suite, database, fail, figure, sandbox_accounts};
use crate::args::{AnalyticsMeasurement, BenchAnalytics, BenchOptions};

type Bench = super::Bench<BenchAnalytics>;

const NAME: &str = "series";
/// Posts per transaction.
const CHUNK: i64 = 500;
/// The number of readings of each post's metrics.
const READINGS: i64 = 3;
/// The number of posts that best times are computed from, as in the API.
const NEWEST: i64 = 5_000;

impl Suite for BenchAnalytics {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        let mut figures = figure::machine_figures(&*bench.create_environment().await?).await?;
        let measure = async |measurement| match measurement {
            AnalyticsMeasurement::Series => run(bench).await,
        };
        figures.extend(bench.each(AnalyticsMeasurement::ALL, &[], measure).await?);
        Ok(figures)
    }
}

async fn run(bench: &Bench) -> Figures {
    let environment = bench.create_environment().await?;
    let store = environment.api();
    let mut tx = store.begin().await?;
    let workspace = users::create_workspace(&mut tx, "bench", "unlimited").await?;
    let user = users::create(&mut tx, workspace, "bench@localhost", "bench").await?;
    let new = NewBrand { name: "bench", description: None, website: None, timezone: "Europe/Berlin" };
    let Some(brand) = brands::create(&mut tx, workspace, user, None, new).await? else {
        return fail("a brand without a cap was rejected");
    };
    let account = sandbox_accounts::create(&mut tx, workspace, brand.id, 1).await?[0];
    tx.commit().await?;
    let post = fill(bench, store, brand.id, account).await?;
    database::run_maintenance(store.db()).await?;

    let zone = Tz::Europe__Berlin;
    let today = store.now().with_timezone(&zone).date_naive();
    let day = |back: i64| {
        let date = today - TimeDelta::days(back);
        (day_start(date, zone), day_start(date + TimeDelta::days(1), zone))
    };
    let year: Vec<(DateTime<Utc>, DateTime<Utc>)> = (0..365).rev().map(day).collect();
    let since = year[0].0;
    let found = analytics::posts_by_day(&mut store.read().await?, brand.id, None, &year).await?;
    if found.total.posts != i64::from(bench.args.posts) {
        return fail("not all posts are in the series");
    }
    let mut figures = Vec::new();
    figures.extend(
        measure(bench, "a year by day", async || {
            analytics::posts_by_day(&mut store.read().await?, brand.id, None, &year).await.map(drop)
        })
        .await?,
    );
    figures.extend(
        measure(bench, "best times", async || {
            analytics::engagements(&mut store.read().await?, brand.id, None, since, NEWEST).await.map(drop)
        })
        .await?,
    );
    figures.extend(
        measure(bench, "one post", async || analytics::of_post(&mut store.read().await?, post, since).await.map(drop))
            .await?,
    );
    Ok(figures)
}

/// Writes posts that were published over a year, with their metrics. Returns the ID of one of them.
async fn fill(bench: &Bench, store: &Store, brand: i64, account: i64) -> Result<i64, super::BenchError> {
    let posts = i64::from(bench.args.posts);
    // The first post is at least a day after the start of the series, at any time of day.
    let (now, step) = (store.now(), TimeDelta::days(363) / i32::try_from(posts).unwrap_or(i32::MAX));
    let mut written = Vec::new();
    for first in (0..posts).step_by(usize::try_from(CHUNK).unwrap_or(1)) {
        bench.show_progress(format_args!("series: {first} of {posts} posts written"));
        let mut tx = store.begin().await?;
        let until = posts.min(first + CHUNK);
        for number in first..until {
            let at = now - TimeDelta::hours(1) - step * i32::try_from(posts - number).unwrap_or(0);
            written.push(published(&mut tx, brand, account, at).await?);
        }
        tx.commit().await?;
    }
    let mut tx = store.begin().await?;
    while analytics::add_published(&mut tx, None, CHUNK).await? > 0 {}
    tx.commit().await?;
    for some in written.chunks(usize::try_from(CHUNK).unwrap_or(1)) {
        let mut tx = store.begin().await?;
        for reading in 1..=READINGS {
            tx.now = now - TimeDelta::minutes(READINGS - reading);
            let collect = |(target, _): &(i64, i64)| CollectedMetrics {
                target_id: *target,
                metrics: Some(PostMetrics {
                    impressions: Some(target % 997 * reading),
                    likes: Some(target % 89 * reading),
                    comments: Some(target % 7),
                    ..PostMetrics::default()
                }),
                next_at: None,
            };
            let collected: Vec<CollectedMetrics> = some.iter().map(collect).collect();
            analytics::record_posts(&mut tx, &collected).await?;
        }
        tx.commit().await?;
    }
    Ok(written.first().map(|(_, post)| *post).unwrap_or_default())
}

/// Creates a post that was published at this time. Returns the IDs of its target and of the post.
async fn published(tx: &mut Tx, brand: i64, account: i64, at: DateTime<Utc>) -> Result<(i64, i64), StoreError> {
    let post = Post { content: "Fresh bread.".to_owned(), counted: true, ..Post::draft(brand, at) };
    let post = posts::insert(tx, &post).await?;
    let new = NewTarget { account_id: account, position: 0, target_override: TargetOverride::default() };
    let target = targets::insert(tx, post, &[(&new, Platform::Sandbox)]).await?[0];
    let ended = TargetOutcome {
        status: TargetStatus::Published,
        external_id: Some(target.to_string()),
        url: None,
        error: None,
        next_attempt_at: None,
        published_at: Some(at),
        call_open: false,
        published_parts: None,
    };
    targets::end(tx, target, &ended, None).await?;
    Ok((target, post))
}

async fn measure(
    bench: &Bench,
    name: &str,
    read: impl AsyncFn() -> Result<(), StoreError>,
) -> Result<Vec<Figure>, super::BenchError> {
    bench.show_progress(format_args!("series: {name}"));
    // Warms the cache.
    read().await?;
    let mut times = Vec::new();
    for _ in 0..bench.args.repeat {
        let began = Instant::now();
        read().await?;
        times.push(began.elapsed());
    }
    let median = Figure::time(NAME, format!("{name}, p50"), percentile(times.clone(), 50));
    Ok(vec![median, Figure::time(NAME, format!("{name}, p95"), percentile(times, 95))])
}
