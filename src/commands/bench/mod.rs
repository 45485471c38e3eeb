//! `crier bench jobs`: what the job engine does on this machine.
//!
//! The real engine, worker, scheduler, store and bell run in this process; only the jobs are no-ops (but for `publish`,
//! which is the real kind on the sandbox). Each measurement has a new database, which is gone when it ends, also after
//! Ctrl-C and after an error. The figures of one machine are to be compared with each other alone.
//!
//! **To add a measurement:** its word in [`Measurement`], a file here with a `run(&Bench)` that gives [`Figure`]s, one arm
//! in [`Bench::measure`], and its figures in `tests/bench.rs`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use crier_common::config::{Config, LogConfig};
use crier_common::domain::job::Kind;
use crier_common::domain::platform::Platform;
use crier_common::telemetry::{logs, metrics};
use futures::FutureExt;
use indicatif::ProgressBar;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

use super::{CommandError, Result, refused};
use crate::cli::{BenchJobs, Measurement};

mod crew;
mod dispatch;
mod figure;
mod kept_bell;
mod lateness;
mod memory;
mod pickup;
mod place;
mod publish;
mod resident;
mod starts;
mod throughput;

use figure::Figure;
use place::{Ground, Place};

type Figures = std::result::Result<Vec<Figure>, CommandError>;

/// What every measurement works with.
struct Bench {
    config: Config,
    args: BenchJobs,
    ground: Ground,
    progress: ProgressBar,
    /// The place of the measurement that runs.
    place: Arc<Mutex<Option<Arc<Place>>>>,
}

pub fn run(config: Config, args: BenchJobs) -> Result {
    // The engine's own lines (a worker drains, a statement was slow) would drown the figures.
    logs::init(&LogConfig { filter: "warn,sqlx=error".to_owned(), ..config.log.clone() });
    let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    let platforms: Vec<&str> = Platform::ALL.iter().map(|platform| platform.as_str()).collect();
    metrics::init(config.role, &kinds, &platforms);
    let ground = Ground::of(&config, args.dir.clone())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| io("the runtime", error))?;
    runtime.block_on(async {
        let bench = Bench { config, args, ground, progress: ProgressBar::new_spinner(), place: Arc::default() };
        let measured = tokio::select! {
            measured = AssertUnwindSafe(bench.all()).catch_unwind() => measured,
            interrupted = interrupted() => Ok(interrupted.and_then(|()| refused("interrupted"))),
        };
        bench.progress.set_message("clearing up");
        let cleared = bench.clear().await;
        bench.progress.finish_and_clear();
        match (measured.unwrap_or_else(|_| refused("a measurement panicked")), cleared) {
            (Err(error), Err(left)) => refused(format!("{error}; {left}")),
            (Err(error), Ok(())) => Err(error),
            (Ok(figures), cleared) => {
                figure::print(&figures, bench.args.format.json);
                cleared
            }
        }
    })
}

async fn interrupted() -> Result {
    let listen = |kind| signal(kind).map_err(|error| io("signals", error));
    let (mut int, mut term) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
    Ok(())
}

fn io(what: &str, error: std::io::Error) -> CommandError {
    CommandError::Refused(format!("{what}: {error}"))
}

impl Bench {
    async fn all(&self) -> Figures {
        let mut figures = figure::of_the_machine(&*self.fresh().await?).await?;
        let only = &self.args.only;
        let chosen = Measurement::ALL.iter().filter(|one| only.is_empty() || only.contains(one));
        for measurement in chosen {
            self.tell(measurement);
            figures.extend(self.measure(*measurement).await?);
        }
        Ok(figures)
    }

    async fn measure(&self, measurement: Measurement) -> Figures {
        match measurement {
            Measurement::Memory => memory::run(self).await,
            Measurement::Throughput => throughput::run(self).await,
            Measurement::Pickup => pickup::run(self).await,
            Measurement::Lateness => lateness::run(self).await,
            Measurement::Dispatch => dispatch::run(self).await,
            Measurement::Publish => publish::run(self).await,
        }
    }

    /// What is done now, for who waits; only on a terminal.
    fn tell(&self, what: impl std::fmt::Display) {
        self.progress.set_message(what.to_string());
        self.progress.tick();
    }

    /// An empty database with its bell, in place of the one before.
    async fn fresh(&self) -> std::result::Result<Arc<Place>, CommandError> {
        self.clear().await?;
        let mut here = self.place.clone().lock_owned().await;
        let ground = self.ground.clone();
        // A task of its own: broken off in the middle, it could leave a database that nobody knows of.
        let opened = tokio::spawn(async move {
            let place = here.insert(Arc::new(Place::plan(ground)?)).clone();
            place.open().await?;
            Ok(place)
        });
        opened.await.unwrap_or_else(|_| refused("a database could not be made"))
    }

    async fn clear(&self) -> Result {
        match self.place.lock().await.take() {
            Some(place) => place.close().await,
            None => Ok(()),
        }
    }

    /// The configured number of jobs, or what the measurement needs by itself.
    fn jobs(&self, default: usize) -> usize {
        self.args.jobs.map_or(default, |jobs| usize::try_from(jobs).unwrap_or(default))
    }
}
