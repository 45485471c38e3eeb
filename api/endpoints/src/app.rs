//! The state shared by all requests, created once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crier_domain::plan::Plans;
use crier_http::Guard;
use crier_mail::Mailer;
use crier_media::{Library, WorkspacePermits};
use crier_platforms::ConnectorRegistry;
use crier_platforms::link_card::CardReader;
use crier_store::keys::{self, Caller};
use crier_store::{Store, StoreError};
use ipnet::IpNet;

use crate::ai::Ai;
use crate::avatars::Avatars;
use crate::bio::Bio;
use crate::client_documents::ClientDocuments;
use crate::limits::Limiter;
use crate::limits::memory::MemoryLimiter;
use crate::outgoing::OutgoingBudget;
use crate::runner::body_reader::MinRate;
use crate::runner::in_flight::InFlightKeys;
use crate::runner::large_bodies::LargeBodySemaphore;
use crate::runner::workspace_slots::WorkspaceSlots;

/// Low enough for a slow mobile connection.
const RESPONSE_RATE: MinRate = MinRate { grace: Duration::from_secs(30), bytes_per_second: 4 << 10 };

/// The maximum number of requests that receive bytes of resumable uploads. They hold 64 MiB of memory together.
const MAX_UPLOAD_REQUESTS: usize = 32;

/// The maximum number of requests that generate an image. Each holds up to three times the size of its image in memory.
const MAX_IMAGE_REQUESTS: usize = 16;

/// How long a request with the last bytes of a resumable upload waits for the asset. Shorter than the idle timeouts of
/// this server and of common proxies (60 s).
const ASSET_WAIT: Duration = Duration::from_secs(30);

/// The dependencies of [`App`].
pub struct AppDeps {
    pub store: Store,
    pub platforms: Arc<ConnectorRegistry>,
    pub plans: Arc<Plans>,
    pub library: Library,
    pub ai: Ai,
    /// `None` if no mail server is configured.
    pub mailer: Option<Arc<Mailer>>,
    pub guard: Guard,
    pub public_url: String,
    pub has_public_url: bool,
    pub limiter: Arc<dyn Limiter>,
    pub trusted_proxies: Vec<IpNet>,
    pub has_mcp: bool,
}

/// The API's state.
pub struct App {
    pub store: Store,
    pub platforms: Arc<ConnectorRegistry>,
    pub plans: Arc<Plans>,
    pub library: Library,
    pub ai: Ai,
    /// `None` if no mail server is configured.
    pub mailer: Option<Arc<Mailer>>,
    /// Checks the URLs that users enter.
    pub guard: Guard,
    /// Reads the pages of link cards.
    pub cards: CardReader,
    pub avatars: Avatars,
    /// Reads the metadata documents of applications.
    pub client_documents: ClientDocuments,
    /// The public base URL, without a trailing slash.
    pub public_url: String,
    /// Whether the public URL was configured. Otherwise, it is the address of this process.
    pub has_public_url: bool,
    pub limiter: Arc<dyn Limiter>,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether agents can use the endpoints as tools.
    pub has_mcp: bool,
    /// Whether the warning about an untrusted proxy was logged.
    pub has_warned_of_proxy: AtomicBool,
    /// The minimum transfer rate of request bodies.
    pub min_rate: MinRate,
    /// The minimum transfer rate of large responses.
    pub response_rate: MinRate,
    /// Limits the memory and files of responses that are being sent.
    pub outgoing: OutgoingBudget,
    /// Processes large bodies one at a time.
    pub large_bodies: LargeBodySemaphore,
    pub in_flight: InFlightKeys,
    /// Limits the lists that a workspace reads at the same time.
    pub list_turns: WorkspacePermits,
    /// Limits the requests that receive bytes of resumable uploads.
    pub upload_slots: WorkspaceSlots,
    /// Limits the requests that generate an image.
    pub image_slots: WorkspaceSlots,
    /// How long the last request of a resumable upload waits for the asset.
    pub asset_wait: Duration,
    /// Counts visits of public pages. In this process only, because a page must not wait for Redis.
    pub visits: MemoryLimiter,
    /// The cache of link-in-bio pages, and their view and click counts.
    pub bio: Bio,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("public_url", &self.public_url).finish_non_exhaustive()
    }
}

impl App {
    pub fn new(parts: AppDeps) -> Self {
        let AppDeps {
            store,
            platforms,
            plans,
            library,
            ai,
            mailer,
            guard,
            public_url,
            has_public_url,
            limiter,
            trusted_proxies,
            has_mcp,
        } = parts;
        let public_url = public_url.trim_end_matches('/').to_owned();
        let visits = MemoryLimiter::new(store.clock().clone());
        Self {
            store,
            platforms,
            plans,
            library,
            ai,
            mailer,
            cards: CardReader::new(guard.clone()),
            avatars: Avatars::new(guard.clone()),
            client_documents: ClientDocuments::new(guard.clone()),
            guard,
            public_url,
            has_public_url,
            limiter,
            trusted_proxies,
            has_mcp,
            has_warned_of_proxy: AtomicBool::new(false),
            min_rate: MinRate::default(),
            response_rate: RESPONSE_RATE,
            outgoing: OutgoingBudget::default(),
            large_bodies: LargeBodySemaphore::default(),
            in_flight: InFlightKeys::default(),
            list_turns: WorkspacePermits::default(),
            upload_slots: WorkspaceSlots::new(MAX_UPLOAD_REQUESTS),
            image_slots: WorkspaceSlots::new(MAX_IMAGE_REQUESTS),
            asset_wait: ASSET_WAIT,
            visits,
            bio: Bio::default(),
        }
    }

    /// Sets the minimum transfer rate of request bodies.
    #[must_use]
    pub fn with_min_rate(self, rate: MinRate) -> Self {
        Self { min_rate: rate, ..self }
    }

    /// Sets the minimum transfer rate of large responses.
    #[must_use]
    pub fn with_response_rate(self, rate: MinRate) -> Self {
        Self { response_rate: rate, ..self }
    }

    /// Sets how long the last request of a resumable upload waits for the asset.
    #[must_use]
    pub fn with_asset_wait(self, wait: Duration) -> Self {
        Self { asset_wait: wait, ..self }
    }

    /// Sets the guard of the requests for avatars.
    #[must_use]
    pub fn with_avatar_guard(self, guard: Guard) -> Self {
        Self { avatars: Avatars::new(guard), ..self }
    }

    /// Sets the guard of the requests for metadata documents of applications.
    #[must_use]
    pub fn with_client_document_guard(self, guard: Guard) -> Self {
        Self { client_documents: ClientDocuments::new(guard), ..self }
    }

    /// Writes the view and click counts of link-in-bio pages; [`crate::serve_on`] does so every few seconds.
    pub async fn write_counts(&self) -> Result<(), StoreError> {
        self.bio.counts.write(&self.store).await
    }

    /// Writes `last_used_at` about once per minute, in a background task.
    pub fn touch(self: &Arc<Self>, caller: &Caller) {
        if !keys::should_touch(caller.last_used_at, self.store.now()) {
            return;
        }
        let (app, key_id) = (self.clone(), caller.key_id);
        tokio::spawn(async move {
            let write = async {
                let mut tx = app.store.begin().await?;
                keys::touch(&mut tx, key_id).await?;
                tx.commit().await
            };
            let written: Result<(), StoreError> = write.await;
            if let Err(error) = written {
                tracing::debug!(%error, key_id, "last_used_at was not written");
            }
        });
    }
}
