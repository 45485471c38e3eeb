//! The `jobs` table: what callers, workers, schedulers and operators do with it.

mod claim;
mod dispatch;
mod enqueue;
mod lanes;
mod model;
mod operate;
mod rescue;
mod settle;
mod workspaces;
