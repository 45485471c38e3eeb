//! Authentication and rate limits, by API key or client address.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crier_domain::plan::{MAX_REQUESTS_PER_MINUTE, Plan};
use crier_store::idempotency::KeyRecord;
use crier_store::keys::{self, Authenticated, Caller};
use crier_store::oauth;
use crier_telemetry::metrics;
use http::HeaderMap;
use http::header::{AUTHORIZATION, FORWARDED};
use ipnet::IpNet;
use salvo::conn::SocketAddr;
use salvo::{Request, Response};
use secrecy::SecretString;

use crate::app::App;
use crate::error::{ApiError, Result};
use crate::limits::{Decision, RateLimitSubject};
use crate::reply;

/// Requests per minute from an address without a valid key.
const UNAUTHENTICATED_REQUESTS_PER_MINUTE: u32 = 60;
/// Requests for public pages and files per minute and address, in each process.
const VISITS_PER_MINUTE: u32 = 1_200;
const FORWARDED_FOR: &str = "x-forwarded-for";
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
const MAX_IDEMPOTENCY_KEY: usize = 255;

/// The kind of credential that authenticates a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    ApiKey,
    /// The access token of a connected application.
    AccessToken,
}

impl Credential {
    /// Returns the caller of a token, the membership in a brand, and what is stored under an `Idempotency-Key`.
    pub async fn authenticate(
        self,
        app: &App,
        token: &SecretString,
        brand_id: Option<i64>,
        idempotency_key: Option<&str>,
    ) -> Result<Option<(Authenticated, KeyRecord)>> {
        let mut conn = app.store.read().await?;
        Ok(match self {
            Self::ApiKey => keys::authenticate(&mut conn, token, brand_id, idempotency_key).await?,
            Self::AccessToken => {
                oauth::authenticate(&mut conn, token, brand_id, idempotency_key, app.store.now()).await?
            }
        })
    }

    /// Returns whether a token has the form of this credential. Another one needs no look-up.
    fn has_form_of(self, token: &str) -> bool {
        match self {
            Self::ApiKey => keys::hash(token).is_some(),
            Self::AccessToken => oauth::is_access_token(token),
        }
    }
}

/// Authenticates the caller of an endpoint, like [`admit_with`].
pub async fn admit(
    app: &Arc<App>,
    req: &Request,
    res: &mut Response,
    brand_id: Option<i64>,
) -> Result<(Authenticated, KeyRecord)> {
    admit_with(Credential::ApiKey, app, req, res, brand_id).await
}

/// Authenticates the caller and counts the request against the key's limit, or against the address if there is no valid
/// key. Also returns the caller's membership in the brand and the record of the request's `Idempotency-Key`.
pub async fn admit_with(
    credential: Credential,
    app: &Arc<App>,
    req: &Request,
    res: &mut Response,
    brand_id: Option<i64>,
) -> Result<(Authenticated, KeyRecord)> {
    let found = identify(credential, app, req.headers(), brand_id).await;
    let found = match found {
        Ok(Some(found)) => found,
        other => {
            let decision = count_address(app, req).await;
            reply::write_rate_limit_headers(res.headers_mut(), &decision);
            other?;
            return Err(if decision.allowed {
                ApiError::unauthorized(req.headers().contains_key(AUTHORIZATION))
            } else {
                ApiError::rate_limited(decision.retry_after)
            });
        }
    };
    let decision = count_key(app, &found.0.caller).await?;
    reply::write_rate_limit_headers(res.headers_mut(), &decision);
    if decision.allowed { Ok(found) } else { Err(ApiError::rate_limited(decision.retry_after)) }
}

/// Counts a request that needs no API key (an unknown path, the OpenAPI document).
pub async fn count_unauthenticated(app: &Arc<App>, req: &Request, res: &mut Response) {
    let decision = match identify(Credential::ApiKey, app, req.headers(), None).await {
        Ok(Some((found, _))) => match count_key(app, &found.caller).await {
            Ok(decision) => decision,
            Err(_) => count_address(app, req).await,
        },
        _ => count_address(app, req).await,
    };
    reply::write_rate_limit_headers(res.headers_mut(), &decision);
}

/// Returns the caller's plan.
pub fn plan<'a>(app: &'a App, caller: &Caller) -> Result<&'a Plan> {
    app.plans.get(&caller.plan).ok_or_else(|| ApiError::bug(format!("the plans file has no plan `{}`", caller.plan)))
}

async fn count_key(app: &App, caller: &Caller) -> Result<Decision> {
    let limit = plan(app, caller)?
        .requests_per_minute
        .map_or(MAX_REQUESTS_PER_MINUTE, |n| u32::try_from(n).unwrap_or(MAX_REQUESTS_PER_MINUTE));
    Ok(app.limiter.take(RateLimitSubject::Key(caller.key_id), limit).await)
}

/// Returns the client's address.
pub fn address_of(app: &App, req: &Request) -> IpAddr {
    client_address(req.remote_addr(), req.headers(), &app.trusted_proxies)
}

/// Counts a request against the client's address: one without a valid key, or a write by a page visitor.
pub async fn count_address(app: &App, req: &Request) -> Decision {
    app.limiter.take(RateLimitSubject::address(address_of(app, req)), UNAUTHENTICATED_REQUESTS_PER_MINUTE).await
}

/// Counts a request for a public page against the client's address. `None` if the address is private: it may be that of
/// an untrusted proxy, which all visitors share.
pub fn count_public_page_request(app: &App, req: &Request) -> Option<Decision> {
    let address = address_of(app, req).to_canonical();
    (!is_private(address)).then(|| app.visits.take_now(RateLimitSubject::address(address), VISITS_PER_MINUTE))
}

/// Counts a request for a sign-in or connect page against the client's address.
pub async fn count_sign_in_or_connect_request(app: &App, req: &Request) -> Decision {
    app.limiter.take(RateLimitSubject::visitor(address_of(app, req)), UNAUTHENTICATED_REQUESTS_PER_MINUTE).await
}

/// Reports a proxy that `CRIER_TRUSTED_PROXIES` does not include: all its clients share its address, and therefore its
/// limits. Only private addresses are reported, because any other client can send the header too.
pub fn report_untrusted_proxy(app: &App, req: &Request) {
    let headers = req.headers();
    if !headers.contains_key(FORWARDED_FOR) && !headers.contains_key(FORWARDED) {
        return;
    }
    let peer = peer_address(req.remote_addr());
    if !is_private(peer) || is_trusted(&app.trusted_proxies, peer) {
        return;
    }
    metrics::http_untrusted_proxy_request();
    if !app.has_warned_of_proxy.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            proxy = %peer,
            "requests arrive through a proxy that is not in CRIER_TRUSTED_PROXIES: its clients share one rate limit"
        );
    }
}

async fn identify(
    credential: Credential,
    app: &App,
    headers: &HeaderMap,
    brand_id: Option<i64>,
) -> Result<Option<(Authenticated, KeyRecord)>> {
    let Some(token) = bearer(headers).filter(|token| credential.has_form_of(token)) else { return Ok(None) };
    credential.authenticate(app, &SecretString::from(token), brand_id, idempotency_key(headers)).await
}

/// Returns the `Idempotency-Key` if it is valid.
pub fn idempotency_key(headers: &HeaderMap) -> Option<&str> {
    headers.get(IDEMPOTENCY_KEY)?.to_str().ok().filter(|value| is_idempotency_key(value))
}

pub fn is_idempotency_key(text: &str) -> bool {
    (1..=MAX_IDEMPOTENCY_KEY).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns the token of `Authorization: Bearer …`. The scheme's name is case-insensitive.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the client's address: the peer's, or if that is a trusted proxy, the nearest address in `X-Forwarded-For`
/// that is not a trusted proxy. Addresses further left were written by the client and are not trusted.
fn client_address(peer: &SocketAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let peer = peer_address(peer);
    if !is_trusted(trusted, peer) {
        return peer;
    }
    let mut nearest = peer;
    let values = headers.get_all(FORWARDED_FOR);
    let hops: Vec<&str> = values.iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).collect();
    for hop in hops.into_iter().rev() {
        let Some(ip) = address(hop.trim()) else { break };
        nearest = ip;
        if !is_trusted(trusted, ip) {
            break;
        }
    }
    nearest
}

fn peer_address(peer: &SocketAddr) -> IpAddr {
    match peer {
        SocketAddr::IPv4(addr) => IpAddr::from(*addr.ip()),
        SocketAddr::IPv6(addr) => IpAddr::from(*addr.ip()).to_canonical(),
        _ => IpAddr::from([0, 0, 0, 0]),
    }
}

fn is_trusted(trusted: &[IpNet], ip: IpAddr) -> bool {
    trusted.iter().any(|net| net.contains(&ip))
}

/// Returns whether an address is local or in a private network, where proxies usually are.
fn is_private(ip: IpAddr) -> bool {
    match ip {
        // 100.64.0.0/10 is used by the networks of some clouds and VPNs (RFC 6598).
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_loopback() || ip.is_private() || ip.is_link_local() || (a == 100 && (64..128).contains(&b))
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// Parses an address as proxies write it: with a port, with brackets, or with neither.
fn address(text: &str) -> Option<IpAddr> {
    let ip = text.parse::<IpAddr>().ok().or_else(|| text.parse::<std::net::SocketAddr>().ok().map(|a| a.ip()));
    ip.or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok()).map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, forwarded: &[&str]) -> String {
        let peer: std::net::SocketAddr = format!("{peer}:1234").parse().unwrap();
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", value.parse().unwrap());
        }
        let trusted = ["10.0.0.0/8".parse().unwrap(), "127.0.0.1/32".parse().unwrap()];
        client_address(&peer.into(), &headers, &trusted).to_string()
    }

    #[test]
    fn forwarded_addresses_are_accepted_only_from_trusted_proxies() {
        assert_eq!(client("203.0.113.9", &["198.51.100.1"]), "203.0.113.9");
        assert_eq!(client("10.1.2.3", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("10.1.2.3", &["1.1.1.1, 198.51.100.1, 10.9.9.9"]), "198.51.100.1");
        assert_eq!(client("10.1.2.3", &["1.1.1.1", "198.51.100.1:4711"]), "198.51.100.1");
        assert_eq!(client("10.1.2.3", &["[2001:db8::1]"]), "2001:db8::1");
        assert_eq!(client("10.1.2.3", &["198.51.100.1, unknown"]), "10.1.2.3");
        assert_eq!(client("10.1.2.3", &[]), "10.1.2.3");
    }

    #[test]
    fn private_addresses_are_recognized() {
        for ip in ["127.0.0.1", "10.1.2.3", "172.18.0.1", "192.168.0.1", "100.64.0.1", "169.254.1.1", "::1", "fd00::1"]
        {
            assert!(is_private(ip.parse().unwrap()), "{ip}");
        }
        for ip in ["203.0.113.9", "172.32.0.1", "100.128.0.1", "2001:db8::1"] {
            assert!(!is_private(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn api_key_is_read_from_the_authorization_header() {
        let key = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(key("bEARER abc").as_deref(), Some("abc"));
        assert_eq!(key("Bearer"), None);
        assert_eq!(key("Basic dTpw"), None);
    }
}
