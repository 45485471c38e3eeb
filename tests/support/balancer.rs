//! A load balancer in front of real API processes. It checks the readiness of each, and assigns new connections
//! to the ready ones in turn. It forwards bytes without retries, so that every fault of a replica reaches a client.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{interval, timeout};

use super::client::until_true;

/// The interval of the checks. Real load balancers check every few seconds.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Long enough for a busy machine. A replica that has stopped rejects connections immediately.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Balancer {
    pub url: String,
    shared: Arc<Shared>,
    /// Ends the thread when dropped.
    _open: watch::Sender<()>,
}

#[derive(Default)]
struct Shared {
    replicas: Mutex<Vec<Arc<Replica>>>,
    next: AtomicUsize,
}

struct Replica {
    api: String,
    ops: String,
    ready: AtomicBool,
    connections: AtomicUsize,
}

impl Balancer {
    /// Starts a load balancer without replicas. It runs on its own thread, so that a test that blocks does not delay
    /// the checks.
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let shared = Arc::<Shared>::default();
        let (open, mut closed) = watch::channel(());
        let serving = shared.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    () = accept(listener, &serving) => {}
                    () = check_all(&serving) => {}
                    _ = closed.changed() => {}
                }
            });
        });
        Self { url, shared, _open: open }
    }

    /// Adds a replica by its two addresses, and waits until a check finds it ready.
    pub async fn add(&self, api: &str, ops: &str) {
        let replica = Arc::new(Replica {
            api: api.to_owned(),
            ops: ops.to_owned(),
            ready: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        self.shared.replicas().push(replica);
        self.until_ready(api).await;
    }

    /// Waits until a check finds the replica ready.
    pub async fn until_ready(&self, api: &str) {
        let replica = self.shared.find(api);
        until_true(&format!("the load balancer uses {api}"), || replica.ready.load(Ordering::Relaxed)).await;
    }

    /// Returns the number of connections assigned to a replica.
    pub fn connections(&self, api: &str) -> usize {
        self.shared.find(api).connections.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn replicas(&self) -> MutexGuard<'_, Vec<Arc<Replica>>> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, api: &str) -> Arc<Replica> {
        self.replicas().iter().find(|replica| replica.api == api).expect("it was added").clone()
    }

    /// Returns the next replica that is ready.
    fn choose(&self) -> Option<Arc<Replica>> {
        let ready: Vec<_> =
            self.replicas().iter().filter(|replica| replica.ready.load(Ordering::Relaxed)).cloned().collect();
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        ready.get(next % ready.len().max(1)).cloned()
    }
}

async fn accept(listener: TcpListener, shared: &Shared) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        // If no replica is ready, or the chosen one does not accept, the client's connection is closed.
        if let Some(replica) = shared.choose() {
            tokio::spawn(async move { forward(client, &replica).await });
        }
    }
}

async fn forward(mut client: TcpStream, replica: &Replica) -> std::io::Result<()> {
    let mut server = TcpStream::connect(&replica.api).await?;
    replica.connections.fetch_add(1, Ordering::Relaxed);
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

async fn check_all(shared: &Shared) {
    let mut checks = interval(CHECK_INTERVAL);
    loop {
        checks.tick().await;
        let replicas = shared.replicas().clone();
        let check = async |replica: Arc<Replica>| {
            let ready = timeout(CHECK_TIMEOUT, is_ready(&replica.ops)).await;
            replica.ready.store(matches!(ready, Ok(Ok(true))), Ordering::Relaxed);
        };
        futures::future::join_all(replicas.into_iter().map(check)).await;
    }
}

async fn is_ready(ops: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(ops).await?;
    stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response.split(' ').nth(1) == Some("200"))
}
