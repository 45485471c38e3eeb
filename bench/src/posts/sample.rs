//! A brand with very many posts, and other brands of the workspace with as many together.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::plan::Plans;
use crier_domain::platform::Platform;
use crier_domain::post::{Post, PostStatus, TargetOverride};
use crier_store::brands::{self, NewBrand};
use crier_store::posts::{self, NewPost};
use crier_store::targets::NewTarget;
use crier_store::{Db, Store, StoreError, Tx, users};

use super::super::sample_text::{self, mixed};
use super::super::{BenchError, database, fail, sandbox_accounts};
use super::Bench;

/// A word in half of the posts.
pub const FREQUENT: &str = "bread";
/// A word in one of 100 posts.
pub const UNCOMMON: &str = "festival";
/// A word in one of 10,000 posts.
pub const RARE: &str = "unicorn";
/// A label of one of ten posts.
pub const LABEL: &str = "campaign";

const OTHER_BRANDS: usize = 10;
/// The number of accounts to which the posts of the brand go, and of those of the other brands.
const ACCOUNTS: usize = 4;
/// In minutes.
const YEAR: u64 = 365 * 24 * 60;
/// Posts of the brand per transaction.
const CHUNK: u32 = 250;

pub struct SamplePosts {
    pub brand_id: i64,
    /// An account with a quarter of the brand's posts.
    pub account_id: i64,
    /// When the posts were written.
    pub now: DateTime<Utc>,
}

impl SamplePosts {
    /// Writes the posts. Those of the other brands are between those of the brand.
    pub async fn create(bench: &Bench, store: &Store) -> Result<Self, BenchError> {
        let (brand_ids, accounts) = create_brands(store).await?;
        let (own, others) = accounts.split_at(ACCOUNTS);
        let (count, now) = (bench.args.posts, store.now());
        for first in (0..count).step_by(CHUNK as usize) {
            bench.show_progress(format_args!("posts: {first} of {count} written, and as many of other brands"));
            let mut tx = store.begin().await?;
            for n in first..count.min(first + CHUNK) {
                insert(&mut tx, brand_ids[0], own, now, n, count).await?;
                insert(&mut tx, brand_ids[1 + n as usize % OTHER_BRANDS], others, now, n, count).await?;
            }
            tx.commit().await?;
        }
        Ok(Self { brand_id: brand_ids[0], account_id: own[0], now })
    }
}

/// Returns the brands, and accounts of which the last half is for the other brands.
async fn create_brands(store: &Store) -> Result<(Vec<i64>, Vec<i64>), BenchError> {
    let mut tx = store.begin().await?;
    let workspace = users::create_workspace(&mut tx, "bench", Plans::UNLIMITED).await?;
    let user = users::create(&mut tx, workspace, "bench@localhost", "bench").await?;
    let mut brand_ids = Vec::new();
    for _ in 0..=OTHER_BRANDS {
        let new = NewBrand { name: "bench", description: None, website: None, timezone: "UTC" };
        let Some(brand) = brands::create(&mut tx, workspace, user, None, new).await? else {
            return fail("a brand without a cap was rejected");
        };
        brand_ids.push(brand.id);
    }
    let accounts = sandbox_accounts::create(&mut tx, workspace, brand_ids[0], 2 * ACCOUNTS).await?;
    tx.commit().await?;
    Ok((brand_ids, accounts))
}

/// Inserts the post with the number `n` of a brand, with its words and a target. Half of the posts are published, at any
/// time of the last two years; a quarter is scheduled for any time of the next year; the others are drafts.
async fn insert(
    tx: &mut Tx,
    brand_id: i64,
    accounts: &[i64],
    now: DateTime<Utc>,
    n: u32,
    count: u32,
) -> Result<(), StoreError> {
    let seed = mixed(brand_id.unsigned_abs()).wrapping_add(n.into());
    let mut rest = mixed(seed);
    // Returns an independent pseudo-random number below `limit`.
    let mut random = |limit: u64| {
        let number = rest % limit;
        rest /= limit;
        number
    };
    let minutes = |number: u64| TimeDelta::minutes(i64::try_from(number).unwrap_or_default());
    let (past, future) = (now - minutes(random(2 * YEAR)), now + minutes(random(YEAR)));
    let (status, scheduled_at, published_at) = match n % 4 {
        0 => (PostStatus::Scheduled, Some(future), None),
        1 => (PostStatus::Draft, None, None),
        2 => (PostStatus::Published, Some(past), Some(past)),
        _ => (PostStatus::Published, None, Some(past)),
    };
    let mut content = sample_text::words(seed, 8);
    for (word, one_of) in [(FREQUENT, 2), ("fresh", 3), (UNCOMMON, 100)] {
        if random(one_of) == 0 {
            content.push(' ');
            content.push_str(word);
        }
    }
    if n % 10_000 == 77 {
        content.push(' ');
        content.push_str(RARE);
    }
    let labels = if random(10) == 0 { vec![LABEL.to_owned()] } else { Vec::new() };
    let account_id = accounts[random(ACCOUNTS as u64) as usize];
    // The creation of a post is the time of its transaction.
    tx.now = now - TimeDelta::minutes((count - n).into());
    let post = Post { status, content, scheduled_at, published_at, labels, ..Post::draft(brand_id, tx.now) };
    let target = NewTarget { account_id, position: 0, target_override: TargetOverride::default() };
    let targets = [(&target, Platform::Sandbox)];
    posts::create(tx, NewPost { post: &post, targets: &targets, job: None, counted_in: None }).await?;
    Ok(())
}

/// Keeps Postgres from analyzing the tables automatically, which it does within minutes after an import.
pub async fn disable_autovacuum(db: &Db) -> Result<(), StoreError> {
    if let Db::Pg(pool) = db {
        const SQL: &str = "
            ALTER TABLE posts SET (autovacuum_enabled = false);
            ALTER TABLE post_words SET (autovacuum_enabled = false);
            ALTER TABLE post_labels SET (autovacuum_enabled = false);
            ALTER TABLE post_targets SET (autovacuum_enabled = false)";
        sqlx::raw_sql(SQL).execute(&mut *pool.acquire().await?).await?;
    }
    Ok(())
}

/// Like [`database::run_maintenance`], for the tables of posts too.
pub async fn run_maintenance(db: &Db) -> Result<(), StoreError> {
    if let Db::Pg(pool) = db {
        const SQL: &str = "VACUUM (ANALYZE) posts, post_words, post_labels, post_targets";
        sqlx::raw_sql(SQL).execute(&mut *pool.acquire().await?).await?;
    }
    database::run_maintenance(db).await
}
