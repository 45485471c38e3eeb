//! Downloads: streamed bodies and redirects.

use std::sync::Mutex;

use super::super::download::{Download, DownloadError, MAX_REDIRECTS};
use super::authority::{Authority, secure};
use super::*;

const MAX_BYTES: u64 = 1_000;

fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

fn whole(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// Starts a server that returns `response` of each path. Also returns the requests that it received.
async fn site(response: impl Fn(&str) -> String + Send + Sync + 'static) -> (TestServer, Arc<Mutex<Vec<String>>>) {
    let (requests, response) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(response));
    let log = requests.clone();
    let server = TestServer::run(move |mut stream| {
        let (log, response) = (log.clone(), response.clone());
        async move {
            let request = read_request(&mut stream).await;
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            log.lock().unwrap().push(request);
            let _ = stream.write_all(response(&path).as_bytes()).await;
        }
    })
    .await;
    (server, requests)
}

async fn download(client: &HttpClient, url: &str) -> Result<Download, DownloadError> {
    client.download(url, "image/*", MAX_BYTES).await
}

async fn rest(mut download: Download) -> Result<Vec<u8>, DownloadError> {
    let mut body = Vec::new();
    while let Some(chunk) = download.chunk().await? {
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

async fn fetch(client: &HttpClient, url: &str) -> Result<Vec<u8>, DownloadError> {
    rest(download(client, url).await?).await
}

async fn error_of(url: &str) -> DownloadError {
    fetch(&client(LONG, 1024), url).await.unwrap_err()
}

#[tokio::test]
async fn every_redirect_status_is_followed() {
    let (end, _) = site(|_| whole("the picture")).await;
    for status in [301, 302, 303, 307, 308] {
        let elsewhere = format!("//127.0.0.1:{}/it%20is/na%C3%AFve.png", end.port);
        let (server, requests) = site(move |path| match path {
            "/a/start" => redirect("next?x=1#part").replace("302 Found", &format!("{status} Moved")),
            "/a/next?x=1" => redirect("/root"),
            _ => redirect(&elsewhere),
        })
        .await;
        let found = download(&client(LONG, 1024), &format!("{}a/start", server.url())).await.unwrap();
        assert_eq!((found.name().as_str(), rest(found).await.unwrap()), ("naïve.png", b"the picture".to_vec()));
        let received = requests.lock().unwrap().clone();
        let paths: Vec<_> = received.iter().map(|request| request.split(' ').nth(1).unwrap()).collect();
        assert_eq!(paths, ["/a/start", "/a/next?x=1", "/root"], "relative, and without the fragment");
        for request in received {
            let request = request.to_ascii_lowercase();
            assert!(request.contains("accept: image/*\r\n") && !request.contains("referer"), "{request}");
            assert!(request.contains(&format!("user-agent: {}", USER_AGENT.to_ascii_lowercase())), "{request}");
        }
    }
}

#[tokio::test]
async fn redirects_are_limited() {
    let (server, requests) = site(|path| match path.trim_start_matches('/').parse::<usize>() {
        Ok(0) => whole("there"),
        Ok(left) => redirect(&format!("/{}", left - 1)),
        Err(_) => redirect("/loop"),
    })
    .await;
    let longest = format!("{}{MAX_REDIRECTS}", server.url());
    assert_eq!(fetch(&client(LONG, 1024), &longest).await.unwrap(), b"there");
    assert_eq!(requests.lock().unwrap().len(), MAX_REDIRECTS + 1);
    let one_more = error_of(&format!("{}{}", server.url(), MAX_REDIRECTS + 1)).await;
    assert!(matches!(one_more, DownloadError::TooManyRedirects), "{one_more:?}");
    assert!(matches!(error_of(&format!("{}loop", server.url())).await, DownloadError::TooManyRedirects));
    assert_eq!(requests.lock().unwrap().len(), 3 * (MAX_REDIRECTS + 1));
}

#[tokio::test]
async fn redirects_to_blocked_addresses_are_rejected() {
    let own = TestServer::responding(whole("secret")).await;
    let private = [
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://10.0.0.1/".to_owned(),
        "//[::1]/".to_owned(),
        "http://[::ffff:10.0.0.1]/".to_owned(),
        "http://2852039166/".to_owned(),
        "http://0xa9.0xfe.0xa9.0xfe/".to_owned(),
        "http://metadata.internal.localhost/".to_owned(),
    ];
    for to in private {
        let (server, _) = site({
            let to = to.clone();
            move |_| redirect(&to)
        })
        .await;
        // Only this one loopback address is allowed.
        let guard = Guard::new(vec!["127.0.0.1/32".parse().unwrap()]);
        let error = fetch(&HttpClient::guarded(guard, LONG, 1024), &server.url()).await.unwrap_err();
        let blocked = matches!(error, DownloadError::Http(HttpError::Blocked(_)));
        // `*.localhost` is loopback, of which this guard permits one address; no server listens there.
        let no_listener = to.contains("localhost") && matches!(error, DownloadError::Http(HttpError::Connect));
        assert!(blocked || no_listener, "{to}: {error:?}");
    }
    for (to, why) in [
        (format!("http://user:secret@127.0.0.1:{}/", own.port), "username"),
        ("ftp://127.0.0.1/a.png".to_owned(), "https:// or http://"),
        ("file:///etc/passwd".to_owned(), "https:// or http://"),
        ("data:image/png;base64,AAAA".to_owned(), "https:// or http://"),
    ] {
        let (server, _) = site(move |_| redirect(&to)).await;
        let error = error_of(&server.url()).await;
        assert!(matches!(error, DownloadError::Redirect(_)) && error.to_string().contains(why), "{error}");
    }
    assert_eq!(own.connections(), 0);
}

/// A name that is public in the lookup of the first request, and private when the redirect returns to it.
#[tokio::test]
async fn each_redirect_is_resolved_and_checked() {
    let (server, requests) = site(|_| redirect("/again")).await;
    let url = format!("http://rebound.example:{}/", server.port);
    let error = fetch(&named("127.0.0.1 10.0.0.1", "127.0.0.0/8"), &url).await.unwrap_err();
    assert!(matches!(error, DownloadError::Http(HttpError::Blocked(_))), "{error:?}");
    assert_eq!(requests.lock().unwrap().len(), 1);
    let error = fetch(&named("10.0.0.1", "127.0.0.0/8"), &url).await.unwrap_err();
    assert!(matches!(error, DownloadError::Http(HttpError::Blocked(_))), "{error:?}");
    let error = fetch(&named("-", "127.0.0.0/8"), &url).await.unwrap_err();
    assert!(matches!(error, DownloadError::Http(HttpError::Dns)), "{error:?}");
    for (url, blocked) in [("http://10.0.0.1/", true), ("ftp://127.0.0.1/", false), ("http://a:b@127.0.0.1/", false)] {
        match error_of(url).await {
            DownloadError::Http(HttpError::Blocked(_)) if blocked => {}
            DownloadError::Http(HttpError::Invalid(_)) if !blocked => {}
            other => panic!("{url}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_redirect_without_target_returns_its_status() {
    for response in [
        "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
        redirect("http://[nonsense"),
        redirect("\u{fe}\u{ff}").replace("302", "304"),
        redirect("/elsewhere").replace("302", "300"),
        redirect("/elsewhere").replace("302", "305"),
        redirect("/elsewhere").replace("302", "404"),
        redirect("/elsewhere").replace("302", "503"),
    ] {
        let server = TestServer::responding(response.clone()).await;
        assert!(matches!(error_of(&server.url()).await, DownloadError::Status(_)), "{response}");
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn redirects_from_https_to_http_are_followed() {
    let (plain, _) = site(|_| whole("plain")).await;
    let authority = Authority::new();
    let to = redirect(&format!("http://hooks.example:{}/", plain.port));
    let server = secure(authority.acceptor("hooks.example", &["http/1.1"]), move |mut stream| {
        let to = to.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(to.as_bytes()).await.unwrap();
            let _ = stream.shutdown().await;
        }
    })
    .await;
    let url = format!("https://hooks.example:{}/", server.port);
    assert_eq!(fetch(&authority.client(LONG, 1024), &url).await.unwrap(), b"plain");
}

#[tokio::test]
async fn downloads_are_limited_in_size() {
    let exactly = "x".repeat(MAX_BYTES as usize);
    let (server, _) = site(move |_| whole(&exactly)).await;
    assert_eq!(fetch(&client(LONG, 1024), &server.url()).await.unwrap().len() as u64, MAX_BYTES);
    // Announced: fails without waiting for any of the body.
    let server = TestServer::run(|mut stream| async move {
        read_request(&mut stream).await;
        stream
            .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MAX_BYTES + 1).as_bytes())
            .await
            .unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    assert!(matches!(error_of(&server.url()).await, DownloadError::TooLarge));
    // Not announced: fails at the limit, although the body never ends.
    let server = TestServer::run(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        while stream.write_all(b"64\r\n").await.is_ok() {
            let _ = stream.write_all(&[b'x'; 100]).await;
            let _ = stream.write_all(b"\r\n").await;
        }
    })
    .await;
    let error = rest(download(&client(LONG, 1024), &server.url()).await.unwrap()).await.unwrap_err();
    assert!(matches!(error, DownloadError::TooLarge), "{error:?}");
}

#[tokio::test]
async fn the_limit_applies_to_the_decompressed_size() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(&vec![0; 10 << 20]).unwrap();
    let packed = packed.finish().unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", packed.len());
    let server = TestServer::responding([head.as_bytes(), &packed].concat()).await;
    let client = client(LONG, 1024);
    let mut bomb = client.download(&server.url(), "image/*", 20_000).await.unwrap();
    let mut received = 0;
    let error = loop {
        match bomb.chunk().await {
            Ok(Some(chunk)) => received += chunk.len(),
            Ok(None) => panic!("it ended after {received} bytes"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, DownloadError::TooLarge) && received <= 20_000, "{received}: {error:?}");
}

#[tokio::test]
async fn redirects_and_body_share_one_deadline() {
    // Each step alone is fast enough. The time is real, since paused time would advance while bytes are in a socket.
    let server = TestServer::run(|mut stream| async move {
        read_request(&mut stream).await;
        tokio::time::sleep(SHORT / 2).await;
        let _ = stream.write_all(redirect("/again").as_bytes()).await;
    })
    .await;
    let started = Instant::now();
    let error = fetch(&client(SHORT, 1024), &server.url()).await.unwrap_err();
    assert!(matches!(error, DownloadError::Http(HttpError::Timeout { sent: true })), "{error:?}");
    assert!(started.elapsed() < LONG);
    let server = TestServer::run(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n").await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let error = fetch(&client(SHORT, 1024), &server.url()).await.unwrap_err();
    assert!(matches!(error, DownloadError::Http(HttpError::Timeout { sent: true })), "{error:?}");
}

#[tokio::test]
async fn a_truncated_download_is_an_error() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nsome",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nsome",
    ] {
        let server = TestServer::responding(response).await;
        let error = error_of(&server.url()).await;
        assert!(matches!(error, DownloadError::Http(HttpError::Broken)), "{response}: {error:?}");
    }
}

#[tokio::test]
async fn the_file_name_comes_from_the_final_url() {
    for (path, name) in [
        ("/a/photo.png?size=large", "photo.png"),
        ("/a/", ""),
        ("/", ""),
        ("/a%2F..%2Fb.png", "a/../b.png"),
        ("/%ff.png", "\u{fffd}.png"),
    ] {
        let (server, _) = site(|_| whole("x")).await;
        let found = download(&client(LONG, 1024), &format!("http://127.0.0.1:{}{path}", server.port)).await.unwrap();
        assert_eq!(found.name(), name);
    }
}
