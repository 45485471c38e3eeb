//! What is measured: Crier in this process, reached over TCP as by any client; or a peer that runs elsewhere.
//!
//! A peer answers `GET /` with what it is (`version`, `database`), takes the endpoints' URLs by `PUT /endpoints`, and then
//! does for `POST /api/public/v1/brands` what Crier does.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crier_api::{App, Parts};
use crier_common::ai::Ai;
use crier_common::domain::plan::{Feature, Plan, Plans};
use crier_common::process::platforms_of;
use http::Method;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::crew::{self, Crew};
use super::super::figure::Figure;
use super::super::place::Place;
use super::super::{CommandError, Figures, Result, io};
use super::Bench;
use super::client::{self, Connection, Rate, Sent};
use super::receiver::Receiver;
use super::tenant::Tenant;

const DRAIN: Duration = Duration::from_secs(5);

pub struct Service {
    address: SocketAddr,
    key: SecretString,
    crier: Option<Crier>,
}

/// They stop with this value.
struct Crier {
    place: Arc<Place>,
    crew: Crew,
    api: JoinSet<()>,
    stop: CancellationToken,
}

impl Service {
    /// With a user to whose endpoints the receiver listens.
    pub async fn start(bench: &Bench, receiver: &Receiver, endpoints: u32) -> std::result::Result<Self, CommandError> {
        let urls = receiver.urls(endpoints);
        if let Some(address) = bench.args.peer {
            Connection::open(address).await?.ask(Method::PUT, "/endpoints", &json!(urls)).await?;
            return Ok(Self { address, key: SecretString::from("none"), crier: None });
        }
        let place = bench.fresh().await?;
        let key = Tenant::make(place.api(), "good", &urls).await?.key;
        let (mut api, stop) = (JoinSet::new(), CancellationToken::new());
        let address = listen(bench, &place, &mut api, stop.clone()).await?;
        let crew = bench.crew(&place)?;
        Ok(Self { address, key, crier: Some(Crier { place, crew, api, stop }) })
    }

    /// Sends messages from outside.
    pub async fn send(
        &self,
        receiver: &Receiver,
        messages: Range<u32>,
        rate: Rate,
    ) -> std::result::Result<Vec<Sent>, CommandError> {
        client::send(&receiver.outside.runtime, self.address, &self.key, messages, rate).await
    }

    pub fn place(&self) -> Option<&Arc<Place>> {
        self.crier.as_ref().map(|crier| &crier.place)
    }

    /// Waits until all is in the record.
    pub async fn settled(&self) -> Result {
        match &self.crier {
            Some(crier) => crew::settled(crier.place.api()).await,
            None => Ok(()),
        }
    }

    pub async fn stop(self) {
        let Some(mut crier) = self.crier else { return };
        crier.stop.cancel();
        crier.crew.stop().await;
        while crier.api.join_next().await.is_some() {}
    }
}

/// The API as `crier` and `crier-api` serve it, but for plans without limits and a guard that lets this machine be reached.
async fn listen(
    bench: &Bench,
    place: &Place,
    api: &mut JoinSet<()>,
    stop: CancellationToken,
) -> std::result::Result<SocketAddr, CommandError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| io("the API", error))?;
    let address = listener.local_addr().map_err(|error| io("the API", error))?;
    let (store, guard) = (place.api().clone(), crew::guard());
    let unlimited =
        Plan { name: Plans::UNLIMITED.to_owned(), features: Feature::ALL.iter().copied().collect(), ..Plan::default() };
    let app = App::new(Parts {
        store: store.clone(),
        platforms: Arc::new(platforms_of(&bench.config, &store, &guard)),
        plans: Arc::new(Plans::new([unlimited])),
        library: place.library().clone(),
        ai: Ai::none(),
        guard,
        public_url: format!("http://{address}"),
        limiter: place.limiter()?,
        trusted_proxies: Vec::new(),
    });
    api.spawn(async move {
        if let Err(error) = crier_api::serve_on(Arc::new(app), listener, stop, DRAIN).await {
            tracing::error!(%error, "the API ended");
        }
    });
    Ok(address)
}

/// What a peer says that it is.
pub async fn about_peer(peer: SocketAddr) -> Figures {
    let about = Connection::open(peer).await?.ask(Method::GET, "/", &Value::Null).await?;
    let word = |name: &str| Figure::word("machine", name, about[name].as_str().unwrap_or("unknown"));
    Ok(vec![word("version"), word("database")])
}
