//! Names to addresses: the look-up itself behind a trait (so that a test can change the answer between two calls), and
//! the adapter that puts the guard between a connection and the look-up.

use std::io;
use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;

use super::guard::Guard;

/// Finds the addresses of a name.
#[async_trait]
pub trait Lookup: Send + Sync {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's own look-up (`/etc/hosts`, DNS and whatever else it is set up for), on tokio's blocking threads.
pub(super) struct System;

#[async_trait]
impl Lookup for System {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// What reqwest asks at each new connection. It never sees literal addresses: those are judged before the request is sent.
pub(super) struct GuardedResolver(pub(super) Guard);

impl reqwest::dns::Resolve for GuardedResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let guard = self.0.clone();
        Box::pin(async move {
            let addresses = guard.resolve(name.as_str()).await?;
            // Port 0 stands for the URL's own.
            Ok(Box::new(addresses.into_iter().map(|ip| SocketAddr::new(ip, 0))) as reqwest::dns::Addrs)
        })
    }
}
