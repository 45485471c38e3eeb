//! Database connections, reused without a test.
//!
//! sqlx's pool pings a connection each time it is returned: a round trip to Postgres, or to the thread that owns a
//! SQLite connection, after every read and every transaction. The reason is that a failed or cancelled statement may
//! have left the connection in an unknown state. Here a connection whose last statement succeeded is reused without a
//! test. Any other connection, and one that was idle for a minute, is returned to sqlx's pool, which tests it, limits
//! its age and closes it when it is idle.
//!
//! If a connection was lost, the server has probably been restarted, and the idle ones are lost too. They are all
//! closed, so that they do not fail one statement each.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::Database;
use sqlx::pool::PoolConnection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::is_connection_lost;

/// How long a connection may be idle before it is returned to sqlx's pool.
const MAX_IDLE: Duration = Duration::from_secs(60);
/// How long a connection may be reused before it is returned to sqlx's pool.
const MAX_AGE: Duration = Duration::from_secs(600);

/// A pool over sqlx's. Cheap to clone.
pub struct Pool<DB: Database> {
    pool: sqlx::Pool<DB>,
    /// As many as sqlx's pool has connections, so that there is one for each permit.
    permits: Arc<Semaphore>,
    idle: IdleConnections<DB>,
}

/// The connections that can be reused without a test, the last used ones at the end.
type IdleConnections<DB> = Arc<Mutex<VecDeque<IdleConnection<DB>>>>;

struct IdleConnection<DB: Database> {
    connection: PoolConnection<DB>,
    opened: Instant,
    idle_since: Instant,
}

impl<DB: Database> Pool<DB> {
    pub fn new(pool: sqlx::Pool<DB>) -> Self {
        let permits = Arc::new(Semaphore::new(pool.options().get_max_connections() as usize));
        Self { pool, permits, idle: Arc::default() }
    }

    /// Waits for a connection, at most for the acquire timeout of sqlx's pool.
    pub async fn acquire(&self) -> Result<Pooled<DB>, sqlx::Error> {
        let permit = self.permits.clone().acquire_owned();
        let permit = tokio::time::timeout(self.pool.options().get_acquire_timeout(), permit).await;
        let permit = permit.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)?;
        let (connection, opened) = match self.take_idle() {
            Some(found) => (found.connection, found.opened),
            None => (self.pool.acquire().await?, Instant::now()),
        };
        let connection = Some(connection);
        Ok(Pooled { connection, opened, is_clean: true, pool: self.clone(), permit })
    }

    /// Takes the connection that was used last, and returns to sqlx's pool those that have been idle for long.
    fn take_idle(&self) -> Option<IdleConnection<DB>> {
        let now = Instant::now();
        let mut idle = lock(&self.idle);
        while idle.front().is_some_and(|found| now - found.idle_since > MAX_IDLE) {
            idle.pop_front();
        }
        idle.pop_back()
    }

    /// Closes all idle connections, including those of sqlx's pool.
    fn close_idle(&self) {
        let reusable = std::mem::take(&mut *lock(&self.idle)).into_iter().map(|idle| idle.connection);
        let returned = std::iter::from_fn(|| self.pool.try_acquire());
        for mut connection in reusable.chain(returned) {
            connection.close_on_drop();
        }
    }

    /// Returns sqlx's pool, which has the options.
    pub fn sqlx_pool(&self) -> &sqlx::Pool<DB> {
        &self.pool
    }

    /// Waits until all connections are returned, and closes them.
    pub async fn close(&self) {
        self.permits.close();
        lock(&self.idle).clear();
        self.pool.close().await;
    }
}

impl<DB: Database> Clone for Pool<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), permits: self.permits.clone(), idle: self.idle.clone() }
    }
}

impl<DB: Database> std::fmt::Debug for Pool<DB> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("size", &self.pool.size()).finish_non_exhaustive()
    }
}

/// A connection of a [`Pool`], which is returned when it is dropped.
pub struct Pooled<DB: Database> {
    /// `None` after it was dropped or detached.
    connection: Option<PoolConnection<DB>>,
    opened: Instant,
    is_clean: bool,
    pool: Pool<DB>,
    permit: OwnedSemaphorePermit,
}

impl<DB: Database> Pooled<DB> {
    /// Sets whether it can be reused without a test: not while a statement runs, and not after a failed one.
    pub fn set_clean(&mut self, is_clean: bool) {
        self.is_clean = is_clean;
    }

    /// Returns the connection for one statement, after which [`Self::end_statement`] is called.
    pub fn statement(&mut self) -> &mut DB::Connection {
        self.is_clean = false;
        self
    }

    /// Records the end of a statement, with its error if it failed.
    pub fn end_statement(&mut self, error: Option<&sqlx::Error>) {
        self.is_clean = error.is_none();
        if error.is_some_and(is_connection_lost) {
            self.pool.close_idle();
        }
    }

    /// Takes the connection out of the pool.
    pub fn detach(mut self) -> Option<DB::Connection> {
        self.connection.take().map(PoolConnection::detach)
    }
}

impl<DB: Database> Drop for Pooled<DB> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take().filter(|_| self.is_clean && self.opened.elapsed() < MAX_AGE)
        else {
            return;
        };
        let mut idle = lock(&self.pool.idle);
        // Checked under the lock, so that the list remains empty after the pool was closed.
        if !self.permit.semaphore().is_closed() {
            idle.push_back(IdleConnection { connection, opened: self.opened, idle_since: Instant::now() });
        }
    }
}

impl<DB: Database> std::fmt::Debug for Pooled<DB> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pooled").field("is_clean", &self.is_clean).finish_non_exhaustive()
    }
}

impl<DB: Database> Deref for Pooled<DB> {
    type Target = DB::Connection;
    fn deref(&self) -> &DB::Connection {
        self.connection.as_ref().expect("it is taken at the end only")
    }
}

impl<DB: Database> DerefMut for Pooled<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.connection.as_mut().expect("it is taken at the end only")
    }
}

/// No code panics while it holds the lock, so a poisoned one is safe to use.
fn lock<DB: Database>(idle: &IdleConnections<DB>) -> MutexGuard<'_, VecDeque<IdleConnection<DB>>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use sqlx::Sqlite;
    use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

    use super::*;

    fn pool(max_connections: u32) -> Pool<Sqlite> {
        pool_with_timeout(max_connections, Duration::from_mins(1))
    }

    fn pool_with_timeout(max_connections: u32, timeout: Duration) -> Pool<Sqlite> {
        let options = SqlitePoolOptions::new().max_connections(max_connections).acquire_timeout(timeout);
        Pool::new(options.connect_lazy_with(SqliteConnectOptions::new().filename(":memory:")))
    }

    /// Creates a temporary table by which a connection is recognized.
    async fn mark(connection: &mut Pooled<Sqlite>) {
        sqlx::raw_sql("CREATE TEMP TABLE mark (x)").execute(&mut **connection).await.unwrap();
    }

    async fn is_marked(connection: &mut Pooled<Sqlite>) -> bool {
        sqlx::raw_sql("SELECT x FROM mark").execute(&mut **connection).await.is_ok()
    }

    #[tokio::test]
    async fn a_clean_connection_is_reused_and_another_goes_back_to_sqlx() {
        let pool = pool(1);
        let mut connection = pool.acquire().await.unwrap();
        mark(&mut connection).await;
        drop(connection);
        assert_eq!((lock(&pool.idle).len(), pool.pool.num_idle()), (1, 0));
        let mut connection = pool.acquire().await.unwrap();
        assert!(is_marked(&mut connection).await);
        connection.set_clean(false);
        drop(connection);
        assert_eq!(lock(&pool.idle).len(), 0);
        assert!(pool.acquire().await.is_ok(), "sqlx has tested it");
    }

    #[tokio::test]
    async fn all_idle_connections_are_closed_after_one_was_lost() {
        let pool = pool(3);
        let (mut tested, reusable) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
        let mut lost = pool.acquire().await.unwrap();
        tested.set_clean(false);
        drop((tested, reusable));
        while pool.pool.num_idle() == 0 {
            tokio::task::yield_now().await;
        }
        lost.end_statement(Some(&sqlx::Error::RowNotFound));
        assert_eq!((lock(&pool.idle).len(), pool.pool.num_idle()), (1, 1), "only that statement failed");
        lost.end_statement(Some(&sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())));
        assert_eq!((lock(&pool.idle).len(), pool.pool.num_idle()), (0, 0));
        while pool.pool.size() > 1 {
            tokio::task::yield_now().await;
        }
        assert!(pool.acquire().await.is_ok());
    }

    #[tokio::test]
    async fn no_more_connections_than_configured_are_in_use() {
        let pool = pool(2);
        let both = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
        assert!(pool.permits.try_acquire().is_err());
        drop(both);
        assert!(pool.acquire().await.is_ok());
        assert_eq!(pool.pool.size(), 2);
    }

    #[tokio::test]
    async fn the_wait_for_a_connection_is_bounded() {
        let pool = pool_with_timeout(1, Duration::from_millis(1));
        let permit = pool.permits.clone().acquire_owned().await.unwrap();
        assert!(matches!(pool.acquire().await, Err(sqlx::Error::PoolTimedOut)));
        drop(permit);
    }

    #[tokio::test]
    async fn an_old_connection_goes_back_to_sqlx() {
        let pool = pool(1);
        let mut connection = pool.acquire().await.unwrap();
        connection.opened -= MAX_AGE;
        drop(connection);
        assert_eq!(lock(&pool.idle).len(), 0);
        drop(pool.acquire().await.unwrap());
        lock(&pool.idle)[0].idle_since -= MAX_IDLE * 2;
        assert!(pool.take_idle().is_none());
    }

    #[tokio::test]
    async fn a_closed_pool_keeps_no_connection() {
        let pool = pool(2);
        let (used, unused) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
        drop(unused);
        let closing = pool.clone();
        let close = tokio::spawn(async move { closing.close().await });
        while !pool.permits.is_closed() {
            tokio::task::yield_now().await;
        }
        drop(used);
        close.await.unwrap();
        assert_eq!((lock(&pool.idle).len(), pool.pool.size()), (0, 0));
        assert!(matches!(pool.acquire().await, Err(sqlx::Error::PoolClosed)));
    }
}
