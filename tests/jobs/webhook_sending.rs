//! The requests of webhooks, as the worker sends them: responses of every kind, as stored on both engines, and real
//! processes with the system's certificates and proxy variables. Tests that need name resolution or a shorter timeout
//! are in `common/http/src/tests`.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crier_domain::event::EventName;
use crier_domain::webhook::{Delivery, DeliveryStatus, Webhook, WebhookAttempt};
use crier_store::{deliveries, events, webhooks};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::support::client::until;
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::process::{Installation, program};

worker_on_both!(
    the_first_kilobyte_of_a_response_is_stored_as_text,
    a_redirect_is_recorded_and_not_followed,
    failures_are_recorded_with_their_class,
    a_blocked_stored_url_is_rejected_when_sending,
    sequential_deliveries_share_a_connection,
);

/// An endpoint that sends one fixed response to every request.
struct Endpoint {
    address: std::net::SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Endpoint {
    async fn responding(response: impl Into<Vec<u8>>) -> Self {
        Self::serve(response.into(), |stream| async { Some(stream) }).await
    }

    /// Starts an endpoint. `open` turns a connection into a stream of requests, or closes it.
    async fn serve<S, F>(response: Vec<u8>, open: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        F: Future<Output = Option<S>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self { address: listener.local_addr().unwrap(), connections: Arc::default() };
        let (count, open, response) = (this.connections.clone(), Arc::new(open), Arc::new(response));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (open, response) = (open.clone(), response.clone());
                tokio::spawn(async move {
                    let Some(mut stream) = open(stream).await else { return };
                    while read_request(&mut stream).await && stream.write_all(&response).await.is_ok() {}
                });
            }
        });
        this
    }

    fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Reads a request with its body; returns false if the client disconnected.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&got).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return true;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(n @ 1..) => got.extend_from_slice(&buffer[..n]),
            _ => return false,
        }
    }
}

fn http_response(status: &str, more: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{more}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Emits an event, runs the due attempt, and returns the newest delivery.
async fn deliver(w: &TestWorker) -> Delivery {
    let data = json!({ "post_id": 1 });
    w.write(async |tx| events::emit(tx, w.world.brand, EventName::PostPublished, &data, None).await).await;
    w.scheduler.tick().await.unwrap();
    assert!(w.engine.run(w.notified_job()).await);
    w.delivery(w.newest_delivery().await).await
}

/// Changes the URL of the only endpoint, and clears its failure record.
async fn move_to(w: &TestWorker, webhook: &Webhook, url: &str) {
    w.write(async |tx| webhooks::update(tx, &Webhook { is_active: false, ..webhook.clone() }).await).await;
    w.write(async |tx| webhooks::update(tx, &Webhook { url: url.to_owned(), ..webhook.clone() }).await).await;
}

/// Returns the last attempt of the newest delivery.
async fn last_attempt(w: &TestWorker) -> WebhookAttempt {
    let delivery = w.newest_delivery().await;
    deliveries::attempts(&mut w.conn().await, delivery, 1).await.unwrap().pop().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

async fn the_first_kilobyte_of_a_response_is_stored_as_text(w: TestWorker) {
    let webhook = w.listen_at("http://127.0.0.1:1/").await;
    let (bomb, nested) = (gzip(&vec![b'z'; 64 << 20]), gzip(&gzip(b"hello")));
    let long = "☃".repeat(100_000);
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}");
    let cases: [(&str, &[u8], String); 9] = [
        ("", b"", String::new()),
        ("", b"thanks", "thanks".to_owned()),
        ("", b"a\0b\0\0", "a\u{fffd}b\u{fffd}\u{fffd}".to_owned()),
        ("", b"\xff\xfe\x00ok \xed\xa0\x80 \xf0\x9f", lossy(b"\xff\xfe\x00ok \xed\xa0\x80 \xf0\x9f")),
        // Cut between two characters of three bytes.
        ("", long.as_bytes(), "☃".repeat(341)),
        ("Content-Encoding: gzip\r\n", &bomb, "z".repeat(1024)),
        ("Content-Encoding: gzip, gzip\r\n", &nested, lossy(&nested)),
        ("Content-Encoding: br\r\n", b"\x0b\x02\x80hello\x03", lossy(b"\x0b\x02\x80hello\x03")),
        ("Content-Encoding: gzip\r\n", b"this is not gzip", String::new()),
    ];
    for (more, body, expected) in cases {
        let endpoint = Endpoint::responding(http_response("200 OK", more, body)).await;
        move_to(&w, &webhook, &endpoint.url()).await;
        let delivery = deliver(&w).await;
        assert_eq!((delivery.status, delivery.response_code), (DeliveryStatus::Succeeded, Some(200)), "{more}");
        assert_eq!(delivery.response_body.as_deref(), Some(&*expected), "{more}");
        assert_eq!(last_attempt(&w).await.response_body, Some(expected), "{more}");
    }
}

async fn a_redirect_is_recorded_and_not_followed(w: TestWorker) {
    let target = Endpoint::responding(http_response("200 OK", "", b"")).await;
    let webhook = w.listen_at("http://127.0.0.1:1/").await;
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"] {
        for location in [target.url(), "http://169.254.169.254/latest/meta-data/".to_owned()] {
            let redirect = http_response(status, &format!("Location: {location}\r\n"), b"over there");
            let endpoint = Endpoint::responding(redirect).await;
            move_to(&w, &webhook, &endpoint.url()).await;
            let delivery = deliver(&w).await;
            let code = status[..3].parse::<i32>().unwrap();
            assert_eq!((delivery.status, delivery.response_code), (DeliveryStatus::Retrying, Some(code)));
            assert_eq!(delivery.error.unwrap(), format!("the endpoint returned {code}; redirects are not followed"));
            assert_eq!((last_attempt(&w).await.outcome.as_str(), endpoint.connections()), ("3xx", 1));
        }
    }
    assert_eq!(target.connections(), 0);
}

async fn failures_are_recorded_with_their_class(w: TestWorker) {
    let webhook = w.listen_at("http://127.0.0.1:1/").await;
    let garbage = Endpoint::responding("what is this").await;
    let plain = Endpoint::serve(Vec::new(), |mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        Some(stream)
    })
    .await;
    let hangs_up = Endpoint::serve(Vec::new(), |mut stream: TcpStream| async move {
        read_request(&mut stream).await;
        None::<TcpStream>
    })
    .await;
    let cases = [
        ("http://127.0.0.1:1/".to_owned(), "connect", "no connection could be made"),
        (hangs_up.url(), "connect", "the connection was lost before a valid response arrived"),
        (garbage.url(), "connect", "the connection was lost before a valid response arrived"),
        (plain.url().replace("http:", "https:"), "tls", "the TLS handshake failed: the server does not use TLS"),
        ("https://10.0.0.1/".to_owned(), "blocked", "the address is not public: 10.0.0.1"),
        ("https://no-such-name.invalid/".to_owned(), "dns", "the host name could not be resolved"),
    ];
    for (url, class, error) in cases {
        move_to(&w, &webhook, &url).await;
        let delivery = deliver(&w).await;
        assert_eq!((delivery.status, delivery.response_code), (DeliveryStatus::Retrying, None), "{url}");
        assert_eq!((last_attempt(&w).await.outcome.as_str(), delivery.error.as_deref()), (class, Some(error)), "{url}");
        assert_eq!(delivery.response_body, None);
    }
}

/// For example, if the network was allowed only when the URL was saved, or if the row was not written by the API.
async fn a_blocked_stored_url_is_rejected_when_sending(w: TestWorker) {
    let webhook = w.listen_at("http://127.0.0.1:1/").await;
    for url in [
        "http://0xa9fea9fe/latest/meta-data/",
        "http://2852039166/",
        "http://0251.0376.0251.0376/",
        "http://１６９。２５４。１６９。２５４/",
        "http://169.254.169.254./",
        "http://example.com@169.254.169.254/",
        "http://169.254.169.254\\@example.com/",
        "http://169.254.\t169.254/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[fd00:ec2::254]/",
        "http://[::1]/",
    ] {
        move_to(&w, &webhook, url).await;
        let delivery = deliver(&w).await;
        assert_eq!((last_attempt(&w).await.outcome.as_str(), delivery.response_code), ("blocked", None), "{url}");
    }
}

async fn sequential_deliveries_share_a_connection(w: TestWorker) {
    let endpoint = Endpoint::responding(http_response("200 OK", "", b"ok")).await;
    w.listen_at(&endpoint.url()).await;
    for _ in 0..5 {
        assert_eq!(deliver(&w).await.status, DeliveryStatus::Succeeded);
    }
    assert_eq!(endpoint.connections(), 1);
}

/// Starts an endpoint with TLS. Returns it, and the server names that clients request.
async fn tls_endpoint(certificate: &rcgen::Certificate, key: &KeyPair) -> (Endpoint, Arc<Mutex<Vec<Option<String>>>>) {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let (acceptor, names) = (TlsAcceptor::from(Arc::new(config)), Arc::<Mutex<Vec<_>>>::default());
    let seen = names.clone();
    let endpoint = Endpoint::serve(http_response("200 OK", "", b"ok"), move |stream| {
        let (acceptor, seen) = (acceptor.clone(), seen.clone());
        async move {
            let stream = acceptor.accept(stream).await.ok()?;
            seen.lock().unwrap().push(stream.get_ref().1.server_name().map(str::to_owned));
            Some(stream)
        }
    })
    .await;
    (endpoint, names)
}

#[tokio::test]
async fn system_certificates_are_trusted_and_proxies_ignored() {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let for_localhost = || CertificateParams::new(["localhost".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let (good, names) = tls_endpoint(&for_localhost().signed_by(&key, &authority).unwrap(), &key).await;
    let (forged, _) = tls_endpoint(&for_localhost().self_signed(&key).unwrap(), &key).await;
    let plain = Endpoint::responding(http_response("200 OK", "", b"ok")).await;
    // The proxy responds to every request.
    let proxy = Endpoint::responding(http_response("200 OK", "", b"from the proxy")).await;

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("authorities.pem");
    std::fs::write(&file, authority.pem()).unwrap();
    let (file, proxied) = (file.display().to_string(), format!("http://{}", proxy.address));
    let mut env = vec![("SSL_CERT_FILE", file.as_str())];
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        env.push((name, &proxied));
    }
    let crier = Installation::embedded_with(&env).await;
    let (brand, account) = crier.sandbox("demo").await;
    for port in [good.address.port(), forged.address.port()] {
        crier.listen(&format!("https://localhost:{port}/hook")).await;
    }
    crier.listen(&plain.url()).await;
    let post = crier.post(brand, account, "hello").await;
    crier.all_published(brand, &[post]).await;
    const DELIVERED: &str = "webhook_deliveries WHERE status = 'succeeded'";
    const REJECTED: &str = "webhook_attempts WHERE outcome = 'tls' AND error LIKE '%trusted authority%'";
    let count = async |rows: &'static str| crier.count_rows(rows).await;
    until("the attempts", || async { (count(DELIVERED).await == 2 && count(REJECTED).await >= 1).then_some(()) }).await;
    assert_eq!(*names.lock().unwrap(), [Some("localhost".to_owned())]);
    assert_eq!((plain.connections(), proxy.connections()), (1, 0));
    let metric = "crier_webhook_attempts_total{outcome=\"2xx\"}";
    assert_eq!(crier.metric(&crier.of("worker"), metric).await, Some(2.0));
}

#[test]
fn missing_system_certificates_are_reported_at_startup() {
    let dir = tempfile::tempdir().unwrap();
    let out = Command::new(program("crier"))
        .env_clear()
        .env("CRIER_DATA_DIR", dir.path())
        .env("CRIER_HTTP_ADDR", "127.0.0.1:0")
        .env("CRIER_OPS_ADDR", "127.0.0.1:0")
        .env("SSL_CERT_FILE", "/dev/null")
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("ca-certificates") && stderr.contains("SSL_CERT_FILE") && !stderr.contains("panic"),
        "{stderr}"
    );
}
