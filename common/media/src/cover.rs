//! The cover image of a video: one of its frames, extracted by ffmpeg if it is installed. Crier itself decodes no video.
//!
//! ffmpeg is a separate process, because the bytes are hostile and its decoders are not written in a safe language. It
//! receives nothing of Crier's environment, only the open file. It reads no other file and no network, and has limits of
//! time and memory. The system limits its processor time, so that no process keeps running after Crier was killed.
//! Its output is checked like an uploaded image. Without ffmpeg, or if it fails, a video has no cover image.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use crier_domain::media::VideoType;
use crier_telemetry::metrics::{self, CoverOutcome};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

use super::images;
use super::spool::Spooled;
use super::video::ProbedVideo;
use super::workspace_permits::WorkspacePermits;
use crate::blocking;

/// The maximum duration of a process.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum number of processes at the same time.
const MAX_PROCESSES: usize = 2;
/// The maximum size of the image that a process returns.
pub const MAX_COVER_BYTES: u64 = 1 << 20;
/// The maximum memory of a process, in bytes: enough for frames of 4096 × 2304 pixels.
const MAX_MEMORY: u64 = 512 << 20;
/// The priority of a process, from -20 (the highest) to 19. The default is 0.
const LOW_PRIORITY: i32 = 10;
/// The position of the cover image: this part of the duration, but not later than [`MAX_POSITION_MS`]. The first
/// frame of many videos is black.
const POSITION_DIVISOR: i64 = 10;
const MAX_POSITION_MS: i64 = 3_000;

/// Creates cover images.
#[derive(Debug)]
pub struct CoverMaker {
    /// `None`: videos have no cover images.
    program: Option<PathBuf>,
    processes: Semaphore,
    /// At most one process per workspace, so that a workspace with slow videos delays the others by at most one process.
    workspaces: WorkspacePermits,
}

impl CoverMaker {
    /// Searches for the program once. `None`: videos have no cover images.
    pub fn new(program: Option<&Path>) -> Self {
        Self {
            program: program.and_then(find_program),
            processes: Semaphore::new(MAX_PROCESSES),
            workspaces: WorkspacePermits::default(),
        }
    }

    /// Returns an unchecked JPEG of at most [`MAX_COVER_BYTES`]. `None` if the program is missing or fails.
    pub async fn take(&self, workspace_id: i64, source: &Spooled, video: &ProbedVideo) -> Option<Bytes> {
        let program = self.program.as_deref()?;
        let workspace = self.workspaces.of(workspace_id, 1);
        // The semaphores are never closed.
        let _only = workspace.acquire().await.ok()?;
        let _process = self.processes.acquire().await.ok()?;
        let (outcome, error) = match tokio::time::timeout(TIMEOUT, run(program, source, video)).await {
            Ok(Ok(image)) => return Some(image),
            Ok(Err(error)) => (CoverOutcome::Failed, error),
            Err(_) => (CoverOutcome::TimedOut, io::ErrorKind::TimedOut.into()),
        };
        metrics::media_cover(outcome);
        tracing::info!(%error, "failed to create the cover image of a video");
        None
    }
}

/// Returns the path of an executable file, searching for a name without a directory in `PATH`.
pub fn find_program(program: &Path) -> Option<PathBuf> {
    let is_executable =
        |path: &Path| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    if program.components().nth(1).is_some() {
        return is_executable(program).then(|| program.to_owned());
    }
    #[expect(clippy::disallowed_methods, reason = "where programs are is a setting of the system and not of Crier")]
    let directories = std::env::var_os("PATH")?;
    std::env::split_paths(&directories).map(|dir| dir.join(program)).find(|path| is_executable(path))
}

/// Runs the program. It is killed if this is dropped.
async fn run(program: &Path, source: &Spooled, video: &ProbedVideo) -> io::Result<Bytes> {
    let source = source.clone();
    let file = blocking::run(move || source.to_file()).await?;
    let mut child = Command::new(program)
        .env_clear()
        .args(arguments(video))
        .stdin(Stdio::from(file))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    limit_resources(&child);
    let output = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
    let mut image = Vec::new();
    output.take(MAX_COVER_BYTES + 1).read_to_end(&mut image).await?;
    if image.len() as u64 > MAX_COVER_BYTES {
        return Err(io::Error::other("its image is too large"));
    }
    let status = child.wait().await?;
    if status.success() && !image.is_empty() {
        return Ok(image.into());
    }
    Err(io::Error::other(format!("it returned no image ({status})")))
}

/// Returns the arguments for one frame of the file on the standard input, as a JPEG on the standard output.
fn arguments(video: &ProbedVideo) -> Vec<String> {
    let (width, height) = images::thumbnail_sides(video.width, video.height);
    let position = (video.properties.duration_ms / POSITION_DIVISOR).clamp(0, MAX_POSITION_MS);
    // The reader is fixed: others read files and URLs that the file names.
    let reader = match video.kind {
        VideoType::Mp4 | VideoType::Mov => "mov",
        VideoType::Webm => "matroska",
    };
    // The pipe cannot be read from any position, which a file with its index at the end needs.
    let input = format!(
        "-nostdin -loglevel error -threads 1 -protocol_whitelist file,pipe,fd -f {reader} -ss {position}ms -i file:/dev/stdin"
    );
    let output = format!(
        "-map 0:v:0 -frames:v 1 -vf scale={width}:{height},setsar=1 -threads 1 -c:v mjpeg -q:v 3 -f image2pipe pipe:1"
    );
    [input, output].iter().flat_map(|part| part.split(' ')).map(str::to_owned).collect()
}

/// Limits the memory and the processor time of a process that has just started, and lowers its priority, so that it does
/// not delay requests. If this fails, it still has the limit of time.
#[cfg(target_os = "linux")]
fn limit_resources(child: &Child) {
    use rustix::process::{Pid, Resource, Rlimit, prlimit, setpriority_process};
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    // Without a process, this one would be limited.
    let Some(pid) = pid else { return };
    // A hostile video may end it in a way for which the system writes its memory to the disk.
    for (resource, max) in [(Resource::Data, MAX_MEMORY), (Resource::Cpu, TIMEOUT.as_secs()), (Resource::Core, 0)] {
        if let Err(error) = prlimit(Some(pid), resource, Rlimit { current: Some(max), maximum: Some(max) }) {
            tracing::debug!(%error, "failed to limit a resource of ffmpeg");
        }
    }
    if let Err(error) = setpriority_process(Some(pid), LOW_PRIORITY) {
        tracing::debug!(%error, "failed to lower the priority of ffmpeg");
    }
}

#[cfg(not(target_os = "linux"))]
fn limit_resources(_: &Child) {}

#[cfg(test)]
mod tests {
    use crier_domain::media::VideoProperties;

    use super::*;

    fn video(duration_ms: i64) -> ProbedVideo {
        let properties = VideoProperties {
            duration_ms,
            rotation: 0,
            frame_rate: None,
            video_codec: "h264".to_owned(),
            audio_codec: None,
            index_first: true,
        };
        ProbedVideo { kind: VideoType::Mp4, width: 1_080, height: 1_920, properties }
    }

    #[test]
    fn the_cover_is_small_and_not_the_first_frame() {
        for (duration, position) in [(0, "0ms"), (5_000, "500ms"), (3_600_000, "3000ms")] {
            let arguments = arguments(&video(duration));
            let after = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1).unwrap().clone();
            assert_eq!((after("-ss").as_str(), after("-vf").as_str()), (position, "scale=225:400,setsar=1"));
            assert_eq!((after("-protocol_whitelist").as_str(), after("-f").as_str()), ("file,pipe,fd", "mov"));
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_process_has_limited_memory_and_processor_time() {
        let mut command = Command::new("/bin/cat");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        limit_resources(&child);
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id().unwrap())).unwrap();
        let expected = [("Max cpu time", TIMEOUT.as_secs()), ("Max data size", MAX_MEMORY), ("Max core file size", 0)];
        for (name, max) in expected {
            let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
            assert!(line.split_whitespace().any(|word| word == max.to_string()), "{line}");
        }
        child.kill().await.unwrap();
    }

    #[tokio::test]
    async fn a_workspace_has_one_process_and_does_not_delay_others() {
        let covers = CoverMaker::new(Some(Path::new("/bin/false")));
        let (source, video) = (Spooled::from(Bytes::from_static(b"a video")), video(1_000));
        let workspace = covers.workspaces.of(1, 1);
        let running = workspace.acquire().await.unwrap();
        let waiting = covers.take(1, &source, &video);
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut waiting).await.is_err(), "one at a time");
        assert_eq!(covers.processes.available_permits(), MAX_PROCESSES, "it waits without a process");
        assert_eq!(covers.take(2, &source, &video).await, None);
        drop(running);
        assert_eq!(waiting.await, None);
    }

    #[tokio::test]
    async fn a_program_without_an_image_gives_no_cover() {
        let source = Spooled::from(Bytes::from_static(b"a video"));
        for program in ["/bin/true", "/bin/false", "/bin/no-such-program", "no-such-program-in-the-path"] {
            let covers = CoverMaker::new(Some(Path::new(program)));
            assert_eq!(covers.take(1, &source, &video(1_000)).await, None, "{program}");
        }
        assert_eq!(find_program(Path::new("sh")).map(|path| path.is_absolute()), Some(true));
        assert_eq!(find_program(Path::new("/tmp")), None, "a directory");
    }
}
