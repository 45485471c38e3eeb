//! A platform that does what a test tells it to: answers as scripted, hangs, accepts and never answers, panics. It keeps
//! what was published, and takes the same post twice if it is sent twice: what a test is to find out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_common::clock::Clock;
use crier_common::domain::failure::{Category, Failure};
use crier_common::domain::platform::{Descriptor, Platform};
use crier_common::platforms::{
    Account, CallError, ConnectError, Connected, Connector, Image, Marker, MarkerSeed, Outgoing, Pictures, Published,
    Reconciled, Refreshed, Secrets, catalogue,
};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// What the platform does with one publish.
pub enum Say {
    Publish,
    /// Publishes, and calls it so.
    PublishAs(Published),
    Refuse(CallError),
    /// Takes the post, and then tells this: a connection that broke.
    AcceptAnd(CallError),
    /// Waits at the gate, then publishes.
    Wait(Arc<Gate>),
    /// Waits at the gate, then tells this.
    WaitAndRefuse(Arc<Gate>, CallError),
    /// Publishes, waits at the gate, and never answers: a process that dies then has published.
    AcceptAndHang(Arc<Gate>),
    /// Never answers, and takes the post so many seconds after it came: it is still at work when the caller is dead.
    AcceptLater(Arc<Gate>, i64),
    /// Never answers.
    Hang(Arc<Gate>),
    Panic,
}

/// What the platform does with one upload.
pub enum Upload {
    Take,
    Refuse(CallError),
    /// Waits at the gate, then takes it.
    Wait(Arc<Gate>),
    /// Takes it, waits at the gate, and never answers: a process that dies then has uploaded.
    TakeAndHang(Arc<Gate>),
}

/// Where a call waits until the test lets it through.
pub struct Gate {
    entered: Semaphore,
    open: Semaphore,
}

impl Gate {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { entered: Semaphore::new(0), open: Semaphore::new(0) })
    }

    /// Waits until a call has come to the gate.
    pub async fn entered(&self) {
        self.entered.acquire().await.expect("the gate is never closed").forget();
    }

    /// Lets one call through.
    pub fn let_through(&self) {
        self.open.add_permits(1);
    }

    /// Comes to the gate and stays there.
    async fn hang<T>(&self) -> T {
        self.entered.add_permits(1);
        std::future::pending().await
    }

    /// Comes to the gate and waits until it is let through.
    pub async fn pass(&self) {
        self.entered.add_permits(1);
        self.open.acquire().await.expect("the gate is never closed").forget();
    }
}

/// A post on the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    pub marker: String,
    pub text: String,
    pub id: String,
}

/// One call, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub what: &'static str,
    pub marker: String,
    pub at: DateTime<Utc>,
}

pub struct FakePlatform {
    platform: Platform,
    clock: Clock,
    can_reconcile: AtomicBool,
    script: Mutex<VecDeque<Say>>,
    answers: Mutex<VecDeque<Result<Reconciled, CallError>>>,
    refreshes: Mutex<VecDeque<Result<Refreshed, CallError>>>,
    /// The only token that is good, if the platform looks at tokens.
    token: Mutex<Option<String>>,
    spent: Mutex<Vec<String>>,
    posts: Mutex<Vec<Posted>>,
    pictures: Mutex<Pictures>,
    upload_script: Mutex<VecDeque<Upload>>,
    uploads: Mutex<Vec<Image>>,
    /// The pictures of each publish, as they came.
    shown: Mutex<Vec<Vec<Image>>>,
    /// What it will have taken by a time.
    late: Mutex<Vec<(DateTime<Utc>, String, String)>>,
    calls: Mutex<Vec<Call>>,
    dies: AtomicBool,
    /// The next answer to a question is found, and then waits here.
    held: Mutex<Option<Arc<Gate>>>,
    /// The next refresh waits here.
    held_refresh: Mutex<Option<Arc<Gate>>>,
    count: AtomicU64,
    taken: Semaphore,
}

impl FakePlatform {
    /// It stands in for `platform`.
    pub fn new(platform: Platform, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            platform,
            clock,
            can_reconcile: AtomicBool::new(true),
            script: Mutex::default(),
            answers: Mutex::default(),
            refreshes: Mutex::default(),
            token: Mutex::default(),
            spent: Mutex::default(),
            posts: Mutex::default(),
            pictures: Mutex::new(Pictures::Fetched),
            upload_script: Mutex::default(),
            uploads: Mutex::default(),
            shown: Mutex::default(),
            late: Mutex::default(),
            calls: Mutex::default(),
            dies: AtomicBool::new(false),
            held: Mutex::default(),
            held_refresh: Mutex::default(),
            count: AtomicU64::new(0),
            taken: Semaphore::new(0),
        })
    }

    /// What it does with the next publishes; after these it publishes.
    pub fn says(&self, script: impl IntoIterator<Item = Say>) {
        self.script.lock().expect("no panic").extend(script);
    }

    /// How it wants pictures; by their address unless it is told.
    pub fn wants(&self, pictures: Pictures) {
        *self.pictures.lock().expect("no panic") = pictures;
    }

    /// What it does with the next uploads; after these it takes them.
    pub fn says_of_uploads(&self, script: impl IntoIterator<Item = Upload>) {
        self.upload_script.lock().expect("no panic").extend(script);
    }

    /// What was uploaded, in order, as it came.
    pub fn uploads(&self) -> Vec<Image> {
        self.uploads.lock().expect("no panic").clone()
    }

    /// The pictures of each publish, as they came.
    pub fn shown(&self) -> Vec<Vec<Image>> {
        self.shown.lock().expect("no panic").clone()
    }

    /// What it was told to do and has not done is not done.
    pub fn forget(&self) {
        self.script.lock().expect("no panic").clear();
        self.dies.store(false, Ordering::SeqCst);
    }

    /// What it answers to the next questions about an earlier call; after these, the truth.
    pub fn answers(&self, answers: impl IntoIterator<Item = Result<Reconciled, CallError>>) {
        self.answers.lock().expect("no panic").extend(answers);
    }

    /// What it answers to the next refreshes; after these, a new token, once for each that was good.
    pub fn refreshes(&self, answers: impl IntoIterator<Item = Result<Refreshed, CallError>>) {
        self.refreshes.lock().expect("no panic").extend(answers);
    }

    /// It offers nothing to find a post by.
    pub fn cannot_tell(&self) {
        self.can_reconcile.store(false, Ordering::SeqCst);
    }

    /// No token but this is good any more.
    pub fn wants_token(&self, token: &str) {
        *self.token.lock().expect("no panic") = Some(token.to_owned());
    }

    /// The next marker, which is made in the middle of the transaction before a call, is never made: the process dies.
    pub fn dies_at_the_marker(&self) {
        self.dies.store(true, Ordering::SeqCst);
    }

    /// Holds up the next answer to a question about an earlier call, once it is known.
    pub fn hold_answer(&self, gate: Arc<Gate>) {
        *self.held.lock().expect("no panic") = Some(gate);
    }

    /// Holds up the next refresh, before it is answered.
    pub fn hold_refresh(&self, gate: Arc<Gate>) {
        *self.held_refresh.lock().expect("no panic") = Some(gate);
    }

    /// Waits until so many more posts were taken than this was asked for before.
    pub async fn published(&self, more: u32) {
        self.taken.acquire_many(more).await.expect("never closed").forget();
    }

    pub fn posts(&self) -> Vec<Posted> {
        let now = self.clock.now();
        let late: Vec<_> = self.late.lock().expect("no panic").extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, marker, text) in late {
            self.take(marker, text);
        }
        self.posts.lock().expect("no panic").clone()
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("no panic").clone()
    }

    /// How often something was asked: `upload`, `publish`, `reconcile`, `refresh`.
    pub fn count(&self, what: &str) -> usize {
        self.calls().iter().filter(|call| call.what == what).count()
    }

    fn called(&self, what: &'static str, post: Option<&Outgoing>) {
        let marker = post.map(key).unwrap_or_default();
        self.calls.lock().expect("no panic").push(Call { what, marker, at: self.clock.now() });
    }

    fn accept(&self, post: &Outgoing) -> Published {
        published(&self.take(key(post), post.text.clone()))
    }

    fn take(&self, marker: String, text: String) -> String {
        let id = format!("post-{}", self.count.fetch_add(1, Ordering::SeqCst) + 1);
        self.posts.lock().expect("no panic").push(Posted { marker, text, id: id.clone() });
        self.taken.add_permits(1);
        id
    }

    fn check_token(&self, account: &Account) -> Result<(), CallError> {
        let wanted = self.token.lock().expect("no panic").clone();
        match wanted {
            Some(wanted) if token(account) != wanted => Err(CallError::AuthExpired(auth())),
            _ => Ok(()),
        }
    }
}

fn key(post: &Outgoing) -> String {
    post.marker.get("key").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn token(account: &Account) -> String {
    account.secrets.get("token").map(|token| token.expose_secret().to_owned()).unwrap_or_default()
}

fn published(id: &str) -> Published {
    Published::new(id, Some(format!("https://fake.example/{id}")))
}

pub fn secrets(token: &str) -> Secrets {
    Secrets::from_json(json!({ "token": token }).to_string()).expect("an object")
}

#[async_trait]
impl Connector for FakePlatform {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(self.platform)
    }

    async fn connect(&self, _workspace_id: i64, _credentials: &Secrets) -> Result<Connected, ConnectError> {
        Err(ConnectError::Refused("the fake takes no connections".into()))
    }

    async fn refresh(&self, account: &Account) -> Result<Refreshed, CallError> {
        self.called("refresh", None);
        let held = self.held_refresh.lock().expect("no panic").take();
        if let Some(gate) = held {
            gate.pass().await;
        }
        if let Some(answer) = self.refreshes.lock().expect("no panic").pop_front() {
            return answer;
        }
        // A refresh token is good once, as with the platforms that take it back when it is used.
        let mut spent = self.spent.lock().expect("no panic");
        if spent.contains(&token(account)) {
            return Err(CallError::Reauth(auth()));
        }
        spent.push(token(account));
        let new = self.token.lock().expect("no panic").clone().unwrap_or_else(|| "fresh".to_owned());
        Ok(Refreshed { secrets: Some(secrets(&new)), token_expires_at: None })
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        assert!(!self.dies.swap(false, Ordering::SeqCst), "the process dies here, as the test wants");
        Marker::from_iter([("key".to_owned(), json!(format!("{}-{:016x}", seed.target_id, seed.random)))])
    }

    fn can_reconcile(&self) -> bool {
        self.can_reconcile.load(Ordering::SeqCst)
    }

    fn pictures(&self) -> Pictures {
        *self.pictures.lock().expect("no panic")
    }

    async fn upload(&self, account: &Account, post: &Outgoing, image: &Image) -> Result<Value, CallError> {
        self.called("upload", Some(post));
        self.check_token(account)?;
        let next = self.upload_script.lock().expect("no panic").pop_front().unwrap_or(Upload::Take);
        if let Upload::Refuse(error) = next {
            return Err(error);
        }
        if let Upload::Wait(gate) = &next {
            gate.pass().await;
        }
        let number = {
            let mut uploads = self.uploads.lock().expect("no panic");
            uploads.push(image.clone());
            uploads.len()
        };
        match next {
            Upload::TakeAndHang(gate) => gate.hang().await,
            _ => Ok(json!(format!("upload-{number}"))),
        }
    }

    async fn publish(&self, account: &Account, post: &Outgoing) -> Result<Published, CallError> {
        self.called("publish", Some(post));
        self.check_token(account)?;
        self.shown.lock().expect("no panic").push(post.images.clone());
        let next = self.script.lock().expect("no panic").pop_front();
        match next.unwrap_or(Say::Publish) {
            Say::Publish => Ok(self.accept(post)),
            Say::PublishAs(published) => {
                self.accept(post);
                Ok(published)
            }
            Say::Refuse(error) => Err(error),
            Say::AcceptAnd(error) => {
                self.accept(post);
                Err(error)
            }
            Say::Wait(gate) => {
                gate.pass().await;
                Ok(self.accept(post))
            }
            Say::WaitAndRefuse(gate, error) => {
                gate.pass().await;
                Err(error)
            }
            Say::AcceptAndHang(gate) => {
                self.accept(post);
                gate.hang().await
            }
            Say::AcceptLater(gate, seconds) => {
                let at = self.clock.now() + TimeDelta::seconds(seconds);
                self.late.lock().expect("no panic").push((at, key(post), post.text.clone()));
                gate.hang().await
            }
            Say::Hang(gate) => gate.hang().await,
            Say::Panic => panic!("the connector panics, as the test wants"),
        }
    }

    async fn reconcile(&self, account: &Account, post: &Outgoing) -> Result<Reconciled, CallError> {
        self.called("reconcile", Some(post));
        self.check_token(account)?;
        if let Some(answer) = self.answers.lock().expect("no panic").pop_front() {
            return answer;
        }
        let found = self.posts().into_iter().find(|posted| posted.marker == key(post));
        let held = self.held.lock().expect("no panic").take();
        if let Some(gate) = held {
            gate.pass().await;
        }
        Ok(found.map_or(Reconciled::Absent, |posted| Reconciled::Found(published(&posted.id))))
    }
}

fn auth() -> Failure {
    Failure::of(Category::AuthExpired, "The fake refuses the token.")
}

pub fn transient() -> CallError {
    CallError::Transient(Failure::of(Category::PlatformError, "The fake failed for the moment."))
}

pub fn permanent() -> CallError {
    CallError::Permanent(Failure::of(Category::PlatformRejected, "The fake refuses this.").from_platform("422"))
}

pub fn unknown() -> CallError {
    CallError::Unknown(Failure::of(Category::OutcomeUnknown, "The connection broke after the post was sent."))
}

pub fn reauth() -> CallError {
    CallError::Reauth(auth())
}

pub fn auth_expired() -> CallError {
    CallError::AuthExpired(auth())
}

pub fn rate_limited(until: DateTime<Utc>) -> CallError {
    CallError::RateLimited { until: Some(until), failure: Failure::of(Category::RateLimited, "The fake asks to wait.") }
}

/// How long a call to a platform may take, in the tests.
pub const TIMEOUT: Duration = Duration::from_secs(30);
