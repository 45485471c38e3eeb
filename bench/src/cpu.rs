//! CPU time of this process, where the system reports it (Linux).

use std::path::Path;
use std::time::Duration;

use super::external_runtime;

/// Returns the CPU time of this process without the thread of the clients and endpoints.
pub fn process_cpu_time() -> Option<Duration> {
    let mut total = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.trim_end() != external_runtime::THREAD_NAME {
            total += thread_cpu_time(&task.path()).unwrap_or_default();
        }
    }
    Some(total)
}

/// Returns the CPU time of a thread; `None` if it has ended meanwhile.
fn thread_cpu_time(task: &Path) -> Option<Duration> {
    let schedstat = std::fs::read_to_string(task.join("schedstat")).ok()?;
    Some(Duration::from_nanos(schedstat.split_whitespace().next()?.parse().ok()?))
}
