//! Adds, counts and deletes the entries of a kind's apalis-redis storage. apalis-redis itself never deletes the entries
//! of finished tasks.
//!
//! A task is the id of a job. Its entries are: a member of the scheduled set or of the active list, then of its
//! worker's in-flight set; a field of the data hash; a metadata hash.

use std::sync::{Mutex, PoisonError};

use apalis_core::backend::{TaskSink, TaskSinkError};
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::task_id::TaskId;
use apalis_redis::{Config, Error, RedisStorage};
use crier_base::clock::Clock;
use crier_base::random;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisError};

/// Adds ids and wakes the workers on the channel. Returns how many ids wait for a worker.
pub async fn push(
    connection: &mut MultiplexedConnection,
    config: &Config,
    channel: &str,
    ids: Vec<i64>,
) -> Result<usize, RedisError> {
    let mut storage = RedisStorage::<i64, _>::new(connection.clone()).with_config(config.clone());
    let tasks = ids.into_iter().map(|id| TaskBuilder::new(id).task_id(TaskId::from_string(next_task_id())).build());
    storage.push_all(futures::stream::iter(tasks)).await.map_err(redis_error)?;
    let (waiting, active): (usize, usize) = redis::pipe()
        // apalis-redis schedules every task for the current second of this machine. A score of 0 makes it due on
        // machines whose clock is behind as well, and tasks with the same score are fetched in the order of their ids.
        .cmd("ZUNIONSTORE")
        .arg(config.scheduled_jobs_set())
        .arg(1)
        .arg(config.scheduled_jobs_set())
        .arg("WEIGHTS")
        .arg(0)
        .llen(config.active_jobs_list())
        .publish(channel, "")
        .ignore()
        .query_async(connection)
        .await?;
    Ok(waiting + active)
}

/// Returns a task id that sorts after all earlier ids of this process, and by time among the ids of other processes.
fn next_task_id() -> String {
    static LAST: Mutex<(i64, u32)> = Mutex::new((0, 0));
    let now = Clock::system().now().timestamp_millis();
    let (millis, count) = {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        *last = if now > last.0 { (now, 0) } else { (last.0, last.1 + 1) };
        *last
    };
    // Not in the form of a UUID or a ULID, which apalis would reformat.
    format!("{millis:012x}-{count:08x}-{:08x}", random::u64() as u32)
}

/// Fails if Redis does not accept writes: its memory or its disk is full, or it is a replica. Writes nothing, because
/// there is no such list.
pub async fn check_writable(connection: &mut MultiplexedConnection, prefix: &str) -> Result<(), RedisError> {
    redis::cmd("LPUSHX").arg(format!("{prefix}:check")).arg("").query_async(connection).await
}

/// Returns the number of ids of each storage that wait for a worker.
pub async fn count(connection: &mut MultiplexedConnection, configs: &[Config]) -> Result<Vec<usize>, RedisError> {
    let mut pipe = redis::pipe();
    for config in configs {
        pipe.zcard(config.scheduled_jobs_set()).llen(config.active_jobs_list());
    }
    let counts: Vec<usize> = pipe.query_async(connection).await?;
    Ok(counts.chunks(2).map(|waiting| waiting.iter().sum()).collect())
}

/// Deletes the entries of tasks that were passed to the engine.
pub async fn delete(
    connection: &mut MultiplexedConnection,
    config: &Config,
    in_flight: &str,
    tasks: &[Vec<u8>],
) -> Result<(), RedisError> {
    if tasks.is_empty() {
        return Ok(());
    }
    let metadata: Vec<Vec<u8>> = tasks.iter().map(|task| metadata_key(config, task)).collect();
    redis::pipe()
        .hdel(config.job_data_hash(), tasks)
        .ignore()
        .srem(in_flight, tasks)
        .ignore()
        .unlink(metadata)
        .ignore()
        .query_async(connection)
        .await
}

/// Deletes a worker that has ended, with the tasks that it fetched. Returns the ids that it did not pass to the
/// engine.
pub async fn delete_worker(
    connection: &mut MultiplexedConnection,
    config: &Config,
    name: &str,
) -> Result<Vec<i64>, RedisError> {
    let in_flight = in_flight_set(config, name);
    // Bytes, because other programs may have added any data.
    let tasks: Vec<Vec<u8>> = connection.smembers(&in_flight).await?;
    let mut ids = Vec::new();
    if !tasks.is_empty() {
        let data: Vec<Option<Vec<u8>>> =
            redis::cmd("HMGET").arg(config.job_data_hash()).arg(&tasks).query_async(connection).await?;
        ids.extend(data.into_iter().flatten().filter_map(|id| serde_json::from_slice::<i64>(&id).ok()));
    }
    delete(connection, config, &in_flight, &tasks).await?;
    redis::pipe()
        .zrem(config.workers_set(), name)
        .ignore()
        .unlink(worker_metadata_key(config, name))
        .ignore()
        .query_async::<()>(connection)
        .await?;
    Ok(ids)
}

/// Lets the metadata of a worker expire if the worker is killed, because apalis-redis never deletes it.
pub async fn expire_worker(
    connection: &mut MultiplexedConnection,
    config: &Config,
    name: &str,
    seconds: i64,
) -> Result<(), RedisError> {
    connection.expire(worker_metadata_key(config, name), seconds).await
}

/// Deletes all entries of a kind, if its keys contain other data. The jobs are in the database, and the scheduler
/// notifies again. Each key may have any type, so errors are ignored.
pub async fn delete_all(connection: &mut MultiplexedConnection, config: &Config) {
    let tasks: Vec<Vec<u8>> = connection.hkeys(config.job_data_hash()).await.unwrap_or_default();
    let mut keys: Vec<Vec<u8>> = tasks.iter().map(|task| metadata_key(config, task)).collect();
    let shared = [
        config.job_data_hash(),
        config.scheduled_jobs_set(),
        config.active_jobs_list(),
        config.signal_list(),
        config.workers_set(),
    ];
    keys.extend(shared.map(String::into_bytes));
    let _ = connection.unlink::<_, ()>(keys).await;
}

/// Removes the queues of a prefix from apalis-redis' list of queues.
pub async fn unregister(connection: &mut MultiplexedConnection, prefix: &str) -> Result<(), RedisError> {
    const QUEUES: &str = "core:apalis:queues:list";
    let queues: Vec<String> = connection.zrange(QUEUES, 0, -1).await?;
    let ours: Vec<String> = queues.into_iter().filter(|name| name.starts_with(&format!("{prefix}:"))).collect();
    match ours.is_empty() {
        true => Ok(()),
        false => connection.zrem(QUEUES, ours).await,
    }
}

/// Returns the key of the tasks that a worker has fetched.
pub fn in_flight_set(config: &Config, worker: &str) -> String {
    format!("{}:{worker}", config.inflight_jobs_set())
}

fn metadata_key(config: &Config, task: &[u8]) -> Vec<u8> {
    [config.job_meta_hash().as_bytes(), b":", task].concat()
}

fn worker_metadata_key(config: &Config, worker: &str) -> String {
    format!("{}:metadata:{worker}", config.workers_set())
}

/// Returns whether a key has another type than in an apalis-redis storage. Until it is deleted, no id of the kind is
/// received.
pub fn is_wrong_type(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    // Redis returns the errors of a script as text.
    causes.any(|error| error.to_string().contains("WRONGTYPE"))
}

fn redis_error(error: TaskSinkError<Error>) -> RedisError {
    match error {
        TaskSinkError::PushError(Error::Database(error)) => error,
        other => RedisError::from(std::io::Error::other(other.to_string())),
    }
}
