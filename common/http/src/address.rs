//! Public addresses, which requests to a user's URL may reach without the operator's permission.
//!
//! For IPv4 there is a list of blocks that are not public. For IPv6, only `2000::/3` is allocated, and the list has the
//! blocks within it that are not public. An address that embeds an IPv4 address (6to4, Teredo, NAT64, IPv4-compatible,
//! IPv4-translated) is never public. The kernel treats an IPv4-mapped address as the IPv4 address, so it is checked as
//! that address.
//!
//! The list follows IANA's registries of special-purpose addresses, with two exceptions: `192.0.0.0/24` and `2001::/23`
//! are blocked entirely, although a few anycast services for protocols other than HTTP are reachable in them. Addresses
//! that only look special are public: AS112 (`192.31.196.0/24`, `192.175.48.0/24`, `2620:4f:8000::/48`), AMT
//! (`192.52.193.0/24`), and addresses with an ISATAP suffix (`…:5efe:10.0.0.1`), which are routed by their first half
//! like any other address.
//!
//! **To add a block:** add one line to [`BLOCKED`], and its edges to the tests. The table in `docs/security.md` is
//! generated from the list.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6(high: u16, low: u16, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(high, low, 0, 0, 0, 0, 0, 0), prefix))
}

/// The IPv6 block that contains all public addresses.
const GLOBAL_V6: IpNet = v6(0x2000, 0, 3);

/// Blocks that are not public, with a description; of IPv6 only those within [`GLOBAL_V6`].
const BLOCKED: &[(IpNet, &str)] = &[
    (v4(0, 0, 0, 0, 8), "this network; Linux connects `0.0.0.0` to itself"),
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(100, 64, 0, 0, 10), "shared by carriers; clouds keep services here (`100.100.100.200`)"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    (v4(168, 63, 129, 16, 32), "Azure's platform and metadata, though it looks public"),
    (v4(169, 254, 0, 0, 16), "link-local, with the metadata service of most clouds (`169.254.169.254`)"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 0, 0, 0, 24), "protocol assignments; Oracle's older metadata (`192.0.0.192`)"),
    (v4(192, 0, 2, 0, 24), "documentation"),
    (v4(192, 88, 99, 0, 24), "6to4 relays"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(198, 18, 0, 0, 15), "benchmarks"),
    (v4(198, 51, 100, 0, 24), "documentation"),
    (v4(203, 0, 113, 0, 24), "documentation"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(240, 0, 0, 0, 4), "reserved, with the broadcast address"),
    (v6(0x2001, 0, 23), "protocol assignments, Teredo and ORCHID among them"),
    (v6(0x2001, 0xdb8, 32), "documentation"),
    (v6(0x2002, 0, 16), "6to4"),
    (v6(0x3fff, 0, 20), "documentation"),
];

/// Returns whether a packet to `ip` goes to the public internet.
pub(super) fn is_public(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    (ip.is_ipv4() || GLOBAL_V6.contains(&ip)) && !BLOCKED.iter().any(|(net, _)| net.contains(&ip))
}

#[cfg(test)]
#[path = "tests/address.rs"]
mod tests;
