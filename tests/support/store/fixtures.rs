//! Rows for tests: workspaces, users, brands, accounts, posts, webhooks, and jobs with the actions of a worker.

use chrono::{DateTime, Utc};
use crier_domain::access::{KeyMode, Role, Scopes};
use crier_domain::account::SocialAccount;
use crier_domain::event::EventName;
use crier_domain::job::{ClaimedJob, JobKind, JobState, NewJob, Outcome};
use crier_domain::platform::{AccountKind, Platform};
use crier_domain::post::{Post, PostStatus, StoredScheduleType, TargetOverride};
use crier_domain::sandbox::{NewSandboxPost, SandboxMedia};
use crier_domain::webhook::Webhook;
use crier_store::accounts::{self, NewAccount};
use crier_store::brands::{self, NewBrand};
use crier_store::jobs::{self, engine, operate};
use crier_store::targets::{self, NewTarget};
use crier_store::webhooks::{self, NewWebhook};
use crier_store::{Result, Tx, keys, posts, sandbox, users};
use secrecy::SecretString;

use super::{TestStore, World, start_time};

impl TestStore {
    pub async fn workspace(&self) -> i64 {
        self.write(async |tx| users::create_workspace(tx, "Acme", "pro").await).await
    }

    pub async fn user(&self, workspace: i64, email: &str) -> i64 {
        self.write(async |tx| users::create(tx, workspace, email, "Ann").await).await
    }

    pub async fn brand(&self, workspace: i64, owner: i64) -> i64 {
        let new = NewBrand { name: "Bakery", description: None, website: None, timezone: "UTC" };
        let created = self.write(async |tx| brands::create(tx, workspace, owner, None, new).await).await;
        created.expect("there is no cap").id
    }

    pub async fn member(&self, brand: i64, user: i64, role: Role) {
        self.write(async |tx| brands::set_member(tx, brand, user, role).await).await;
    }

    pub async fn remove_member(&self, brand: i64, user: i64) {
        self.write(async |tx| brands::remove_member(tx, brand, user).await).await;
    }

    pub async fn create_world(&self) -> World {
        self.world_of("ann@example.com").await
    }

    pub async fn world_of(&self, email: &str) -> World {
        let workspace = self.workspace().await;
        let user = self.user(workspace, email).await;
        World { workspace, user, brand: self.brand(workspace, user).await }
    }

    /// Creates a live key with all scopes; returns its id.
    pub async fn key(&self, user: i64) -> i64 {
        let key = self.write(async |tx| keys::create(tx, user, KeyMode::Live, &Scopes::all()).await).await;
        let caller =
            keys::authenticate(&mut self.conn().await, &key, None, None).await.expect("the key can be looked up");
        caller.expect("the key is there").0.caller.key_id
    }

    /// Creates an account with this token, attached to the brand.
    pub async fn account(&self, world: World, external_id: &str, token: &str) -> SocialAccount {
        self.store_account(world, &new_account(external_id, token)).await
    }

    /// Creates an account, attached to the brand. Its credentials are not checked.
    pub async fn store_account(&self, world: World, new: &NewAccount) -> SocialAccount {
        self.write(async |tx| {
            let created = accounts::save(tx, world.workspace, new).await?;
            accounts::attach(tx, world.brand, created.id).await?;
            Ok(created)
        })
        .await
    }

    /// Creates a publishing post with a pending target for each account.
    pub async fn post(&self, world: World, accounts: &[i64]) -> (i64, Vec<i64>) {
        self.write(async |tx| {
            let post = posts::insert(tx, &new_post(world, PostStatus::Publishing)).await?;
            let target = |(position, id): (i32, &i64)| NewTarget {
                account_id: *id,
                position,
                target_override: TargetOverride::default(),
            };
            let new: Vec<_> = (0..).zip(accounts).map(target).collect();
            let new: Vec<_> = new.iter().map(|new| (new, Platform::Sandbox)).collect();
            Ok((post, targets::insert(tx, post, &new).await?))
        })
        .await
    }

    /// Creates an active webhook endpoint of the user.
    pub async fn webhook(&self, user: i64, events: &[EventName]) -> Webhook {
        let secret = SecretString::from("whsec_of_the_tests");
        let new = NewWebhook {
            url: "https://example.com/hook",
            events,
            description: Some("tests"),
            is_active: true,
            secret: &secret,
        };
        self.write(async |tx| webhooks::create(tx, user, &new).await).await
    }

    /// Enqueues a due job.
    pub async fn enqueue_job(&self, kind: JobKind, subject: i64, lane: Option<&str>) -> i64 {
        self.job_at(kind, subject, lane, self.clock.now()).await
    }

    pub async fn job_at(&self, kind: JobKind, subject: i64, lane: Option<&str>, run_at: DateTime<Utc>) -> i64 {
        let mut job = NewJob::new(kind, subject, run_at);
        job.lane = lane.map(str::to_owned);
        self.write(async |tx| jobs::enqueue(tx, &job).await).await.expect("the subject has no other job")
    }

    /// Claims jobs in a new transaction.
    pub async fn claim(&self, ids: &[i64], worker: &str) -> Vec<ClaimedJob> {
        let mut claimed = self.write(async |tx| engine::claim(tx, ids, worker).await).await;
        claimed.sort_by_key(|job| job.id);
        claimed
    }

    /// Settles a job in a new transaction. Returns false and rolls back if the lease was lost.
    pub async fn settle(&self, job: &ClaimedJob, outcome: Outcome) -> bool {
        let mut tx = self.store.begin().await.expect("a transaction");
        let held = engine::settle(&mut tx, &[(job, outcome)]).await.expect("it can be settled");
        if held {
            tx.commit().await.expect("a commit");
        }
        held
    }

    /// Returns a job as `crier jobs show` reads it.
    pub async fn show(&self, id: i64) -> operate::JobRow {
        operate::show(&mut self.conn().await, id).await.expect("it can be shown").expect("it is there")
    }

    pub async fn state(&self, id: i64) -> JobState {
        self.show(id).await.state
    }
}

/// Publishes to a handle of the sandbox. Returns the id of the post, or `None` if it was not published.
pub async fn publish_to_sandbox(
    tx: &mut Tx,
    workspace: i64,
    handle: &str,
    key: &str,
    text: &str,
    media: &[SandboxMedia],
) -> Result<Option<i64>> {
    let post = NewSandboxPost {
        workspace_id: workspace,
        handle: handle.to_owned(),
        key: key.to_owned(),
        content: text.to_owned(),
        media: media.to_vec(),
        reply_to: None,
    };
    sandbox::publish(tx, &post).await
}

/// Returns a new sandbox account with this token.
pub fn new_account(external_id: &str, token: &str) -> NewAccount {
    NewAccount {
        platform: Platform::Sandbox,
        external_id: external_id.to_owned(),
        name: "Demo".to_owned(),
        username: Some("demo".to_owned()),
        profile_url: None,
        avatar_url: None,
        kind: AccountKind::Profile,
        token_expires_at: None,
        renewal: None,
        limits: None,
        granted_scopes: None,
        application: None,
        secrets: SecretString::from(format!("{{\"token\":\"{token}\"}}")),
    }
}

pub fn new_post(world: World, status: PostStatus) -> Post {
    Post {
        id: 0,
        brand_id: world.brand,
        author_id: Some(world.user),
        author_name: None,
        status,
        content: "Fresh bread".to_owned(),
        schedule_type: StoredScheduleType::Now,
        scheduled_at: None,
        published_at: None,
        queued: false,
        recurring_id: None,
        external_ref: None,
        media: Vec::new(),
        labels: Vec::new(),
        thread: Vec::new(),
        first_comment: None,
        counted: true,
        reject_reason: None,
        created_at: start_time(),
        updated_at: start_time(),
    }
}
