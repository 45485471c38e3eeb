//! Which addresses are public: those that a request to a user's URL may go to without being asked for by the operator.
//!
//! IPv4 is a list of what is not public. IPv6 is the other way round: only `2000::/3` is handed out, and a few blocks of
//! that are not public either. What wraps an IPv4 address (6to4, Teredo, NAT64, IPv4-compatible) is refused whatever is
//! inside; an IPv4-mapped address is the IPv4 address itself to the kernel, so it is judged as that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u32) -> (u32, u32) {
    (Ipv4Addr::new(a, b, c, d).to_bits(), prefix)
}

/// Blocks of IPv4 that are not public, as `(first address, prefix length)`.
const RESERVED_V4: &[(u32, u32)] = &[
    v4(0, 0, 0, 0, 8),        // this network; Linux connects 0.0.0.0 to itself
    v4(10, 0, 0, 0, 8),       // private
    v4(100, 64, 0, 0, 10),    // shared by carriers (CGNAT); clouds keep services here
    v4(127, 0, 0, 0, 8),      // loopback
    v4(168, 63, 129, 16, 32), // Azure's platform and metadata, though it looks public
    v4(169, 254, 0, 0, 16),   // link-local, with the metadata service of most clouds
    v4(172, 16, 0, 0, 12),    // private
    v4(192, 0, 0, 0, 24),     // protocol assignments
    v4(192, 0, 2, 0, 24),     // documentation
    v4(192, 88, 99, 0, 24),   // 6to4 relays
    v4(192, 168, 0, 0, 16),   // private
    v4(198, 18, 0, 0, 15),    // benchmarks
    v4(198, 51, 100, 0, 24),  // documentation
    v4(203, 0, 113, 0, 24),   // documentation
    v4(224, 0, 0, 0, 4),      // multicast
    v4(240, 0, 0, 0, 4),      // reserved, with the broadcast address
];

const fn v6(high: u16, low: u16, prefix: u32) -> (u128, u32) {
    (Ipv6Addr::new(high, low, 0, 0, 0, 0, 0, 0).to_bits(), prefix)
}

/// The block of IPv6 that public addresses come from.
const GLOBAL_V6: (u128, u32) = v6(0x2000, 0, 3);

/// Blocks within [`GLOBAL_V6`] that are not public.
const RESERVED_V6: &[(u128, u32)] = &[
    v6(0x2001, 0, 23),     // protocol assignments, Teredo and ORCHID among them
    v6(0x2001, 0xdb8, 32), // documentation
    v6(0x2002, 0, 16),     // 6to4
    v6(0x3fff, 0, 20),     // documentation
];

/// Whether a packet to `ip` leaves for the public internet.
pub(super) fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => !RESERVED_V4.iter().any(|&(net, prefix)| (ip.to_bits() ^ net) >> (32 - prefix) == 0),
        IpAddr::V6(ip) => {
            let within = |&(net, prefix): &(u128, u32)| (ip.to_bits() ^ net) >> (128 - prefix) == 0;
            within(&GLOBAL_V6) && !RESERVED_V6.iter().any(within)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's own data")]

    use proptest::prelude::*;

    use super::*;

    /// The first and the last address of every refused class, and the neighbours that are public.
    #[test]
    fn table() {
        let refused = "0.0.0.0 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 100.100.100.200 100.127.255.255 \
            127.0.0.1 127.255.255.255 168.63.129.16 169.254.0.0 169.254.169.254 169.254.255.255 172.16.0.0 \
            172.31.255.255 192.0.0.0 192.0.0.192 192.0.0.255 192.0.2.1 192.88.99.0 192.88.99.255 192.168.0.0 \
            192.168.255.255 198.18.0.0 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.0 239.255.255.255 240.0.0.0 \
            255.255.255.254 255.255.255.255 \
            :: ::1 ::2 ::127.0.0.1 ::93.184.216.34 ::ffff:127.0.0.1 ::ffff:10.1.2.3 ::ffff:169.254.169.254 \
            ::ffff:0:7f00:1 64:ff9b::7f00:1 64:ff9b::5db8:d822 64:ff9b:1::1 100::1 100:0:0:1::1 1fff:ffff::1 \
            2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1 \
            2001:db8::1 2001:db8:ffff::1 2002:7f00:1:: 2002:5db8:d822::1 3fff::1 3fff:fff:ffff::1 4000::1 5f00::1 \
            fc00::1 fd00::1 fd00:ec2::254 fe80::1 febf::1 fec0::1 feff::1 ff02::1 ff0e::1 \
            ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        for ip in refused.split_whitespace() {
            assert!(!is_public(ip.parse().unwrap()), "{ip} is let through");
        }
        let public = "1.0.0.0 1.1.1.1 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0 126.255.255.255 \
            128.0.0.0 168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 \
            192.0.1.0 192.0.3.0 192.88.98.255 192.88.100.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 \
            198.51.99.255 203.0.112.255 223.255.255.255 ::ffff:93.184.216.34 \
            2000::1 2001:200::1 2001:4860:4860::8888 2001:db7:ffff::1 2001:db9::1 2003::1 2606:4700::1111 \
            2a00:1450::1 3ffe:ffff::1 3fff:1000::1";
        for ip in public.split_whitespace() {
            assert!(is_public(ip.parse().unwrap()), "{ip} is refused");
        }
    }

    proptest! {
        /// What the standard library knows to be special is never public; a mapped address is as public as what it maps.
        #[test]
        fn agrees_with_the_standard_library(bits in any::<u32>(), six in any::<u128>()) {
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
}
