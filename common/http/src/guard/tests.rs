#![allow(clippy::unwrap_used, reason = "a test's own data")]

use super::super::test_server::{PendingLookup, ScriptedLookup};
use super::SchemePolicy::{HttpOrHttps, HttpsOnly};
use super::*;

fn nets(text: &str) -> Vec<IpNet> {
    text.split_whitespace().map(|net| net.parse().unwrap()).collect()
}

fn guard(allowed: &str, results: &str) -> Guard {
    Guard::with_lookup(nets(allowed), ScriptedLookup::of(results))
}

/// URLs in every notation of an address that is not public. They are rejected without a lookup.
pub(in super::super) const NOT_PUBLIC: &[&str] = &[
    "https://localhost/x",
    "https://localhost./x",
    "https://LOCALHOST/x",
    "https://a.b.localhost/x",
    "https://127.0.0.1/x",
    "https://127.0.0.1:8443/x",
    "https://127.8.9.10/x",
    "https://127.1/x",
    "https://0x7f.1/x",
    "https://0x7f000001/x",
    "https://2130706433/x",
    "https://0177.0.0.1/x",
    "https://017700000001/x",
    "https://127.0.0.1./x",
    "https://%31%32%37.0.0.1/x",
    "https://１２７.0.0.1/x",
    "https://①②⑦.0.0.1/x",
    "https://127。0。0。1/x",
    "https://0.0.0.0/x",
    "https://0/x",
    "https://[::1]/x",
    "https://[::]/x",
    "https://[::ffff:127.0.0.1]/x",
    "https://[::ffff:7f00:1]/x",
    "https://[::127.0.0.1]/x",
    "https://[64:ff9b::7f00:1]/x",
    "https://[2002:7f00:1::]/x",
    "https://0X7F.0X0.0X0.0X1/x",
    "https://00000177.1/x",
    "https://127.0.1/x",
    "https://127.0.0.0x1/x",
    "https://%30%78%37%66.1/x",
    "https://0x7f%2e1/x",
    "https://127．0．0．1/x",
    "https://127｡1/x",
    "https://[::FFFF:7F00:1]/x",
    "https://[0:0:0:0:0:ffff:127.0.0.1]/x",
    "https://[::ffff:0:127.0.0.1]/x",
    "https://[64:FF9B:1::1]/x",
    "https://[2001::1]/x",
    "https://[fec0::1]/x",
    "https://[fd00:ec2::254]/latest/meta-data/",
    "https://ＬＯＣＡＬＨＯＳＴ/x",
    "https://169.254.169.254/latest/meta-data/",
    "https://2852039166/x",
    "https://0xa9fea9fe/x",
    "https://0251.0376.0251.0376/x",
    "https://100.100.100.200/x",
    "https://192.0.0.192/x",
    "http://169.254.169.254/",
    "https://168.63.129.16/",
    "https://10.0.0.1/x",
    "https://100.64.0.1/x",
    "https://172.16.0.1/x",
    "https://192.168.1.1/x",
    "https://224.0.0.1/x",
    "https://255.255.255.255/x",
    "https://198.18.0.1/x",
    "https://192.0.2.1/x",
    "https://240.0.0.1/x",
    "https://[fd00::1]/x",
    "https://[fe80::1]/x",
    "https://[ff02::1]/x",
    "https://127.0.0.1/#@93.184.216.34/",
    "https://127.0.0.1?@93.184.216.34/",
    "https://router/x",
    "https://printer.local/x",
    "https://metadata.google.internal/x",
    "https://metadata.google.internal./x",
];

/// Other texts, which neither policy accepts as a URL.
pub(in super::super) const NO_URL: &[&str] = &[
    "",
    "/x",
    "not a url",
    "https://",
    "https:///x",
    "https:////127.0.0.1/x",
    "https:example.com",
    "https:/example.com/x",
    " https://example.com/x",
    "https://example.com/x ",
    "https://exam\tple.com/x",
    "https://example.com/\nx",
    "https://127.0.0.1\\@example.com/x",
    "https://example.com\\@127.0.0.1/x",
    "https://127.0.0\t.1/x",
    "https://127.0.0.1\n/x",
    "https://127.0.0.1\r\n/x",
    "\u{1}https://127.0.0.1/x",
    "https:\\\\127.0.0.1/x",
    "https://[fe80::1%25eth0]/x",
    "https://[fe80::1%eth0]/x",
    "https://[::1",
    "https://[127.0.0.1]/x",
    "https://127.0.0.1%00.example.com/x",
    "https://127.0.0.1%2f@example.com/x",
    "https://0x100000000/x",
    "https://08.0.0.1/x",
    "https://1.2.3.4.5/x",
    "https://256.1.1.1/x",
    "https://exa mple.com/x",
    "https://example.com:99999/x",
    "ftp://example.com/x",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "data:text/plain,x",
    "https://user@example.com/x",
    "https://:pw@example.com/x",
    "https://example.com@127.0.0.1/x",
    "https://example.com:443@10.0.0.1/x",
    "https://example.com%2F@127.0.0.1/x",
];

#[tokio::test]
async fn bad_urls_are_rejected_by_both_checks() {
    // If a name were looked up, it would be public.
    let guard = guard("", "93.184.216.34");
    for url in NOT_PUBLIC {
        for policy in [HttpsOnly, HttpOrHttps] {
            assert_eq!(guard.check_url(url, policy).err(), Some(UrlError::NotPublic), "{url}");
            assert_eq!(guard.check_resolved(url, policy).await.err(), Some(UrlError::NotPublic), "{url}");
        }
    }
    for url in NO_URL {
        for policy in [HttpsOnly, HttpOrHttps] {
            let error = guard.check_url(url, policy).err();
            assert!(error.is_some_and(|r| r != UrlError::NotPublic), "{url}: {error:?}");
            assert_eq!(guard.check_resolved(url, policy).await.err(), error, "{url}");
        }
    }
}

#[tokio::test]
async fn plain_http_requires_the_policy() {
    let guard = guard("", "93.184.216.34");
    for url in ["http://example.com/x", "http://93.184.216.34/x", "HTTP://example.com/"] {
        assert_eq!(guard.check_url(url, HttpsOnly).err(), Some(UrlError::NotHttps), "{url}");
        assert_eq!(guard.check_resolved(url, HttpsOnly).await.err(), Some(UrlError::NotHttps), "{url}");
        assert!(guard.check_resolved(url, HttpOrHttps).await.is_ok(), "{url}");
    }
    for url in [
        "https://example.com/x?y=%20#z",
        "https://93.184.216.34/x",
        "https://[2606:4700::1111]:8443/",
        "https://bücher.example/",
    ] {
        assert!(guard.check_url(url, HttpsOnly).is_ok(), "{url}");
        assert!(guard.check_resolved(url, HttpsOnly).await.is_ok(), "{url}");
    }
}

#[tokio::test]
async fn a_name_is_allowed_only_if_all_its_addresses_are() {
    let url = "https://example.com/x";
    let check = async |results: &str| guard("", results).check_resolved(url, HttpsOnly).await.err();
    assert_eq!(check("10.0.0.1").await, Some(UrlError::NotPublic));
    assert_eq!(check("93.184.216.34,10.0.0.1").await, Some(UrlError::NotPublic));
    assert_eq!(check("93.184.216.34,::ffff:10.0.0.1").await, Some(UrlError::NotPublic));
    assert_eq!(check("93.184.216.34,2606:4700::1111").await, None);
    assert_eq!(check("-").await, None, "the name may come later");
}

#[tokio::test(start_paused = true)]
async fn a_slow_lookup_does_not_delay_saving() {
    let guard = Guard::with_lookup(nets("10.0.0.0/8"), Arc::new(PendingLookup));
    let started = tokio::time::Instant::now();
    assert!(guard.check_resolved("https://example.com/", HttpsOnly).await.is_ok());
    assert_eq!(started.elapsed().as_secs(), 3);
    assert_eq!(guard.check_resolved("http://example.com/", HttpsOnly).await.err(), Some(UrlError::NotHttps));
    assert_eq!(started.elapsed().as_secs(), 6);
}

#[tokio::test]
async fn localhost_is_never_looked_up_in_dns() {
    for name in ["localhost", "localhost.", "LOCALHOST", "a.b.localhost."] {
        let blocked = guard("", "93.184.216.34").resolve(name).await;
        assert_eq!(blocked, Err(ResolveError::Blocked(name.to_owned())));
        let allowed = guard("127.0.0.0/8", "93.184.216.34").resolve(name).await;
        assert_eq!(allowed, Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]));
    }
}

#[tokio::test]
async fn allowed_networks_pass_even_over_plain_http() {
    let loopback = guard("127.0.0.0/8", "-");
    for url in [
        "http://127.0.0.1:8080/x",
        "https://127.0.0.1/x",
        "http://0x7f.1/x",
        "http://[::ffff:127.0.0.1]/x",
        "http://localhost:8080/x",
        "https://a.localhost./x",
    ] {
        assert_eq!(loopback.check_resolved(url, HttpsOnly).await.err(), None, "{url}");
    }
    assert_eq!(loopback.resolve("localhost").await, Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]), "::1 is not in it");
    for (url, error) in [
        ("http://10.0.0.1/x", UrlError::NotPublic),
        ("https://[::1]/x", UrlError::NotPublic),
        ("http://93.184.216.34/x", UrlError::NotHttps),
        ("http://unknown.example/x", UrlError::NotHttps),
    ] {
        assert_eq!(loopback.check_resolved(url, HttpsOnly).await.err(), Some(error), "{url}");
    }
    let check = async |url: &str, results: &str| {
        guard("10.0.0.0/8 fd00::/8", results).check_resolved(url, HttpsOnly).await.err()
    };
    assert_eq!(check("http://hooks.internal/", "10.1.2.3,fd00::5").await, None);
    assert_eq!(check("http://receiver:8080/", "10.1.2.3").await, None);
    assert_eq!(check("http://receiver:8080/", "10.1.2.3,93.184.216.34").await, Some(UrlError::NotHttps));
    assert_eq!(check("https://receiver/", "10.1.2.3,93.184.216.34").await, None);
    assert_eq!(check("https://receiver/", "10.1.2.3,192.168.0.1").await, Some(UrlError::NotPublic));
    assert_eq!(check("https://localhost/", "10.1.2.3").await, Some(UrlError::NotPublic), "never looked up");
}

proptest::proptest! {
    /// No text makes the check panic. A URL that passes is https, and not a blocked literal address.
    #[test]
    fn arbitrary_urls_pass_the_literal_check_if_accepted(text in "(https?://)?[a-z0-9.:/@%\\[\\]x-]{0,24}|\\PC{0,24}") {
        let guard = guard("", "-");
        if let Ok(url) = guard.check_url(&text, HttpsOnly) {
            proptest::prop_assert_eq!(url.scheme(), "https");
            proptest::prop_assert!(guard.check_literal(&url).is_ok());
        }
    }
}
