//! Resolves names to addresses: a trait for the lookup (so that a test can change the result between two calls), and
//! the resolver of the client, in which the guard checks the result.

use std::io;
use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;

use super::guard::Guard;

/// Looks up the addresses of a name.
#[async_trait]
pub trait Lookup: Send + Sync {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's lookup (`/etc/hosts`, DNS and whatever else is configured), on tokio's blocking threads.
pub(super) struct SystemResolver;

#[async_trait]
impl Lookup for SystemResolver {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        #[expect(clippy::disallowed_methods, reason = "the guard checks the result")]
        let found = tokio::net::lookup_host((name, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// The resolver that reqwest calls for each new connection. It never sees literal addresses: those are checked before
/// the request is sent.
pub(super) struct GuardedResolver(pub(super) Guard);

impl reqwest::dns::Resolve for GuardedResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let guard = self.0.clone();
        Box::pin(async move {
            let addresses = guard.resolve(name.as_str()).await?;
            // reqwest replaces port 0 with the URL's port.
            Ok(Box::new(addresses.into_iter().map(|ip| SocketAddr::new(ip, 0))) as reqwest::dns::Addrs)
        })
    }
}
