//! Lookups of names: the addresses that are permitted, and how long a result is used.

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// No notation of a URL leads to a blocked address: the URL is checked in the form in which it is requested.
#[tokio::test]
async fn no_url_notation_reaches_a_blocked_address() {
    let server = TestServer::responding(OK).await;
    let client = HttpClient::guarded(Guard::with_lookup(Vec::new(), ScriptedLookup::of("10.9.9.9")), LONG, 1024);
    let all = [guard::tests::NOT_PUBLIC, guard::tests::NO_URL].concat();
    for url in all {
        let here = url.replace("/x", &format!(":{}/x", server.port));
        for url in [url, &here] {
            let error = get(&client, url).await.unwrap_err();
            assert!(matches!(error, HttpError::Blocked(_) | HttpError::Invalid(_)), "{url}: {error:?}");
            assert!(!error.may_have_arrived());
        }
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_pooled_connection_keeps_its_checked_address() {
    let (hang_up, hung_up) = tokio::sync::watch::channel(());
    let server = TestServer::run(move |mut stream| {
        let mut hung_up = hung_up.clone();
        async move {
            loop {
                tokio::select! {
                    request = read_request(&mut stream) => assert!(!request.is_empty()),
                    _ = hung_up.changed() => return,
                }
                stream.write_all(OK).await.unwrap();
            }
        }
    })
    .await;
    let url = format!("http://rebind.example:{}/", server.port);
    let client = named("127.0.0.1 127.0.0.2", "127.0.0.1/32");
    for _ in 0..3 {
        assert_eq!(post(&client, &url).await.unwrap().body, "ok");
    }
    assert_eq!(server.connections(), 1, "looked up once");
    drop(hang_up);
    // The next connection looks the name up again, and checks its current address.
    let error = loop {
        match post(&client, &url).await {
            Err(error) if error.may_have_arrived() => {}
            ended => break ended.unwrap_err(),
        }
    };
    assert!(matches!(&error, HttpError::Blocked(name) if name == "rebind.example"), "{error:?}");
    assert_eq!(error.to_string(), "the address is not public: rebind.example", "not where it leads");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn mixed_lookup_results_are_rejected() {
    let server = TestServer::responding(OK).await;
    let url = format!("http://mixed.example:{}/", server.port);
    for result in ["127.0.0.1,10.0.0.1", "10.0.0.1,127.0.0.1", "127.0.0.1,::1", "127.0.0.1,::ffff:169.254.169.254"] {
        let error = get(&named(result, "127.0.0.0/8"), &url).await.unwrap_err();
        assert!(matches!(error, HttpError::Blocked(_)), "{result}: {error:?}");
    }
    assert_eq!(server.connections(), 0);
    assert_eq!(get(&named("127.0.0.1,127.0.0.1", "127.0.0.0/8"), &url).await.unwrap().body, "ok");
}

#[tokio::test]
async fn a_name_without_addresses_is_unknown() {
    struct Nothing;
    #[async_trait::async_trait]
    impl resolver::Lookup for Nothing {
        async fn lookup(&self, _name: &str) -> std::io::Result<Vec<std::net::IpAddr>> {
            Ok(Vec::new())
        }
    }
    let client = HttpClient::guarded(Guard::with_lookup(Vec::new(), Arc::new(Nothing)), LONG, 1024);
    assert!(matches!(get(&client, "https://empty.example/").await, Err(HttpError::Dns)));
}

/// The target of a redirect is never called, whether it is allowed or not.
#[tokio::test]
async fn redirects_are_returned_as_responses() {
    let target = TestServer::responding(OK).await;
    for status in [301, 302, 303, 307, 308] {
        for location in [target.url(), "http://169.254.169.254/latest/".to_owned(), "//10.0.0.1/".to_owned()] {
            let head = format!("HTTP/1.1 {status} Elsewhere\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            let server = TestServer::responding(head).await;
            let response = post(&client(LONG, 1024), &server.url()).await.unwrap();
            assert_eq!(
                (response.status.as_u16(), response.headers["location"].to_str().unwrap()),
                (status, &*location)
            );
        }
    }
    assert_eq!(target.connections(), 0);
}
