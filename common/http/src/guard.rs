//! The guard: keeps requests to user-chosen addresses away from everything that is not public.
//!
//! It checks twice. When a URL is saved, so that the user gets an error at once ([`Guard::check_resolved`]); and at
//! each connection, where it matters: a literal address before the request is sent, a name's addresses when they are
//! looked up for that connection. A name that resolves differently later (DNS rebinding) therefore gains nothing. One
//! address that is not public makes the whole lookup refused.
//!
//! Networks that the operator allowed (`CRIER_ALLOWED_PRIVATE_NETWORKS`) pass, including plain http to them.
//!
//! The crate `http-acl-reqwest` is not used: it drops refused addresses from a mixed lookup result instead of refusing
//! it, lets several reserved ranges through, requires its own client type and reports its refusals as text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use url::{Host, Url};

use super::address::is_public;
use super::resolver::{Lookup, SystemResolver};

/// The lookup timeout while a user waits for a URL to be saved.
const SAVE_LOOKUP: Duration = Duration::from_secs(3);

/// Suffixes of names that exist only in private networks. `localhost` is handled separately, without a lookup.
const PRIVATE_ENDINGS: &[&str] = &[".local", ".internal", ".localdomain", ".home.arpa"];

/// The schemes that a URL may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemePolicy {
    /// https; http only if every address is in a network that the operator allowed.
    HttpsOnly,
    HttpOrHttps,
}

/// Why a URL is refused. The message completes "The URL …" and does not reveal what a name resolves to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlRefusal {
    #[error("must be an absolute URL with a host")]
    Invalid,
    #[error("must begin with https://")]
    NotHttps,
    #[error("must begin with https:// or http://")]
    NotHttp,
    #[error("must not contain a username or password")]
    Userinfo,
    #[error("must point to a public address")]
    NotPublic,
}

/// Why a name has no usable addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResolveError {
    #[error("{0}")]
    Blocked(String),
    #[error("the name could not be resolved")]
    Unknown,
}

/// Checks URLs and addresses. Cheap to clone.
#[derive(Clone)]
pub struct Guard {
    allowed: Arc<[IpNet]>,
    lookup: Arc<dyn Lookup>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("allowed", &self.allowed).finish_non_exhaustive()
    }
}

impl Guard {
    /// Creates a guard that permits `allowed` in addition to public addresses.
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self::with_lookup(allowed, Arc::new(SystemResolver))
    }

    /// Creates a guard with another name lookup.
    pub fn with_lookup(allowed: Vec<IpNet>, lookup: Arc<dyn Lookup>) -> Self {
        Self { allowed: allowed.into(), lookup }
    }

    /// Checks a URL without looking up its name. Refuses plain http to a name under [`SchemePolicy::HttpsOnly`]: only
    /// [`Guard::check_resolved`] can determine whether it leads to an allowed network.
    pub fn check_url(&self, text: &str, policy: SchemePolicy) -> Result<Url, UrlRefusal> {
        let url = self.check_form(text, policy)?;
        if policy == SchemePolicy::HttpsOnly && url.scheme() == "http" && url.domain().is_some() {
            return Err(UrlRefusal::NotHttps);
        }
        Ok(url)
    }

    /// Checks a URL that is to be saved, including its name. A name that cannot be resolved (within 3 s) passes: it may
    /// exist later, and is checked again at each connection.
    pub async fn check_resolved(&self, text: &str, policy: SchemePolicy) -> Result<Url, UrlRefusal> {
        let url = self.check_form(text, policy)?;
        let Some(name) = url.domain() else { return Ok(url) };
        let plain = policy == SchemePolicy::HttpsOnly && url.scheme() == "http";
        match tokio::time::timeout(SAVE_LOOKUP, self.resolve(name)).await {
            Ok(Err(ResolveError::Blocked(_))) => Err(UrlRefusal::NotPublic),
            Ok(Ok(addresses)) if !plain || addresses.iter().all(|&ip| self.is_allowed(ip)) => Ok(url),
            Ok(Err(ResolveError::Unknown)) | Err(_) if !plain => Ok(url),
            _ => Err(UrlRefusal::NotHttps),
        }
    }

    /// Returns whether a connection to `ip` is permitted.
    pub fn permits(&self, ip: IpAddr) -> bool {
        is_public(ip) || self.is_allowed(ip)
    }

    /// Checks the host of a request that is about to be sent, if it is a literal address; the resolver checks names.
    pub(super) fn check_literal(&self, url: &Url) -> Result<(), String> {
        match literal(url) {
            Some(ip) if !self.permits(ip) => Err(ip.to_string()),
            _ => Ok(()),
        }
    }

    /// Resolves a name; fails if any of its addresses is refused.
    pub(super) async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        if is_localhost(name) {
            // Never looked up (RFC 6761), so that no server can return another address.
            let addresses = self.loopback();
            return if addresses.is_empty() { Err(ResolveError::Blocked(name.to_owned())) } else { Ok(addresses) };
        }
        let addresses = self.lookup.lookup(name).await.map_err(|_| ResolveError::Unknown)?;
        if addresses.is_empty() {
            return Err(ResolveError::Unknown);
        }
        if addresses.iter().all(|&ip| self.permits(ip)) {
            Ok(addresses)
        } else {
            Err(ResolveError::Blocked(name.to_owned()))
        }
    }

    fn check_form(&self, text: &str, policy: SchemePolicy) -> Result<Url, UrlRefusal> {
        // The parser would repair these, and another parser might read the repaired URL differently.
        if text.trim() != text || text.contains(|c: char| c.is_control() || c == '\\') {
            return Err(UrlRefusal::Invalid);
        }
        let url = Url::parse(text).map_err(|_| UrlRefusal::Invalid)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(if policy == SchemePolicy::HttpsOnly { UrlRefusal::NotHttps } else { UrlRefusal::NotHttp });
        }
        // The parser repairs `https:host` and `https:///host` as well.
        if text[url.scheme().len()..].strip_prefix("://").is_none_or(|rest| rest.starts_with('/')) {
            return Err(UrlRefusal::Invalid);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlRefusal::Userinfo);
        }
        self.check_host(&url, policy)?;
        Ok(url)
    }

    fn check_host(&self, url: &Url, policy: SchemePolicy) -> Result<(), UrlRefusal> {
        let plain = policy == SchemePolicy::HttpsOnly && url.scheme() == "http";
        if let Some(ip) = literal(url) {
            return match ip {
                ip if !self.permits(ip) => Err(UrlRefusal::NotPublic),
                ip if plain && !self.is_allowed(ip) => Err(UrlRefusal::NotHttps),
                _ => Ok(()),
            };
        }
        let name = url.domain().ok_or(UrlRefusal::Invalid)?;
        let refused = if is_localhost(name) {
            self.loopback().is_empty()
        } else {
            self.allowed.is_empty() && is_private_name(name)
        };
        if refused {
            return Err(UrlRefusal::NotPublic);
        }
        // Without allowed networks, no lookup could make plain http acceptable.
        if plain && self.allowed.is_empty() { Err(UrlRefusal::NotHttps) } else { Ok(()) }
    }

    fn is_allowed(&self, ip: IpAddr) -> bool {
        self.allowed.iter().any(|net| net.contains(&ip) || net.contains(&ip.to_canonical()))
    }

    fn loopback(&self) -> Vec<IpAddr> {
        [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
            .into_iter()
            .filter(|&ip| self.permits(ip))
            .collect()
    }
}

/// Returns the host as an address. The parser has already normalised every notation (`0x7f.1`, `2130706433`, `%31…`).
fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(ip) => Some(ip.into()),
        Host::Ipv6(ip) => Some(ip.into()),
        Host::Domain(_) => None,
    }
}

fn without_root(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn is_localhost(name: &str) -> bool {
    let name = without_root(name);
    name == "localhost" || name.ends_with(".localhost")
}

fn is_private_name(name: &str) -> bool {
    let name = without_root(name);
    !name.contains('.') || PRIVATE_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
pub(super) mod tests;
