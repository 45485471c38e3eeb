//! `import_media`: imports of images from a URL.

use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobState, Lane, NewJob};
use crier_domain::media::{Asset, AssetType, MediaErrorCode as Code, MediaJob, MediaJobStatus as Status};
use crier_media::Library;
use crier_store::media_jobs::{self, NewImport};
use crier_store::{files, jobs, media};
use serde_json::Value;

use crate::support::jobs::{PUBLIC_URL, TestWorker};
use crate::support::source::Source;

mod crashes;
mod interruptions;
mod permanent_failures;
mod success;
mod transient_failures;
mod videos;

fn library(w: &TestWorker) -> Library {
    w.library(PUBLIC_URL)
}

/// Starts an import of an image as the API does.
async fn import(w: &TestWorker, url: &str) -> i64 {
    import_as(w, url, AssetType::Logo).await
}

async fn import_as(w: &TestWorker, url: &str, asset_type: AssetType) -> i64 {
    w.write(async |tx| {
        let new = NewImport { asset_type, source_url: url, alt_text: Some("A loaf") };
        let id = media_jobs::insert(tx, w.world.brand, &new).await?;
        let job = NewJob::new(JobKind::ImportMedia, id, tx.now).lane(Lane::Brand(w.world.brand));
        jobs::enqueue(tx, &job.trace(Some("request-1".to_owned()))).await?;
        Ok(id)
    })
    .await
}

async fn import_from(w: &TestWorker, source: &Source) -> i64 {
    import(w, &source.url("/loaf.png")).await
}

async fn find_import(w: &TestWorker, id: i64) -> MediaJob {
    media_jobs::find(&mut w.conn().await, w.world.brand, id).await.unwrap().expect("the import exists")
}

/// Returns the status of an import and its error code.
async fn import_status(w: &TestWorker, id: i64) -> (Status, Option<Code>) {
    let import = find_import(w, id).await;
    (import.status, import.error.map(|error| error.code))
}

async fn job(w: &TestWorker, id: i64) -> jobs::operate::JobRow {
    w.show(w.newest_job_of(JobKind::ImportMedia, id).await).await
}

/// Returns the state of an import's job and its attempts.
async fn job_status(w: &TestWorker, id: i64) -> (JobState, i32) {
    let job = job(w, id).await;
    (job.state, job.attempt)
}

/// Runs only imports. Cancels the deliveries of their events.
async fn run(w: &TestWorker) {
    w.cancel_deliveries().await;
    w.run_jobs().await;
}

/// Advances the clock to the job's next attempt, and runs it.
async fn run_next_attempt(w: &TestWorker, id: i64) {
    let at = job(w, id).await.run_at;
    w.clock.advance(at - w.now());
    run(w).await;
}

async fn listen(w: &TestWorker) {
    w.listen_for("http://127.0.0.1:1/", &[EventName::MediaCompleted, EventName::MediaFailed]).await;
}

/// Returns the names and data of the emitted events, in order.
async fn emitted_events(w: &TestWorker) -> Vec<(String, Value)> {
    let all = w.event_payloads().await.into_iter();
    all.map(|mut payload| (payload["event"].as_str().unwrap().to_owned(), payload["data"].take())).collect()
}

/// Returns every asset of the brand.
async fn assets(w: &TestWorker) -> Vec<Asset> {
    let mut all = Vec::new();
    for id in 1..=w.number("SELECT coalesce(max(id), 0) FROM media").await {
        all.extend(media::find(&mut w.conn().await, w.world.brand, id).await.unwrap());
    }
    all
}

/// Advances the clock until abandoned files are old enough, and runs the scheduler's sweep.
async fn sweep(w: &TestWorker) {
    w.advance(3_601);
    crier_scheduler::tasks::sweep::run(&w.scheduler).await.unwrap();
}

/// Asserts that the storage and the storage usage contain exactly the files of the assets.
async fn assert_no_leftovers(w: &TestWorker) {
    sweep(w).await;
    let mut expected: Vec<String> =
        assets(w).await.into_iter().flat_map(|a| [Some(a.key), a.thumbnail_key]).flatten().collect();
    expected.sort();
    expected.dedup();
    assert_eq!(w.stored_files(), expected);
    let counted = w.sum("size_bytes", "files").await;
    assert_eq!(files::usage(&mut w.conn().await, w.world.workspace).await.unwrap().files, counted);
    assert_eq!(w.count_rows("files WHERE state <> 'stored'").await, 0);
}

/// Asserts that the import is completed, and that its asset is the only one.
async fn assert_completed_once(w: &TestWorker, id: i64) {
    let import = find_import(w, id).await;
    assert_eq!((import.status, import.error), (Status::Completed, None));
    let all = assets(w).await;
    assert_eq!((all.len(), import.media_id), (1, Some(all[0].id)));
    assert_no_leftovers(w).await;
    assert_eq!(w.stored_files().len(), 2);
}

/// Asserts that the import failed with this code after this number of attempts, emitted one event, and left no asset.
async fn assert_failed(w: &TestWorker, id: i64, code: Code, attempts: i32) {
    let import = find_import(w, id).await;
    let error = import.error.expect("an error");
    assert_eq!((import.status, error.code, import.media_id), (Status::Failed, code, None), "{}", error.message);
    assert!(error.message.ends_with('.') && error.message.len() > 10, "{}", error.message);
    assert_eq!(job_status(w, id).await.1, attempts, "{code}");
    let about: Vec<_> = emitted_events(w).await.into_iter().filter(|(_, data)| data["job_id"] == id).collect();
    let [(name, data)] = &about[..] else { panic!("one event: {about:?}") };
    assert_eq!((name.as_str(), data["error"]["code"].as_str()), ("media.failed", Some(code.as_str())));
    assert_eq!(data["error"]["message"], error.message.as_str());
    assert!(assets(w).await.is_empty());
}
