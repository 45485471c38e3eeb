//! Reports end to end: the API, the scheduler and a worker on one database and one storage.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use crier_config::PlatformsConfig;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::job::JobKind;
use crier_domain::plan::{Plan, Plans};
use crier_http::Guard;
use crier_mail::Mailer;
use crier_scheduler::{Scheduler, tasks};
use crier_store::analytics;
use crier_worker::engine::Engine;
use crier_worker::jobs::fetch_feed::Fetcher;
use crier_worker::jobs::{Deps, IMPORT_TIMEOUT, Registry};
use crier_worker::webhooks::sender::Sender;
use serde_json::{Value, json};

use super::app::{Reply, Tenant, TestApp};
use super::store::TestStore;
use super::transport::FixedCapacityTransport;

/// An installation with every role.
pub struct TestInstallation {
    pub app: TestApp,
    pub engine: Engine,
    pub scheduler: Scheduler,
}

impl Deref for TestInstallation {
    type Target = TestApp;
    fn deref(&self) -> &TestApp {
        &self.app
    }
}

/// Settings that differ between installations.
#[derive(Default)]
pub struct Settings {
    pub mailer: Option<Mailer>,
    /// The maximum size of an attachment, in bytes. `None`: 10 MiB.
    pub max_attachment: Option<u64>,
    pub public_url: Option<&'static str>,
    /// The number of days for which the worker shows metrics. `None`: that of the plan.
    pub retention_days: Option<u64>,
    /// The maximum number of report emails per day, for the worker. `None`: that of the plan.
    pub report_mails_per_day: Option<u64>,
}

impl TestInstallation {
    pub async fn start(store: TestStore) -> Self {
        Self::start_with(store, Settings::default()).await
    }

    pub async fn start_with(store: TestStore, settings: Settings) -> Self {
        let app = match settings.public_url {
            Some(url) => TestApp::start_at(store, url).await,
            None => TestApp::start(store).await,
        };
        app.check_jobs();
        let transport = FixedCapacityTransport::with_room(10_000);
        let library = app.library(settings.public_url.unwrap_or(&app.url));
        let plans: Arc<Plans> = Arc::default();
        let guard = Guard::new(Vec::new());
        let deps = Deps {
            store: app.store.store.clone(),
            platforms: app.api.platforms.clone(),
            library: library.clone(),
            plans: Arc::new(Plans::new(plans.iter().cloned().map(|plan| Plan {
                analytics_days: settings.retention_days.or(plan.analytics_days),
                report_mails_per_day: settings.report_mails_per_day.or(plan.report_mails_per_day),
                ..plan
            }))),
            feeds: Arc::new(Fetcher::new(guard.clone())),
            webhooks: Arc::new(Sender::new(guard.clone())),
            guard,
            mailer: settings.mailer.map(Arc::new),
            max_attachment_bytes: settings.max_attachment.unwrap_or(10 << 20),
            latest_publish: TimeDelta::hours(24),
            platform_timeout: TimeDelta::seconds(10),
            import_timeout: IMPORT_TIMEOUT,
        };
        let engine = Engine::new(app.store.store.clone(), Registry::new(&deps, JobKind::ALL));
        let metrics_platforms = PlatformsConfig::default().with_metrics();
        let scheduler =
            Scheduler { plans, metrics_platforms, ..Scheduler::new(app.store.store.clone(), transport, library) };
        Self { app, engine, scheduler }
    }

    /// Runs jobs until none is due.
    pub async fn run_jobs(&self) {
        for _ in 0..1_000 {
            self.scheduler.tick().await.expect("a tick");
            let notified = self.app.store.notifier.take();
            if notified.is_empty() {
                return;
            }
            for id in notified {
                self.engine.run(id).await;
            }
        }
        panic!("jobs are notified forever");
    }

    /// Creates the deliveries of reports that are due, and runs their jobs.
    pub async fn fire(&self) {
        tasks::reports::run(&self.scheduler).await.expect("the task");
        self.run_jobs().await;
    }
}

/// Returns a widget of every type.
pub fn all_widgets() -> Value {
    json!([
        { "type": "summary" },
        { "type": "note", "title": "In short", "options": { "text": "A good month." } },
        { "type": "posts_over_time" },
        { "type": "engagement_over_time" },
        { "type": "followers_over_time" },
        { "type": "top_posts" },
        { "type": "accounts_table" },
        { "type": "posts_table" },
    ])
}

/// Creates a report, and returns its path.
pub async fn create(t: &Tenant<'_>, name: &str, widgets: Value) -> String {
    let created = t.post(&t.path("/reports"), json!({ "name": name, "widgets": widgets })).await.data(201);
    t.path(&format!("/reports/{}", created["id"]))
}

/// Exports a report, runs its job, and returns the delivery.
pub async fn export(r: &TestInstallation, t: &Tenant<'_>, report: &str, body: Value) -> Value {
    let accepted = t.post(&format!("{report}/export"), body).await.data(202);
    r.run_jobs().await;
    delivery(t, accepted["id"].as_i64().expect("an id")).await
}

pub async fn delivery(t: &Tenant<'_>, id: i64) -> Value {
    t.get(&t.path(&format!("/reports/deliveries/{id}"))).await.data(200)
}

/// Returns the newest delivery of a report.
pub async fn newest_delivery(t: &Tenant<'_>, report: &str) -> Value {
    let listed = t.get(&format!("{report}/deliveries?per_page=1")).await.expect(200);
    listed["data"][0].clone()
}

pub async fn download(t: &Tenant<'_>, delivery: &Value) -> Reply {
    t.get(&t.path(&format!("/reports/deliveries/{}/download", delivery["id"]))).await
}

/// Exports a report as JSON, and returns its widgets by type. `days` are the fields of the period.
pub async fn widgets(r: &TestInstallation, t: &Tenant<'_>, report: &str, days: Value) -> BTreeMap<String, Value> {
    let mut body = days;
    body["format"] = "json".into();
    let created = export(r, t, report, body).await;
    assert_eq!(created["status"], "sent", "{created}");
    let document = download(t, &created).await.expect(200);
    let widgets = document["widgets"].as_array().expect("widgets").clone();
    widgets.into_iter().map(|widget| (widget["type"].as_str().expect("a type").to_owned(), widget)).collect()
}

/// Creates a published post with its current metrics, on an account of the brand.
pub async fn publish(t: &Tenant<'_>, account: i64, text: &str, at: &str, metrics: PostMetrics) {
    let at: DateTime<Utc> = at.parse().expect("a time");
    let created = t.post(&t.path("/posts"), json!({ "content": text, "accounts": [account] })).await.data(201);
    let target = created["targets"][0]["id"].as_i64().expect("a target");
    let update = "UPDATE post_targets SET status = 'published', url = 'https://brot.example/1', published_at =";
    t.app.sql(format!("{update} '{}' WHERE id = {target}", at.to_rfc3339())).await;
    t.app.add_published().await;
    let collected = analytics::CollectedMetrics { target_id: target, metrics: Some(metrics), next_at: None };
    t.app.write(async |tx| analytics::record_posts(tx, std::slice::from_ref(&collected)).await).await;
}

pub async fn followers(t: &Tenant<'_>, account: i64, at: &str, followers: i64) {
    let at: DateTime<Utc> = at.parse().expect("a time");
    let metrics = AccountMetrics { followers: Some(followers), ..AccountMetrics::default() };
    t.app
        .write(async |tx| {
            tx.now = at;
            analytics::record_account(tx, account, &metrics).await
        })
        .await;
}

pub fn post_metrics(impressions: i64, likes: i64) -> PostMetrics {
    PostMetrics { impressions: Some(impressions), likes: Some(likes), ..PostMetrics::default() }
}

/// Returns a tenant whose brand has this time zone.
pub async fn tenant_in<'a>(app: &'a TestApp, zone: &str) -> Tenant<'a> {
    let t = app.tenant("unlimited").await;
    app.set_time_zone(t.brand, zone).await;
    t
}
