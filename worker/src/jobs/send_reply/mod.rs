//! `send_reply`: sends one reply of the inbox, at most once. The steps are those of `publish_target`:
//!
//! 1. *Prepare*, one transaction under the conversation's lock: checks that the account can be used, then stores the
//!    marker and the start time of the call.
//! 2. *Reconcile.* If the outcome of an earlier call is unknown (its process died, the connection broke), queries the
//!    platform first. If the reply exists, it is sent. If it does not exist, and the earlier call's deadline has
//!    passed, calls again. If the platform cannot tell, the reply ends as `outcome_unknown` and a user decides.
//! 3. *Call.*
//! 4. *Settle*, in the transaction that settles the job: writes the message, the account, the lane and the event.
//!
//! Only the call itself can have an unknown outcome: a run that is aborted before it (at shutdown) is released and
//! uses up no attempt. Each step checks the lease.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_domain::account::AccountStatus;
use crier_domain::conversation::{Conversation, Message, MessageStatus};
use crier_domain::failure::{Category, Failure};
use crier_domain::job::Outcome;
use crier_platforms::inbox::{OutgoingReply, ReplyThread};
use crier_platforms::{CallError, ConnectorRegistry, Marker, MarkerSeed, Published, ReconcileResult};
use crier_store::adoptions::Adopter;
use crier_store::conversations::{self, replies};
use crier_store::jobs::engine as rows;
use crier_store::{Result, Store, Tx, accounts};

use self::run_result::ReplyRunResult;
use super::account_session::{AccountSession, RefreshError, disconnected, expired};
use super::adopt::{self, Adoption};
use super::call_outcome::{self, CallAction, CallOutcome};
use super::{Deps, FinishedRun, Job, RunError, Stop, settle_each};
use crate::engine::Run;

mod run_result;

const ACTION: CallAction = CallAction::Reply;
/// A reply may take several requests, each with the platform's timeout. All of them must end within this many timeouts.
const REPLY_CALLS: i32 = 2;
/// The key in the marker of the context of the reply's first attempt ([`ReplyThread::context`]).
const CONTEXT: &str = "context";

pub struct SendReply {
    store: Store,
    platforms: Arc<ConnectorRegistry>,
    /// The maximum duration of all requests of a call. A reply that does not exist after that will not be sent.
    timeout: TimeDelta,
}

/// Everything that the call needs.
struct Prepared {
    conversation: Conversation,
    /// `call_started_at` is the start of the current call, or of a call that an earlier run left open.
    message: Message,
    session: AccountSession,
    reply: OutgoingReply,
    /// Whether the outcome of an earlier call is unknown.
    has_open_call: bool,
}

/// The result of a step.
type Step<T> = std::result::Result<T, Stop<Box<ReplyRunResult>>>;

impl SendReply {
    pub fn new(deps: &Deps) -> Self {
        Self {
            store: deps.store.clone(),
            platforms: deps.platforms.clone(),
            timeout: deps.platform_timeout * REPLY_CALLS,
        }
    }

    async fn send(&self, run: &Run) -> Step<Box<ReplyRunResult>> {
        let mut p = self.prepare(run).await?;
        if p.has_open_call {
            self.reconcile(run, &mut p).await?;
            self.store_call_marker(run, &mut p).await?;
        }
        let sent = self.call_with_refresh(run, &mut p).await?;
        Ok(self.result(&p, CallOutcome::Published(sent)))
    }

    /// Decides whether to call the platform, and stores the state that must be stored before the call.
    async fn prepare(&self, run: &Run) -> Step<Prepared> {
        let id = run.job.subject_id;
        let mut tx = self.store.begin().await?;
        let Some(conversation) = conversations::lock_of_message(&mut tx, id).await? else {
            return Err(RunError::cancelled("the conversation no longer exists").into());
        };
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(RunError::lease_lost().into());
        }
        let found = replies::find(&mut tx, id).await?.filter(|message| message.status == MessageStatus::Pending);
        let mut message = found.ok_or_else(|| RunError::cancelled("the reply has ended"))?;
        let has_open_call = message.call_started_at.is_some();
        message.attempts += 1;
        let session = match self.session(&mut tx, &conversation).await? {
            Ok(session) => session,
            Err(outcome) => {
                // A run that ends without a call is an attempt as well.
                replies::start(&mut tx, id, None).await?;
                tx.commit().await?;
                run.set_counted();
                let outcome = if has_open_call { outcome.with_open_call(ACTION) } else { outcome };
                return Err(Stop::Ended(Box::new(ReplyRunResult::without_call(&conversation, message, outcome))));
            }
        };
        let random = crier_base::random::u64();
        let seed = MarkerSeed { target_id: id, at: tx.now, random, reply: None, parts: 1 };
        let marker = message.marker.clone();
        let marker = marker.or_else(|| session.connector.inbox().map(|inbox| inbox.marker(seed)));
        let mut marker = marker.unwrap_or_default();
        adopt::mark_may_exist(&mut marker, message.call_started_at, message.error.as_ref());
        let thread = thread_of(&conversation, &mut marker);
        let reply = OutgoingReply {
            message_id: id,
            text: message.body.clone(),
            thread,
            called_at: adopt::call_time(&marker, message.call_started_at, tx.now),
            marker,
            attempt: u32::try_from(message.attempts).unwrap_or(1),
        };
        replies::start(&mut tx, id, Some(&reply.marker).filter(|_| !has_open_call)).await?;
        if !has_open_call {
            message.call_started_at = Some(tx.now);
            run.set_marked();
        }
        tx.commit().await?;
        run.set_counted();
        Ok(Prepared { conversation, message, session, reply, has_open_call })
    }

    /// Returns the access to the conversation's account, or why it cannot be called.
    async fn session(
        &self,
        tx: &mut Tx,
        conversation: &Conversation,
    ) -> Result<std::result::Result<AccountSession, CallOutcome>> {
        let pair = (conversation.brand_id, conversation.account_id);
        let mut found = accounts::of_brands_with_secrets(tx, self.store.cipher(), &[pair]).await?;
        let Some((account, secrets)) = found.remove(&pair) else {
            return Ok(Err(CallOutcome::Failed(disconnected())));
        };
        if account.status == AccountStatus::Expired {
            let message = "The account's access has expired. Refresh or reconnect it, then reply again.";
            return Ok(Err(CallOutcome::Failed(expired(message))));
        }
        match self.platforms.get(account.platform).filter(|connector| connector.inbox().is_some()) {
            Some(connector) => Ok(Ok(AccountSession::new(&self.store, account, &secrets, connector, self.timeout))),
            None => {
                let failure = Failure::of(Category::Internal, "This worker cannot reply on the platform.");
                Ok(Err(CallOutcome::Retry { at: None, failure, open: false }))
            }
        }
    }

    /// Queries the platform for the outcome of the earlier call. Stops unless that call did not and will not send the
    /// reply.
    async fn reconcile(&self, run: &Run, p: &mut Prepared) -> Step<()> {
        let connector = p.session.connector.clone();
        let Some(inbox) = connector.inbox().filter(|inbox| inbox.can_reconcile()) else {
            return Err(self.stop(p, CallOutcome::reconcile_unsupported(ACTION)));
        };
        let mut reconciled = run.wait_without_slot(inbox.reconcile(&p.session.connector_account, &p.reply)).await;
        if let Err(CallError::AuthExpired(failure)) = reconciled {
            self.refresh(run, p, failure).await?;
            reconciled = inbox.reconcile(&p.session.connector_account, &p.reply).await;
        }
        match reconciled {
            Ok(ReconcileResult::Found(sent)) => return Err(self.stop(p, CallOutcome::Published(sent))),
            Ok(ReconcileResult::Unsupported) => return Err(self.stop(p, CallOutcome::reconcile_unsupported(ACTION))),
            Ok(ReconcileResult::Matches(found)) => match self.adopt(run, p, found).await? {
                Adoption::One(sent) => return Err(self.stop(p, CallOutcome::Published(*sent))),
                Adoption::Several => return Err(self.stop(p, CallOutcome::ambiguous(ACTION))),
                Adoption::None => {}
            },
            Ok(ReconcileResult::PublishedAmong(found)) => {
                let sent = match self.adopt(run, p, found).await? {
                    Adoption::One(sent) => *sent,
                    Adoption::None | Adoption::Several => Published::new("", None),
                };
                return Err(self.stop(p, CallOutcome::Published(sent)));
            }
            Ok(ReconcileResult::Absent) => {}
            Ok(ReconcileResult::Pending(pause)) => {
                let failure = Failure::of(Category::PlatformError, "The platform is processing this reply.");
                let at = Some(self.store.now() + pause);
                return Err(self.stop(p, CallOutcome::Retry { at, failure, open: true }));
            }
            Ok(ReconcileResult::Rejected(error)) => {
                p.has_open_call = false;
                return Err(self.fail(p, error));
            }
            // The query failed: the outcome of the earlier call stays unknown.
            Err(error) => return Err(self.fail(p, error)),
        }
        if p.reply.called_at.is_none() {
            // The earlier call may still be in progress, and its deadline is unknown.
            return Err(self.stop(p, CallOutcome::reconcile_unsupported(ACTION)));
        }
        let deadline = p.message.call_started_at.map(|began| began + self.timeout);
        if let Some(deadline) = deadline.filter(|deadline| self.store.now() < *deadline) {
            let failure =
                Failure::of(Category::Network, "Waiting until the earlier call to the platform must have ended.");
            return Err(self.stop(p, CallOutcome::Retry { at: Some(deadline), failure, open: true }));
        }
        p.has_open_call = false;
        Ok(())
    }

    /// Decides which of the candidates is the reply, and stores that.
    async fn adopt(&self, run: &Run, p: &Prepared, found: Vec<Published>) -> Step<Adoption> {
        let mut tx = self.store.begin().await?;
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(RunError::lease_lost().into());
        }
        let adopted = adopt::adopt(&mut tx, &p.session.account, Adopter::Message(p.message.id), found).await?;
        tx.commit().await?;
        Ok(adopted)
    }

    /// Stores the marker of a call that starts now. Stops if the lease was lost.
    async fn store_call_marker(&self, run: &Run, p: &mut Prepared) -> Step<()> {
        let mut tx = self.store.begin().await?;
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(RunError::lease_lost().into());
        }
        replies::mark_call(&mut tx, p.message.id, &p.reply.marker).await?;
        p.message.call_started_at = Some(tx.now);
        run.set_marked();
        Ok(tx.commit().await?)
    }

    /// Calls the platform. Retries once after refreshing an expired access token.
    async fn call_with_refresh(&self, run: &Run, p: &mut Prepared) -> Step<Published> {
        loop {
            match self.call(run, p).await {
                Ok(sent) => return Ok(sent),
                Err(CallError::AuthExpired(failure)) => self.refresh(run, p, failure).await?,
                // The platform may have the reply of an earlier call and not show it yet.
                Err(CallError::Permanent(failure))
                    if failure.category == Category::DuplicateContent && adopt::may_exist(&p.reply.marker) =>
                {
                    return Err(self.stop(p, CallOutcome::unknown(ACTION, &failure, false)));
                }
                Err(error) => return Err(self.fail(p, error)),
            }
            // The deadline of the next call counts from its own start.
            self.store_call_marker(run, p).await?;
        }
    }

    /// Calls once, within one deadline from the stored start time. After the deadline, another run may rely on the
    /// platform's response that there is no such reply, so a process that was frozen before the call must not call any
    /// more.
    async fn call(&self, run: &Run, p: &Prepared) -> std::result::Result<Published, CallError> {
        let now = self.store.now();
        let deadline = p.message.call_started_at.unwrap_or(now) + self.timeout;
        let remaining = (deadline - now).to_std().unwrap_or_default();
        if remaining.is_zero() {
            return Err(CallError::network("Crier was delayed for too long before it could call the platform."));
        }
        let Some(inbox) = p.session.connector.inbox() else {
            return Err(CallError::network("This worker cannot reply on the platform."));
        };
        run.set_in_doubt(true);
        let call = tokio::time::timeout(remaining, inbox.reply(&p.session.connector_account, &p.reply));
        let result = run.call_and_wait(call).await.unwrap_or_else(|_| {
            Err(CallError::Unknown(Failure::of(Category::Network, "The platform did not respond in time.")))
        });
        run.set_in_doubt(matches!(result, Ok(_) | Err(CallError::Unknown(_))));
        result
    }

    async fn refresh(&self, run: &Run, p: &mut Prepared, rejection: Failure) -> Step<()> {
        p.session.refresh(run, rejection).await.map_err(|error| match error {
            RefreshError::Database(error) => Stop::from(error),
            RefreshError::Call(error) => self.fail(p, error),
        })
    }

    fn result(&self, p: &Prepared, outcome: CallOutcome) -> Box<ReplyRunResult> {
        Box::new(ReplyRunResult::of(p, outcome, self.timeout))
    }

    fn stop(&self, p: &Prepared, outcome: CallOutcome) -> Stop<Box<ReplyRunResult>> {
        Stop::Ended(self.result(p, outcome))
    }

    /// Returns the stop for a platform's error.
    fn fail(&self, p: &Prepared, error: CallError) -> Stop<Box<ReplyRunResult>> {
        let can_reconcile = p.session.connector.inbox().is_some_and(|inbox| inbox.can_reconcile());
        self.stop(p, CallOutcome::of(ACTION, error, p.has_open_call, can_reconcile))
    }
}

/// Returns the thread with the context of the first attempt, which is stored in the marker. The context of the
/// conversation changes with each new message, but every attempt must reply to the same message, below which an earlier
/// reply is looked up.
fn thread_of(conversation: &Conversation, marker: &mut Marker) -> ReplyThread {
    let context = marker.entry(CONTEXT).or_insert_with(|| conversation.reply_context.clone().into());
    let context = context.as_object().cloned().unwrap_or_default();
    ReplyThread { context, ..ReplyThread::from(conversation) }
}

#[async_trait]
impl Job for SendReply {
    type Result = ReplyRunResult;

    async fn run(&self, run: &Run) -> std::result::Result<ReplyRunResult, RunError> {
        match self.send(run).await {
            Ok(result) | Err(Stop::Ended(result)) => Ok(*result),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, ReplyRunResult>]) -> Result<Vec<Outcome>> {
        settle_each(tx, runs, |tx, job, result| Box::pin(result.write(tx, job))).await
    }

    async fn undo_aborted(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        self.undo_failed(tx, run).await?;
        if run.is_counted() { replies::refund_attempt(tx, run.job.subject_id).await } else { Ok(()) }
    }

    async fn undo_failed(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        let id = run.job.subject_id;
        if !run.has_unused_marker() || conversations::lock_of_message(tx, id).await?.is_none() {
            return Ok(());
        }
        replies::clear_call(tx, id).await
    }

    fn backoff(&self, attempt: i32) -> TimeDelta {
        call_outcome::pause(attempt, crier_base::random::unit())
    }
}
