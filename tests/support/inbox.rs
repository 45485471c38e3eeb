//! Tests the inbox of a real connector with the real jobs, against a fake server.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

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

/// A server with the state `S`, which the handler of requests reads and changes.
pub struct FakeApi<S> {
    server: MockServer,
    state: Arc<Mutex<S>>,
    seen: Arc<Mutex<Vec<Request>>>,
    once: Arc<Mutex<VecDeque<(String, ResponseTemplate)>>>,
    lost: Arc<Mutex<Option<(String, u16)>>>,
}

impl<S: Send + 'static> FakeApi<S> {
    pub async fn start(
        state: S,
        handle: impl Fn(&mut S, &Request) -> ResponseTemplate + Send + Sync + 'static,
    ) -> Self {
        let server = MockServer::start().await;
        let (state, seen) = (Arc::new(Mutex::new(state)), Arc::<Mutex<Vec<Request>>>::default());
        let once = Arc::<Mutex<VecDeque<(String, ResponseTemplate)>>>::default();
        let lost = Arc::<Mutex<Option<(String, u16)>>>::default();
        let (of_state, of_seen, of_once, of_lost) = (state.clone(), seen.clone(), once.clone(), lost.clone());
        let respond = move |request: &Request| {
            of_seen.lock().unwrap().push(request.clone());
            let mut once = of_once.lock().unwrap();
            if once.front().is_some_and(|(part, _)| request.url.path().contains(part.as_str())) {
                return once.pop_front().unwrap().1;
            }
            let response = handle(&mut of_state.lock().unwrap(), request);
            let is_lost =
                |(part, _): &mut (String, u16)| request.method != "GET" && request.url.path().contains(part.as_str());
            match of_lost.lock().unwrap().take_if(is_lost) {
                Some((_, status)) => ResponseTemplate::new(status),
                None => response,
            }
        };
        Mock::given(any()).respond_with(respond).mount(&server).await;
        Self { server, state, seen, once, lost }
    }

    pub fn base(&self) -> String {
        self.server.uri()
    }

    pub fn with<T>(&self, work: impl FnOnce(&mut S) -> T) -> T {
        work(&mut self.state.lock().unwrap())
    }

    /// Sets the response to the next request whose path contains `part`. That request does not change the state.
    pub fn respond_once(&self, part: &str, response: ResponseTemplate) {
        self.once.lock().unwrap().push_back((part.to_owned(), response));
    }

    /// Replaces the response to the next write whose path contains `part` by an error with this status.
    pub fn lose_response(&self, part: &str, status: u16) {
        *self.lost.lock().unwrap() = Some((part.to_owned(), status));
    }

    /// Returns the requests whose path contains `part`.
    pub fn requests_to(&self, part: &str) -> Vec<Request> {
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

/// Returns all conversations of a brand, newest first.
pub async fn all(w: &TestWorker, brand: i64) -> Vec<Conversation> {
    let page = PageRequest { page: 1, per_page: 100 };
    list(&mut w.conn().await, brand, &ConversationFilter::default(), page).await.unwrap().rows
}

/// Replies as the API does. Returns the id of the message.
pub async fn reply(w: &TestWorker, conversation: i64, text: &str) -> i64 {
    w.write(async |tx| {
        let found = conversations::lock(tx, w.world.brand, conversation).await?.expect("the conversation is there");
        let id = replies::insert(tx, &found, w.world.user, "Ann", text).await?;
        let job = NewJob::new(JobKind::SendReply, id, tx.now)
            .lane(Lane::Account(found.account_id))
            .trace(Some("request-1".to_owned()));
        jobs::enqueue(tx, &job).await?;
        Ok(id)
    })
    .await
}

/// Runs the job of a reply once, if it is due.
pub async fn run_reply(w: &TestWorker, message: i64) {
    w.scheduler.tick().await.unwrap();
    w.engine.run(w.newest_job_of(JobKind::SendReply, message).await).await;
}

/// A connected account with an inbox.
pub struct InboxTest<S> {
    pub w: TestWorker,
    pub account: i64,
    pub api: FakeApi<S>,
}

impl<S: Send + 'static> InboxTest<S> {
    /// Connects an account and starts the sync of its inbox.
    pub async fn new(s: TestStore, platform: Platform, external_id: &str, secrets: Value, api: FakeApi<S>) -> Self {
        let w = TestWorker::with_base_url(s, platform, &api.base()).await;
        let secrets = SecretString::from(secrets.to_string());
        let new = NewAccount { platform, external_id: external_id.to_owned(), secrets, ..new_account(external_id, "") };
        let account = w
            .write(async |tx| {
                let created = accounts::save(tx, w.world.workspace, &new).await?;
                accounts::attach(tx, w.world.brand, created.id).await?;
                inbox_syncs::start(tx, created.id).await?;
                Ok(created.id)
            })
            .await;
        Self { w, account, api }
    }

    /// Connects the account again, with these secrets. Its sync is due immediately.
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

    /// Syncs the inbox if it is due.
    pub async fn look(&self) {
        tasks::inbox::run(&self.w.scheduler).await.unwrap();
        self.w.run_jobs().await;
    }

    /// Syncs the inbox this many seconds later, if it is due.
    pub async fn look_after(&self, seconds: i64) {
        self.w.advance(seconds);
        self.look().await;
    }

    /// Syncs the inbox a little more than a minute later.
    pub async fn sync_inbox_later(&self) {
        self.look_after(70).await;
    }

    /// Syncs the inbox when the server rejects a call to `path`, again `next_sync` seconds later, and `wait` seconds after
    /// that. Asserts that the second sync makes no call.
    pub async fn sync_under_rate_limit(&self, path: &str, next_sync: i64, wait: i64) {
        self.look().await;
        self.look_after(next_sync).await;
        assert_eq!((self.count().await, self.api.requests_to(path).len()), (0, 1), "there is no request before");
        self.look_after(wait).await;
    }

    pub async fn conversations(&self) -> Vec<Conversation> {
        all(&self.w, self.w.world.brand).await
    }

    pub async fn conversations_by_thread(&self) -> Vec<Conversation> {
        let mut found = self.conversations().await;
        found.sort_by(|a, b| a.thread_id.cmp(&b.thread_id));
        found
    }

    /// Returns the only conversation.
    pub async fn only(&self) -> Conversation {
        let mut found = self.conversations().await;
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    pub async fn messages(&self, conversation: i64) -> Vec<Message> {
        replies::messages(&mut self.w.conn().await, conversation, 500, 1 << 20).await.unwrap()
    }

    /// Returns the directions and bodies of a conversation's messages (`inbound: Hello`), oldest first.
    pub async fn texts(&self, conversation: i64) -> Vec<String> {
        let found = self.messages(conversation).await;
        found.into_iter().map(|message| format!("{}: {}", message.direction, message.body)).collect()
    }

    pub async fn count(&self) -> i64 {
        self.w.count_rows("messages").await
    }

    /// Returns the external ids of the messages that were deleted with their texts, separated by spaces.
    pub async fn deleted(&self) -> String {
        let deleted =
            "SELECT external_id FROM messages WHERE deleted_at IS NOT NULL AND body = '' ORDER BY external_id";
        let sql = format!("SELECT coalesce(string_agg(external_id, ' '), '') FROM ({deleted}) m");
        self.w.value(sql).await
    }

    /// Sets the username of the account.
    pub async fn set_username(&self, username: &str) {
        self.w.sql(format!("UPDATE social_accounts SET username = '{username}' WHERE id = {}", self.account)).await;
    }

    pub async fn sync(&self) -> inbox_syncs::InboxSync {
        inbox_syncs::find(&mut self.w.conn().await, self.account).await.unwrap().unwrap()
    }

    /// Returns the error message of the last sync, or an empty string.
    pub async fn error(&self) -> String {
        self.sync().await.last_error.map(|error| error.message).unwrap_or_default()
    }

    pub async fn status(&self) -> AccountStatus {
        let found = accounts::with_secrets(&mut self.w.conn().await, self.w.cipher(), self.account).await;
        found.unwrap().unwrap().0.status
    }

    /// Replies as the API does, and runs the job once. Returns the id of the message.
    pub async fn reply(&self, conversation: i64, text: &str) -> i64 {
        let id = reply(&self.w, conversation, text).await;
        self.run_reply(id).await;
        id
    }

    /// Runs the job of a reply once, if it is due.
    pub async fn run_reply(&self, message: i64) {
        run_reply(&self.w, message).await;
    }

    /// Runs the job of a reply when an earlier call must be over.
    pub async fn run_reply_after_timeout(&self, message: i64) {
        self.w.advance(MAX_CALL_SECONDS);
        self.run_reply(message).await;
    }

    /// Returns the status of a reply and the category of its error, if it has one (`failed: account`).
    pub async fn sent(&self, message: i64) -> String {
        let found = replies::find(&mut self.w.conn().await, message).await.unwrap().unwrap();
        found.error.map_or(found.status.to_string(), |error| format!("{}: {}", found.status, error.category))
    }

    /// Replies as the API does, and runs the job once. Returns the result (see `sent`).
    pub async fn reply_result(&self, conversation: i64, text: &str) -> String {
        let id = self.reply(conversation, text).await;
        self.sent(id).await
    }

    /// Replies, and loses the response to the call to `part`. Asserts that the reply is found.
    pub async fn reply_with_lost_response(&self, conversation: i64, text: &str, part: &str, status: u16) {
        self.api.lose_response(part, status);
        let id = self.reply(conversation, text).await;
        assert_eq!(self.sent(id).await, "pending: outcome_unknown");
        self.run_reply_after_timeout(id).await;
        assert_eq!(self.sent(id).await, "sent");
    }

    /// Replies, and fails the call to `part` before it has an effect. Asserts that the reply is sent again.
    pub async fn reply_with_lost_call(&self, conversation: i64, text: &str, part: &str, status: u16) {
        self.api.respond_once(part, ResponseTemplate::new(status));
        let id = self.reply(conversation, text).await;
        self.run_reply_after_timeout(id).await;
        assert_eq!(self.sent(id).await, "sent");
    }

    /// Sends the same text in two conversations. The first call to `part` has no effect, and the response to the second
    /// one is lost. Asserts that each reply is sent.
    pub async fn send_one_text_to_two(&self, [first, second]: [i64; 2], part: &str) {
        self.api.respond_once(part, ResponseTemplate::new(503));
        let first = self.reply(first, "Thanks!").await;
        self.api.lose_response(part, 503);
        let second = self.reply(second, "Thanks!").await;
        self.run_reply_after_timeout(first).await;
        self.run_reply(second).await;
        assert_eq!((self.sent(first).await.as_str(), self.sent(second).await.as_str()), ("sent", "sent"));
    }

    /// Returns the ids of the conversations, by thread.
    pub async fn two_conversations(&self) -> [i64; 2] {
        let ids: Vec<i64> = self.conversations_by_thread().await.iter().map(|one| one.id).collect();
        ids.try_into().unwrap()
    }
}
