//! Implements the sandbox's data on the store.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use crier_domain::sandbox::{NewSandboxPost, SandboxComment};
use crier_platforms::sandbox::{Sandbox, SandboxError, SandboxStore};
use crier_store::{Store, sandbox};

/// Creates the connector of the sandbox; `public_url` has no trailing slash.
pub fn connector(store: &Store, public_url: impl Into<String>) -> Sandbox {
    Sandbox::new(Arc::new(SandboxTables { store: store.clone() }), store.clock(), public_url)
}

/// The tables of the sandbox.
struct SandboxTables {
    store: Store,
}

#[async_trait]
impl SandboxStore for SandboxTables {
    async fn owner(&self, handle: &str) -> Result<Option<i64>, SandboxError> {
        Ok(sandbox::owner(&mut self.store.read().await?, handle).await?)
    }

    async fn is_expired(&self, workspace_id: i64, handle: &str) -> Result<bool, SandboxError> {
        let expired = sandbox::is_expired(&mut self.store.read().await?, workspace_id, handle).await?;
        Ok(expired.unwrap_or(true))
    }

    async fn expire(&self, handle: &str) -> Result<(), SandboxError> {
        let mut tx = self.store.begin().await?;
        sandbox::expire(&mut tx, handle).await?;
        Ok(tx.commit().await?)
    }

    async fn publish(&self, post: NewSandboxPost) -> Result<Option<i64>, SandboxError> {
        let mut tx = self.store.begin().await?;
        let id = sandbox::publish(&mut tx, &post).await?;
        tx.commit().await?;
        Ok(id)
    }

    async fn find_post(&self, key: &str) -> Result<Option<i64>, SandboxError> {
        let found = sandbox::find_by_key(&mut self.store.read().await?, key).await?;
        Ok(found.map(|post| post.id))
    }

    async fn delete_post(&self, workspace_id: i64, handle: &str, id: i64) -> Result<bool, SandboxError> {
        let mut tx = self.store.begin().await?;
        let is_deleted = sandbox::delete(&mut tx, workspace_id, handle, id).await?;
        tx.commit().await?;
        Ok(is_deleted)
    }

    async fn count_posts(&self, handle: &str) -> Result<i64, SandboxError> {
        Ok(sandbox::count(&mut self.store.read().await?, handle).await?)
    }

    async fn comments_after(
        &self,
        handle: &str,
        after: (DateTime<Utc>, i64),
        limit: usize,
    ) -> Result<Vec<SandboxComment>, SandboxError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Ok(sandbox::comments_after(&mut self.store.read().await?, handle, after, limit).await?)
    }

    async fn reply(
        &self,
        workspace_id: i64,
        handle: &str,
        comment_id: i64,
        key: &str,
        body: &str,
    ) -> Result<Option<i64>, SandboxError> {
        let mut tx = self.store.begin().await?;
        let id = sandbox::reply(&mut tx, workspace_id, handle, comment_id, key, body).await?;
        tx.commit().await?;
        Ok(id)
    }

    async fn find_reply(&self, key: &str) -> Result<Option<i64>, SandboxError> {
        Ok(sandbox::find_reply(&mut self.store.read().await?, key).await?)
    }
}
