//! The recurring tasks, one file each. [`crate::TASKS`] defines when they run.

pub mod analytics;
pub mod clean_up;
pub mod dispatch;
pub mod feeds;
pub mod inbox;
pub mod measure;
pub mod misdated;
pub mod notices;
pub mod recurring;
pub mod renotify;
pub mod reports;
pub mod rescue;
pub mod reservations;
pub mod sweep;
pub mod tokens;
pub mod uploads;

/// Runs a step in one transaction after another until a step finds fewer rows than `BATCH`, at most `BATCHES` times.
/// The step returns the number of rows. Not a function: its closure would borrow the transaction and the scheduler.
macro_rules! in_batches {
    ($s:expr, $tx:ident => $step:expr) => {
        for _ in 0..BATCHES {
            let mut $tx = $s.store.begin().await?;
            let found = $step;
            $tx.commit().await?;
            if i64::try_from(found).is_ok_and(|found| found < BATCH) {
                break;
            }
        }
    };
}
use in_batches;
