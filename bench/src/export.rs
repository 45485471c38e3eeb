//! `crier-bench export`: measures the export of all posts of a brand, through the API. The client keeps nothing, so the
//! memory is that of the API.
//!
//! Postgres has no statistics of the tables, as after an import: each part of the file must be read by an index in any
//! case.
//!
//! **To add a measurement:** a call in [`Suite::measure`], and its figures in `tests/bench/export.rs`.

use std::time::Instant;

use chrono::TimeDelta;
use crier_domain::platform::Platform;
use crier_domain::post::{Post, PostStatus, TargetOverride};
use crier_store::posts::{self, NewPost};
use crier_store::targets::NewTarget;
use crier_store::{Db, Store, StoreError, cost};
use http::header::AUTHORIZATION;
use http::{Request, StatusCode};
use secrecy::ExposeSecret as _;

use super::connection::Connection;
use super::figure::{self, Figure};
use super::sample_text::{self, mixed};
use super::service::Service;
use super::{BenchError, Figures, Suite, fail, resident};
use crate::args::{BenchExport, BenchOptions};

type Bench = super::Bench<BenchExport>;

const NAME: &str = "export";
/// Posts per transaction.
const CHUNK: u32 = 250;
const WORDS: u64 = 20;

impl Suite for BenchExport {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        let mut figures = figure::machine_figures(&*bench.create_environment().await?).await?;
        let service = Service::start(bench, None).await?;
        let Some(environment) = bench.environment.lock().await.clone() else {
            return fail("there is no database");
        };
        fill(bench, environment.api(), &service).await?;
        for (name, query) in [("csv", "format=csv"), ("json", "format=json"), ("label, csv", "format=csv&label=bench")]
        {
            bench.show_progress(format_args!("export: {name}"));
            figures.extend(measure(bench, &service, name, query).await?);
        }
        service.stop().await;
        Ok(figures)
    }
}

async fn measure(bench: &Bench, service: &Service, name: &str, query: &str) -> Figures {
    let mut connection = Connection::open(service.address).await?;
    let path = format!("/api/public/v1/brands/{}/posts/export?{query}", service.brand);
    let request = Request::get(&path).header(AUTHORIZATION, format!("Bearer {}", service.key.expose_secret()));
    resident::reset_peak();
    let (memory, statements, began) = (resident::now(), cost::total().statements, Instant::now());
    let (status, bytes) = connection.download(request).await?;
    let took = began.elapsed();
    if status != StatusCode::OK {
        return fail(format!("{path} answered {status}"));
    }
    let of = |what: &str| format!("{name}, {} posts, {what}", bench.args.posts);
    let statements = cost::total().statements - statements;
    let hundreds = bench.args.posts.div_ceil(100).max(1);
    let mut figures = vec![Figure::time(NAME, of("time"), took)];
    figures.extend(Figure::size(NAME, of("memory before"), memory));
    figures.extend(Figure::size(NAME, of("peak memory"), resident::peak()));
    figures.extend(Figure::size(NAME, of("file"), Some(bytes)));
    figures.push(Figure::average(NAME, of("statements per 100 posts"), "statements", statements, hundreds));
    Ok(figures)
}

/// Writes posts of the brand, each with a target. A third of them are drafts, the others are published.
async fn fill(bench: &Bench, store: &Store, service: &Service) -> Result<(), BenchError> {
    disable_autovacuum(store.db()).await?;
    let (count, now) = (bench.args.posts, store.now());
    for first in (0..count).step_by(CHUNK as usize) {
        bench.show_progress(format_args!("export: {first} of {count} posts written"));
        let mut tx = store.begin().await?;
        for n in first..count.min(first + CHUNK) {
            let at = now - TimeDelta::minutes(n.into());
            let (status, published_at) =
                if n % 3 == 0 { (PostStatus::Draft, None) } else { (PostStatus::Published, Some(at)) };
            let content = sample_text::words(mixed(n.into()), WORDS);
            let labels = vec!["bench".to_owned()];
            let post = Post { status, content, published_at, labels, ..Post::draft(service.brand, tx.now) };
            let target =
                NewTarget { account_id: service.account, position: 0, target_override: TargetOverride::default() };
            let targets = [(&target, Platform::Sandbox)];
            posts::create(&mut tx, NewPost { post: &post, targets: &targets, job: None, counted_in: None }).await?;
        }
        tx.commit().await?;
    }
    Ok(())
}

/// Keeps Postgres from analyzing the tables automatically.
async fn disable_autovacuum(db: &Db) -> Result<(), StoreError> {
    if let Db::Pg(pool) = db {
        const SQL: &str = "
            ALTER TABLE posts SET (autovacuum_enabled = false);
            ALTER TABLE post_labels SET (autovacuum_enabled = false);
            ALTER TABLE post_targets SET (autovacuum_enabled = false)";
        sqlx::raw_sql(SQL).execute(&mut *pool.acquire().await?).await?;
    }
    Ok(())
}
