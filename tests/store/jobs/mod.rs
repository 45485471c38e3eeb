//! The `jobs` table: the operations of callers, workers, schedulers and operators.

mod claim;
mod dispatch;
mod enqueue;
mod lanes;
mod model;
mod operate;
mod rescue;
mod settle;
mod workspaces;
