//! How long processors have worked for a process, where the system says so (Linux).

use std::path::Path;
use std::time::Duration;

use super::outside;

/// For this process, but for the clients and endpoints that are not Crier.
pub fn ours() -> Option<Duration> {
    let mut all = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.trim_end() != outside::THREAD {
            all += of(&task.path()).unwrap_or_default();
        }
    }
    Some(all)
}

/// A thread that has ended meanwhile is not counted.
fn of(task: &Path) -> Option<Duration> {
    let schedstat = std::fs::read_to_string(task.join("schedstat")).ok()?;
    Some(Duration::from_nanos(schedstat.split_whitespace().next()?.parse().ok()?))
}
