#![allow(clippy::unwrap_used, reason = "a test's own data")]

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn public(ip: &str) -> bool {
    is_public(ip.parse().unwrap())
}

/// Addresses of every blocked class, and public neighbors.
#[test]
fn table() {
    let blocked = "0.0.0.0 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 100.127.255.255 127.0.0.1 127.255.255.255 \
        168.63.129.16 169.254.0.0 169.254.255.255 172.16.0.0 172.31.255.255 192.0.0.0 192.0.0.255 192.0.2.1 \
        192.88.99.0 192.88.99.255 192.168.0.0 192.168.255.255 198.18.0.0 198.19.255.255 198.51.100.7 203.0.113.9 \
        224.0.0.0 239.255.255.255 240.0.0.0 255.255.255.254 255.255.255.255 \
        :: ::1 ::2 ::127.0.0.1 ::93.184.216.34 ::ffff:127.0.0.1 ::ffff:10.1.2.3 ::ffff:169.254.169.254 \
        ::ffff:0:7f00:1 ::ffff:0:5db8:d822 64:ff9b::7f00:1 64:ff9b::5db8:d822 64:ff9b:1::1 100::1 100:0:0:1::1 \
        1fff:ffff::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1 \
        2001:db8::1 2001:db8:ffff::1 2002:7f00:1:: 2002:5db8:d822::1 3fff::1 3fff:fff:ffff::1 4000::1 5f00::1 \
        fc00::1 fd00::1 fe80::1 febf::1 fec0::1 feff::1 fe80::5efe:a00:1 ff02::1 ff0e::1 \
        ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    for ip in blocked.split_whitespace() {
        assert!(!public(ip), "{ip} is let through");
    }
    let all = "1.0.0.0 1.1.1.1 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0 126.255.255.255 \
        128.0.0.0 168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 \
        192.0.1.0 192.0.3.0 192.88.98.255 192.88.100.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 \
        198.51.99.255 203.0.112.255 223.255.255.255 ::ffff:93.184.216.34 \
        2000::1 2001:200::1 2001:4860:4860::8888 2001:db7:ffff::1 2001:db9::1 2003::1 2606:4700::1111 \
        2a00:1450::1 2a00:1450::5efe:a00:1 3ffe:ffff::1 3fff:1000::1";
    for ip in all.split_whitespace() {
        assert!(public(ip), "{ip} is blocked");
    }
}

/// IANA's registries of special-purpose addresses, and multicast, which has its own registries: each block, and whether
/// it may be called.
const REGISTRIES: &[(&str, bool)] = &[
    ("0.0.0.0/8", false),
    ("0.0.0.0/32", false),
    ("10.0.0.0/8", false),
    ("100.64.0.0/10", false),
    ("127.0.0.0/8", false),
    ("169.254.0.0/16", false),
    ("172.16.0.0/12", false),
    ("192.0.0.0/29", false),
    ("192.0.0.8/32", false),
    // The anycast addresses of PCP and TURN are reachable, but do not serve HTTP.
    ("192.0.0.9/32", false),
    ("192.0.0.10/32", false),
    ("192.0.0.170/32", false),
    ("192.0.0.171/32", false),
    ("192.0.0.0/24", false),
    ("192.0.2.0/24", false),
    ("192.31.196.0/24", true),
    ("192.52.193.0/24", true),
    ("192.88.99.2/32", false),
    ("192.88.99.0/24", false),
    ("192.168.0.0/16", false),
    ("192.175.48.0/24", true),
    ("198.18.0.0/15", false),
    ("198.51.100.0/24", false),
    ("203.0.113.0/24", false),
    ("224.0.0.0/4", false),
    ("240.0.0.0/4", false),
    ("255.255.255.255/32", false),
    ("::1/128", false),
    ("::/128", false),
    ("64:ff9b::/96", false),
    ("64:ff9b:1::/48", false),
    ("100::/64", false),
    ("100:0:0:1::/64", false),
    ("2001::/32", false),
    // Reachable, but not for HTTP: PCP, TURN, DNS-SD, AMT, AS112, host identities and drone identities.
    ("2001:1::1/128", false),
    ("2001:1::2/128", false),
    ("2001:1::3/128", false),
    ("2001:2::/48", false),
    ("2001:3::/32", false),
    ("2001:4:112::/48", false),
    ("2001:10::/28", false),
    ("2001:20::/28", false),
    ("2001:30::/28", false),
    ("2001::/23", false),
    ("2001:db8::/32", false),
    ("2002::/16", false),
    ("2620:4f:8000::/48", true),
    ("3fff::/20", false),
    ("5f00::/16", false),
    ("fc00::/7", false),
    ("fe80::/10", false),
    ("fec0::/10", false),
    ("ff00::/8", false),
];

#[test]
fn every_registry_block_is_classified_completely() {
    for (block, expected) in REGISTRIES {
        let net: IpNet = block.parse().unwrap();
        for ip in [net.network(), net.broadcast()] {
            assert_eq!(is_public(ip), *expected, "{ip} of {block}");
        }
    }
    for (net, what) in BLOCKED {
        let known = REGISTRIES.iter().any(|(block, public)| !public && block.parse::<IpNet>().unwrap() == *net);
        assert!(known || what.starts_with("Azure"), "{net} is in no registry");
    }
}

/// The addresses right before and after a block are public, unless another block begins there.
#[test]
fn block_boundaries_are_exact() {
    let blocked =
        |ip: IpAddr| BLOCKED.iter().any(|(net, _)| net.contains(&ip)) || ip.is_ipv6() && !GLOBAL_V6.contains(&ip);
    for (net, _) in BLOCKED {
        let (before, after): (Option<IpAddr>, Option<IpAddr>) = match net {
            IpNet::V4(net) => (
                net.network().to_bits().checked_sub(1).map(|bits| Ipv4Addr::from_bits(bits).into()),
                net.broadcast().to_bits().checked_add(1).map(|bits| Ipv4Addr::from_bits(bits).into()),
            ),
            IpNet::V6(net) => (
                net.network().to_bits().checked_sub(1).map(|bits| Ipv6Addr::from_bits(bits).into()),
                net.broadcast().to_bits().checked_add(1).map(|bits| Ipv6Addr::from_bits(bits).into()),
            ),
        };
        assert!(!is_public(net.network()) && !is_public(net.broadcast()), "{net}");
        for ip in before.into_iter().chain(after) {
            assert_eq!(is_public(ip), !blocked(ip), "{ip}, beside {net}");
        }
    }
}

/// The metadata services of clouds, which serve credentials.
#[test]
fn cloud_metadata_addresses_are_blocked() {
    let addresses = "169.254.169.254 169.254.170.2 169.254.170.23 169.254.169.253 169.254.169.252 169.254.42.42 \
        169.254.0.23 168.63.129.16 100.100.100.200 100.100.2.136 192.0.0.192 fd00:ec2::254 fd00:ec2::23 fd00:ec2::253 \
        fd20:ce::254 fd00:c1::a9fe:a9fe fe80::a9fe:a9fe ::ffff:169.254.169.254 ::ffff:168.63.129.16 \
        64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1";
    for ip in addresses.split_whitespace() {
        assert!(!public(ip), "{ip} is let through");
    }
}

/// `CRIER_TEST_UPDATE=1 cargo test -p crier-http address` regenerates the table.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own switch")]
fn the_table_in_the_documentation_is_up_to_date() {
    const BEGIN: &str = "<!-- addresses: made by common/http/src/tests/address.rs -->\n";
    const END: &str = "<!-- end of addresses -->\n";
    let mut table = "| Addresses | What they are |\n|---|---|\n".to_owned();
    for (net, what) in BLOCKED {
        table += &format!("| `{net}` | {what} |\n");
    }
    let inside = "loopback, private (`fc00::/7`), link-local, multicast, NAT64, and unassigned blocks";
    table += &format!("| all of IPv6 outside `{GLOBAL_V6}` | {inside} |\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (shown, after) = rest.split_once(END).unwrap();
    if std::env::var("CRIER_TEST_UPDATE").is_ok() {
        return std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    }
    assert_eq!(shown, table, "run: CRIER_TEST_UPDATE=1 cargo test -p crier-http address");
}

proptest! {
    /// An address that is special to the standard library is never public; a mapped address is as public as the address
    /// it maps.
    #[test]
    fn classification_agrees_with_the_standard_library(bits in any::<u32>(), six in any::<u128>()) {
        let ip = Ipv4Addr::from_bits(bits);
        let special = ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_broadcast()
            || ip.is_documentation() || ip.is_multicast() || ip.is_unspecified();
        prop_assert!(!(special && is_public(ip.into())));
        prop_assert_eq!(is_public(ip.into()), is_public(ip.to_ipv6_mapped().into()));
        let six = Ipv6Addr::from_bits(six);
        let special = six.is_loopback() || six.is_unspecified() || six.is_multicast() || six.is_unique_local()
            || six.is_unicast_link_local();
        prop_assert!(!(special && is_public(six.into())));
    }
}
