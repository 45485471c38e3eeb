//! The free space of the disks that a process writes to, as a metric.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crier_config::{Config, Database, Storage};
use crier_telemetry::metrics;
use tokio_util::sync::CancellationToken;

const INTERVAL: Duration = Duration::from_secs(10);

/// The size of a disk, and how much of it this user may still write to, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    pub free: u64,
    pub size: u64,
}

/// Returns the space of the disk of a directory, or of the next one above that exists. May block as long as a network
/// file system does not answer.
pub fn space(dir: &Path) -> std::io::Result<DiskSpace> {
    let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let disk = rustix::fs::statvfs(existing)?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Ok(DiskSpace { free: bytes(disk.f_bavail), size: bytes(disk.f_blocks) })
}

/// Returns the directories that a process writes to, each with its label.
pub fn directories(config: &Config) -> Vec<(&'static str, PathBuf)> {
    let mut all = vec![("data", config.data_dir.clone()), ("temporary", std::env::temp_dir())];
    let is_elsewhere = |dir: &Path| !dir.starts_with(&config.data_dir);
    if let Database::Sqlite(path) = &config.database
        && let Some(dir) = path.parent().filter(|dir| is_elsewhere(dir))
    {
        all.push(("database", dir.to_owned()));
    }
    if let Storage::Directory(dir) = &config.storage
        && is_elsewhere(dir)
    {
        all.push(("files", dir.clone()));
    }
    all
}

/// Measures until `stop`.
pub(super) async fn keep_measuring(directories: Vec<(&'static str, PathBuf)>, stop: CancellationToken) {
    loop {
        for (label, dir) in directories.clone() {
            // A disk that does not answer keeps its last value.
            if let Ok(Ok(space)) = tokio::task::spawn_blocking(move || space(&dir)).await {
                metrics::disk(label, space.free, space.size);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = stop.cancelled() => return,
        }
    }
}
