//! The transaction that settles runs, for the kinds that write their results in it.

use crier_domain::job::{ClaimedJob, Outcome};
use crier_store::{Db, Result, Store, Tx};
use futures::future::BoxFuture;

use crate::jobs::FinishedRun;

/// A transaction that settles runs. It begins when a kind first uses it.
pub struct Settlement {
    store: Store,
    tx: Option<Tx>,
    /// Whether it settles other runs than those that a kind receives together.
    is_shared: bool,
    /// Whether all runs were settled in a single statement.
    pub(super) is_settled: bool,
}

impl Settlement {
    /// Creates a settlement. `is_shared` tells whether it settles other runs than those that a kind receives together.
    pub fn new(store: &Store, is_shared: bool) -> Self {
        Self { store: store.clone(), tx: None, is_shared, is_settled: false }
    }

    /// Returns the transaction, for a kind. The engine commits it.
    pub async fn tx(&mut self) -> Result<&mut Tx> {
        let tx = match self.tx.take() {
            Some(tx) => tx,
            None => self.store.begin().await?,
        };
        Ok(self.tx.insert(tx))
    }

    /// Returns the transaction to commit.
    pub async fn into_tx(self) -> Result<Tx> {
        match self.tx {
            Some(tx) => Ok(tx),
            None => self.store.begin().await,
        }
    }

    /// Writes one result after the other.
    pub async fn each<R>(
        &mut self,
        runs: &[FinishedRun<'_, R>],
        write: impl for<'a> Fn(&'a mut Tx, &'a ClaimedJob, &'a R) -> BoxFuture<'a, Result<Outcome>>,
    ) -> Result<Vec<Outcome>> {
        let tx = self.tx().await?;
        let mut outcomes = Vec::with_capacity(runs.len());
        for run in runs {
            outcomes.push(write(&mut *tx, run.job, run.result).await?);
        }
        Ok(outcomes)
    }

    /// Begins another transaction, of a single statement that settles all runs: it also writes their jobs as done.
    /// Returns `None` if other runs are settled together with these, and on SQLite, where several statements are not
    /// slower.
    pub async fn begin_single(&mut self) -> Result<Option<Tx>> {
        match self.store.db() {
            Db::Pg(_) if !self.is_shared => Ok(Some(self.store.begin_single().await?)),
            _ => Ok(None),
        }
    }

    /// Commits a transaction of [`Self::begin_single`]. Nothing is left to settle.
    pub async fn commit_single(&mut self, tx: Tx) -> Result<()> {
        tx.commit().await?;
        self.is_settled = true;
        Ok(())
    }
}
