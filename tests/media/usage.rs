//! The storage usage of a workspace stays exact after operations in any order, including concurrent ones.

use std::sync::Arc;

use crier_domain::media::ImageType;
use crier_store::files::{self, NewFile, Reserved};
use crier_store::media::{self, NewAsset};
use crier_store::{Result, Store};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::support::store::{TestStore, World, on_both};

on_both!(
    storage_usage_stays_exact_under_concurrency,
    a_failed_upload_keeps_shared_bytes,
    the_first_file_must_fit_the_cap
);

const CAP: u64 = 1_000;
const SEQUENCES: usize = 12;
const ACTORS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// Reserves a file with one of a few contents. The content determines the size.
    Reserve(u8),
    /// Stores a reserved file, and creates its asset.
    Finish(usize),
    Abandon(usize),
    Delete(usize),
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u8..6).prop_map(Step::Reserve),
        3 => any::<usize>().prop_map(Step::Finish),
        1 => any::<usize>().prop_map(Step::Abandon),
        3 => any::<usize>().prop_map(Step::Delete),
        1 => Just(Step::Sweep),
    ];
    prop::collection::vec(step, 5..25)
}

/// A client that adds and deletes files, with its reservations and assets.
struct Actor {
    store: Store,
    world: World,
    reserved: Vec<Reserved>,
    assets: Vec<i64>,
    reserved_count: usize,
    id: usize,
}

impl Actor {
    async fn execute(&mut self, step: &Step) -> Result<()> {
        let mut tx = self.store.begin().await?;
        match step {
            Step::Reserve(content) => {
                self.reserved_count += 1;
                let new = new_file(
                    self.world,
                    *content,
                    &format!("{}-{}-{}", self.world.brand, self.id, self.reserved_count),
                );
                if let Some(row) = files::reserve(&mut tx, &new, Some(CAP)).await? {
                    self.reserved.push(row);
                } else {
                    return tx.rollback().await;
                }
            }
            Step::Finish(which) if !self.reserved.is_empty() => {
                let row = self.reserved.remove(which % self.reserved.len());
                if files::mark_stored(&mut tx, row.id).await? {
                    let new = NewAsset {
                        file_id: row.id,
                        asset_type: crier_domain::media::AssetType::Image,
                        filename: "a.png",
                        alt_text: None,
                        source_url: None,
                    };
                    self.assets.push(media::insert(&mut tx, self.world.brand, &new).await?);
                }
            }
            Step::Abandon(which) if !self.reserved.is_empty() => {
                let row = self.reserved.remove(which % self.reserved.len());
                files::abandon(&mut tx, row.id).await?;
            }
            Step::Delete(which) if !self.assets.is_empty() => {
                let asset = self.assets.remove(which % self.assets.len());
                let file = media::lock(&mut tx, self.world.brand, asset).await?.expect("the asset exists");
                media::delete(&mut tx, self.world.brand, asset).await?;
                files::mark_unused_for_deletion(&mut tx, file).await?;
            }
            Step::Sweep => {
                // One second later, every reservation counts as abandoned.
                let later = tx.now + chrono::TimeDelta::seconds(1);
                files::mark_abandoned_for_deletion(&mut tx, later, 3).await?;
                let marked = files::marked_for_deletion(&mut tx, 0, later, 3).await?;
                files::delete_rows(&mut tx, &marked.iter().map(|file| file.id).collect::<Vec<_>>()).await?;
            }
            _ => {}
        }
        tx.commit().await
    }
}

fn new_file(world: World, content: u8, name: &str) -> NewFile {
    NewFile {
        workspace_id: world.workspace,
        brand_id: world.brand,
        key: format!("{name}.png"),
        thumbnail_key: Some(format!("{name}-thumb.png")),
        sha256: [content; 32],
        mime_type: ImageType::Png.as_str(),
        size_bytes: 90 + i64::from(content) * 70,
        width: 1,
        height: 1,
        video: None,
    }
}

async fn storage_usage_stays_exact_under_concurrency(s: TestStore) {
    let mut runner = TestRunner::deterministic();
    for sequence in 0..SEQUENCES {
        let world = s.world_of(&format!("ann{sequence}@example.com")).await;
        let actors = (0..ACTORS).map(|id| {
            let steps: Arc<[Step]> = steps().new_tree(&mut runner).unwrap().current().into();
            let store = s.store.clone();
            let mut actor = Actor { store, world, reserved: Vec::new(), assets: Vec::new(), reserved_count: 0, id };
            tokio::spawn(async move {
                for step in steps.iter() {
                    match actor.execute(step).await {
                        Err(error) if error.is_serialization() => {}
                        done => done.unwrap_or_else(|error| panic!("{step:?}: {error}")),
                    }
                }
            })
        });
        for done in futures::future::join_all(actors.collect::<Vec<_>>()).await {
            done.unwrap();
        }
        check(&s, world).await;
    }
}

async fn check(s: &TestStore, World { workspace, brand, .. }: World) {
    let sum = s.sum("size_bytes", format!("files WHERE workspace_id = {workspace} AND state <> 'doomed'")).await;
    let used = files::usage(&mut s.conn().await, workspace).await.unwrap().files;
    assert_eq!(used, sum);
    assert!((0..=CAP as i64).contains(&used), "{used}");
    let without_bytes = format!(
        "
        SELECT count(*)
        FROM media m
        WHERE brand_id = {brand}
            AND NOT EXISTS (SELECT 1 FROM files f WHERE f.id = m.file_id AND f.state = 'stored')"
    );
    assert_eq!(s.number(without_bytes).await, 0, "every asset has its bytes");
    let unreferenced = format!(
        "
        SELECT count(*)
        FROM files f
        WHERE workspace_id = {workspace}
            AND state = 'stored'
            AND NOT EXISTS (SELECT 1 FROM media m WHERE m.file_id = f.id)"
    );
    assert_eq!(s.number(unreferenced).await, 0, "unreferenced files are marked for deletion");
}

async fn a_failed_upload_keeps_shared_bytes(s: TestStore) {
    let world = s.create_world().await;
    let reserve = async |name: &str| {
        s.write(async |tx| files::reserve(tx, &new_file(world, 1, name), Some(CAP)).await)
            .await
            .expect("there is room")
            .id
    };
    let (one, other) = (reserve("one").await, reserve("other").await);
    assert_eq!(one, other);
    s.write(async |tx| files::abandon(tx, one).await).await;
    assert!(s.write(async |tx| files::mark_stored(tx, other).await).await);
    // A caller that does not know that the file is stored (its commit got no response) cannot mark it for deletion.
    s.write(async |tx| files::abandon(tx, other).await).await;
    assert!(s.write(async |tx| files::mark_stored(tx, other).await).await);
    // The last caller marks the file for deletion.
    let last = s.write(async |tx| files::reserve(tx, &new_file(world, 2, "alone"), Some(CAP)).await).await.unwrap().id;
    s.write(async |tx| files::abandon(tx, last).await).await;
    assert!(!s.write(async |tx| files::mark_stored(tx, last).await).await);
    assert_eq!(files::usage(&mut s.conn().await, world.workspace).await.unwrap().files, 160);
    // The usage is released once, however often the file is marked for deletion.
    for _ in 0..2 {
        s.write(async |tx| files::mark_unused_for_deletion(tx, other).await).await;
        assert_eq!(files::usage(&mut s.conn().await, world.workspace).await.unwrap().files, 0);
    }
}

async fn the_first_file_must_fit_the_cap(s: TestStore) {
    let world = s.create_world().await;
    for (cap, fits) in [(159, false), (160, true)] {
        let mut tx = s.begin().await.unwrap();
        let reserved = files::reserve(&mut tx, &new_file(world, 1, "first"), Some(cap)).await.unwrap();
        assert_eq!(reserved.is_some(), fits, "{cap}");
        tx.rollback().await.unwrap();
    }
}
