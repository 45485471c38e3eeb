//! `make_occurrences`: plans the occurrences of a recurring post for the next 30 days, and makes their posts.
//!
//! The plan is one transaction ([`crier_domain::recurring_post::OccurrencePlan`]). It stores a row per occurrence,
//! whose unique key makes each occurrence once. Each post is created, written again or deleted in a transaction of its
//! own, together with its row, under the lock of the rule. So a run may end at any point, and another one continues;
//! several runs of one rule at the same time take turns.
//!
//! If a post is rejected (the plan is full, its text is too long now), the rule has the reason, and the run continues
//! with the other occurrences. The rule is retried after some hours.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::DateTime;
use crier_base::patch_field::PatchField;
use crier_base::problems::Problems;
use crier_domain::analytics::zone;
use crier_domain::content_plan::Destination;
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::plan::{Feature, Plans};
use crier_domain::post::{Post, PostStatus, ScheduleType};
use crier_domain::recurring_post::{OccurrencePlan, RETRY_PAUSE, RecurringPost, StoredOccurrence};
use crier_jobs::publishing;
use crier_media::Library;
use crier_platforms::ConnectorRegistry;
use crier_posts::{Member, PostChange, PostContext, PostError, PostOverride};
use crier_store::recurring_occurrences::{self, OccurrenceCursor};
use crier_store::{Result, Store, StoreError, Tx, brands, files, jobs, posts, recurring_posts};

use super::{Deps, FinishedRun, Job, RunError, RunResult, settle_each};
use crate::engine::Run;

/// The maximum number of occurrences that a run makes or removes. More than a rule has, even after a change of all its
/// times.
const MAX_STEPS: usize = 1_000;
const DELETED: &str = "the recurring post no longer exists";
const CHANGED: &str = "it was changed during the run";
const NO_AUTHOR: &str = "The user who last changed this recurring post is no longer a member of the brand. Save it again \
                         to create its posts in your name.";
const NO_APPROVALS: &str = "The workspace's plan does not include approvals. Choose another destination.";
const NO_STORAGE: &str =
    "The workspace's storage is full. Delete posts or files, or ask the operator for a larger plan.";

pub struct MakeOccurrences {
    store: Store,
    platforms: Arc<ConnectorRegistry>,
    library: Library,
    plans: Arc<Plans>,
}

impl MakeOccurrences {
    pub fn new(deps: &Deps) -> Self {
        Self {
            store: deps.store.clone(),
            platforms: deps.platforms.clone(),
            library: deps.library.clone(),
            plans: deps.plans.clone(),
        }
    }
}

#[async_trait]
impl Job for MakeOccurrences {
    type Result = OccurrencesRunResult;

    async fn run(&self, run: &Run) -> std::result::Result<OccurrencesRunResult, RunError> {
        let recurring_id = run.job.subject_id;
        let version = self.plan(recurring_id).await?.ok_or_else(|| RunError::cancelled(DELETED))?;
        let mut result = OccurrencesRunResult { recurring_id, version, problem: None };
        let mut after = OccurrenceCursor { occurs_at: DateTime::UNIX_EPOCH, id: 0 };
        // If no post can be created, those that exist still follow the rule: they would be published with an old text.
        let mut makes = true;
        for _ in 0..MAX_STEPS {
            match self.step(recurring_id, version, after, makes).await? {
                Step::Done(next) => after = next,
                Step::Rejected { next, ends_making, problem } => {
                    result.problem.get_or_insert(problem);
                    makes &= !ends_making;
                    after = next;
                }
                Step::Ended => break,
            }
        }
        Ok(result)
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, OccurrencesRunResult>]) -> Result<Vec<Outcome>> {
        settle_each(tx, runs, |tx, job, result| Box::pin(result.write(tx, job))).await
    }
}

/// What happened to an occurrence.
enum Step {
    Done(OccurrenceCursor),
    /// Why it was not made. `ends_making`: whether the other occurrences would not be made either.
    Rejected {
        next: OccurrenceCursor,
        ends_making: bool,
        problem: String,
    },
    /// No occurrence is left, or the rule has changed.
    Ended,
}

/// Why an occurrence is not made.
enum Rejection {
    /// Only this one.
    Occurrence(String),
    /// All of the rule.
    Rule(String),
    /// A worker begins to publish its post, which stays as it is.
    Begun,
    Failed(StoreError),
}

impl From<StoreError> for Rejection {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<PostError> for Rejection {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Store(error) => Self::Failed(error),
            PostError::Bug(what) => Self::Failed(StoreError::Decode(what)),
            PostError::Invalid(found) => {
                // The messages name accounts and limits. The names of fields mean nothing here.
                let first = found.fields().values().flatten().next().cloned();
                Self::Occurrence(first.unwrap_or_else(|| found.to_string()))
            }
            PostError::NotEditable(_) => Self::Begun,
            PostError::ForPublishers | PostError::LimitReached { .. } => Self::Rule(error.to_string()),
        }
    }
}

impl MakeOccurrences {
    /// Plans the occurrences. Returns the version of the rule, or `None` if the rule does not exist.
    async fn plan(&self, recurring_id: i64) -> Result<Option<i64>> {
        let mut tx = self.store.begin().await?;
        let Some(rule) = recurring_posts::lock(&mut tx, recurring_id).await? else { return Ok(None) };
        let brand = brands::find(&mut tx, rule.brand_id).await?;
        let zone = zone(brand.as_ref().map(|brand| brand.timezone.as_str()));
        let now = tx.now;
        let stored = recurring_occurrences::since(&mut tx, recurring_id, OccurrencePlan::since(now)).await?;
        let plan = OccurrencePlan::new(&rule, zone, &stored, now);
        recurring_occurrences::write_plan(&mut tx, &rule, &plan).await?;
        recurring_posts::set_planned(&mut tx, &rule, plan.planned).await?;
        tx.commit().await?;
        Ok(Some(rule.version))
    }

    /// Makes, writes or removes the next occurrence, in a transaction of its own.
    async fn step(&self, recurring_id: i64, version: i64, after: OccurrenceCursor, makes: bool) -> Result<Step> {
        let mut tx = self.store.begin().await?;
        let rule = recurring_posts::lock(&mut tx, recurring_id).await?;
        let Some(rule) = rule.filter(|rule| rule.version == version) else { return Ok(Step::Ended) };
        let Some(next) = recurring_occurrences::next_unfinished(&mut tx, &rule, after, makes).await? else {
            return Ok(Step::Ended);
        };
        let cursor = OccurrenceCursor { occurs_at: next.occurs_at, id: next.id };
        let done = if next.is_removed {
            remove(&mut tx, &rule, &next).await.map_err(Rejection::from)
        } else {
            self.write(&mut tx, &rule, &next).await
        };
        match done {
            Ok(()) => {
                tx.commit().await?;
                Ok(Step::Done(cursor))
            }
            Err(Rejection::Failed(error)) => Err(error),
            Err(Rejection::Begun) => {
                tx.rollback().await?;
                Ok(Step::Done(cursor))
            }
            Err(Rejection::Occurrence(problem)) => {
                tx.rollback().await?;
                Ok(Step::Rejected { next: cursor, ends_making: false, problem })
            }
            Err(Rejection::Rule(problem)) => {
                tx.rollback().await?;
                Ok(Step::Rejected { next: cursor, ends_making: true, problem })
            }
        }
    }

    /// Creates the post of an occurrence, or writes it again. Fails if its texts do not fit into the storage of the
    /// workspace's plan: a small request could otherwise fill it, because each post has a copy of the rule's texts.
    async fn write(
        &self,
        tx: &mut Tx,
        rule: &RecurringPost,
        occurrence: &StoredOccurrence,
    ) -> std::result::Result<(), Rejection> {
        let plan = brands::plan_of(tx, rule.brand_id).await?;
        let plan = plan.and_then(|(workspace_id, name)| Some((workspace_id, self.plans.get(&name)?)));
        let Some((workspace_id, plan)) = plan.filter(|(_, plan)| plan.storage_mib.is_some()) else {
            return self.write_post(tx, rule, occurrence).await;
        };
        let before = files::usage(tx, workspace_id).await?;
        self.write_post(tx, rule, occurrence).await?;
        let after = files::usage(tx, workspace_id).await?;
        if after.texts > before.texts && !plan.has_room_for_texts(after) {
            return Err(Rejection::Rule(NO_STORAGE.to_owned()));
        }
        Ok(())
    }

    async fn write_post(
        &self,
        tx: &mut Tx,
        rule: &RecurringPost,
        occurrence: &StoredOccurrence,
    ) -> std::result::Result<(), Rejection> {
        let member = match rule.author_id {
            Some(author_id) => Member::find(tx, &self.plans, rule.brand_id, author_id).await?,
            None => None,
        };
        let member = member.ok_or_else(|| Rejection::Rule(NO_AUTHOR.to_owned()))?;
        let submits = rule.destination == Destination::Approval;
        if submits {
            let plan = brands::plan_of(tx, rule.brand_id).await?;
            if !plan.is_some_and(|(_, plan)| self.plans.include(&plan, Feature::Approvals)) {
                return Err(Rejection::Rule(NO_APPROVALS.to_owned()));
            }
        }
        let cx = member.context(rule.brand_id, &self.platforms, &self.library, tx.now);
        let change = change_of(rule, occurrence);
        let draft = Post { recurring_id: Some(rule.id), ..cx.empty_draft() };
        let post_id = match occurrence.post_id {
            None => create(&cx, tx, draft, &change, submits).await?,
            Some(post_id) => match posts::find_for_update(tx, rule.brand_id, post_id).await? {
                Some(post) if Some(post.updated_at) == occurrence.written_at && !post.status.has_begun() => {
                    if post.status == PostStatus::PendingApproval && !member.role.can_publish() {
                        // An approver may have read this post, and must not approve another text of the contributor. So
                        // another post replaces this one, and does not count again.
                        publishing::delete(tx, post_id).await?;
                        let draft = Post { counted: post.counted, ..draft };
                        create(&cx, tx, draft, &change, submits).await?
                    } else {
                        rewrite(&cx, tx, post, &change, submits).await?;
                        post_id
                    }
                }
                // A user or a worker was faster.
                _ => return Ok(recurring_occurrences::keep(tx, occurrence.id, rule.version).await?),
            },
        };
        Ok(recurring_occurrences::record_post(tx, occurrence.id, post_id, rule.version).await?)
    }
}

/// Returns the change of an empty draft, or of an earlier version of the post, to the post of an occurrence.
fn change_of(rule: &RecurringPost, occurrence: &StoredOccurrence) -> PostChange {
    let variation = rule.variation(occurrence.number).cloned().unwrap_or_default();
    let is_scheduled = rule.destination == Destination::Calendar;
    let overrides = rule
        .overrides
        .iter()
        .map(|one| PostOverride { account_id: Some(one.account_id), target_override: one.target_override.clone() });
    PostChange {
        content: PatchField::Value(variation.content),
        media: PatchField::Value(variation.media),
        schedule_type: PatchField::Value(if is_scheduled { ScheduleType::Scheduled } else { ScheduleType::Draft }),
        scheduled_at: PatchField::Value(occurrence.occurs_at),
        accounts: PatchField::Value(rule.accounts.clone()),
        overrides: PatchField::Value(overrides.collect()),
        labels: PatchField::Value(rule.labels.clone()),
        ..PostChange::default()
    }
}

/// Creates the post of an occurrence from a draft that is not stored. Returns its id.
async fn create(
    cx: &PostContext<'_>,
    tx: &mut Tx,
    draft: Post,
    change: &PostChange,
    submits: bool,
) -> crier_posts::Result<i64> {
    let (post, _) = crier_posts::create_from(cx, tx, draft, change, submits, Problems::default()).await?;
    Ok(post.id)
}

/// Changes a post that nobody has changed to the current version of the rule.
async fn rewrite(
    cx: &PostContext<'_>,
    tx: &mut Tx,
    mut post: Post,
    change: &PostChange,
    submits: bool,
) -> crier_posts::Result<()> {
    if post.status == PostStatus::PendingApproval {
        // No approver has decided about it yet, so it is submitted again with the new text.
        post.move_to(PostStatus::Draft)?;
    }
    let written = crier_posts::update(cx, tx, post, change, Problems::default()).await?;
    if submits {
        crier_posts::submit(cx, tx, written).await?;
    }
    Ok(())
}

/// Deletes an occurrence that the rule no longer has, with its post. Keeps it if its post was changed or deleted, or if
/// its publishing begins.
async fn remove(tx: &mut Tx, rule: &RecurringPost, occurrence: &StoredOccurrence) -> Result<()> {
    if let Some(post_id) = occurrence.post_id
        && let Some(post) = posts::find_for_update(tx, rule.brand_id, post_id).await?
        && Some(post.updated_at) == occurrence.written_at
        && !post.status.has_begun()
    {
        publishing::delete(tx, post_id).await?;
        return recurring_occurrences::delete(tx, occurrence.id).await;
    }
    recurring_posts::count_kept(tx, rule.id).await?;
    recurring_occurrences::keep(tx, occurrence.id, rule.version).await
}

/// The result of a run.
pub struct OccurrencesRunResult {
    recurring_id: i64,
    /// The version of the rule for which the run made occurrences.
    version: i64,
    /// Why it could not make an occurrence.
    problem: Option<String>,
}

impl RunResult for OccurrencesRunResult {
    fn order(&self) -> i64 {
        self.recurring_id
    }
}

impl OccurrencesRunResult {
    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let Some(rule) = recurring_posts::lock(tx, self.recurring_id).await? else {
            return Ok(Outcome::Cancelled(DELETED.to_owned()));
        };
        if rule.version != self.version {
            jobs::refund_attempt(tx, job).await?;
            return Ok(Outcome::RetryAt(tx.now, CHANGED.to_owned()));
        }
        if rule.deleted_at.is_some() && self.problem.is_none() {
            recurring_posts::delete(tx, rule.id).await?;
            return Ok(Outcome::Done);
        }
        let brand = brands::find(tx, rule.brand_id).await?;
        let next = rule.next_due(zone(brand.as_ref().map(|brand| brand.timezone.as_str())), tx.now);
        let retry = self.problem.as_ref().map(|_| tx.now + RETRY_PAUSE);
        let due_at = match (next, retry) {
            (Some(next), Some(retry)) => Some(next.min(retry)),
            (next, retry) => next.or(retry),
        };
        recurring_posts::end_run(tx, rule.id, due_at, self.problem.as_deref()).await?;
        Ok(Outcome::Done)
    }
}
