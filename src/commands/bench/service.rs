//! What is measured: the API of Crier in this process, reached over TCP as by any client; or a peer that runs elsewhere.
//!
//! A peer answers `GET /` with what it is (`version`, `database`), and does what Crier does for the paths that are measured.
//! One of `media` answers `POST /thumbnail` too, with a picture as its body: it makes a thumbnail and answers 200. One of
//! `pages` answers `GET /cpu` with the `ns` that its processes have worked.

use std::net::SocketAddr;

use crier_common::domain::access::{KeyMode, Scopes};
use crier_common::domain::plan::Plans;
use crier_common::store::brands::NewBrand;
use crier_common::store::{Store, brands, keys, users};
use secrecy::SecretString;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::api::listen;
use super::{Bench, CommandError, Suite, refused};

pub struct Service {
    pub address: SocketAddr,
    pub key: SecretString,
    pub brand: i64,
    api: JoinSet<()>,
    stop: CancellationToken,
}

impl Service {
    pub async fn start<A: Suite>(bench: &Bench<A>, peer: Option<SocketAddr>) -> Result<Self, CommandError> {
        let (mut api, stop) = (JoinSet::new(), CancellationToken::new());
        if let Some(address) = peer {
            return Ok(Self { address, key: SecretString::from("none"), brand: 1, api, stop });
        }
        let place = bench.fresh().await?;
        let (brand, key) = tenant(place.api()).await?;
        let address = listen(&bench.config, &place, &mut api, stop.clone()).await?;
        Ok(Self { address, key, brand, api, stop })
    }

    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.api.join_next().await.is_some() {}
    }
}

/// A user with a brand and a key.
async fn tenant(store: &Store) -> Result<(i64, SecretString), CommandError> {
    let mut tx = store.begin().await?;
    let workspace = users::create_workspace(&mut tx, "bench", Plans::UNLIMITED).await?;
    let user = users::create(&mut tx, workspace, "bench@localhost", "bench").await?;
    let new = NewBrand { name: "bench", description: None, website: None, timezone: "UTC" };
    let Some(brand) = brands::create(&mut tx, workspace, user, None, new).await? else {
        return refused("a brand without a cap was refused");
    };
    let key = keys::create(&mut tx, user, KeyMode::Live, &Scopes::all()).await?;
    tx.commit().await?;
    Ok((brand.id, key))
}
