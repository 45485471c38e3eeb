//! Pages in a real browser: Debian's chromium, headless. Without a browser the tests print a notice and pass.
//!
//! Screenshots are left in `target/screenshots` for inspection.
//!
//! **To add one:** add a file here that opens its pages with [`Browser`].

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

mod bio;
mod connect;
mod console;
mod driver;
mod keyboard;

const PROGRAMS: &[&str] = &["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
/// The sizes of screenshots: width and height.
const PHONE: (u32, u32) = (390, 844);
const DESKTOP: (u32, u32) = (1280, 800);
/// For one page, which normally takes a second or two.
const PAGE_TIMEOUT: Duration = Duration::from_secs(90);

pub struct Browser {
    program: &'static str,
    profile: tempfile::TempDir,
}

impl Browser {
    /// Returns `None`, and prints a notice, if there is no browser on this machine.
    #[expect(clippy::print_stderr, reason = "whoever runs the tests is to see what was left out")]
    pub fn find() -> Option<Self> {
        let Some(program) = PROGRAMS.iter().find(|program| Path::new(program).exists()) else {
            eprintln!("\n*** NOT TESTED: no chromium on this machine (apt-get install chromium) ***\n");
            return None;
        };
        Some(Self { program, profile: tempfile::tempdir().unwrap() })
    }

    /// Opens a page and returns the browser's output; fails if the console contains messages.
    async fn run(&self, url: &str, arguments: &[String]) -> String {
        // Pages of one browser share nothing and can be opened concurrently.
        let profile = tempfile::tempdir_in(self.profile.path()).unwrap();
        let child = Command::new(self.program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--disable-extensions", "--enable-logging=stderr"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(arguments)
            .arg(url)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(PAGE_TIMEOUT, child).await.expect("the browser ends").unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{url}: {log}");
        let messages: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(messages.is_empty(), "{url}: console messages: {messages:#?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The page's DOM as the browser parsed it.
    pub async fn dom(&self, url: &str) -> String {
        self.run(url, &["--dump-dom".to_owned()]).await
    }

    /// Saves a screenshot of the page in a window of this size.
    pub async fn picture(&self, url: &str, name: &str, (width, height): (u32, u32)) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("{name}-{width}x{height}.png"));
        let _ = std::fs::remove_file(&file);
        let arguments = [format!("--screenshot={}", file.display()), format!("--window-size={width},{height}")];
        self.run(url, &arguments).await;
        let picture = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(parse_png_size(&picture), Some((width, height)), "{}", file.display());
        file
    }
}

/// Width and height, from a PNG's header.
fn parse_png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    bytes.starts_with(b"\x89PNG\r\n\x1a\n").then_some(())?;
    Some((number(16)?, number(20)?))
}
