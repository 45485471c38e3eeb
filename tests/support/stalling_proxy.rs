//! A proxy in front of a fake platform, which stops reading a request in the middle, as a platform does that stalls. The
//! fake never gets such a request. The proxy runs on its own thread, so that a test that blocks does not delay it.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// The number of bytes to read of a request before the proxy stops reading it.
const READ_BYTES: usize = 256 * 1024;

pub struct StallingProxy {
    pub url: String,
    shared: Arc<Shared>,
    /// Ends the thread when dropped.
    _open: watch::Sender<()>,
}

struct Shared {
    /// The address of the platform.
    platform: String,
    stall: Mutex<Option<Stall>>,
    stalled: Semaphore,
}

/// The request to stop reading.
struct Stall {
    /// The end of its path.
    path: &'static str,
    /// The number of such requests that are forwarded before it.
    skipped: usize,
}

impl StallingProxy {
    /// Starts a proxy in front of the server with this URL. It forwards everything.
    pub fn start(url: &str) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let own = format!("http://{}", listener.local_addr().unwrap());
        let platform = url.trim_start_matches("http://").to_owned();
        let shared = Arc::new(Shared { platform, stall: Mutex::default(), stalled: Semaphore::new(0) });
        let (open, mut closed) = watch::channel(());
        let serving = shared.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! { () = accept(listener, serving) => {}, _ = closed.changed() => {} }
            });
        });
        Self { url: own, shared, _open: open }
    }

    /// Stops reading one request whose path ends so, after forwarding a number of them.
    pub fn stall(&self, path: &'static str, skipped: usize) {
        *self.shared.stall.lock().unwrap() = Some(Stall { path, skipped });
    }

    /// Waits until the proxy has stopped reading the request.
    pub async fn wait_for_stall(&self) {
        self.shared.stalled.acquire().await.expect("it is never closed").forget();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let shared = shared.clone();
        tokio::spawn(async move { forward(client, &shared).await });
    }
}

async fn forward(mut client: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut platform = TcpStream::connect(&shared.platform).await?;
    client.set_nodelay(true)?;
    platform.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_platform, mut to_platform) = platform.split();
    let requests = async {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let length = from_client.read(&mut chunk).await?;
            if length == 0 {
                return to_platform.shutdown().await;
            }
            if shared.is_stalled(&chunk[..length]) {
                let mut read = length;
                while read < READ_BYTES {
                    match from_client.read(&mut chunk).await? {
                        0 => return Ok(()),
                        length => read += length,
                    }
                }
                shared.stalled.add_permits(1);
                std::future::pending::<()>().await;
            }
            to_platform.write_all(&chunk[..length]).await?;
        }
    };
    let responses = async { tokio::io::copy(&mut from_platform, &mut to_client).await.map(drop) };
    tokio::try_join!(requests, responses).map(drop)
}

impl Shared {
    /// Returns whether these bytes begin the request to stop reading. A client sends a request only after the response
    /// to the one before, so its head is at the start of what is read.
    fn is_stalled(&self, bytes: &[u8]) -> bool {
        let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = std::str::from_utf8(line).unwrap_or_default();
        let mut stall = self.stall.lock().unwrap();
        let Some(wanted) = stall.as_mut() else { return false };
        if !line.strip_suffix(" HTTP/1.1").is_some_and(|line| line.ends_with(wanted.path)) {
            return false;
        }
        let is_next = wanted.skipped == 0;
        match is_next {
            true => *stall = None,
            false => wanted.skipped -= 1,
        }
        is_next
    }
}
