//! Pooled connections: their number, their age, and what happens if they are closed.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpStream;

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Responds to each request with `response` until the client closes the connection.
async fn respond_to_each(mut stream: TcpStream, response: &[u8]) {
    while !read_request(&mut stream).await.is_empty() && stream.write_all(response).await.is_ok() {}
}

/// If the server closes each connection after one response without announcing it, the client opens a new one.
#[tokio::test]
async fn a_closed_pooled_connection_is_replaced() {
    let (closed, mut closed_rx) = tokio::sync::mpsc::unbounded_channel();
    let server = TestServer::run(move |mut stream| {
        let closed = closed.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(OK).await.unwrap();
            drop(stream);
            closed.send(()).unwrap();
        }
    })
    .await;
    let client = client(LONG, 1024);
    for number in 1..=20 {
        assert_eq!(post(&client, &server.url()).await.unwrap().body, "ok");
        closed_rx.recv().await.unwrap();
        assert_eq!(server.connections(), number);
    }
}

/// If a pooled connection breaks while a request is in flight, the request is not sent again, because it may have
/// arrived.
#[tokio::test]
async fn a_written_request_is_never_retried() {
    for response_count in [0, 1, 3] {
        let received = Arc::new(AtomicUsize::new(0));
        let count = received.clone();
        let server = TestServer::run(move |mut stream| {
            let count = count.clone();
            async move {
                for number in 0..=response_count {
                    read_request(&mut stream).await;
                    count.fetch_add(1, Ordering::SeqCst);
                    if number < response_count {
                        stream.write_all(OK).await.unwrap();
                    }
                }
            }
        })
        .await;
        let client = client(LONG, 1024);
        for _ in 0..response_count {
            assert_eq!(post(&client, &server.url()).await.unwrap().body, "ok");
        }
        let error = post(&client, &server.url()).await.unwrap_err();
        assert!(matches!(error, HttpError::Broken) && error.may_have_arrived(), "{error:?}");
        assert_eq!((received.load(Ordering::SeqCst), server.connections()), (response_count + 1, 1));
    }
}

/// The rest of a truncated body, or a body that should not exist, is never read as the next response.
#[tokio::test]
async fn responses_are_never_mixed_up() {
    let forged = "HTTP/1.1 500 Forged\r\nContent-Length: 0\r\n\r\n";
    let cases = [
        // Longer than the limit.
        format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{}", forged.repeat(100_000 / forged.len())),
        format!("HTTP/1.1 204 No Content\r\nContent-Length: {}\r\n\r\n{forged}", forged.len()),
        format!("HTTP/1.1 304 Not Modified\r\nContent-Length: {}\r\n\r\n{forged}", forged.len()),
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok{forged}"),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{forged}"),
    ];
    for response in cases {
        let served = Arc::new(AtomicUsize::new(0));
        let server = TestServer::run(move |stream| {
            let first = served.fetch_add(1, Ordering::SeqCst) == 0;
            let response = if first { response.clone().into_bytes() } else { OK.to_vec() };
            async move { respond_to_each(stream, &response).await }
        })
        .await;
        let client = client(LONG, 1024);
        let first = client.send_for_status(client.request(Method::POST, &server.url())).await.unwrap();
        assert!(first.status.as_u16() < 400, "{first:?}");
        let second = post(&client, &server.url()).await.unwrap();
        assert_eq!((second.status.as_u16(), &second.body[..]), (200, &b"ok"[..]));
        assert_eq!(server.connections(), 2);
    }
}

/// Starts a server that counts its open connections.
async fn counting() -> (TestServer, Arc<AtomicUsize>) {
    let open = Arc::new(AtomicUsize::new(0));
    let count = open.clone();
    let server = TestServer::run(move |stream| {
        let count = count.clone();
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            respond_to_each(stream, OK).await;
            count.fetch_sub(1, Ordering::SeqCst);
        }
    })
    .await;
    (server, open)
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..1_000_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn idle_connections_are_limited_in_number_and_age() {
    let (server, open) = counting().await;
    let client = client(LONG, 1024);
    let mut all = tokio::task::JoinSet::new();
    // The barrier makes all requests concurrent.
    let barrier = Arc::new(tokio::sync::Barrier::new(MAX_IDLE_PER_HOST + 30));
    for _ in 0..MAX_IDLE_PER_HOST + 30 {
        let (client, url, barrier) = (client.clone(), server.url(), barrier.clone());
        all.spawn(async move {
            barrier.wait().await;
            post(&client, &url).await.unwrap()
        });
    }
    all.join_all().await;
    assert!(server.connections() > MAX_IDLE_PER_HOST, "{}", server.connections());
    until("few are kept", || open.load(Ordering::SeqCst) <= MAX_IDLE_PER_HOST).await;
    assert_eq!(post(&client, &server.url()).await.unwrap().body, "ok");
    // After some idle time, no connection is kept.
    tokio::time::pause();
    tokio::time::advance(IDLE_TIMEOUT * 3).await;
    tokio::time::resume();
    until("none is kept", || open.load(Ordering::SeqCst) == 0).await;
}
