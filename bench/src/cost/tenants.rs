//! Two users: one with posts and accounts, and one with an endpoint that receives the events of its brands.

use chrono::{Months, SecondsFormat};
use crier_domain::access::{KeyMode, Scopes};
use crier_domain::event::EventName;
use crier_domain::plan::Plans;
use crier_domain::post::Post;
use crier_domain::webhook_signature::new_secret;
use crier_store::brands::{self, NewBrand};
use crier_store::webhooks::{self, NewWebhook};
use crier_store::{Store, Tx, keys, posts, users};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use secrecy::SecretString;
use tokio::task::JoinSet;

use super::super::external_runtime::{ExternalRuntime, RequestHandler};
use super::super::{BenchError, fail, sandbox_accounts};

/// Enough that few jobs wait for another job in the lane of their account.
const ACCOUNTS: usize = 100;
const POSTS: usize = 20;

pub struct Tenants {
    /// The key of the user without an endpoint.
    pub plain: SecretString,
    pub brand: i64,
    pub accounts: Vec<i64>,
    /// A time for scheduled posts.
    pub next_year: String,
    /// The key of the user with an endpoint.
    pub notified: SecretString,
    _endpoint: Endpoint,
}

/// An endpoint, which is not part of Crier. It stops when this is dropped.
struct Endpoint {
    _runtime: ExternalRuntime,
    _server: JoinSet<()>,
}

impl Tenants {
    pub async fn create(store: &Store) -> Result<Self, BenchError> {
        let (url, endpoint) = Endpoint::start().await?;
        let mut tx = store.begin().await?;
        let plain = Tenant::create(&mut tx, "plain").await?;
        for _ in 0..POSTS {
            let post = Post { content: "Fresh bread.".to_owned(), ..Post::draft(plain.brand, tx.now) };
            posts::insert(&mut tx, &post).await?;
        }
        let accounts = sandbox_accounts::create(&mut tx, plain.workspace, plain.brand, ACCOUNTS).await?;
        let notified = Tenant::create(&mut tx, "notified").await?;
        let secret = new_secret().map_err(|error| BenchError::Failed(format!("no random secret: {error}")))?;
        let events = &[EventName::BrandCreated];
        let new = NewWebhook { url: &url, events, description: None, is_active: true, secret: &secret };
        webhooks::create(&mut tx, notified.user, &new).await?;
        let next_year = (tx.now + Months::new(12)).to_rfc3339_opts(SecondsFormat::Secs, true);
        tx.commit().await?;
        Ok(Self {
            plain: plain.key,
            brand: plain.brand,
            accounts,
            next_year,
            notified: notified.key,
            _endpoint: endpoint,
        })
    }
}

struct Tenant {
    workspace: i64,
    user: i64,
    brand: i64,
    key: SecretString,
}

impl Tenant {
    async fn create(tx: &mut Tx, name: &str) -> Result<Self, BenchError> {
        let workspace = users::create_workspace(tx, name, Plans::UNLIMITED).await?;
        let user = users::create(tx, workspace, &format!("{name}@localhost"), name).await?;
        let new = NewBrand { name, description: None, website: None, timezone: "UTC" };
        let Some(brand) = brands::create(tx, workspace, user, None, new).await? else {
            return fail("a brand without a cap was rejected");
        };
        let key = keys::create(tx, user, KeyMode::Live, &Scopes::all()).await?;
        Ok(Self { workspace, user, brand: brand.id, key })
    }
}

impl Endpoint {
    /// Starts an endpoint, and returns it with its URL.
    async fn start() -> Result<(String, Self), BenchError> {
        let (runtime, mut server) = (ExternalRuntime::start()?, JoinSet::new());
        let handler: RequestHandler = std::sync::Arc::new(|request| Box::pin(accept(request)));
        let address = runtime.listen(&mut server, handler).await?;
        Ok((format!("http://{address}/hooks"), Self { _runtime: runtime, _server: server }))
    }
}

async fn accept(_: Request<Incoming>) -> StatusCode {
    StatusCode::NO_CONTENT
}
