//! A user with a workspace, a brand, a key and endpoints that receive the events of every brand of the workspace.

use std::ops::Range;

use crier_domain::access::{KeyMode, Scopes};
use crier_domain::event::EventName;
use crier_domain::plan::Plans;
use crier_domain::webhook_signature::new_secret;
use crier_store::brands::{self, NewBrand};
use crier_store::webhooks::{self, NewWebhook};
use crier_store::{Store, StoreError, events, keys, users};
use secrecy::SecretString;
use serde_json::json;

use super::super::BenchError;
use super::arrivals::name_of;

/// The maximum number of messages that a tenant sends through the API. Each creates a brand, and a workspace has at most
/// [`crier_domain::brand::MAX_BRANDS`].
pub const MESSAGES: u32 = 900;
/// The maximum number of deliveries per transaction.
const CHUNK: usize = 1_000;

pub struct Tenant {
    pub key: SecretString,
    brand: i64,
    endpoints: usize,
}

impl Tenant {
    pub async fn create(store: &Store, name: &str, urls: &[String]) -> Result<Self, BenchError> {
        let mut tx = store.begin().await?;
        let workspace = users::create_workspace(&mut tx, name, Plans::UNLIMITED).await?;
        let user = users::create(&mut tx, workspace, &format!("{name}@localhost"), name).await?;
        let new = NewBrand { name, description: None, website: None, timezone: "UTC" };
        let Some(brand) = brands::create(&mut tx, workspace, user, None, new).await? else {
            return Err(StoreError::Decode("a brand without a cap was rejected".to_owned()).into());
        };
        let key = keys::create(&mut tx, user, KeyMode::Live, &Scopes::all()).await?;
        for url in urls {
            let secret = new_secret().map_err(|error| BenchError::Failed(format!("no random secret: {error}")))?;
            let events = &[EventName::BrandCreated];
            let new = NewWebhook { url, events, description: None, is_active: true, secret: &secret };
            webhooks::create(&mut tx, user, &new).await?;
        }
        tx.commit().await?;
        Ok(Self { key, brand: brand.id, endpoints: urls.len() })
    }

    /// Emits the events of messages directly in the store.
    pub async fn emit(&self, store: &Store, mut messages: Range<u32>) -> Result<(), BenchError> {
        let chunk = (CHUNK / self.endpoints.max(1)).max(1);
        while !messages.is_empty() {
            let mut tx = store.begin().await?;
            for message in messages.by_ref().take(chunk) {
                let data = json!({ "brand_id": self.brand, "name": name_of(message) });
                events::emit(&mut tx, self.brand, EventName::BrandCreated, &data, None).await?;
            }
            tx.commit().await?;
        }
        Ok(())
    }
}
