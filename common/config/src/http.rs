//! Listen addresses and trusted proxies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use url::Url;

use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::{ProcessRole, values};

const ADDR: Key = Key::new(
    "HTTP_ADDR",
    "The address and port that the API listens on.",
    DefaultValue::Value("127.0.0.1:8080"),
    "127.0.0.1:8080",
);
const OPS_ADDR: Key = Key::new(
    "OPS_ADDR",
    "The address and port on which each process serves `/healthz`, `/readyz` and `/metrics`.",
    DefaultValue::Value("127.0.0.1:9090"),
    "127.0.0.1:9090",
);
const TRUSTED_PROXIES: Key = Key::new(
    "TRUSTED_PROXIES",
    "Addresses or networks of the reverse proxies whose X-Forwarded-For header is trusted.",
    DefaultValue::Value(""),
    "127.0.0.1,10.0.0.0/8",
);
const MAX_CONNECTIONS: Key = Key::new(
    "MAX_CONNECTIONS",
    "The maximum number of client connections to the API, at most half of the open-file limit. At the maximum, a new \
     connection replaces the one that has been idle longest.",
    DefaultValue::Value("10000"),
    "10000",
);
const DRAIN_DELAY: Key = Key::new(
    "DRAIN_DELAY",
    "The time for which the API continues to accept requests after SIGTERM, while `/readyz` returns 503, so that a load \
     balancer can send them to other replicas. `CRIER_DRAIN` begins after it.",
    DefaultValue::Text("5s in `crier-api`, 0s in `crier`"),
    "5s",
);
const MCP: Key = Key::new(
    "MCP",
    "Whether agents can use the API's endpoints as tools at `/mcp`.",
    DefaultValue::Value("true"),
    "false",
);
pub(super) const KEYS: &[Key] = &[ADDR, OPS_ADDR, TRUSTED_PROXIES, MAX_CONNECTIONS, DRAIN_DELAY, MCP];

/// Load balancers check every few seconds whether a replica is ready.
const REPLICA_DRAIN_DELAY: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct HttpConfig {
    pub addr: SocketAddr,
    pub ops_addr: SocketAddr,
    pub trusted_proxies: Vec<IpNet>,
    pub max_connections: usize,
    pub drain_delay: Duration,
    /// Whether `/mcp` exists.
    pub mcp: bool,
}

impl HttpConfig {
    /// Returns the local URL of the API. An unspecified address (`0.0.0.0`) is replaced by loopback.
    pub fn own_url(&self) -> Url {
        local_url(self.addr)
    }

    /// Returns the local URL of the ops server.
    pub fn own_ops_url(&self) -> Url {
        local_url(self.ops_addr)
    }
}

fn local_url(listener: SocketAddr) -> Url {
    let ip = match listener.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let address = SocketAddr::new(ip, listener.port());
    // An address and a port are always a valid URL.
    Url::parse(&format!("http://{address}")).unwrap_or_else(|_| unreachable!("{address} is no host"))
}

pub(super) fn read(reader: &mut Reader, role: ProcessRole) -> HttpConfig {
    let delay = |text: &str| values::duration(text, Duration::ZERO, Duration::from_secs(600));
    // Without other replicas, a delay only makes the process stop later.
    let default_delay = if role.is_separate() { REPLICA_DRAIN_DELAY } else { Duration::ZERO };
    let config = HttpConfig {
        addr: reader.parse(&ADDR, values::address),
        ops_addr: reader.parse(&OPS_ADDR, values::address),
        trusted_proxies: reader.parse(&TRUSTED_PROXIES, values::networks),
        max_connections: reader.parse(&MAX_CONNECTIONS, |text| values::number(text, 1, 1_000_000)),
        drain_delay: reader.optional(&DRAIN_DELAY, delay).unwrap_or(default_delay),
        mcp: reader.parse(&MCP, values::boolean),
    };
    if config.addr == config.ops_addr && config.addr.port() != 0 {
        reader.add_problem(
            OPS_ADDR.variable(),
            format!("is {}, which the API already listens on; choose another port", config.ops_addr),
        );
    }
    config
}
