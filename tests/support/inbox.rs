//! The inbox of a real connector, through the real jobs, against a server that a test plays.

#![allow(dead_code, clippy::unwrap_used, reason = "a part of the tests uses a part of it")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crier_domain::account::AccountStatus;
use crier_domain::conversation::{Conversation, Message};
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::platform::Platform;
use crier_scheduler::tasks;
use crier_store::accounts::{self, NewAccount};
use crier_store::conversations::list::{ConversationFilter, list};
use crier_store::conversations::{self, replies};
use crier_store::{PageRequest, inbox_syncs, jobs};
use secrecy::SecretString;
use serde_json::Value;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::jobs::{MAX_CALL_SECONDS, TestWorker};
use super::store::{TestStore, new_account};

/// A server with the state `S`, which `answer` reads and changes.
pub struct FakeApi<S> {
    server: MockServer,
    state: Arc<Mutex<S>>,
    seen: Arc<Mutex<Vec<Request>>>,
    once: Arc<Mutex<VecDeque<(String, ResponseTemplate)>>>,
}

impl<S: Send + 'static> FakeApi<S> {
    pub async fn start(
        state: S,
        answer: impl Fn(&mut S, &Request) -> ResponseTemplate + Send + Sync + 'static,
    ) -> Self {
        let server = MockServer::start().await;
        let (state, seen) = (Arc::new(Mutex::new(state)), Arc::<Mutex<Vec<Request>>>::default());
        let once = Arc::<Mutex<VecDeque<(String, ResponseTemplate)>>>::default();
        let (of_state, of_seen, of_once) = (state.clone(), seen.clone(), once.clone());
        let respond = move |request: &Request| {
            of_seen.lock().unwrap().push(request.clone());
            let mut once = of_once.lock().unwrap();
            if once.front().is_some_and(|(part, _)| request.url.path().contains(part.as_str())) {
                return once.pop_front().unwrap().1;
            }
            answer(&mut of_state.lock().unwrap(), request)
        };
        Mock::given(any()).respond_with(respond).mount(&server).await;
        Self { server, state, seen, once }
    }

    pub fn base(&self) -> String {
        self.server.uri()
    }

    pub fn with<T>(&self, work: impl FnOnce(&mut S) -> T) -> T {
        work(&mut self.state.lock().unwrap())
    }

    /// Answers the next request whose path contains `part` with this, and changes nothing.
    pub fn respond_once(&self, part: &str, answer: ResponseTemplate) {
        self.once.lock().unwrap().push_back((part.to_owned(), answer));
    }

    /// The requests so far whose path contains `part`.
    pub fn asked(&self, part: &str) -> Vec<Request> {
        self.seen.lock().unwrap().iter().filter(|request| request.url.path().contains(part)).cloned().collect()
    }
}

/// Returns a parameter of a request's query.
pub fn parameter(request: &Request, name: &str) -> Option<String> {
    request.url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

pub fn json(status: u16, body: impl serde::Serialize) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

/// An account whose inbox is read and answered.
pub struct InboxTest<S> {
    pub w: TestWorker,
    pub account: i64,
    pub api: FakeApi<S>,
}

impl<S: Send + 'static> InboxTest<S> {
    /// Connects an account, and has it looked at from now on.
    pub async fn new(s: TestStore, platform: Platform, external_id: &str, secrets: Value, api: FakeApi<S>) -> Self {
        let w = TestWorker::with_base_url(s, platform, &api.base()).await;
        let secrets = SecretString::from(secrets.to_string());
        let new = NewAccount { platform, external_id: external_id.to_owned(), secrets, ..new_account(external_id, "") };
        let account = w
            .write(async |tx| {
                let made = accounts::save(tx, w.world.workspace, &new).await?;
                accounts::attach(tx, w.world.brand, made.id).await?;
                inbox_syncs::start(tx, made.id).await?;
                Ok(made.id)
            })
            .await;
        Self { w, account, api }
    }

    /// Connects the account again, with these secrets; it is due at once.
    pub async fn reconnect(&self, secrets: Value) {
        let secrets = SecretString::from(secrets.to_string());
        let found = accounts::with_secrets(&mut self.w.conn().await, self.w.cipher(), self.account).await;
        let (account, _) = found.unwrap().unwrap();
        let new = new_account(&account.external_id, "");
        let new = NewAccount { platform: account.platform, username: account.username, secrets, ..new };
        let again = async |tx: &mut _| {
            accounts::save(tx, self.w.world.workspace, &new).await?;
            inbox_syncs::start(tx, self.account).await
        };
        self.w.write(again).await;
    }

    /// Looks at the account if it is due.
    pub async fn look(&self) {
        tasks::inbox::run(&self.w.scheduler).await.unwrap();
        self.w.run_jobs().await;
    }

    /// Looks a little more than a minute later.
    pub async fn sync_inbox_later(&self) {
        self.w.advance(70);
        self.look().await;
    }

    pub async fn conversations(&self) -> Vec<Conversation> {
        let page = PageRequest { page: 1, per_page: 100 };
        list(&mut self.w.conn().await, self.w.world.brand, &ConversationFilter::default(), page).await.unwrap().rows
    }

    /// The only conversation.
    pub async fn only(&self) -> Conversation {
        let mut found = self.conversations().await;
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    pub async fn messages(&self, conversation: i64) -> Vec<Message> {
        replies::messages(&mut self.w.conn().await, conversation, 500, 1 << 20).await.unwrap()
    }

    /// The bodies of a conversation's messages with their directions, the oldest first.
    pub async fn texts(&self, conversation: i64) -> Vec<String> {
        let found = self.messages(conversation).await;
        found.into_iter().map(|message| format!("{}: {}", message.direction, message.body)).collect()
    }

    pub async fn count(&self) -> i64 {
        self.w.number("SELECT count(*) FROM messages").await
    }

    pub async fn sync(&self) -> inbox_syncs::InboxSync {
        inbox_syncs::find(&mut self.w.conn().await, self.account).await.unwrap().unwrap()
    }

    /// The message of the last look's error.
    pub async fn error(&self) -> String {
        self.sync().await.last_error.map(|error| error.message).unwrap_or_default()
    }

    pub async fn status(&self) -> AccountStatus {
        let found = accounts::with_secrets(&mut self.w.conn().await, self.w.cipher(), self.account).await;
        found.unwrap().unwrap().0.status
    }

    /// Replies as the API does, and runs the job once; returns the message's id.
    pub async fn reply(&self, conversation: i64, text: &str) -> i64 {
        let w = &self.w;
        let id = w
            .write(async |tx| {
                let found = conversations::lock(tx, w.world.brand, conversation).await?.expect("it is there");
                let id = replies::insert(tx, &found, w.world.user, "Ann", text).await?;
                let job = NewJob::new(JobKind::SendReply, id, tx.now).lane(Lane::Account(found.account_id));
                jobs::enqueue(tx, &job).await?;
                Ok(id)
            })
            .await;
        self.run_reply(id).await;
        id
    }

    /// Runs a reply's job once, if it is due.
    pub async fn run_reply(&self, message: i64) {
        self.w.scheduler.tick().await.unwrap();
        let sql = format!("SELECT max(id) FROM jobs WHERE kind = 'send_reply' AND subject_id = {message}");
        let job = self.w.number(sql).await;
        self.w.engine.run(job).await;
    }

    /// Runs a reply's job again when an earlier call must be over.
    pub async fn run_reply_after_timeout(&self, message: i64) {
        self.w.advance(MAX_CALL_SECONDS);
        self.run_reply(message).await;
    }

    /// The state of a reply: its status, and the category of its error.
    pub async fn sent(&self, message: i64) -> (String, Option<String>) {
        let found = replies::find(&mut self.w.conn().await, message).await.unwrap().unwrap();
        (found.status.to_string(), found.error.map(|error| error.category.to_string()))
    }
}
