//! The limits and the programs of this machine.

use std::path::Path;

use crier_config::Config;
use crier_media::cover;
use crier_runtime::{descriptors, disk};
use tokio::process::Command;

use super::Finding;

const MIB: u64 = 1 << 20;
/// Below this, imports and reports may fail.
const LOW_SPACE: u64 = 1_024 * MIB;
/// Below this, the database may not be able to write.
const NO_SPACE: u64 = 100 * MIB;

pub fn descriptors(config: &Config) -> Finding {
    descriptors::raise();
    let (limit, wanted) = (descriptors::limit(), config.http.max_connections);
    let clients = descriptors::for_clients(wanted);
    let detail = format!("{limit} open files, enough for {clients} concurrent client connections");
    if clients < wanted {
        let remedy =
            format!("raise the limit to {} (`ulimit -Hn`, LimitNOFILE), or lower CRIER_MAX_CONNECTIONS", wanted * 2);
        return Finding::warning("descriptors", detail, remedy);
    }
    Finding::ok("descriptors", detail)
}

pub fn disk(config: &Config) -> Finding {
    // Uploads are received into unnamed files there.
    if let Err(error) = tempfile::tempfile() {
        let detail = format!("no temporary file can be written in {}: {error}", std::env::temp_dir().display());
        return Finding::failure(
            "disk",
            detail,
            "make the directory writable for this user, or set TMPDIR to another one",
        );
    }
    let space = |(what, dir): (&'static str, std::path::PathBuf)| Some((what, disk::space(&dir).ok()?.free));
    let Some((what, free)) = disk::directories(config).into_iter().filter_map(space).min_by_key(|(_, free)| *free)
    else {
        return Finding::warning("disk", "the free space is unknown", "check the disk of CRIER_DATA_DIR");
    };
    let detail = format!("{} MiB are free in the {what} directory", free / MIB);
    if let Some(finding) = reserve(config) {
        return finding;
    }
    match free {
        0..NO_SPACE => Finding::failure("disk", detail, "free some space: nothing can be stored without it"),
        NO_SPACE..LOW_SPACE => Finding::warning("disk", detail, "free or add disk space"),
        _ => Finding::ok("disk", detail),
    }
}

/// Returns a failure if the free space is less than the reserve.
fn reserve(config: &Config) -> Option<Finding> {
    let directories = disk::directories_with_reserve(config).into_iter();
    let spaces = directories.filter_map(|dir| disk::space(&dir).ok().map(|space| (space.free, dir)));
    let (free, dir) = spaces.min_by_key(|(free, _)| *free)?;
    (free < config.disk_reserve).then(|| {
        let detail = format!(
            "{} MiB are free in {}, less than the {} MiB of CRIER_DISK_RESERVE_MIB: uploads and new records are rejected",
            free / MIB,
            dir.display(),
            config.disk_reserve / MIB
        );
        Finding::failure("disk", detail, "free or add disk space")
    })
}

/// Checks that ffmpeg is installed and runs.
pub async fn ffmpeg(config: &Config) -> Finding {
    let Some(program) = &config.media.ffmpeg else {
        return Finding::ok("ffmpeg", "not used (CRIER_MEDIA_FFMPEG): videos have no cover images");
    };
    let remedy = "install ffmpeg on each machine of the API and the worker, or correct CRIER_MEDIA_FFMPEG";
    let Some(found) = cover::find_program(program) else {
        let detail = format!("{} is not installed: videos are accepted, but have no cover images", program.display());
        return Finding::warning("ffmpeg", detail, remedy);
    };
    match version(&found).await {
        Ok(version) => Finding::ok("ffmpeg", format!("{version}: videos get cover images")),
        Err(why) => {
            let detail = format!("{} does not run ({why}): videos have no cover images", found.display());
            Finding::warning("ffmpeg", detail, remedy)
        }
    }
}

/// Returns the first words that ffmpeg prints: `ffmpeg version 7.1.2`.
async fn version(program: &Path) -> Result<String, String> {
    let run = Command::new(program).arg("-version").env_clear().kill_on_drop(true).output().await;
    let output = run.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(output.status.to_string());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = text.split_whitespace().take(3).collect();
    if words.is_empty() {
        return Err("it printed no version".to_owned());
    }
    Ok(words.join(" ").chars().filter(|c| !c.is_control()).take(100).collect())
}
