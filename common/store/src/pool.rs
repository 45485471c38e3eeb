//! Database connections, reused without a test.
//!
//! sqlx's pool pings a connection each time it is returned: a round trip to Postgres, or to the thread that owns a
//! SQLite connection, after every read and every transaction. It does so because a statement that failed or was
//! cancelled may have left something behind. Here a connection whose last statement succeeded is passed on as it is;
//! any other one, and one that was unused for a minute, goes back to sqlx's pool, which tests it, limits its age and
//! closes it when it is idle.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::Database;
use sqlx::pool::PoolConnection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a connection may be unused, and how long it is used, before it goes back to sqlx's pool.
const MAX_UNUSED: Duration = Duration::from_secs(60);
const MAX_USED: Duration = Duration::from_secs(600);

/// A pool over sqlx's. Cheap to clone.
pub struct Pool<DB: Database> {
    pool: sqlx::Pool<DB>,
    /// As many as sqlx's pool has connections, so that one is there for each permit.
    permits: Arc<Semaphore>,
    unused: Unused<DB>,
}

/// The connections that can be reused as they are, the last used ones at the end.
type Unused<DB> = Arc<Mutex<VecDeque<Kept<DB>>>>;

struct Kept<DB: Database> {
    connection: PoolConnection<DB>,
    opened: Instant,
    unused_since: Instant,
}

impl<DB: Database> Pool<DB> {
    pub fn new(pool: sqlx::Pool<DB>) -> Self {
        let permits = Arc::new(Semaphore::new(pool.options().get_max_connections() as usize));
        Self { pool, permits, unused: Arc::default() }
    }

    /// Waits for a connection, at most as long as the options of sqlx's pool say.
    pub async fn acquire(&self) -> Result<Pooled<DB>, sqlx::Error> {
        let permit = self.permits.clone().acquire_owned();
        let permit = tokio::time::timeout(self.pool.options().get_acquire_timeout(), permit).await;
        let permit = permit.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)?;
        let (connection, opened) = match self.take_unused() {
            Some(kept) => (kept.connection, kept.opened),
            None => (self.pool.acquire().await?, Instant::now()),
        };
        let connection = Some(connection);
        Ok(Pooled { connection, opened, is_clean: true, unused: self.unused.clone(), permit })
    }

    /// Returns the connection that was used last, and gives those back that have not been used for long.
    fn take_unused(&self) -> Option<Kept<DB>> {
        let now = Instant::now();
        let mut unused = lock(&self.unused);
        while unused.front().is_some_and(|kept| now - kept.unused_since > MAX_UNUSED) {
            unused.pop_front();
        }
        unused.pop_back()
    }

    /// Returns sqlx's pool, whose options are those of this one.
    pub fn sqlx_pool(&self) -> &sqlx::Pool<DB> {
        &self.pool
    }

    /// Waits until all connections are given back, and closes them.
    pub async fn close(&self) {
        self.permits.close();
        lock(&self.unused).clear();
        self.pool.close().await;
    }
}

impl<DB: Database> Clone for Pool<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), permits: self.permits.clone(), unused: self.unused.clone() }
    }
}

impl<DB: Database> std::fmt::Debug for Pool<DB> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("size", &self.pool.size()).finish_non_exhaustive()
    }
}

/// A connection of a [`Pool`], given back when it is dropped.
pub struct Pooled<DB: Database> {
    /// Taken when it is dropped or detached.
    connection: Option<PoolConnection<DB>>,
    opened: Instant,
    is_clean: bool,
    unused: Unused<DB>,
    permit: OwnedSemaphorePermit,
}

impl<DB: Database> Pooled<DB> {
    /// Sets whether it can be reused as it is: not while a statement runs, nor after one that failed.
    pub fn set_clean(&mut self, is_clean: bool) {
        self.is_clean = is_clean;
    }

    /// Takes the connection out of the pool.
    pub fn detach(mut self) -> Option<DB::Connection> {
        self.connection.take().map(PoolConnection::detach)
    }
}

impl<DB: Database> Drop for Pooled<DB> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take().filter(|_| self.is_clean && self.opened.elapsed() < MAX_USED)
        else {
            return;
        };
        let mut unused = lock(&self.unused);
        // Under the lock: what a pool that is being closed has cleared stays empty.
        if !self.permit.semaphore().is_closed() {
            unused.push_back(Kept { connection, opened: self.opened, unused_since: Instant::now() });
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
fn lock<DB: Database>(unused: &Unused<DB>) -> MutexGuard<'_, VecDeque<Kept<DB>>> {
    unused.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Leaves a trace by which a connection is recognized.
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
        assert_eq!((lock(&pool.unused).len(), pool.pool.num_idle()), (1, 0));
        let mut connection = pool.acquire().await.unwrap();
        assert!(is_marked(&mut connection).await);
        connection.set_clean(false);
        drop(connection);
        assert_eq!(lock(&pool.unused).len(), 0);
        assert!(pool.acquire().await.is_ok(), "sqlx has tested it");
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
        connection.opened -= MAX_USED;
        drop(connection);
        assert_eq!(lock(&pool.unused).len(), 0);
        drop(pool.acquire().await.unwrap());
        lock(&pool.unused)[0].unused_since -= MAX_UNUSED * 2;
        assert!(pool.take_unused().is_none());
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
        assert_eq!((lock(&pool.unused).len(), pool.pool.size()), (0, 0));
        assert!(matches!(pool.acquire().await, Err(sqlx::Error::PoolClosed)));
    }
}
