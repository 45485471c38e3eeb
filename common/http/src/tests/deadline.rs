//! The deadline of a request, which applies to all its phases together.

use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::*;

/// Sends a request and asserts that it ends in time.
async fn in_time(client: &HttpClient, url: &str) -> Result<HttpResponse, HttpError> {
    let started = Instant::now();
    let result = post(client, url).await;
    assert!(started.elapsed() < LONG, "{url}: {:?}", started.elapsed());
    result
}

#[tokio::test]
async fn a_request_on_an_unaccepted_connection_has_not_arrived() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // Once its queue is full, the kernel drops new connection attempts.
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) = timeout_at(Instant::now() + SHORT, TcpStream::connect(address)).await {
        waiting.push(stream);
    }
    for scheme in ["http", "https"] {
        let error = in_time(&client(SHORT, 1024), &format!("{scheme}://{address}/")).await.unwrap_err();
        assert!(matches!(error, HttpError::Timeout { sent: false }), "{scheme}: {error:?}");
        assert_eq!(error.to_string(), "no connection in time");
    }
}

/// Starts a server that writes `head` once, and then `drip` repeatedly, in real time like the deadline of the request:
/// a faster server would reach the limit of the headers or of the body before the deadline.
async fn dripping(head: &'static [u8], drip: &'static [u8]) -> TestServer {
    TestServer::run(move |mut stream| async move {
        read_request(&mut stream).await;
        let mut closed = stream.write_all(head).await.is_err();
        while !closed {
            tokio::time::sleep(SHORT / 200).await;
            closed = stream.write_all(drip).await.is_err();
        }
    })
    .await
}

#[tokio::test]
async fn endless_headers_time_out() {
    let cases: [(&[u8], &[u8]); 6] = [
        (b"", b""),
        (b"HTTP/1.1 20", b""),
        (b"HTTP/1.1 200 OK\r\n", b"X"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"y"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b""),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
    ];
    let mut all = JoinSet::new();
    for (head, drip) in cases {
        all.spawn(async move {
            let server = dripping(head, drip).await;
            let error = in_time(&client(SHORT, 1024), &server.url()).await.unwrap_err();
            let seen = String::from_utf8_lossy(head);
            assert!(matches!(error, HttpError::Timeout { sent: true }), "{seen}: {error:?}");
            assert_eq!((error.to_string().as_str(), error.may_have_arrived()), ("no response in time", true));
        });
    }
    all.join_all().await;
}

#[tokio::test]
async fn status_requests_return_partial_endless_bodies() {
    let cases: [(&[u8], &[u8]); 4] = [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        // A trailer that does not end.
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X"),
    ];
    let mut all = JoinSet::new();
    for (head, drip) in cases {
        all.spawn(async move {
            let server = dripping(head, drip).await;
            let client = client(SHORT, 1024);
            let error = in_time(&client, &server.url()).await.unwrap_err();
            assert!(matches!(error, HttpError::Timeout { sent: true }), "{error:?}");
            let started = Instant::now();
            let response = client.send_for_status(client.request(Method::POST, &server.url())).await.unwrap();
            assert!(response.status == 200 && response.truncated && response.body.starts_with(b"x"), "{response:?}");
            assert!(started.elapsed() < LONG);
        });
    }
    all.join_all().await;
}
