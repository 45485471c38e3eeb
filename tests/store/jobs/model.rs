//! Random job histories, checked against a small model. The steps include workers that die, lost notifications, a clock
//! that is set back, and paused kinds. In any order of steps, a job never runs twice at the same time, no job is lost or
//! attempted more often than allowed, a final state is permanent and stored once, no lane exceeds its cap, and no job
//! waits for a lane forever.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use crier_domain::job::{ClaimedJob, JobKind, JobState, LEASE, MAX_CRASHES, NewJob, Outcome};
use crier_store::jobs::operate::{self, JobQuery, JobRow};
use crier_store::jobs::{self, dispatch, engine, lanes};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::support::size::sized;
use crate::support::store::TestStore;

/// One step. Numbers select existing items.
#[derive(Debug, Clone)]
enum Step {
    Enqueue {
        capped: bool,
        subject: i64,
        delay: i64,
    },
    Claim {
        max: usize,
    },
    ClaimAll,
    Settle {
        index: usize,
        outcome: u8,
    },
    Release {
        index: usize,
    },
    Heartbeat,
    Advance {
        seconds: i64,
    },
    PromoteDue,
    RenotifyStale,
    Rescue,
    Sweep,
    Cancel {
        index: usize,
    },
    Retry {
        index: usize,
    },
    PauseLane {
        lane: i64,
        seconds: i64,
    },
    PauseKind {
        capped: bool,
    },
    ResumeKind {
        capped: bool,
    },
    /// All workers die: their claims are never settled.
    KillWorkers,
    /// Notifications are lost.
    LoseNotifications,
    /// Sets the clock back.
    SetBack {
        seconds: i64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (prop::bool::weighted(0.8), 0..16_i64, 0..20_i64)
            .prop_map(|(capped, subject, delay)| Step::Enqueue { capped, subject, delay: (delay - 10).max(0) }),
        6 => (1..8_usize).prop_map(|max| Step::Claim { max }),
        2 => Just(Step::ClaimAll),
        6 => (0..99_usize, 0..4_u8).prop_map(|(index, outcome)| Step::Settle { index, outcome }),
        1 => (0..99_usize).prop_map(|index| Step::Release { index }),
        1 => Just(Step::Heartbeat),
        3 => (1..40_i64).prop_map(|seconds| Step::Advance { seconds }),
        3 => Just(Step::PromoteDue),
        1 => Just(Step::RenotifyStale),
        3 => Just(Step::Rescue),
        2 => Just(Step::Sweep),
        1 => (0..99_usize).prop_map(|index| Step::Cancel { index }),
        1 => (0..99_usize).prop_map(|index| Step::Retry { index }),
        1 => (0..2_i64, 1..60_i64).prop_map(|(lane, seconds)| Step::PauseLane { lane, seconds }),
        1 => any::<bool>().prop_map(|capped| Step::PauseKind { capped }),
        2 => any::<bool>().prop_map(|capped| Step::ResumeKind { capped }),
        1 => Just(Step::KillWorkers),
        1 => Just(Step::LoseNotifications),
        1 => (1..90_i64).prop_map(|seconds| Step::SetBack { seconds }),
    ]
}

/// The expected state of a job.
#[derive(Debug, Clone)]
struct Expected {
    kind: JobKind,
    subject: i64,
    state: JobState,
    run_at: DateTime<Utc>,
    lease_until: DateTime<Utc>,
    attempt: i32,
    crashes: i32,
    fence: i64,
}

struct History {
    s: TestStore,
    jobs: BTreeMap<i64, Expected>,
    /// Notified ids that no worker has taken yet.
    notified: Vec<i64>,
    /// The claims so far. Frozen workers try to settle theirs as well.
    claims: Vec<ClaimedJob>,
    paused: BTreeSet<JobKind>,
}

fn kind(capped: bool) -> JobKind {
    if capped { JobKind::PublishTarget } else { JobKind::Noop }
}

impl History {
    async fn start() -> Self {
        let (jobs, notified, claims, paused) = (BTreeMap::new(), Vec::new(), Vec::new(), BTreeSet::new());
        Self { s: TestStore::sqlite().await, jobs, notified, claims, paused }
    }

    fn is_current(&self, claim: &ClaimedJob) -> bool {
        let job = &self.jobs[&claim.id];
        job.state == JobState::Running && job.fence == claim.fence
    }

    fn nth(&self, index: usize, matches: impl Fn(&Expected) -> bool) -> Option<i64> {
        let ids: Vec<i64> = self.jobs.iter().filter(|(_, job)| matches(job)).map(|(id, _)| *id).collect();
        (!ids.is_empty()).then(|| ids[index % ids.len()])
    }

    fn claim_at(&self, index: usize) -> Option<ClaimedJob> {
        (!self.claims.is_empty()).then(|| self.claims[index % self.claims.len()].clone())
    }

    async fn take(&mut self, step: Step) {
        let now = self.s.now();
        match step {
            Step::Enqueue { capped, subject, delay } => self.enqueue(capped, subject, delay).await,
            Step::Claim { max } => {
                let count = max.min(self.notified.len());
                let ids: Vec<i64> = self.notified.drain(..count).collect();
                self.claim(&ids).await;
            }
            Step::ClaimAll => {
                let ids: Vec<i64> = self.jobs.keys().copied().chain([0, 12_345]).collect();
                self.claim(&ids).await;
            }
            Step::Settle { index, outcome } => {
                if let Some(claim) = self.claim_at(index) {
                    self.settle(&claim, outcome).await;
                }
            }
            Step::Release { index } => {
                if let Some(claim) = self.claim_at(index) {
                    let held = self.is_current(&claim);
                    self.s.write(async |tx| engine::release(tx, &claim).await).await;
                    if held {
                        let job = self.jobs.get_mut(&claim.id).unwrap();
                        (job.state, job.attempt) = (JobState::Ready, job.attempt - 1);
                    }
                }
            }
            Step::Heartbeat => {
                let ids: Vec<i64> = self.jobs.keys().copied().collect();
                self.s.write(async |tx| engine::heartbeat(tx, &ids, "w").await).await;
                for job in self.jobs.values_mut().filter(|job| job.state == JobState::Running) {
                    job.lease_until = now + LEASE;
                }
            }
            Step::Advance { seconds } => self.s.advance(seconds),
            Step::PromoteDue => {
                for kind in [JobKind::PublishTarget, JobKind::Noop] {
                    self.s.write(async |tx| dispatch::promote_due(tx, kind, 1_000).await).await;
                }
                for job in self.jobs.values_mut().filter(|j| j.state == JobState::Scheduled && j.run_at <= now) {
                    job.state = JobState::Ready;
                }
            }
            Step::RenotifyStale => {
                let before = now - dispatch::RENOTIFY_AFTER;
                for kind in [JobKind::PublishTarget, JobKind::Noop] {
                    self.s.write(async |tx| dispatch::renotify_stale(tx, kind, before, 1_000).await).await;
                }
            }
            Step::Rescue => self.rescue().await,
            Step::Sweep => {
                self.s.write(async |tx| dispatch::sweep_lanes(tx).await).await;
                self.assert_no_stranded_lane().await;
            }
            Step::Cancel { index } => {
                if let Some(id) = self.nth(index, |_| true) {
                    let cancelled = self.s.write(async |tx| operate::cancel(tx, id).await).await;
                    let job = self.jobs.get_mut(&id).unwrap();
                    let is_waiting = matches!(job.state, JobState::Scheduled | JobState::Ready);
                    assert_eq!(cancelled.is_some(), is_waiting);
                    job.state = if is_waiting { JobState::Cancelled } else { job.state };
                }
            }
            Step::Retry { index } => {
                if let Some(id) = self.nth(index, |job| is_final(job.state)) {
                    self.retry(id).await;
                }
            }
            Step::PauseLane { lane, seconds } => {
                let until = self.s.later(seconds);
                self.s.write(async |tx| lanes::pause_lane(tx, &format!("account:{lane}"), until).await).await;
            }
            Step::PauseKind { capped } => {
                self.paused.insert(kind(capped));
                self.s.write(async |tx| operate::pause_kind(tx, kind(capped)).await).await;
            }
            Step::ResumeKind { capped } => {
                let paused = self.paused.remove(&kind(capped));
                assert_eq!(self.s.write(async |tx| operate::resume_kind(tx, kind(capped)).await).await, paused);
            }
            Step::KillWorkers => self.claims.clear(),
            Step::LoseNotifications => self.notified.clear(),
            Step::SetBack { seconds } => self.s.advance(-seconds),
        }
        self.notified.extend(self.s.notifier.take());
        self.check().await;
    }

    async fn enqueue(&mut self, capped: bool, subject: i64, delay: i64) {
        let kind = kind(capped);
        let mut job = NewJob::new(kind, subject, self.s.later(delay));
        job.lane = capped.then(|| format!("account:{}", subject % 2));
        let created = self.s.write(async |tx| jobs::enqueue(tx, &job).await).await;
        let has_active_job = self.jobs.values().any(|j| j.kind == kind && j.subject == subject && !is_final(j.state));
        assert_eq!(created.is_none(), has_active_job, "one job of a kind for a subject");
        if let Some(id) = created {
            let state = if delay > 0 { JobState::Scheduled } else { JobState::Ready };
            let (run_at, lease_until) = (job.run_at, self.s.now());
            let expected = Expected { kind, subject, state, run_at, lease_until, attempt: 0, crashes: 0, fence: 0 };
            assert!(self.jobs.insert(id, expected).is_none(), "an id was given twice");
        }
    }

    async fn claim(&mut self, ids: &[i64]) {
        let now = self.s.now();
        for claim in self.s.claim(ids, "w").await {
            let job = self.jobs.get_mut(&claim.id).expect("it was enqueued");
            assert_eq!(job.state, JobState::Ready, "claimed while {}", job.state);
            assert!(!self.paused.contains(&job.kind), "claimed while its kind is paused");
            assert!(claim.attempt <= claim.max_attempts, "tried too often");
            assert!(ids.contains(&claim.id) && claim.fence > job.fence);
            assert_eq!((claim.attempt, claim.crashes), (job.attempt + 1, job.crashes));
            (job.state, job.attempt, job.fence) = (JobState::Running, claim.attempt, claim.fence);
            job.lease_until = now + LEASE;
            self.claims.push(claim);
        }
    }

    async fn settle(&mut self, claim: &ClaimedJob, outcome: u8) {
        let retry_at = self.s.later(5);
        let (outcome, state) = match outcome {
            0 => (Outcome::Done, JobState::Done),
            1 => (Outcome::Abort("no".to_owned()), JobState::Dead),
            2 => (Outcome::Cancelled("gone".to_owned()), JobState::Cancelled),
            _ => (Outcome::RetryAt(retry_at, "busy".to_owned()), JobState::Scheduled),
        };
        let held = self.is_current(claim);
        assert_eq!(self.s.settle(claim, outcome).await, held, "only the current claim settles the job");
        if held {
            let job = self.jobs.get_mut(&claim.id).unwrap();
            job.state = state;
            job.run_at = if state == JobState::Scheduled { retry_at } else { job.run_at };
        }
    }

    async fn rescue(&mut self) {
        let now = self.s.now();
        let rescued = self.s.write(async |tx| dispatch::rescue(tx, 1_000).await).await;
        let mut expired: Vec<i64> = rescued.iter().map(|r| r.job.id).collect();
        expired.sort_unstable();
        let is_expired = |job: &Expected| job.state == JobState::Running && job.lease_until < now;
        let expected_ids: Vec<i64> = self.jobs.iter().filter(|(_, job)| is_expired(job)).map(|(id, _)| *id).collect();
        assert_eq!(expired, expected_ids);
        for r in rescued {
            let job = self.jobs.get_mut(&r.job.id).unwrap();
            job.crashes += 1;
            job.fence += 1;
            let dead = job.crashes >= MAX_CRASHES || job.attempt >= r.job.max_attempts;
            assert_eq!(r.dead.is_some(), dead);
            job.state = if dead { JobState::Dead } else { JobState::Ready };
        }
    }

    async fn retry(&mut self, id: i64) {
        let retried = self.s.write(async |tx| operate::retry(tx, id).await).await;
        let job = self.jobs[&id].clone();
        let other = self.jobs.values().any(|j| j.kind == job.kind && j.subject == job.subject && !is_final(j.state));
        assert_eq!(retried.is_some(), matches!(job.state, JobState::Dead | JobState::Cancelled) && !other);
        if retried.is_some() {
            let job = self.jobs.get_mut(&id).unwrap();
            (job.state, job.attempt, job.crashes, job.run_at) = (JobState::Ready, 0, 0, self.s.now());
        }
    }

    async fn rows(&self) -> Vec<JobRow> {
        operate::list(&mut self.s.conn().await, &JobQuery::default(), 10_000).await.unwrap()
    }

    /// Asserts that every row matches the model and no lane exceeds its cap.
    async fn check(&self) {
        let rows = self.rows().await;
        assert_eq!(rows.len(), self.jobs.len(), "a job was lost or created unexpectedly");
        let mut running: BTreeMap<String, i64> = BTreeMap::new();
        for row in rows {
            let job = &self.jobs[&row.id];
            assert_eq!((row.state, row.attempt, row.crashes), (job.state, job.attempt, job.crashes), "job {}", row.id);
            assert_eq!(row.run_at, job.run_at);
            assert_eq!(row.finished_at.is_some(), is_final(row.state));
            assert_eq!(row.lease_until, (row.state == JobState::Running).then_some(job.lease_until));
            assert!(!row.waiting || row.state == JobState::Ready, "job {} waits and is {}", row.id, row.state);
            if let (JobState::Running, Some(lane)) = (row.state, row.lane) {
                *running.entry(lane).or_default() += 1;
            }
        }
        let cap = JobKind::PublishTarget.limits().lane_cap.unwrap();
        assert!(running.values().all(|n| *n <= cap), "{running:?}");
    }

    /// After a sweep, a job that waits for an unpaused lane has a running or ready job ahead of it.
    async fn assert_no_stranded_lane(&self) {
        let rows = self.rows().await;
        for row in rows.iter().filter(|row| row.waiting) {
            let lane = row.lane.as_deref().expect("only a lane is waited for");
            let paused =
                operate::lane(&mut self.s.conn().await, lane, self.s.now()).await.unwrap().paused_until.is_some();
            let has_progress = |other: &&JobRow| {
                other.lane == row.lane
                    && (other.state == JobState::Running || other.state == JobState::Ready && !other.waiting)
            };
            assert!(paused || rows.iter().any(|other| has_progress(&other)), "job {} is stranded", row.id);
        }
    }

    /// Runs scheduler ticks and correct workers until every job has ended.
    async fn drain(&mut self) {
        for capped in [true, false] {
            self.take(Step::ResumeKind { capped }).await;
        }
        for _ in 0..200 {
            if self.jobs.values().all(|job| is_final(job.state)) {
                return;
            }
            for step in [
                Step::Advance { seconds: 61 },
                Step::PromoteDue,
                Step::Rescue,
                Step::Sweep,
                Step::RenotifyStale,
                Step::Claim { max: 1_000 },
            ] {
                self.take(step).await;
            }
            let held: Vec<ClaimedJob> = self.claims.iter().filter(|claim| self.is_current(claim)).cloned().collect();
            for claim in held {
                self.settle(&claim, 0).await;
            }
            self.notified.extend(self.s.notifier.take());
        }
        panic!("a job never ended: {:?}", self.jobs.values().find(|job| !is_final(job.state)));
    }
}

fn is_final(state: JobState) -> bool {
    matches!(state, JobState::Done | JobState::Dead | JobState::Cancelled)
}

#[test]
fn jobs_match_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases: sized(24, 8), failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    // Deterministic: every run has the same histories.
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let histories = prop::collection::vec(step(), 40..120);
    let run = runner.run(&histories, |steps| {
        runtime.block_on(async {
            let mut history = History::start().await;
            for step in steps {
                history.take(step).await;
            }
            history.drain().await;
        });
        Ok(())
    });
    run.unwrap();
}
