//! The measured service: Crier in this process, reached over TCP like from any client; or a peer in another process.
//!
//! A peer responds to `GET /` with its `version` and `database`, receives the endpoints' URLs by `PUT /endpoints`, and
//! then implements `POST /api/public/v1/brands` like Crier.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use crier_domain::job::JobKind;
use http::Method;
use secrecy::SecretString;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::api::listen;
use super::super::connection::Connection;
use super::super::environment::BenchEnvironment;
use super::super::roles::{self, BenchRoles};
use super::super::{BenchError, Result};
use super::Bench;
use super::client::{self, Rate, SentMessage};
use super::receiver::Receiver;
use super::tenant::{self, Tenant};

pub struct Service {
    address: SocketAddr,
    keys: Vec<SecretString>,
    crier: Option<Crier>,
}

/// The roles stop when this is dropped.
struct Crier {
    environment: Arc<BenchEnvironment>,
    roles: BenchRoles,
    api: JoinSet<()>,
    stop: CancellationToken,
}

impl Service {
    /// Starts the service with enough tenants for this many messages. The endpoints of each are the receiver's.
    pub async fn start(
        bench: &Bench,
        receiver: &Receiver,
        endpoints: u32,
        messages: u32,
    ) -> std::result::Result<Self, BenchError> {
        let urls = receiver.urls(endpoints);
        if let Some(address) = bench.args.peer {
            Connection::open(address).await?.request_json(Method::PUT, "/endpoints", &json!(urls)).await?;
            return Ok(Self { address, keys: vec![SecretString::from("none")], crier: None });
        }
        let environment = bench.create_environment().await?;
        let mut keys = Vec::new();
        for number in 0..messages.div_ceil(tenant::MESSAGES).max(1) {
            keys.push(Tenant::create(environment.api(), &format!("good-{number}"), &urls).await?.key);
        }
        let (mut api, stop) = (JoinSet::new(), CancellationToken::new());
        let address = listen(&bench.config, &environment, &mut api, stop.clone()).await?;
        let roles = bench.roles(&environment)?;
        Ok(Self { address, keys, crier: Some(Crier { environment, roles, api, stop }) })
    }

    /// Sends messages from the clients' thread.
    pub async fn send(
        &self,
        receiver: &Receiver,
        messages: Range<u32>,
        rate: Rate,
    ) -> std::result::Result<Vec<SentMessage>, BenchError> {
        client::send(&receiver.external.runtime, self.address, &self.keys, messages, rate).await
    }

    pub fn environment(&self) -> Option<&Arc<BenchEnvironment>> {
        self.crier.as_ref().map(|crier| &crier.environment)
    }

    /// Waits until all jobs are settled.
    pub async fn wait_until_settled(&self) -> Result {
        match &self.crier {
            Some(crier) => roles::wait_until_settled(crier.environment.api(), JobKind::DeliverWebhook).await,
            None => Ok(()),
        }
    }

    pub async fn stop(self) {
        let Some(mut crier) = self.crier else { return };
        crier.stop.cancel();
        crier.roles.stop().await;
        while crier.api.join_next().await.is_some() {}
    }
}
