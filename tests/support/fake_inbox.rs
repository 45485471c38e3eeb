//! The inbox of the fake platform. It has two streams, which list messages by time in pages; a message may become
//! visible late. It records replies and does not deduplicate them, so that tests can detect duplicates.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_base::clock::Clock;
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::platform::ConversationType;
use crier_platforms::inbox::{InboxPage, OutgoingReply, ReplyThread};
use crier_platforms::{CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, Published, ReconcileResult};
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::fake_platform::{Gate, auth_expired};

pub const COMMENTS: &str = "comments";
pub const DMS: &str = "dms";
/// Stands for the check for deleted messages, in place of the name of a stream.
pub const REMOVED: &str = "removed";
/// The number of messages per page.
const PAGE: usize = 3;
/// The maximum delay before a message becomes visible.
pub const OVERLAP: TimeDelta = TimeDelta::seconds(60);

/// The behavior of one reply call.
pub enum ReplyStep {
    Reject(CallError),
    /// Accepts the reply and returns this error, like a broken connection.
    AcceptAnd(CallError),
    /// Waits at the gate, then accepts.
    Wait(Arc<Gate>),
    /// Accepts, hangs at the gate and never responds.
    AcceptAndHang(Arc<Gate>),
    /// Never responds.
    Hang(Arc<Gate>),
}

/// A reply on the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentReply {
    pub id: String,
    pub marker: String,
    pub thread: String,
    pub text: String,
}

/// A message, and when it becomes visible.
type Listed = (DateTime<Utc>, FetchedMessage);

pub struct FakeInbox {
    clock: Clock,
    streams: Mutex<BTreeMap<&'static str, Vec<Listed>>>,
    removed: Mutex<BTreeSet<String>>,
    /// The maximum number of messages per check for deleted messages. Zero: the platform has no such check.
    checked: AtomicUsize,
    /// The message ids of each check.
    checks: Mutex<Vec<Vec<String>>>,
    failures: Mutex<VecDeque<(&'static str, CallError)>>,
    fetches: Mutex<Vec<String>>,
    /// Blocks the next fetch before it responds.
    held: Mutex<Option<Arc<Gate>>>,
    /// The only valid token, if the platform checks tokens.
    token: Mutex<Option<String>>,
    script: Mutex<VecDeque<ReplyStep>>,
    sent: Mutex<Vec<SentReply>>,
    replies: AtomicUsize,
    reconciles: AtomicUsize,
    cannot_reconcile: AtomicBool,
    accepted: Semaphore,
}

impl FakeInbox {
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            streams: Mutex::default(),
            removed: Mutex::default(),
            checked: AtomicUsize::new(0),
            checks: Mutex::default(),
            failures: Mutex::default(),
            fetches: Mutex::default(),
            held: Mutex::default(),
            token: Mutex::default(),
            script: Mutex::default(),
            sent: Mutex::default(),
            replies: AtomicUsize::new(0),
            reconciles: AtomicUsize::new(0),
            cannot_reconcile: AtomicBool::new(false),
            accepted: Semaphore::new(0),
        }
    }

    /// Adds a message that is visible from `visible_at` on. Replaces a message with the same id.
    pub fn add(&self, stream: &'static str, message: FetchedMessage, visible_at: DateTime<Utc>) {
        self.removed.lock().expect("no panic").remove(&message.external_id);
        let mut streams = self.streams.lock().expect("no panic");
        let listed = streams.entry(stream).or_default();
        listed.retain(|(_, old)| old.external_id != message.external_id);
        listed.push((visible_at, message));
        listed.sort_by_key(|(_, message)| (message.sent_at, message.external_id.clone()));
    }

    /// Removes a message.
    pub fn remove(&self, id: &str) {
        for listed in self.streams.lock().expect("no panic").values_mut() {
            listed.retain(|(_, message)| message.external_id != id);
        }
        self.removed.lock().expect("no panic").insert(id.to_owned());
    }

    /// Enables the check for deleted messages, with at most `max` messages per call.
    pub fn enable_deletion_check(&self, max: usize) {
        self.checked.store(max, Ordering::SeqCst);
    }

    /// Returns the message ids of each check for deleted messages, in order.
    pub fn checks(&self) -> Vec<Vec<String>> {
        self.checks.lock().expect("no panic").clone()
    }

    /// Adds an inbound message that is sent now and is visible immediately.
    pub fn write(&self, stream: &'static str, id: &str, thread: &str, body: &str) {
        let now = self.clock.now();
        self.add(stream, message(stream, id, thread, body, now), now);
    }

    /// Fails the next fetch of a stream.
    pub fn fail_fetch(&self, stream: &'static str, error: CallError) {
        self.failures.lock().expect("no panic").push_back((stream, error));
    }

    /// Returns whether there are failures that no fetch has consumed.
    pub fn has_failures(&self) -> bool {
        !self.failures.lock().expect("no panic").is_empty()
    }

    /// Blocks the next fetch before it responds.
    pub fn hold_fetch(&self, gate: Arc<Gate>) {
        *self.held.lock().expect("no panic") = Some(gate);
    }

    /// Returns the streams that were fetched, in order.
    pub fn fetches(&self) -> Vec<String> {
        self.fetches.lock().expect("no panic").clone()
    }

    /// From now on, accepts only this token.
    pub fn accept_only_token(&self, token: &str) {
        *self.token.lock().expect("no panic") = Some(token.to_owned());
    }

    /// Scripts the next replies; later ones are accepted.
    pub fn script_replies(&self, steps: impl IntoIterator<Item = ReplyStep>) {
        self.script.lock().expect("no panic").extend(steps);
    }

    pub fn disable_reconcile(&self) {
        self.cannot_reconcile.store(true, Ordering::SeqCst);
    }

    pub fn sent(&self) -> Vec<SentReply> {
        self.sent.lock().expect("no panic").clone()
    }

    /// Returns the number of reply calls and of reconcile calls.
    pub fn calls(&self) -> (usize, usize) {
        (self.replies.load(Ordering::SeqCst), self.reconciles.load(Ordering::SeqCst))
    }

    /// Waits until a reply was accepted.
    pub async fn wait_until_sent(&self) {
        self.accepted.acquire().await.expect("never closed").forget();
    }

    fn check_token(&self, account: &ConnectorAccount) -> Result<(), CallError> {
        let wanted = self.token.lock().expect("no panic").clone();
        let token = account.secrets.get("token").map(|token| token.expose_secret().to_owned());
        if wanted.is_some() && wanted != token { Err(auth_expired()) } else { Ok(()) }
    }

    /// Records the reply, and lists it in the stream of its thread as a message of the account.
    fn accept(&self, reply: &OutgoingReply) -> Published {
        let (id, now) = (format!("reply-{}", self.sent().len() + 1), self.clock.now());
        let stream = if reply.thread.kind == ConversationType::Dm { DMS } else { COMMENTS };
        let own = FetchedMessage {
            direction: MessageDirection::Outbound,
            participant: None,
            author_name: Some("Demo".to_owned()),
            ..message(stream, &id, &reply.thread.thread_id, &reply.text, now)
        };
        self.add(stream, own, now);
        self.sent.lock().expect("no panic").push(SentReply {
            id: id.clone(),
            marker: key(reply),
            thread: reply.thread.thread_id.clone(),
            text: reply.text.clone(),
        });
        self.accepted.add_permits(1);
        Published::new(id, None)
    }
}

fn key(reply: &OutgoingReply) -> String {
    reply.marker.get("key").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns an inbound message from Vera.
pub fn message(stream: &str, id: &str, thread: &str, body: &str, at: DateTime<Utc>) -> FetchedMessage {
    let kind = if stream == DMS { ConversationType::Dm } else { ConversationType::Comment };
    FetchedMessage {
        external_id: id.to_owned(),
        kind,
        thread_id: thread.to_owned(),
        direction: MessageDirection::Inbound,
        participant: Some(Participant {
            external_id: "vera".to_owned(),
            name: Some("Vera Vogel".to_owned()),
            username: Some("vera".to_owned()),
            avatar_url: None,
        }),
        subject: (stream == COMMENTS).then(|| Subject { external_id: "post-1".to_owned(), url: None }),
        author_name: Some("Vera Vogel".to_owned()),
        body: body.to_owned(),
        sent_at: at,
        reply_context: Map::from_iter([("to".to_owned(), json!(id))]),
    }
}

#[async_trait]
impl InboxConnector for FakeInbox {
    fn streams(&self) -> &'static [&'static str] {
        &[COMMENTS, DMS]
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        self.fetches.lock().expect("no panic").push(stream.to_owned());
        let held = self.held.lock().expect("no panic").take();
        if let Some(gate) = held {
            gate.enter().await;
        }
        self.check_token(account)?;
        {
            let mut failures = self.failures.lock().expect("no panic");
            if let Some(at) = failures.iter().position(|(failing, _)| *failing == stream) {
                return Err(failures.remove(at).expect("it is there").1);
            }
        }
        // The cursor has the time and id of the last message of the page, and the time of the newest message.
        let read = |name: &str| cursor.and_then(|c| c[name].as_i64()).unwrap_or(0);
        let (at, newest) = (read("at"), read("newest"));
        let id = cursor.and_then(|c| c["id"].as_str()).unwrap_or_default();
        let began = cursor.and_then(|c| c["began"].as_i64()).unwrap_or(self.clock.now().timestamp_micros());
        let (now, size) = (self.clock.now(), PAGE);
        let streams = self.streams.lock().expect("no panic");
        let all = streams.get(stream).into_iter().flatten().filter(|(visible, _)| *visible <= now);
        let after = all.filter(|(_, m)| (m.sent_at.timestamp_micros(), m.external_id.as_str()) > (at, id));
        let found: Vec<FetchedMessage> = after.take(size).map(|(_, message)| message.clone()).collect();
        let newest = found.iter().map(|m| m.sent_at.timestamp_micros()).fold(newest, i64::max);
        let (cursor, has_more) = match found.last() {
            Some(last) if found.len() == size => (
                json!({
                    "at": last.sent_at.timestamp_micros(), "id": last.external_id, "newest": newest, "began": began,
                }),
                true,
            ),
            _ => {
                // A message that was not visible when the pass began may be older than the last message of the pass.
                let at = newest.min(began) - OVERLAP.num_microseconds().unwrap_or(0);
                (json!({ "at": at, "id": "", "newest": newest }), false)
            }
        };
        Ok(InboxPage { messages: found, cursor, has_more, unavailable: None })
    }

    fn deletion_check_limit(&self) -> usize {
        self.checked.load(Ordering::SeqCst)
    }

    async fn deleted(&self, account: &ConnectorAccount, ids: &[String]) -> Result<Vec<String>, CallError> {
        self.check_token(account)?;
        self.checks.lock().expect("no panic").push(ids.to_vec());
        let mut failures = self.failures.lock().expect("no panic");
        if let Some(at) = failures.iter().position(|(failing, _)| *failing == REMOVED) {
            return Err(failures.remove(at).expect("it is there").1);
        }
        // The response also has ids that the request does not contain.
        Ok(self.removed.lock().expect("no panic").iter().cloned().collect())
    }

    fn check_text(&self, _thread: &ReplyThread, _text: &str) -> Result<(), String> {
        Ok(())
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        Marker::from_iter([("key".to_owned(), json!(format!("{}-{:016x}", seed.target_id, seed.random)))])
    }

    fn can_reconcile(&self) -> bool {
        !self.cannot_reconcile.load(Ordering::SeqCst)
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        self.replies.fetch_add(1, Ordering::SeqCst);
        self.check_token(account)?;
        let step = self.script.lock().expect("no panic").pop_front();
        match step {
            None => Ok(self.accept(reply)),
            Some(ReplyStep::Reject(error)) => Err(error),
            Some(ReplyStep::AcceptAnd(error)) => {
                self.accept(reply);
                Err(error)
            }
            Some(ReplyStep::Wait(gate)) => {
                gate.enter().await;
                Ok(self.accept(reply))
            }
            Some(ReplyStep::AcceptAndHang(gate)) => {
                self.accept(reply);
                gate.hang().await
            }
            Some(ReplyStep::Hang(gate)) => gate.hang().await,
        }
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        self.reconciles.fetch_add(1, Ordering::SeqCst);
        self.check_token(account)?;
        let found = self.sent().into_iter().find(|sent| sent.marker == key(reply));
        Ok(found.map_or(ReconcileResult::Absent, |sent| ReconcileResult::Found(Published::new(sent.id, None))))
    }
}
