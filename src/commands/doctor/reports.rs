//! Requirements of reports on this machine.

use crier_config::Config;
use crier_store::{Store, reports};

use super::installation::text;
use super::{Finding, SEE_ERRORS};

/// The number of the newest posts, brands and accounts whose texts are checked.
const MAX_TEXTS: i64 = 500;
/// The maximum number of characters in a finding.
const MAX_EXAMPLES: usize = 5;

/// Checks whether the fonts of this machine have all characters of the texts that reports may show.
pub async fn fonts(config: &Config, store: &Store) -> Finding {
    let texts = match newest(store).await {
        Ok(texts) => texts,
        Err(error) => return Finding::failure("fonts", text(&error, config), SEE_ERRORS),
    };
    let mut missing = crier_reports::missing_characters(&texts);
    let count = missing.len();
    missing.sort_unstable();
    missing.dedup();
    missing.truncate(MAX_EXAMPLES);
    if missing.is_empty() {
        return Finding::ok("fonts", "all characters of the newest posts and of the names in reports are available");
    }
    let detail = format!(
        "PDF reports cannot show some characters in {count} of the newest texts, such as {}",
        missing.join(" ")
    );
    let remedy = "on each machine with a worker, install the Noto fonts (Debian: fonts-noto-core, fonts-noto-cjk, \
                  fonts-noto-color-emoji)";
    Finding::warning("fonts", detail, remedy)
}

async fn newest(store: &Store) -> crier_store::Result<Vec<String>> {
    reports::texts(&mut store.read().await?, MAX_TEXTS).await
}
