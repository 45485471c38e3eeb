//! HTTP/2, which the client uses if a server offers it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, Connection, SendResponse};
use http::Response;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::authority::{Authority, secure};
use super::*;

type Wire = Connection<TlsStream<TcpStream>, Bytes>;

/// Starts an HTTP/2 server that runs `handle` on each connection, numbered from 0.
async fn server<F>(authority: &Authority, handle: impl Fn(usize, Wire) -> F + Send + Sync + 'static) -> TestServer
where
    F: Future<Output = ()> + Send + 'static,
{
    server_of(authority, Builder::new(), handle).await
}

async fn server_of<F>(
    authority: &Authority,
    builder: Builder,
    handle: impl Fn(usize, Wire) -> F + Send + Sync + 'static,
) -> TestServer
where
    F: Future<Output = ()> + Send + 'static,
{
    let (handle, accepted) = (Arc::new(handle), Arc::new(AtomicUsize::new(0)));
    secure(authority.acceptor("h2.example", &["h2", "http/1.1"]), move |stream| {
        let (handle, builder) = (handle.clone(), builder.clone());
        let number = accepted.fetch_add(1, Ordering::SeqCst);
        async move {
            if let Ok(wire) = builder.handshake(stream).await {
                handle(number, wire).await;
            }
        }
    })
    .await
}

fn url(server: &TestServer) -> String {
    format!("https://h2.example:{}/", server.port)
}

fn send_ok(respond: &mut SendResponse<Bytes>) {
    let mut body = respond.send_response(Response::new(()), false).unwrap();
    body.send_data("ok".into(), true).unwrap();
}

/// Responds to every request.
async fn respond_to_all(mut wire: Wire) {
    while let Some(Ok((_, mut respond))) = wire.accept().await {
        send_ok(&mut respond);
    }
}

/// Drives the connection until the peer closes it.
async fn until_closed(mut wire: Wire) {
    while let Some(Ok(_)) = wire.accept().await {}
}

#[tokio::test]
async fn several_requests_share_one_connection() {
    let authority = Authority::new();
    let server = server(&authority, |_, wire| respond_to_all(wire)).await;
    let (client, url) = (authority.client(LONG, 1024), url(&server));
    assert_eq!(post(&client, &url).await.unwrap().body, "ok");
    let (one, two, three) = tokio::join!(post(&client, &url), post(&client, &url), get(&client, &url));
    for response in [one, two, three] {
        assert_eq!(response.unwrap().body, "ok");
    }
    assert_eq!(server.connections(), 1);
}

/// A request that the server received is never sent again, regardless of its result.
#[tokio::test]
async fn a_reset_request_may_have_arrived() {
    let authority = Authority::new();
    let all = [
        Reason::NO_ERROR,
        Reason::PROTOCOL_ERROR,
        Reason::INTERNAL_ERROR,
        Reason::CANCEL,
        Reason::ENHANCE_YOUR_CALM,
        Reason::HTTP_1_1_REQUIRED,
    ];
    for (reason, whole) in all.into_iter().flat_map(|reason| [(reason, false), (reason, true)]) {
        let received = Arc::new(AtomicUsize::new(0));
        let count = received.clone();
        let server = server(&authority, move |_, mut wire| {
            let count = count.clone();
            async move {
                while let Some(Ok((_, mut respond))) = wire.accept().await {
                    count.fetch_add(1, Ordering::SeqCst);
                    match whole {
                        true => wire.abrupt_shutdown(reason),
                        false => respond.send_reset(reason),
                    }
                }
            }
        })
        .await;
        let error = post(&authority.client(LONG, 1024), &url(&server)).await.unwrap_err();
        assert!(matches!(error, HttpError::Broken) && error.may_have_arrived(), "{reason}, {whole}: {error:?}");
        assert_eq!(received.load(Ordering::SeqCst), 1, "{reason}, the whole connection: {whole}");
    }
}

/// Only a request on a refused stream is sent again, because the server has not begun to process it.
#[tokio::test]
async fn a_refused_stream_is_retried() {
    let authority = Authority::new();
    let server = server(&authority, |_, mut wire| async move {
        let (_, mut respond) = wire.accept().await.unwrap().unwrap();
        respond.send_reset(Reason::REFUSED_STREAM);
        respond_to_all(wire).await;
    })
    .await;
    assert_eq!(post(&authority.client(LONG, 1024), &url(&server)).await.unwrap().body, "ok");
}

#[tokio::test]
async fn a_connection_with_goaway_is_replaced() {
    let authority = Authority::new();
    let server = server(&authority, |_, mut wire| async move {
        let (_, mut respond) = wire.accept().await.unwrap().unwrap();
        send_ok(&mut respond);
        wire.graceful_shutdown();
        until_closed(wire).await;
    })
    .await;
    let client = authority.client(LONG, 1024);
    for number in 1..=3 {
        assert_eq!(post(&client, &url(&server)).await.unwrap().body, "ok");
        assert_eq!(server.connections(), number);
    }
}

#[tokio::test]
async fn a_server_without_window_updates_times_out() {
    let authority = Authority::new();
    let mut builder = Builder::new();
    builder.initial_window_size(0);
    let server = server_of(&authority, builder, |_, mut wire| async move {
        let _request = wire.accept().await;
        until_closed(wire).await;
    })
    .await;
    let started = Instant::now();
    let error = post(&authority.client(SHORT, 1024), &url(&server)).await.unwrap_err();
    assert!(matches!(error, HttpError::Timeout { sent: true }), "{error:?}");
    assert!(started.elapsed() < LONG);
}

/// The server's process hangs while its kernel still accepts bytes. With one request after the other the connection is
/// never idle, so only the keep-alive ping ends it.
#[tokio::test]
async fn a_stalled_connection_does_not_block_later_requests() {
    let authority = Authority::new();
    let server = server(&authority, |number, mut wire| async move {
        if number > 0 {
            return respond_to_all(wire).await;
        }
        let (_, mut respond) = wire.accept().await.unwrap().unwrap();
        send_ok(&mut respond);
        let _request = wire.accept().await;
        std::future::pending::<()>().await;
    })
    .await;
    let (client, url) = (authority.client(SHORT, 1024), url(&server));
    assert_eq!(post(&client, &url).await.unwrap().body, "ok");
    let error = post(&client, &url).await.unwrap_err();
    assert!(matches!(error, HttpError::Timeout { sent: true }), "{error:?}");
    let error = post(&client, &url).await;
    assert!(matches!(error, Ok(_) | Err(HttpError::Timeout { sent: true })), "{error:?}");
    assert_eq!(post(&client, &url).await.unwrap().body, "ok");
    assert_eq!(server.connections(), 2);
}

/// Of endless bodies that are not read to their end, only a little is in flight, and the connection stays usable.
#[tokio::test]
async fn unread_bodies_are_limited_by_flow_control() {
    const CAP: usize = 64 * 1024;
    let authority = Authority::new();
    let sent = Arc::new(Mutex::new(0));
    let count = sent.clone();
    let server = server(&authority, move |_, mut wire| {
        let count = count.clone();
        async move {
            while let Some(Ok((request, mut respond))) = wire.accept().await {
                if request.method() == Method::POST {
                    send_ok(&mut respond);
                    continue;
                }
                let (mut body, count) = (respond.send_response(Response::new(()), false).unwrap(), count.clone());
                tokio::spawn(async move {
                    body.reserve_capacity(1 << 30);
                    while let Some(Ok(room)) = std::future::poll_fn(|cx| body.poll_capacity(cx)).await {
                        *count.lock().unwrap() += room;
                        if body.send_data(vec![0; room].into(), false).is_err() {
                            return;
                        }
                    }
                });
            }
        }
    })
    .await;
    let (client, url) = (authority.client(LONG, CAP), url(&server));
    for number in 1..=8 {
        let response = get(&client, &url).await.unwrap();
        assert_eq!((response.body.len(), response.truncated), (CAP, true));
        assert_eq!(post(&client, &url).await.unwrap().body, "ok");
        assert!(*sent.lock().unwrap() <= number * 4 * CAP, "{} bytes were sent", sent.lock().unwrap());
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn oversized_headers_are_rejected() {
    let authority = Authority::new();
    let server = server(&authority, |_, mut wire| async move {
        while let Some(Ok((_, mut respond))) = wire.accept().await {
            let mut response = Response::new(());
            for number in 0..10_000 {
                let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
                response.headers_mut().insert(name, http::HeaderValue::from_static("y"));
            }
            let _ = respond.send_response(response, true);
        }
    })
    .await;
    let error = post(&authority.client(LONG, 1024), &url(&server)).await.unwrap_err();
    assert!(matches!(error, HttpError::Broken), "{error:?}");
}
