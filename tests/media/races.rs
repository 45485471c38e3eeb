//! Conflicting operations on one image at the same moment.

use crier_media::Spooled;
use crier_store::{Result, Store, files, media};

use super::{TestLibrary, UNUSED_AFTER_SECONDS};
use crate::support::images;
use crate::support::store::{TestStore, World, on_both_storages};

on_both_storages!(concurrent_upload_and_deletion_of_the_same_bytes_is_safe);

const ROUNDS: usize = 25;

async fn delete(store: &Store, world: World, asset: i64) -> Result<bool> {
    let mut tx = store.begin().await?;
    let Some(file) = media::lock(&mut tx, world.brand, asset).await? else { return Ok(false) };
    media::delete(&mut tx, world.brand, asset).await?;
    files::mark_unused_for_deletion(&mut tx, file).await?;
    tx.commit().await?;
    Ok(true)
}

async fn concurrent_upload_and_deletion_of_the_same_bytes_is_safe(s: TestStore) {
    let p = TestLibrary::over(s).await;
    let mut last = p.asset(5).await;
    for round in 0..ROUNDS {
        let (store, world, asset) = (p.s.store.clone(), p.world, last);
        let deleting = tokio::spawn(async move { delete(&store, world, asset).await });
        let bytes = Spooled::from(bytes::Bytes::from(images::png(5, 2)));
        // Sometimes before the deletion, sometimes after it.
        for _ in 0..round % 5 {
            tokio::task::yield_now().await;
        }
        let ingested = p.library.ingest(&p.s.store, &p.owner(), &bytes).await.unwrap();
        let created = p.create_asset(&ingested).await;
        assert!(deleting.await.unwrap().unwrap());
        p.s.advance(UNUSED_AFTER_SECONDS);
        p.sweep().await;
        match created {
            Some(asset) => {
                let asset = media::find(&mut p.s.conn().await, p.world.brand, asset).await.unwrap().unwrap();
                for name in [&asset.key, asset.thumbnail_key.as_ref().unwrap()] {
                    assert!(p.library.storage().read(name).await.unwrap().is_some(), "an asset without bytes");
                }
                last = asset.id;
            }
            None => {
                assert_eq!((p.s.stored_files().len(), p.used_bytes().await), (0, 0));
                last = p.asset(5).await;
            }
        }
        assert_eq!((p.rows().await, p.s.stored_files().len()), (1, 2));
    }
}
