//! The worker processes of a measurement.
//!
//! A worker prints a line when it is ready, starts at the next line on its stdin, and stops when its stdin is closed. So
//! it also stops if this process is killed. A worker that is dropped is killed and waited for, because the database is
//! deleted next.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use crier_domain::job::JobKind;
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::environment::{BenchEnvironment, SharedEnvironment};
use super::super::{BenchError, Result, fail, io, roles};
use super::{Bench, worker};

/// Time limit for a process to become ready, and to stop. Longer than it drains.
const TIMEOUT: Duration = Duration::from_secs(30);
const KILL_POLL: Duration = Duration::from_millis(1);

/// The worker processes, and a scheduler in this process. All stop when this is dropped.
pub struct Processes {
    workers: Vec<WorkerProcess>,
    environment: Arc<BenchEnvironment>,
    scheduler: JoinSet<()>,
    stop: CancellationToken,
    _until: DropGuard,
}

impl Processes {
    /// Starts the worker processes, which wait for [`Processes::start`].
    pub async fn prepare(
        bench: &Bench,
        environment: &Arc<BenchEnvironment>,
        kind: JobKind,
        workers: u32,
    ) -> std::result::Result<Self, BenchError> {
        let Some(shared) = environment.shared() else { return fail("the embedded form is one process") };
        let stop = CancellationToken::new();
        let until = stop.clone().drop_guard();
        let (environment, scheduler) = (environment.clone(), JoinSet::new());
        let mut processes = Self { workers: Vec::new(), environment, scheduler, stop, _until: until };
        for _ in 0..workers {
            processes.workers.push(WorkerProcess::spawn(&shared, kind, bench.slots())?);
        }
        for worker in &mut processes.workers {
            worker.wait_until_ready().await?;
        }
        Ok(processes)
    }

    /// Starts the work of all workers, and the scheduler.
    pub async fn start(&mut self) -> Result {
        for worker in &mut self.workers {
            worker.start().await?;
        }
        self.scheduler.spawn(roles::scheduler(&self.environment).run(self.stop.clone()));
        Ok(())
    }

    /// Stops all workers and waits for them. Fails if one has failed.
    pub async fn stop(mut self) -> Result {
        self.stop.cancel();
        while self.scheduler.join_next().await.is_some() {}
        self.workers.iter_mut().for_each(|worker| worker.input = None);
        for worker in &mut self.workers {
            worker.wait_until_ended().await?;
        }
        Ok(())
    }
}

struct WorkerProcess {
    child: Child,
    /// The process stops when this is closed.
    input: Option<ChildStdin>,
}

impl WorkerProcess {
    fn spawn(shared: &SharedEnvironment, kind: JobKind, slots: usize) -> std::result::Result<Self, BenchError> {
        let program = std::env::current_exe().map_err(|error| io("this program's file", error))?;
        let child = Command::new(program)
            .args(["worker", "--kind", kind.as_str(), "--slots", &slots.to_string()])
            .env("CRIER_DATABASE_URL", shared.database.expose_secret())
            .env("CRIER_REDIS_URL", shared.redis.expose_secret())
            .env(worker::PREFIX, &shared.prefix)
            .env(worker::FILES, &shared.files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.map_err(|error| io("a worker process", error))?;
        let input = child.stdin.take();
        Ok(Self { child, input })
    }

    async fn wait_until_ready(&mut self) -> Result {
        let Some(output) = self.child.stdout.take() else { return fail("a worker process has no output") };
        let mut lines = BufReader::new(output).lines();
        match tokio::time::timeout(TIMEOUT, lines.next_line()).await {
            Ok(Ok(Some(line))) if line == worker::READY => Ok(()),
            Ok(Ok(Some(line))) => fail(format!("a worker process printed {line}")),
            Ok(Ok(None)) => fail("a worker process ended before it was ready"),
            Ok(Err(error)) => Err(io("a worker process", error)),
            Err(_) => fail(format!("a worker process was not ready within {} s", TIMEOUT.as_secs())),
        }
    }

    async fn start(&mut self) -> Result {
        let Some(input) = &mut self.input else { return fail("a worker process has no input") };
        input.write_all(b"start\n").await.map_err(|error| io("a worker process", error))
    }

    async fn wait_until_ended(&mut self) -> Result {
        match tokio::time::timeout(TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => fail(format!("a worker process ended: {status}")),
            Ok(Err(error)) => Err(io("a worker process", error)),
            Err(_) => fail(format!("a worker process did not stop within {} s", TIMEOUT.as_secs())),
        }
    }
}

impl Drop for WorkerProcess {
    /// Blocks until the process has ended.
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        while matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(KILL_POLL);
        }
    }
}
