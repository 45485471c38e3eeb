//! File descriptors: client connections, outgoing connections, the database's files and connection pools share one
//! limit.
//!
//! The soft limit is raised to the hard limit at the start. Each use has a share: clients of the API get at most half,
//! runs that wait for external services at most a third. The rest is for the database, the storage and the process
//! itself.

use rustix::process::{Resource, getrlimit, setrlimit};

/// The assumed limit if the system has none.
const UNLIMITED: usize = 1 << 20;
/// Below this limit, a process can serve only a few clients, and a warning is logged.
const LOW_LIMIT: usize = 1_024;

/// Raises the soft limit to the hard limit, and warns if it is low. If this fails, the limit does not change.
pub fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "the limit of open files could not be raised");
        }
    }
    let limit = self::limit();
    if limit < LOW_LIMIT {
        tracing::warn!(
            limit,
            "the limit of open files is low (`ulimit -Hn`): few clients can connect at the same time"
        );
    }
}

/// Returns the number of descriptors that this process may open.
pub fn limit() -> usize {
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(UNLIMITED, |limit| usize::try_from(limit).unwrap_or(UNLIMITED)).min(UNLIMITED)
}

/// Returns the maximum number of client connections, at most `max`.
pub fn for_clients(max: usize) -> usize {
    max.min(limit() / 2).max(1)
}

/// Returns the maximum number of concurrent runs that wait for external services, at most `max`.
pub fn for_waiting_runs(max: usize) -> usize {
    max.min(limit() / 3).max(1)
}
