//! The files of the media library: storing them, resumable uploads of them, and deleting unreferenced ones.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod outside;
mod races;
mod storage;
mod sweep;
mod tus_client;
mod uploads;
mod usage;
mod video;

use crier_domain::media::AssetType;
use crier_media::{self as media, AssetDetails, IngestedFile, Library, Owner, Spooled};
use crier_scheduler::Scheduler;
use crier_scheduler::tasks::sweep as task;
use crier_store::{files, media as assets};

use crate::support::images;
use crate::support::store::{TestStore, World};
use crate::support::transport::FixedCapacityTransport;

/// Seconds after which no process still works on a file that is marked for deletion.
const UNUSED_AFTER_SECONDS: i64 = 301;
/// Seconds after which an upload counts as abandoned.
const ABANDONED_AFTER_SECONDS: i64 = 3_601;

/// A store with its library, a workspace and a scheduler.
struct TestLibrary {
    s: TestStore,
    library: Library,
    world: World,
}

impl TestLibrary {
    async fn over(s: TestStore) -> Self {
        let (library, world) = (s.library("http://crier.example"), s.create_world().await);
        Self { s, library, world }
    }

    fn owner(&self) -> Owner {
        Owner { workspace_id: self.world.workspace, brand_id: self.world.brand, cap: None }
    }

    fn scheduler(&self) -> Scheduler {
        Scheduler::new(self.s.store.clone(), FixedCapacityTransport::with_room(100), self.library.clone())
    }

    async fn sweep(&self) {
        task::run(&self.scheduler()).await.unwrap();
    }

    /// Ingests an image whose content depends on its width.
    async fn ingest(&self, width: u32) -> IngestedFile {
        let bytes = Spooled::from(bytes::Bytes::from(images::png(width, 2)));
        self.library.ingest(&self.s.store, &self.owner(), &bytes).await.unwrap()
    }

    async fn create_asset(&self, ingested: &IngestedFile) -> Option<i64> {
        let details =
            AssetDetails { asset_type: AssetType::Image, filename: "a.png", alt_text: None, source_url: None };
        self.s.write(async |tx| media::create_asset(tx, self.world.brand, ingested, &details).await).await
    }

    async fn asset(&self, width: u32) -> i64 {
        let ingested = self.ingest(width).await;
        self.create_asset(&ingested).await.expect("the file is stored")
    }

    async fn delete(&self, asset: i64) {
        self.s
            .write(async |tx| {
                let file = assets::lock(tx, self.world.brand, asset).await?.expect("the asset exists");
                assets::delete(tx, self.world.brand, asset).await?;
                files::mark_unused_for_deletion(tx, file).await
            })
            .await;
    }

    async fn used_bytes(&self) -> i64 {
        files::usage(&mut self.s.conn().await, self.world.workspace).await.unwrap().files
    }

    async fn rows(&self) -> i64 {
        self.s.count_rows("files").await
    }
}
