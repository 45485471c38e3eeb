//! The avatars of accounts.
//!
//! Browsers must not load them from the servers of platforms, which would learn who opens which page of the console. So
//! Crier reads an avatar itself, with the guarded client, and stores it as a small image ([`crier_store::avatars`]).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use chrono::TimeDelta;
use crier_domain::account::SocialAccount;
use crier_domain::platform::{GifRules, MediaRules};
use crier_http::Guard;
use crier_media::Library;
use crier_platforms::link_card::{CardReader, ReadError};
use crier_store::{Store, StoreError, avatars};
use tokio::time::timeout;

/// The maximum time that a request waits for an avatar. Reading continues after it.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// The maximum time to read an avatar, including waiting for others of the workspace.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which an avatar is read again.
const MAX_AGE: TimeDelta = TimeDelta::days(1);
/// The time after which a failed read of an avatar is repeated.
const RETRY_AFTER: TimeDelta = TimeDelta::hours(1);

/// The stored images. JPEG images are opaque, so what is below an avatar on a page does not show through it.
static RULES: MediaRules = MediaRules {
    max_images: 1,
    required: false,
    mime_types: &["image/jpeg"],
    max_bytes: Some(20_000),
    max_sides: None,
    max_pixels: Some(96 * 96),
    gif: GifRules::NONE,
    max_alt_text: None,
    min_bytes: None,
    min_side: None,
    ratio: None,
    downloaded: false,
};

/// Reads avatars. Cheap to clone; clones share the limits.
#[derive(Clone, Debug)]
pub struct Avatars {
    /// Limits the number of concurrent reads, of all workspaces and of each one.
    reader: CardReader,
    /// The accounts whose avatars are being read.
    busy: Arc<Mutex<HashSet<i64>>>,
}

/// A permit to read the avatar of an account. At most one exists per account. It is released on drop.
struct ReadPermit {
    avatars: Avatars,
    account_id: i64,
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        self.avatars.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.account_id);
    }
}

impl Avatars {
    pub fn new(guard: Guard) -> Self {
        Self { reader: CardReader::with_timeout(guard, READ_TIMEOUT), busy: Arc::default() }
    }

    /// Returns the avatar of an account, a JPEG image. `None` if the account has none, or if it could not be read yet.
    pub async fn find(
        &self,
        store: &Store,
        library: &Library,
        account: &SocialAccount,
    ) -> Result<Option<Bytes>, StoreError> {
        let Some(url) = &account.avatar_url else { return Ok(None) };
        // Acquired before the look-up, so that two requests never read the avatar one after the other.
        let permit = self.try_acquire(account.id);
        let stored = avatars::find(&mut store.read().await?, account.id).await?;
        let now = store.now();
        // A process whose clock was ahead may have stored a later time.
        let is_current = stored.as_ref().is_some_and(|stored| {
            stored.url == *url && stored.next_read_at > now && stored.next_read_at <= now + MAX_AGE
        });
        let image = stored.and_then(|stored| stored.image).map(Bytes::from);
        let Some(permit) = permit.filter(|_| !is_current) else { return Ok(image) };
        let reader = self.reader.of_workspace(account.workspace_id);
        let reading = tokio::spawn(read(permit, reader, store.clone(), library.clone(), url.clone()));
        let new = timeout(MAX_WAIT, reading).await;
        Ok(new.ok().and_then(Result::ok).flatten().or(image))
    }

    /// Returns `None` if the avatar of the account is being read.
    fn try_acquire(&self, account_id: i64) -> Option<ReadPermit> {
        let is_first = self.busy.lock().unwrap_or_else(PoisonError::into_inner).insert(account_id);
        is_first.then(|| ReadPermit { avatars: self.clone(), account_id })
    }
}

/// Reads an avatar and stores it, or stores that it could not be read.
async fn read(permit: ReadPermit, reader: CardReader, store: Store, library: Library, url: String) -> Option<Bytes> {
    let image = match reader.image(&url).await {
        Ok(found) => {
            let converted = library.convert(found.bytes.clone(), &RULES).await;
            converted.inspect_err(|error| tracing::debug!(%error, "failed to convert an avatar")).ok()
        }
        Err(ReadError::Failed) => None,
        // The next request retries.
        Err(ReadError::Busy) => return None,
    };
    save(&permit, &store, &url, image.map(|image| image.bytes)).await
}

/// Stores the result, and returns the image.
async fn save(permit: &ReadPermit, store: &Store, url: &str, image: Option<Bytes>) -> Option<Bytes> {
    let next_read_at = store.now() + if image.is_some() { MAX_AGE } else { RETRY_AFTER };
    let write = async {
        let mut tx = store.begin_async_commit().await?;
        avatars::save(&mut tx, permit.account_id, url, image.as_deref(), next_read_at).await?;
        tx.commit().await
    };
    let written: Result<(), StoreError> = write.await;
    if let Err(error) = written {
        tracing::warn!(%error, account = permit.account_id, "failed to store an avatar");
    }
    image
}
