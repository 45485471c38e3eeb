//! Invalid or repeated notifications: ids that are notified five times, ids of jobs that are finished or waiting,
//! unknown ids, and entries that are not ids. Invariant, on both notifiers: the worker continues, each job runs once,
//! and jobs that must not run are unchanged.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use crier_config::Concurrency;
use crier_domain::job::{JobKind, JobNotification, JobNotifier, JobState, Outcome};
use crier_queue::Transport;
use crier_queue::memory::MemoryNotifier;
use crier_queue::redis::{CAPACITY, RedisNotifier};
use crier_scheduler::Scheduler;
use crier_store::jobs::operate;
use crier_store::{Result, Store, Tx};
use crier_worker::engine::{Engine, Run};
use crier_worker::jobs::{FinishedRun, Job, Registry, RunError};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use crate::support::servers;
use crate::support::store::{TestStore, cipher, on_both};

on_both!(
    invalid_memory_notifications_are_harmless,
    invalid_redis_notifications_are_harmless,
    invalid_redis_entries_are_dropped,
    a_key_of_another_type_in_redis_is_replaced,
    notifications_over_redis_capacity_are_repeated,
);

/// Records which jobs ran.
#[derive(Default)]
struct RecordingJob(Mutex<Vec<i64>>);

#[async_trait]
impl Job for RecordingJob {
    type Result = ();

    async fn run(&self, run: &Run) -> std::result::Result<(), RunError> {
        self.0.lock().unwrap().push(run.job.id);
        Ok(())
    }

    async fn settle(&self, _tx: &mut Tx, runs: &[FinishedRun<'_, ()>]) -> Result<Vec<Outcome>> {
        Ok(vec![Outcome::Done; runs.len()])
    }
}

/// A listening worker that handles only no-op jobs.
struct ListeningWorker {
    s: TestStore,
    notifier: Arc<dyn Transport>,
    recording: Arc<RecordingJob>,
    stop: CancellationToken,
    worker: tokio::task::JoinHandle<()>,
}

impl ListeningWorker {
    fn start(s: TestStore, notifier: Arc<dyn Transport>) -> Self {
        let recording = Arc::new(RecordingJob::default());
        let engine = Engine::new(s.store.clone(), Registry::of([(JobKind::Noop, recording.clone())]));
        let stop = CancellationToken::new();
        let worker = tokio::spawn(crier_worker::run(
            engine,
            notifier.clone(),
            Concurrency::each(8),
            Duration::from_secs(30),
            stop.clone(),
        ));
        Self { s, notifier, recording, stop, worker }
    }

    fn notify_ids(&self, ids: impl IntoIterator<Item = i64>) {
        self.notifier
            .notify(&ids.into_iter().map(|id| JobNotification { kind: JobKind::Noop, id }).collect::<Vec<_>>());
    }

    /// Notifies until a new job, and therefore everything that was notified before it, has been processed. Returns the
    /// job.
    async fn wait_for_new_job(&self, subject: i64) -> i64 {
        let last = self.s.enqueue_job(JobKind::Noop, subject, None).await;
        until("the worker goes on", async || {
            self.notify_ids([last]);
            self.s.state(last).await == JobState::Done
        })
        .await;
        last
    }

    /// Stops the worker cleanly; returns the jobs that ran.
    async fn stop(self) -> (TestStore, Vec<i64>) {
        self.stop.cancel();
        self.worker.await.unwrap();
        let mut ran = self.recording.0.lock().unwrap().clone();
        ran.sort_unstable();
        (self.s, ran)
    }
}

/// Polls until the condition holds, while another task or Redis makes progress.
async fn until(what: &str, is_done: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !is_done().await {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn send_invalid_notifications(s: TestStore, notifier: Arc<dyn Transport>) {
    // A job in each state in which it must not run.
    let mut idle = Vec::new();
    for (subject, set) in (0..).zip([
        "state = 'done', finished_at = created_at",
        "state = 'dead', finished_at = created_at",
        "state = 'cancelled', finished_at = created_at",
        "waiting = TRUE, lane = 'full'",
        "state = 'running', lease_until = created_at, worker = 'another'",
    ]) {
        let id = s.enqueue_job(JobKind::Noop, subject, None).await;
        s.sql(format!("UPDATE jobs SET {set} WHERE id = {id}")).await;
        idle.push(id);
    }
    idle.push(s.job_at(JobKind::Noop, 50, None, s.later(60)).await);
    let paused = s.enqueue_job(JobKind::PublishTarget, 1, None).await;
    s.write(async |tx| operate::pause_kind(tx, JobKind::PublishTarget).await).await;
    idle.push(paused);
    // A job of a kind that this worker does not handle, notified as one that it handles.
    let unhandled = s.enqueue_job(JobKind::DeliverWebhook, 1, None).await;
    let mut good = Vec::new();
    for subject in 100..110 {
        good.push(s.enqueue_job(JobKind::Noop, subject, None).await);
    }
    let job_rows = async |s: &TestStore| {
        let mut all = Vec::new();
        for id in &idle {
            let job = s.show(*id).await;
            all.push((job.state, job.attempt, job.waiting, job.lease_until, job.finished_at));
        }
        all
    };
    let before = job_rows(&s).await;
    let listening = ListeningWorker::start(s, notifier);
    until("it listens", async || {
        listening
            .notifier
            .capacity()
            .await
            .is_some_and(|kinds| kinds.iter().any(|of| of.kind == JobKind::Noop && of.free >= CAPACITY))
    })
    .await;
    for _ in 0..5 {
        listening.notify_ids(good.iter().chain(&idle).copied().chain([
            unhandled,
            0,
            -1,
            i64::MIN,
            i64::MAX,
            987_654_321,
        ]));
    }
    good.push(listening.wait_for_new_job(999).await);
    let (s, ran) = listening.stop().await;
    assert_eq!(ran, good, "each once");
    assert_eq!(job_rows(&s).await, before);
    let job = s.show(unhandled).await;
    assert_eq!((job.state, job.attempt, job.crashes), (JobState::Ready, 0, 0), "it was handed back");
}

async fn invalid_memory_notifications_are_harmless(s: TestStore) {
    send_invalid_notifications(s, Arc::new(MemoryNotifier::default())).await;
}

/// Returns a notifier with a Redis database of its own, and a connection that changes it directly.
async fn redis_notifier() -> (Arc<RedisNotifier>, MultiplexedConnection) {
    let url = servers::redis().await;
    let notifier = RedisNotifier::start(&SecretString::from(url.as_str()), "test", CancellationToken::new()).unwrap();
    let notifier = Arc::new(notifier);
    until("Redis responds", async || notifier.is_up()).await;
    (notifier, servers::connect_redis(&url).await)
}

/// The list from which workers fetch ids.
const LIST: &str = "test:queue:noop:active";

async fn invalid_redis_notifications_are_harmless(s: TestStore) {
    send_invalid_notifications(s, redis_notifier().await.0).await;
}

async fn invalid_redis_entries_are_dropped(s: TestStore) {
    let (notifier, mut redis) = redis_notifier().await;
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    for entry in ["", "rubbish", "12abc", "1.5", "99999999999999999999", "\u{0}\u{1}"] {
        let _: () = redis.rpush(LIST, entry).await.unwrap();
    }
    let _: () = redis.rpush(LIST, b"\xff\xfe".as_slice()).await.unwrap();
    let listening = ListeningWorker::start(s, notifier);
    listening.notify_ids([id]);
    until("it gets through to the id", async || listening.s.state(id).await == JobState::Done).await;
    let (_, ran) = listening.stop().await;
    assert_eq!(ran, [id]);
}

async fn a_key_of_another_type_in_redis_is_replaced(s: TestStore) {
    let (notifier, mut redis) = redis_notifier().await;
    let _: () = redis.set(LIST, "no list").await.unwrap();
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    let listening = ListeningWorker::start(s, notifier.clone());
    let last = listening.wait_for_new_job(2).await;
    let kind: String = redis::cmd("TYPE").arg(LIST).query_async(&mut redis).await.unwrap();
    assert_ne!(kind, "string");
    assert!(notifier.capacity().await.is_some(), "the other kinds are notified again, too");
    listening.notify_ids([id]);
    until("it is received", async || listening.s.state(id).await == JobState::Done).await;
    let (_, ran) = listening.stop().await;
    assert_eq!(ran, [id, last]);
}

/// Sends a store's notifications through the transport.
struct ReceivedNotifications(Arc<dyn Transport>);

impl JobNotifier for ReceivedNotifications {
    fn notify(&self, notifications: &[JobNotification]) {
        self.0.notify(notifications);
    }
}

async fn notifications_over_redis_capacity_are_repeated(s: TestStore) {
    let url = servers::redis().await;
    let start = |stop: &CancellationToken| {
        Arc::new(RedisNotifier::start(&SecretString::from(url.as_str()), "test", stop.clone()).unwrap())
    };
    let mut redis = servers::connect_redis(&url).await;
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    let full = i64::try_from(CAPACITY).unwrap();
    let _: () = redis.rpush(LIST, (0..full).map(|n| -1 - n).collect::<Vec<_>>()).await.unwrap();
    let ended = CancellationToken::new();
    let process = start(&ended);
    until("Redis responds", async || process.is_up()).await;
    process.notify(&[
        JobNotification { kind: JobKind::Noop, id },
        JobNotification { kind: JobKind::DeliverWebhook, id: 7 },
    ]);
    let pushed = "test:queue:deliver_webhook:scheduled";
    until("it was pushed", async || redis.clone().zcard::<_, i64>(pushed).await.unwrap() == 1).await;
    assert_eq!(redis.llen::<_, i64>(LIST).await.unwrap(), full, "no more than its capacity");
    assert!(!redis.exists::<_, bool>("test:queue:noop:scheduled").await.unwrap());
    // The process that holds the id has ended, and most ids have been consumed: the id is found in the database.
    ended.cancel();
    let _: () = redis.ltrim(LIST, 0, 4).await.unwrap();
    let notifier = start(&CancellationToken::new());
    until("Redis responds", async || notifier.is_up()).await;
    let store =
        Store::new(s.db().clone(), s.clock.clone(), cipher(), Arc::new(ReceivedNotifications(notifier.clone())));
    s.advance(11);
    let (transport, library) = (notifier.clone(), s.library("https://crier.example"));
    Scheduler::new(store, transport, library).tick().await.unwrap();
    let listening = ListeningWorker::start(s, notifier);
    until("it is received", async || listening.s.state(id).await == JobState::Done).await;
    let (_, ran) = listening.stop().await;
    assert_eq!(ran, [id]);
}
