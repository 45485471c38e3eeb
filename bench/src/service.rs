//! The measured service: Crier's API in this process, reached over TCP like from any client; or a peer in another
//! process.
//!
//! A peer responds to `GET /` with its `version` and `database`, and implements the measured paths like Crier. A peer
//! for `media` also implements `POST /thumbnail`, with an image as the body: it creates a thumbnail and returns 200. A
//! peer for `pages` also implements `GET /cpu`, which returns the CPU time of its processes in `ns`.

use std::net::SocketAddr;

use crier_config::Config;
use crier_domain::access::{KeyMode, Scopes};
use crier_domain::plan::Plans;
use crier_store::brands::{self, NewBrand};
use crier_store::{Store, keys, users};
use secrecy::SecretString;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::api::listen;
use super::{Bench, BenchError, Suite, fail, sandbox_accounts};

pub struct Service {
    pub address: SocketAddr,
    pub key: SecretString,
    pub workspace: i64,
    pub brand: i64,
    /// An account of the sandbox, attached to the brand.
    pub account: i64,
    api: JoinSet<()>,
    stop: CancellationToken,
}

impl Service {
    pub async fn start<A: Suite>(bench: &Bench<A>, peer: Option<SocketAddr>) -> Result<Self, BenchError> {
        let (mut api, stop) = (JoinSet::new(), CancellationToken::new());
        if let Some(address) = peer {
            let key = SecretString::from("none");
            return Ok(Self { address, key, workspace: 1, brand: 1, account: 1, api, stop });
        }
        let environment = bench.create_environment().await?;
        let Tenant { workspace, brand, account, key } = Tenant::create(environment.api()).await?;
        let config = Config { sandbox: true, ..bench.config.clone() };
        let address = listen(&config, &environment, &mut api, stop.clone()).await?;
        Ok(Self { address, key, workspace, brand, account, api, stop })
    }

    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.api.join_next().await.is_some() {}
    }
}

/// A user with a brand, an account and a key.
struct Tenant {
    workspace: i64,
    brand: i64,
    account: i64,
    key: SecretString,
}

impl Tenant {
    async fn create(store: &Store) -> Result<Self, BenchError> {
        let mut tx = store.begin().await?;
        let workspace = users::create_workspace(&mut tx, "bench", Plans::UNLIMITED).await?;
        let user = users::create(&mut tx, workspace, "bench@localhost", "bench").await?;
        let new = NewBrand { name: "bench", description: None, website: None, timezone: "UTC" };
        let Some(brand) = brands::create(&mut tx, workspace, user, None, new).await? else {
            return fail("a brand without a cap was rejected");
        };
        let account = sandbox_accounts::create(&mut tx, workspace, brand.id, 1).await?[0];
        let key = keys::create(&mut tx, user, KeyMode::Live, &Scopes::all()).await?;
        tx.commit().await?;
        Ok(Self { workspace, brand: brand.id, account, key })
    }
}
