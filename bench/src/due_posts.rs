//! Posts on accounts of the sandbox that are due, but whose jobs are scheduled: the scheduler has to make them ready.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::platform::Platform;
use crier_domain::post::{Post, PostStatus, StoredScheduleType, TargetOverride};
use crier_store::brands::{self, NewBrand};
use crier_store::targets::{self, NewTarget};
use crier_store::{StoreError, Tx, jobs, posts, users};

use super::BenchError;
use super::environment::BenchEnvironment;
use super::sandbox_accounts;

/// Posts per transaction.
const CHUNK: usize = 500;

/// Due posts on accounts of one workspace.
pub struct DuePosts {
    pub posts: usize,
    pub accounts: usize,
    /// Whether the jobs count toward the workspace's share of the workers, as those of the API do.
    pub in_workspace: bool,
}

/// A workspace with a brand and its accounts.
struct Owner {
    workspace: i64,
    brand: i64,
    accounts: Vec<i64>,
}

impl DuePosts {
    /// Writes the posts with a target and a job each. Returns the ID of the first target.
    pub async fn write(&self, environment: &BenchEnvironment) -> Result<i64, BenchError> {
        let store = environment.api_one_hour_behind();
        let mut tx = store.begin().await?;
        // In the future by the clock of this store, in the past by that of the scheduler.
        let due = tx.now + TimeDelta::seconds(1);
        let owner = Owner::create(&mut tx, self.accounts).await?;
        tx.commit().await?;
        let mut first = None;
        let mut left = owner.accounts.iter().cycle().take(self.posts).peekable();
        while left.peek().is_some() {
            let mut tx = store.begin().await?;
            for account in left.by_ref().take(CHUNK) {
                let target = self.schedule(&mut tx, &owner, *account, due).await?;
                first.get_or_insert(target);
            }
            tx.commit().await?;
        }
        Ok(first.unwrap_or_default())
    }

    async fn schedule(&self, tx: &mut Tx, owner: &Owner, account: i64, due: DateTime<Utc>) -> Result<i64, StoreError> {
        let mut post = Post {
            content: "Fresh bread from seven o'clock, as every morning.".to_owned(),
            schedule_type: StoredScheduleType::Scheduled,
            scheduled_at: Some(due),
            counted: true,
            ..Post::draft(owner.brand, tx.now)
        };
        post.move_to(PostStatus::Scheduled)?;
        let post = posts::insert(tx, &post).await?;
        let new = NewTarget { account_id: account, position: 0, target_override: TargetOverride::default() };
        let target = targets::insert(tx, post, &[(&new, Platform::Sandbox)]).await?[0];
        let mut job = NewJob::new(JobKind::PublishTarget, target, due).lane(Lane::Account(account));
        if self.in_workspace {
            job = job.workspace(owner.workspace);
        }
        jobs::enqueue(tx, &job).await?;
        Ok(target)
    }
}

impl Owner {
    async fn create(tx: &mut Tx, accounts: usize) -> Result<Self, StoreError> {
        let workspace = users::create_workspace(tx, "Bench", "unlimited").await?;
        let user = users::create(tx, workspace, "bench@localhost", "Bench").await?;
        let new = NewBrand { name: "Bench", description: None, website: None, timezone: "UTC" };
        let Some(brand) = brands::create(tx, workspace, user, None, new).await? else {
            return Err(StoreError::Decode("a brand without a cap was rejected".to_owned()));
        };
        let accounts = sandbox_accounts::create(tx, workspace, brand.id, accounts).await?;
        Ok(Self { workspace, brand: brand.id, accounts })
    }
}
