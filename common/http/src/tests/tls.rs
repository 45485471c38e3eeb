//! TLS: the servers that the client trusts.

use std::sync::Mutex;

use rcgen::{CertificateParams, KeyPair};

use super::authority::{Authority, acceptor, secure, valid};
use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_trusted_server_is_accepted_and_receives_sni() {
    let authority = Authority::new();
    // Over HTTP/1.1 if the server offers only that, or nothing.
    for (alpn, version) in [
        (&["http/1.1"][..], rustls::ALL_VERSIONS),
        (&[], &[&rustls::version::TLS12][..]),
        (&[], &[&rustls::version::TLS13][..]),
    ] {
        let names = Arc::new(Mutex::new(Vec::new()));
        let seen = names.clone();
        let params = CertificateParams::new(["hooks.example".to_owned()]).unwrap();
        let server = secure(authority.acceptor_of(params, alpn, version), move |mut stream| {
            seen.lock().unwrap().push(stream.get_ref().1.server_name().map(str::to_owned));
            async move {
                read_request(&mut stream).await;
                stream.write_all(OK).await.unwrap();
                let _ = stream.read(&mut [0; 1]).await;
            }
        })
        .await;
        let url = format!("https://hooks.example:{}/", server.port);
        assert_eq!(post(&authority.client(LONG, 1024), &url).await.unwrap().body, "ok");
        assert_eq!(*names.lock().unwrap(), [Some("hooks.example".to_owned())]);
    }
}

#[tokio::test]
async fn an_untrusted_server_receives_no_request() {
    let (authority, other) = (Authority::new(), Authority::named("another authority"));
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(["hooks.example".to_owned()]).unwrap().self_signed(&key).unwrap();
    let all = rustls::ALL_VERSIONS;
    let cases = [
        (acceptor(&own, &key, &[], all), "not signed by a trusted authority"),
        (other.acceptor("hooks.example", &[]), "not signed by a trusted authority"),
        // Another authority with the same name.
        (Authority::new().acceptor("hooks.example", &[]), "not signed by a trusted authority"),
        (authority.acceptor("other.example", &[]), "for another name"),
        (authority.acceptor_of(valid("hooks.example", 2010, 2011), &[], all), "has expired"),
        (authority.acceptor_of(valid("hooks.example", 2080, 2090), &[], all), "not valid yet"),
    ];
    let client = authority.client(LONG, 1024);
    for (acceptor, reason) in cases {
        let received = Arc::new(Mutex::new(String::new()));
        let log = received.clone();
        // In TLS 1.3 the server completes its handshake before the client has verified the certificate.
        let server = secure(acceptor, move |mut stream| {
            let log = log.clone();
            async move {
                *log.lock().unwrap() = read_request(&mut stream).await;
            }
        })
        .await;
        let error = post(&client, &format!("https://hooks.example:{}/", server.port)).await.unwrap_err();
        assert!(matches!(&error, HttpError::Tls(why) if why.contains(reason)), "{reason}: {error:?}");
        assert!(!error.may_have_arrived() && received.lock().unwrap().is_empty());
    }
}

/// Over HTTP/2, a file that is read slowly would block the others.
#[tokio::test]
async fn the_client_of_the_storage_offers_only_http_1() {
    let hello = Arc::new(Mutex::new(Vec::new()));
    let seen = hello.clone();
    let server = TestServer::run(move |mut stream| {
        let seen = seen.clone();
        async move {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).await.unwrap();
            seen.lock().unwrap().extend_from_slice(&bytes[..count]);
        }
    })
    .await;
    let client = object_storage_client(LONG, true).unwrap();
    client.get(format!("https://127.0.0.1:{}/", server.port)).send().await.unwrap_err();
    // The extension of the protocols, with its lengths.
    let only: &[u8] = b"\0\x10\0\x0b\0\x09\x08http/1.1";
    assert!(hello.lock().unwrap().windows(only.len()).any(|found| found == only));
}

#[tokio::test]
async fn outdated_tls_is_rejected() {
    let cases: [(&[u8], &str); 4] = [
        // Responses of a server that knows TLS 1.1 at best: the alert `protocol_version`, or its own hello.
        (&[21, 3, 2, 0, 2, 2, 70], "does not support TLS 1.2 or 1.3"),
        (TLS_1_1_HELLO, "does not support TLS 1.2 or 1.3"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not use TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not use TLS"),
    ];
    for (response, reason) in cases {
        let server = TestServer::run(move |mut stream| async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(response).await;
            let _ = stream.read(&mut [0; 4096]).await;
        })
        .await;
        let error = post(&client(LONG, 1024), &format!("https://127.0.0.1:{}/", server.port)).await.unwrap_err();
        assert!(matches!(&error, HttpError::Tls(why) if why.contains(reason)), "{response:?}: {error:?}");
        assert!(!error.may_have_arrived());
    }
}

/// A `ServerHello` of version 3.2: 32 dummy bytes, no session, an old cipher, no compression.
const TLS_1_1_HELLO: &[u8] = &[
    22, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
    23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 0, 0xc0, 0x13, 0,
];
