//! Measures the free space of the disks that a process writes to, and compares it with the reserve.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crier_base::disk_reserve::DiskReserve;
use crier_config::{Config, Database, StorageConfig};
use crier_media::Library;
use crier_telemetry::metrics;
use crier_telemetry::ops::Readiness;
use tokio_util::sync::CancellationToken;

const INTERVAL: Duration = Duration::from_secs(10);
/// Short enough that the uploads between two checks fit into the reserve.
const RESERVE_INTERVAL: Duration = Duration::from_secs(1);
/// The name of this part in the readiness report.
const DISK: &str = "disk";

/// The size of a disk, and the space that this user may still write to, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    pub free: u64,
    pub size: u64,
}

/// Returns the space of the disk of a directory, or of its nearest existing ancestor. May block while a network file
/// system does not respond.
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
    if let StorageConfig::Directory(dir) = &config.storage
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
            // The metric of a disk that does not respond keeps its last value.
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

/// Measures the space for temporary files of the media library until `stop`.
pub(super) async fn keep_measuring_spools(library: Library, stop: CancellationToken) {
    loop {
        library.measure_spools();
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Returns the directories of the database and the storage, which stop working if their disk is full.
pub fn directories_with_reserve(config: &Config) -> Vec<PathBuf> {
    let mut all = Vec::new();
    if let Database::Sqlite(path) = &config.database {
        all.extend(path.parent().map(Path::to_owned));
    }
    if let StorageConfig::Directory(dir) = &config.storage {
        all.push(dir.clone());
    }
    all
}

/// Compares the free space with the reserve until `stop`, and updates `disk`, the readiness and a metric.
pub(super) async fn keep_reserve(
    directories: Vec<PathBuf>,
    reserve: u64,
    disk: DiskReserve,
    readiness: Readiness,
    stop: CancellationToken,
) {
    loop {
        let dirs = directories.clone();
        let read = move || dirs.iter().filter_map(|dir| space(dir).ok()).map(|space| space.free).min();
        // The state of a disk that does not respond does not change.
        if let Ok(Some(free)) = tokio::task::spawn_blocking(read).await {
            record(free, reserve, &disk, &readiness);
        }
        tokio::select! {
            () = tokio::time::sleep(RESERVE_INTERVAL) => {}
            () = stop.cancelled() => return,
        }
    }
}

fn record(free: u64, reserve: u64, disk: &DiskReserve, readiness: &Readiness) {
    let is_low = free < reserve;
    metrics::disk_low(is_low);
    let (free, reserve) = (free >> 20, reserve >> 20);
    readiness.set_degraded(
        DISK,
        is_low.then(|| {
            format!("{free} MiB are free, and {reserve} MiB are reserved: uploads and new records are rejected")
        }),
    );
    if disk.set_low(is_low) {
        if is_low {
            tracing::error!(free_mib = free, reserve_mib = reserve, "the disk is almost full: rejecting new data");
        } else {
            tracing::info!(free_mib = free, "the disk has free space again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_reported_and_lifted() {
        let (disk, readiness) = (DiskReserve::default(), Readiness::new([]));
        record(512 << 20, 512 << 20, &disk, &readiness);
        assert!(!disk.is_low() && readiness.is_ready());
        record((512 << 20) - 1, 512 << 20, &disk, &readiness);
        assert!(disk.is_low() && readiness.is_ready(), "the process continues what needs no space");
        record(600 << 20, 512 << 20, &disk, &readiness);
        assert!(!disk.is_low());
        record(0, 0, &disk, &readiness);
        assert!(!disk.is_low(), "there is no reserve");
    }
}
