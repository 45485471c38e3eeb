//! Posts that become due in the same second, published by the real kind on the sandbox.

use std::time::Instant;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::platform::Platform;
use crier_domain::post::{Post, PostStatus, ScheduleType, TargetOverride};
use crier_store::brands::{self, NewBrand};
use crier_store::targets::{self, NewTarget};
use crier_store::{StoreError, Tx, jobs, posts, users};

use super::super::BenchError;
use super::super::crew;
use super::super::figure::Figure;
use super::super::place::BenchEnvironment;
use super::super::sandbox_accounts;
use super::starts::{self, Starts};
use super::{Bench, Figures, resident};

const NAME: &str = "publish";
const ACCOUNTS: usize = 100;
/// Posts per transaction.
const CHUNK: usize = 500;

pub async fn run(bench: &Bench) -> Figures {
    let place = bench.create_environment().await?;
    let count = usize::try_from(bench.args.posts).unwrap_or(usize::MAX);
    bench.show_progress(format_args!("publish: writing {count} posts"));
    let first = write(&place, count).await?;
    bench.show_progress(format_args!("publish: {count} posts"));
    resident::reset_peak();
    // All posts are due when the scheduler starts.
    let (due, began) = (place.api().now(), Instant::now());
    let starts = Starts::of(first, count, due);
    let crew = starts::crew(bench, &place, JobKind::PublishTarget, bench.slots(), &starts)?;
    starts.wait(count).await?;
    let started = began.elapsed();
    crew::wait_until_settled(place.api(), JobKind::PublishTarget).await?;
    let ended = began.elapsed();
    let peak = resident::peak();
    crew.stop().await;
    let mut figures = vec![
        Figure::time(NAME, format!("{count} posts, all begun after"), started),
        Figure::time(NAME, format!("{count} posts, all ended after"), ended),
        Figure::rate(NAME, "rate", "posts/s", count, ended),
    ];
    figures.extend(Figure::spread(NAME, "lateness", starts.delays_after(due)));
    figures.extend(Figure::size(NAME, "memory, peak", peak));
    Ok(figures)
}

/// Writes posts with a target and a job each, spread over accounts; returns the first target's id.
async fn write(place: &BenchEnvironment, count: usize) -> Result<i64, BenchError> {
    let store = place.api_one_hour_behind();
    let mut tx = store.begin().await?;
    // In the future for this store's clock, in the past for the scheduler's.
    let due = tx.now + TimeDelta::seconds(1);
    let (brand, accounts) = create_brand_and_accounts(&mut tx).await?;
    tx.commit().await?;
    let mut first = None;
    let mut left = accounts.iter().cycle().take(count).peekable();
    while left.peek().is_some() {
        let mut tx = store.begin().await?;
        for account in left.by_ref().take(CHUNK) {
            let target = schedule(&mut tx, brand, *account, due).await?;
            first.get_or_insert(target);
        }
        tx.commit().await?;
    }
    Ok(first.unwrap_or_default())
}

/// Creates a brand and the accounts attached to it.
async fn create_brand_and_accounts(tx: &mut Tx) -> Result<(i64, Vec<i64>), StoreError> {
    let workspace = users::create_workspace(tx, "Bench", "unlimited").await?;
    let user = users::create(tx, workspace, "bench@localhost", "Bench").await?;
    let new = NewBrand { name: "Bench", description: None, website: None, timezone: "UTC" };
    let Some(brand) = brands::create(tx, workspace, user, None, new).await? else {
        return Err(StoreError::Decode("a brand without a cap was refused".to_owned()));
    };
    let accounts = sandbox_accounts::create(tx, workspace, brand.id, ACCOUNTS).await?;
    Ok((brand.id, accounts))
}

async fn schedule(tx: &mut Tx, brand: i64, account: i64, due: DateTime<Utc>) -> Result<i64, StoreError> {
    let mut post = Post {
        content: "Fresh bread from seven o'clock, as every morning.".to_owned(),
        schedule_type: ScheduleType::Scheduled,
        scheduled_at: Some(due),
        counted: true,
        ..Post::draft(brand, tx.now)
    };
    post.move_to(PostStatus::Scheduled)?;
    let post = posts::insert(tx, &post).await?;
    let overrides = TargetOverride::default();
    let new = NewTarget { account_id: account, platform: Platform::Sandbox, position: 0, target_override: &overrides };
    let target = targets::insert(tx, post, &[new]).await?[0];
    let job = NewJob::new(JobKind::PublishTarget, target, due).lane(Lane::Account(account));
    jobs::enqueue(tx, &job).await?;
    Ok(target)
}
