//! A server with the methods of Mastodon's API with which a video is posted. It reads all bytes and keeps none.
//!
//! Source: docs.joinmastodon.org, "media" (`POST /api/v2/media`, which returns 200 if the file is processed) and
//! "statuses" (`POST /api/v1/statuses`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crier_base::clock::Clock;
use crier_domain::limits::AccountLimits;
use crier_domain::platform::{AccountKind, Platform};
use crier_store::Store;
use crier_store::accounts::{self, NewAccount};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::external_runtime::{ExternalRuntime, RequestHandler};
use super::super::service::Service;
use super::super::{BenchError, Result as BenchResult, fail};

/// More than any video of a measurement has.
const MAX_VIDEO_BYTES: u64 = 4 << 30;

pub struct FakePlatform {
    address: SocketAddr,
    received: Arc<Received>,
    _external: ExternalRuntime,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct Received {
    /// The bytes of the requests with files.
    bytes: AtomicU64,
    files: AtomicU64,
    posts: AtomicU64,
}

impl FakePlatform {
    pub async fn start() -> Result<Self, BenchError> {
        let (external, mut server, received) = (ExternalRuntime::start()?, JoinSet::new(), Arc::<Received>::default());
        let shared = received.clone();
        let handler: RequestHandler<(StatusCode, Value)> =
            Arc::new(move |request| Box::pin(respond(shared.clone(), request)));
        let address = external.listen(&mut server, handler).await?;
        Ok(Self { address, received, _external: external, _server: server })
    }

    /// Creates accounts on this server, attaches them to the brand, and returns their IDs.
    pub async fn create_accounts(&self, store: &Store, service: &Service, count: u32) -> Result<Vec<i64>, BenchError> {
        let mut tx = store.begin().await?;
        let mut created = Vec::new();
        for number in 0..count {
            let name = format!("bench-{number}");
            let secrets = json!({
                "instance": format!("http://{}", self.address), "access_token": "token",
                "account_id": number.to_string(), "client_id": "id", "client_secret": "secret",
            });
            let limits =
                AccountLimits { read_at: tx.now, max_video_bytes: Some(MAX_VIDEO_BYTES), ..AccountLimits::default() };
            let account = NewAccount {
                platform: Platform::Mastodon,
                external_id: format!("{name}@localhost"),
                username: Some(name.clone()),
                name,
                profile_url: None,
                avatar_url: None,
                kind: AccountKind::Profile,
                token_expires_at: None,
                renewal: None,
                application: None,
                limits: Some(limits),
                granted_scopes: None,
                secrets: SecretString::from(secrets.to_string()),
            };
            let account = accounts::save(&mut tx, service.workspace, &account).await?;
            accounts::attach(&mut tx, service.brand, account.id).await?;
            created.push(account.id);
        }
        tx.commit().await?;
        Ok(created)
    }

    /// Fails unless each of the files arrived once, with at least this many bytes together, and has a post.
    pub fn check(&self, count: u32, bytes: u64) -> BenchResult {
        let of = |number: &AtomicU64| number.load(Ordering::SeqCst);
        let (files, posts, received) = (of(&self.received.files), of(&self.received.posts), of(&self.received.bytes));
        match files == u64::from(count) && posts == files && received >= bytes {
            true => Ok(()),
            false => {
                fail(format!("the platform got {files} files with {received} bytes, and {posts} of {count} posts"))
            }
        }
    }
}

async fn respond(received: Arc<Received>, request: Request<Incoming>) -> (StatusCode, Value) {
    let (head, mut body) = request.into_parts();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return (StatusCode::BAD_REQUEST, json!({ "error": "The body is incomplete" }));
        };
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    let next = |number: &AtomicU64| (number.fetch_add(1, Ordering::SeqCst) + 1).to_string();
    match (head.method.as_str(), head.uri.path()) {
        ("POST", "/api/v2/media") => {
            received.bytes.fetch_add(bytes, Ordering::SeqCst);
            (StatusCode::OK, json!({ "id": next(&received.files), "type": "video" }))
        }
        ("POST", "/api/v1/statuses") => {
            let (id, now) = (next(&received.posts), Clock::system().now().to_rfc3339());
            let url = format!("https://localhost/@bench/{id}");
            (StatusCode::OK, json!({ "id": id, "url": url, "created_at": now, "media_attachments": [] }))
        }
        _ => (StatusCode::NOT_FOUND, json!({ "error": "Record not found" })),
    }
}
