//! Servers that send invalid responses.

use std::sync::Mutex;

use super::*;

async fn exchange(response: impl Into<Vec<u8>>) -> Result<HttpResponse, HttpError> {
    let server = TestServer::responding(response).await;
    let client = client(LONG, 1024);
    client.send_for_status(client.request(Method::POST, &server.url()).body("hello")).await
}

#[tokio::test]
async fn invalid_http_is_an_error() {
    let many: String = (0..10_000).map(|number| format!("X-{number}: y\r\n")).collect();
    let cases = [
        "hello\r\n".to_owned(),
        "<html>no head at all</html>".to_owned(),
        "HTTP/0.9 200 OK\r\n\r\n".to_owned(),
        "HTTP/3 200 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 099 Odd\r\n\r\n".to_owned(),
        "HTTP/1.1 abc Odd\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\n: nameless\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nX: y\0z\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nhello".to_owned(),
        "HTTP/1.1 200 OK\r\nX: y".to_owned(),
        "HTTP/1.1 200 OK\r\nX: y\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(1 << 20)),
    ];
    for response in cases {
        let error = exchange(response.clone()).await.unwrap_err();
        let start = &response[..response.len().min(60)];
        assert!(matches!(error, HttpError::Broken) && error.may_have_arrived(), "{start}: {error:?}");
        assert_eq!(error.to_string(), "the connection was lost before a valid response arrived");
    }
}

#[tokio::test]
async fn informational_responses_are_skipped() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n".repeat(1_000);
    let response =
        exchange(format!("HTTP/1.1 100 Continue\r\n\r\n{hints}HTTP/1.1 202 Accepted\r\n\r\nok")).await.unwrap();
    assert_eq!((response.status.as_u16(), &response.body[..]), (202, &b"ok"[..]));
    assert!(!response.headers.contains_key("link"));
    // The client did not request another protocol.
    assert_eq!(exchange("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n").await.unwrap().status, 101);
}

/// If the headers of a response never end, the client closes the connection long before the server does.
#[tokio::test]
async fn endless_headers_use_bounded_memory() {
    for line in ["X-Header: y\r\n", "y"] {
        let sent = Arc::new(Mutex::new(0));
        let count = sent.clone();
        let server = TestServer::run(move |mut stream| {
            let (count, piece) = (count.clone(), line.repeat(1_000));
            async move {
                read_request(&mut stream).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").await;
                while stream.write_all(piece.as_bytes()).await.is_ok() {
                    *count.lock().unwrap() += piece.len();
                }
            }
        })
        .await;
        let error = post(&client(LONG, 1024), &server.url()).await.unwrap_err();
        assert!(matches!(error, HttpError::Broken), "{error:?}");
        // More than half a megabyte can be sent because of the kernel's buffers.
        assert!(*sent.lock().unwrap() < 16 << 20, "{} bytes were sent", sent.lock().unwrap());
    }
}

#[tokio::test]
async fn invalid_chunks_are_truncated_or_rejected() {
    let chunked = |body: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    for (body, expected) in [
        ("FFFFFFFFFFFFFFFF\r\nabc", "abc"),
        ("3\r\nabc\r\nFFFFFFFFFFFFFFFFF\r\nd", "abc"),
        ("3\r\nabc\r\n-1\r\nd", "abc"),
        ("3\r\nabcdef", "abc"),
        ("3\r\nabc\r\n0\r\nX: y\r\nX", "abc"),
    ] {
        let response = exchange(chunked(body)).await.unwrap();
        assert_eq!(
            (response.status.as_u16(), &response.body[..], response.truncated),
            (200, expected.as_bytes(), true)
        );
    }
    for endless in [format!("3;{}", "x".repeat(1 << 20)), format!("3\r\nabc\r\n0\r\n{}", "X: y\r\n".repeat(1 << 18))] {
        let response = exchange(chunked(&endless)).await.unwrap();
        assert!(response.truncated && b"abc".starts_with(&response.body), "{response:?}");
    }
}

#[tokio::test]
async fn only_known_encodings_are_decoded_once() {
    let zip = |bytes: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    };
    let (once, twice) = (zip(b"hello"), zip(&zip(b"hello")));
    let cases: [(&str, &[u8], &[u8], bool); 7] = [
        ("gzip", &once, b"hello", false),
        ("gzip, gzip", &twice, &twice, false),
        ("gzip\r\nContent-Encoding: gzip", &twice, &once, false),
        ("br", b"hello", b"hello", false),
        ("identity", b"hello", b"hello", false),
        ("gzip", b"not gzip", b"", true),
        ("gzip", &once[..once.len() - 4], b"hello", true),
    ];
    for (encoding, sent, expected, truncated) in cases {
        let mut response =
            format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n", sent.len())
                .into_bytes();
        response.extend(sent);
        let response = exchange(response).await.unwrap();
        assert_eq!(
            (response.status.as_u16(), &response.body[..], response.truncated),
            (200, expected, truncated),
            "{encoding}"
        );
    }
}
