//! The guard: blocks requests to URLs that users choose unless they lead to public addresses.
//!
//! It checks a URL when it is saved, so that the user immediately gets an error ([`Guard::check_resolved`]), and again
//! at each connection: a literal address before the request is sent, the addresses of a name when it is looked up for
//! that connection. So a name that later resolves to another address (DNS rebinding) has no effect. If one address of a
//! name is not public, the name is blocked.
//!
//! Networks that the operator allowed (`CRIER_ALLOWED_PRIVATE_NETWORKS`) are permitted, even over plain http.
//!
//! The crate `http-acl-reqwest` is not used: it drops private addresses from a mixed lookup result instead of rejecting
//! the result, permits several reserved ranges, requires its own client type and reports rejections as text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use url::{Host, Url};

use super::address::is_public;
use super::resolver::{Lookup, SystemResolver};

/// The time limit of a lookup while a user waits for a URL to be saved.
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

/// Why a URL is rejected. The message completes "The URL …", and does not reveal the addresses of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
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
    #[error("the host name could not be resolved")]
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

    /// Checks a URL without looking up its name. With [`SchemePolicy::HttpsOnly`], plain http to a name is rejected:
    /// only [`Guard::check_resolved`] can determine whether it leads to an allowed network.
    pub fn check_url(&self, text: &str, policy: SchemePolicy) -> Result<Url, UrlError> {
        let url = self.check_form(text, policy)?;
        if policy == SchemePolicy::HttpsOnly && url.scheme() == "http" && url.domain().is_some() {
            return Err(UrlError::NotHttps);
        }
        Ok(url)
    }

    /// Checks a URL before it is saved, including the addresses of its name. A name that cannot be resolved within 3 s
    /// is accepted: it may exist later, and is checked again at each connection.
    pub async fn check_resolved(&self, text: &str, policy: SchemePolicy) -> Result<Url, UrlError> {
        let url = self.check_form(text, policy)?;
        let Some(name) = url.domain() else { return Ok(url) };
        let plain = policy == SchemePolicy::HttpsOnly && url.scheme() == "http";
        match tokio::time::timeout(SAVE_LOOKUP, self.resolve(name)).await {
            Ok(Err(ResolveError::Blocked(_))) => Err(UrlError::NotPublic),
            Ok(Ok(addresses)) if !plain || addresses.iter().all(|&ip| self.is_allowed(ip)) => Ok(url),
            Ok(Err(ResolveError::Unknown)) | Err(_) if !plain => Ok(url),
            _ => Err(UrlError::NotHttps),
        }
    }

    /// Returns whether a connection to `ip` is permitted.
    pub fn permits(&self, ip: IpAddr) -> bool {
        is_public(ip) || self.is_allowed(ip)
    }

    /// Checks the host of a request before it is sent, if it is a literal address. The resolver checks names.
    pub(super) fn check_literal(&self, url: &Url) -> Result<(), String> {
        match literal(url) {
            Some(ip) if !self.permits(ip) => Err(ip.to_string()),
            _ => Ok(()),
        }
    }

    /// Resolves a name; fails if any of its addresses is blocked.
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

    fn check_form(&self, text: &str, policy: SchemePolicy) -> Result<Url, UrlError> {
        // The parser would repair such a URL, and another parser might repair it differently.
        if text.trim() != text || text.contains(|c: char| c.is_control() || c == '\\') {
            return Err(UrlError::Invalid);
        }
        let url = Url::parse(text).map_err(|_| UrlError::Invalid)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(if policy == SchemePolicy::HttpsOnly { UrlError::NotHttps } else { UrlError::NotHttp });
        }
        // The parser also repairs `https:host` and `https:///host`.
        if text[url.scheme().len()..].strip_prefix("://").is_none_or(|rest| rest.starts_with('/')) {
            return Err(UrlError::Invalid);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlError::Userinfo);
        }
        self.check_host(&url, policy)?;
        Ok(url)
    }

    fn check_host(&self, url: &Url, policy: SchemePolicy) -> Result<(), UrlError> {
        let plain = policy == SchemePolicy::HttpsOnly && url.scheme() == "http";
        if let Some(ip) = literal(url) {
            return match ip {
                ip if !self.permits(ip) => Err(UrlError::NotPublic),
                ip if plain && !self.is_allowed(ip) => Err(UrlError::NotHttps),
                _ => Ok(()),
            };
        }
        let name = url.domain().ok_or(UrlError::Invalid)?;
        let is_blocked = if is_localhost(name) {
            self.loopback().is_empty()
        } else {
            self.allowed.is_empty() && is_private_name(name)
        };
        if is_blocked {
            return Err(UrlError::NotPublic);
        }
        // Without allowed networks, plain http is rejected regardless of the lookup.
        if plain && self.allowed.is_empty() { Err(UrlError::NotHttps) } else { Ok(()) }
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

/// Returns the host, if it is a literal address. The parser has normalized every notation (`0x7f.1`, `2130706433`,
/// `%31…`).
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
