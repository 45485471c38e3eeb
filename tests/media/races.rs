//! Two who want opposite things of one picture at the same moment.

use std::sync::Arc;

use crier_common::domain::post::PostStatus;
use crier_common::media::Spooled;
use crier_common::store::db::Engine;
use crier_common::store::{Result, Store, Tx, files, media, posts};
use tokio::sync::Barrier;

use super::{Place, SETTLED};
use crate::support::picture;
use crate::support::store::{TestStore, World, new_post, on_both, on_both_storages};

on_both!(a_scheduled_post_keeps_its_picture);
on_both_storages!(the_same_bytes_come_while_their_last_asset_goes);

const ROUNDS: usize = 25;

async fn delete(store: &Store, world: World, asset: i64) -> Result<bool> {
    let mut tx = store.begin().await?;
    let Some(file) = media::lock(&mut tx, world.brand, asset).await? else { return Ok(false) };
    if media::in_use(&mut tx, asset).await? {
        tx.rollback().await?;
        return Ok(false);
    }
    media::delete(&mut tx, world.brand, asset).await?;
    files::doom_unused(&mut tx, file).await?;
    tx.commit().await?;
    Ok(true)
}

/// As a post is written: the row of the picture is held first.
async fn schedule(store: &Store, world: World, asset: i64) -> Result<bool> {
    let mut tx = store.begin().await?;
    if !hold(&mut tx, asset).await? {
        tx.rollback().await?;
        return Ok(false);
    }
    let post = posts::insert(&mut tx, &new_post(world, PostStatus::Scheduled)).await?;
    show(&mut tx, post, asset).await?;
    tx.commit().await?;
    Ok(true)
}

async fn hold(tx: &mut Tx, asset: i64) -> Result<bool> {
    let found: Option<i64> = match tx.engine() {
        Engine::Pg(c) => {
            sqlx::query_scalar("SELECT id FROM media WHERE id = $1 FOR KEY SHARE").bind(asset).fetch_optional(c).await?
        }
        Engine::Sqlite(c) => {
            sqlx::query_scalar("SELECT id FROM media WHERE id = $1").bind(asset).fetch_optional(c).await?
        }
    };
    Ok(found.is_some())
}

async fn show(tx: &mut Tx, post: i64, asset: i64) -> Result<()> {
    const SQL: &str = "INSERT INTO post_media (post_id, media_id) VALUES ($1, $2)";
    match tx.engine() {
        Engine::Pg(c) => sqlx::query(SQL).bind(post).bind(asset).execute(c).await.map(drop)?,
        Engine::Sqlite(c) => sqlx::query(SQL).bind(post).bind(asset).execute(c).await.map(drop)?,
    }
    Ok(())
}

async fn a_scheduled_post_keeps_its_picture(s: TestStore) {
    let p = Place::over(s).await;
    for _ in 0..ROUNDS {
        let (asset, barrier) = (p.asset(5).await, Arc::new(Barrier::new(2)));
        let (one, other) = (p.s.store.clone(), p.s.store.clone());
        let (start, begin, world) = (barrier.clone(), barrier, p.world);
        let deleting = tokio::spawn(async move {
            start.wait().await;
            delete(&one, world, asset).await
        });
        let scheduling = tokio::spawn(async move {
            begin.wait().await;
            schedule(&other, world, asset).await
        });
        let (deleted, scheduled) = (deleting.await.unwrap().unwrap(), scheduling.await.unwrap().unwrap());
        assert!(deleted != scheduled, "deleted: {deleted}, scheduled: {scheduled}");
        let shown = p.s.number(format!("SELECT count(*) FROM post_media WHERE media_id = {asset}")).await;
        assert_eq!(shown, i64::from(scheduled));
    }
}

async fn the_same_bytes_come_while_their_last_asset_goes(s: TestStore) {
    let p = Place::over(s).await;
    let mut last = p.asset(5).await;
    for round in 0..ROUNDS {
        let (store, world, going) = (p.s.store.clone(), p.world, last);
        let deleting = tokio::spawn(async move { delete(&store, world, going).await });
        let bytes = Spooled::from(bytes::Bytes::from(picture::png(5, 2)));
        // Now before the other, now behind it.
        for _ in 0..round % 5 {
            tokio::task::yield_now().await;
        }
        let taken = p.library.take_in(&p.s.store, &p.owner(), &bytes).await.unwrap();
        let kept = p.keep(&taken).await;
        assert!(deleting.await.unwrap().unwrap());
        p.s.advance(SETTLED);
        p.sweep().await;
        match kept {
            Some(asset) => {
                let asset = media::find(&mut p.s.conn().await, p.world.brand, asset).await.unwrap().unwrap();
                for name in [&asset.key, &asset.thumbnail_key] {
                    assert!(p.library.storage().read(name).await.unwrap().is_some(), "an asset without bytes");
                }
                last = asset.id;
            }
            None => {
                assert_eq!((p.s.stored().len(), p.used().await), (0, 0));
                last = p.asset(5).await;
            }
        }
        assert_eq!((p.rows().await, p.s.stored().len()), (1, 2));
    }
}
