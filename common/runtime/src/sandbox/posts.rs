//! Publishes posts. Those that arrive together share a transaction.

use std::sync::OnceLock;

use crier_domain::sandbox::NewSandboxPost;
use crier_store::{Batcher, Result, Store, StoreError, sandbox};

/// The maximum number of concurrent transactions.
const CONCURRENCY: usize = 1;

pub struct PostBatcher {
    store: Store,
    /// The batcher's task needs a runtime, so it starts with the first post.
    batches: OnceLock<Batcher<NewSandboxPost, Result<Option<i64>>>>,
}

impl PostBatcher {
    pub fn new(store: Store) -> Self {
        Self { store, batches: OnceLock::new() }
    }

    /// Returns the id of the post. `None` if the token is rejected.
    pub async fn publish(&self, post: NewSandboxPost) -> Result<Option<i64>> {
        let batches = self.batches.get_or_init(|| {
            let store = self.store.clone();
            Batcher::start(self.store.workers(), CONCURRENCY, move |posts| publish_all(store.clone(), posts))
        });
        batches.submit(post).await.unwrap_or_else(|| Err(StoreError::Decode("the batch of posts panicked".into())))
    }
}

/// Publishes posts. An error of one does not affect the others.
async fn publish_all(store: Store, posts: Vec<NewSandboxPost>) -> Vec<Result<Option<i64>>> {
    match publish_together(&store, &posts).await {
        Ok(ids) => ids.into_iter().map(Ok).collect(),
        // A temporary error concerns all posts, and publishing each one separately would only fail again.
        Err(error) if error.is_transient() => {
            posts.iter().map(|_| Err(StoreError::Decode(error.to_string()))).collect()
        }
        Err(_) => {
            let mut each = Vec::with_capacity(posts.len());
            for post in &posts {
                let published = publish_together(&store, std::slice::from_ref(post)).await;
                each.push(published.map(|ids| ids.into_iter().next().flatten()));
            }
            each
        }
    }
}

async fn publish_together(store: &Store, posts: &[NewSandboxPost]) -> Result<Vec<Option<i64>>> {
    let mut tx = store.begin_single_async_commit().await?;
    let ids = sandbox::publish(&mut tx, posts).await?;
    tx.commit().await?;
    Ok(posts.iter().map(|post| ids.get(&post.key).copied()).collect())
}
