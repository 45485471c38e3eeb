//! File descriptors: sockets of clients, connections outward, the database's files and pools all take them from one limit.
//!
//! The soft limit is raised to the hard one at the start. Then each use has a share: clients of the API get at most half,
//! runs that wait for others at most a third, and the rest stays for the database, the storage and the process itself.

use rustix::process::{Resource, getrlimit, setrlimit};

/// What counts as the limit where the system has none.
const UNLIMITED: usize = 1 << 20;
/// Below this, a process works but serves few clients; the operator should know.
const COMFORTABLE: usize = 1_024;

/// Raises the soft limit to the hard one, and says so where little is left. A limit that cannot be raised stays as it is.
pub fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "the limit of open files could not be raised");
        }
    }
    let limit = self::limit();
    if limit < COMFORTABLE {
        tracing::warn!(limit, "the limit of open files is low (`ulimit -Hn`): few clients can be connected at once");
    }
}

/// How many descriptors this process may have open.
pub fn limit() -> usize {
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(UNLIMITED, |limit| usize::try_from(limit).unwrap_or(UNLIMITED)).min(UNLIMITED)
}

/// The most connections of clients, where so many are `wanted`.
pub fn for_clients(wanted: usize) -> usize {
    wanted.min(limit() / 2).max(1)
}

/// The most runs that wait for others at once, where so many are `wanted`.
pub fn for_waiting_runs(wanted: usize) -> usize {
    wanted.min(limit() / 3).max(1)
}
