//! An in-process S3-compatible server that verifies the signature of every request. Its files are in a directory that a
//! test can inspect.

#![allow(dead_code, reason = "each test uses only a part")]

use std::path::Path;
use std::sync::Arc;

use crier_config::{self as config, S3Config};
use http::Method;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub const KEY_ID: &str = "AKIDOFTHETESTS";
pub const SECRET: &str = "secret-of-the-tests";
const BUCKET: &str = "images";

/// The scripted behavior of the server.
#[derive(Clone, Copy, Debug, Default)]
struct Behavior {
    /// Whether all connections are closed, also new ones.
    unavailable: bool,
    /// Whether PUT requests are blocked before they are processed.
    holding: bool,
    /// The number of requests that were blocked.
    held: usize,
}

/// The server, which stops when dropped.
pub struct S3Server {
    endpoint: String,
    behavior: Arc<watch::Sender<Behavior>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl S3Server {
    /// Starts a server whose bucket stores its files below `root`.
    pub async fn start(root: &Path) -> Self {
        std::fs::create_dir_all(root.join(BUCKET)).expect("a bucket");
        let files = s3s_fs::FileSystem::new(root).expect("a file system");
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
        let (service, listener) = (builder.build(), TcpListener::bind("127.0.0.1:0").await.expect("a port"));
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let behavior = Arc::new(watch::Sender::new(Behavior::default()));
        let task = tokio::spawn(accept(listener, service, behavior.clone()));
        Self { endpoint, behavior, task }
    }

    pub fn config(&self) -> S3Config {
        S3Config {
            bucket: BUCKET.to_owned(),
            prefix: "crier".to_owned(),
            region: "us-east-1".to_owned(),
            endpoint: Some(self.endpoint.clone()),
            access_key_id: KEY_ID.to_owned(),
            secret_access_key: SECRET.to_owned().into(),
            session_token: None,
        }
    }

    pub fn storage(&self) -> config::StorageConfig {
        config::StorageConfig::S3(self.config())
    }

    /// Closes all connections, also new ones, or stops doing so.
    pub fn set_unavailable(&self, unavailable: bool) {
        self.behavior.send_modify(|behavior| behavior.unavailable = unavailable);
    }

    /// Blocks PUT requests, or releases them.
    pub fn hold_puts(&self, holding: bool) {
        self.behavior.send_modify(|behavior| behavior.holding = holding);
    }

    /// Waits until a PUT request is blocked.
    pub async fn until_held(&self) {
        self.behavior.subscribe().wait_for(|behavior| behavior.held > 0).await.expect("the server is there");
    }
}

async fn accept(listener: TcpListener, service: S3Service, behavior: Arc<watch::Sender<Behavior>>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        connections.spawn(serve(socket, service.clone(), behavior.clone()));
    }
}

async fn serve(socket: TcpStream, service: S3Service, behavior: Arc<watch::Sender<Behavior>>) {
    let mut seen = behavior.subscribe();
    let response = service_fn(move |request: http::Request<Incoming>| {
        let (service, behavior) = (service.clone(), behavior.clone());
        async move {
            if *request.method() == Method::PUT && behavior.borrow().holding {
                behavior.send_modify(|behavior| behavior.held += 1);
                let _ = behavior.subscribe().wait_for(|behavior| !behavior.holding).await;
            }
            Service::call(&service, request).await
        }
    });
    tokio::select! {
        _ = http1::Builder::new().serve_connection(TokioIo::new(socket), response) => {}
        _ = seen.wait_for(|behavior| behavior.unavailable) => {}
    }
}
