//! `publish_target`: one post on one account, at most once.
//!
//! 1. *Prepare*, one transaction under the post's lock: is it still wanted, is the account fit, and then the marker and the
//!    time the call begins, stored before it is made. Where the platform has a daily cap, a call over it is put off.
//! 2. *Bring.* Pictures that the platform does not have yet are loaded and uploaded; only then does the call begin.
//! 3. *Call.* Where an earlier call's end is not known (its process died, the connection broke), the platform is asked
//!    first: found, it is done; not there, and the earlier call's time is over, it is called again; where the platform
//!    cannot tell, the target ends `outcome_unknown` and a person decides.
//! 4. *End*, in the transaction that settles the job: target, attempt, post, account, lane, event.
//!
//! Only the call itself can be in doubt: a run that is broken off before it (a stop) is handed back and counts for nothing.
//!
//! Each of them says no to a run whose lease was lost: a worker that was frozen between two of them calls nobody.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_common::domain::account::SocialAccount;
use crier_common::domain::failure::{Category, Failure};
use crier_common::domain::job::{Kind, Outcome};
use crier_common::domain::media::Asset;
use crier_common::domain::post::Target;
use crier_common::media::Library;
use crier_common::media::budget::Share;
use crier_common::platforms::{Account, Connector, Outgoing, Registry};
use crier_common::store::{Result, Store, Tx, posts, targets};

use self::ending::{Ended, How};
use super::{Deps, Ending, Job};
use crate::engine::Run;

mod call;
mod ending;
mod pacing;
mod pictures;
mod prepare;
mod refresh;

/// A publish may be several requests (pictures, look-ups), each with the platform's time-out; all of them within so many.
const PUBLISH_CALLS: i32 = 2;

pub struct PublishTarget {
    store: Store,
    platforms: Arc<Registry>,
    library: Library,
    latest_publish: TimeDelta,
    /// The longest that a whole publish takes: what is not there after that never will be.
    publish_timeout: TimeDelta,
}

/// Everything that the call needs.
struct Prepared {
    /// `call_started_at` is when the call began that is made now, or that an earlier run left open; `None` where pictures
    /// come first.
    target: Target,
    account: SocialAccount,
    connector: Arc<dyn Connector>,
    call: Account,
    outgoing: Outgoing,
    /// Its pictures, as the library has them.
    assets: Vec<Asset>,
    /// The memory of their bytes, where they are in the call.
    share: Option<Share>,
    /// The end of an earlier call is not known.
    open: bool,
    /// It is not to be published (any more); how it ends unless that earlier call got through.
    unwanted: Option<Failure>,
    /// The tokens were renewed in this run.
    refreshed: bool,
}

/// How the call ended, or how the run ends that made none.
type Carried = std::result::Result<How, Box<dyn Ending>>;

enum Preparation {
    Go(Box<Prepared>),
    /// Nothing to be called: ended in the transaction that settles.
    Stop(Box<dyn Ending>),
}

impl PublishTarget {
    pub fn new(deps: &Deps) -> Self {
        Self {
            store: deps.store.clone(),
            platforms: deps.platforms.clone(),
            library: deps.library.clone(),
            latest_publish: deps.latest_publish,
            publish_timeout: deps.platform_timeout * PUBLISH_CALLS,
        }
    }

    /// When a call that began then is over, whatever became of it.
    fn over(&self, began: DateTime<Utc>) -> DateTime<Utc> {
        began + self.publish_timeout
    }
}

#[async_trait]
impl Job for PublishTarget {
    fn kind(&self) -> Kind {
        Kind::PublishTarget
    }

    async fn run(&self, run: &Run) -> Result<Box<dyn Ending>> {
        let mut p = match self.prepare(run).await? {
            Preparation::Stop(ending) => return Ok(ending),
            Preparation::Go(prepared) => prepared,
        };
        let started_at = self.store.now();
        Ok(match self.carry_out(run, &mut p).await? {
            Ok(how) => {
                let version = p.account.credentials_version;
                Box::new(Ended::after_call(p.target, how, version, started_at, self.publish_timeout))
            }
            Err(ending) => ending,
        })
    }

    async fn hand_back(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        self.take_back(tx, run).await?;
        if run.is_counted() { targets::uncount(tx, run.job.subject_id).await } else { Ok(()) }
    }

    async fn take_back(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        if !run.has_idle_mark() || posts::lock_of_target(tx, run.job.subject_id).await?.is_none() {
            return Ok(());
        }
        targets::clear_call(tx, run.job.subject_id).await
    }

    fn pause(&self, attempt: i32) -> TimeDelta {
        ending::pause(attempt, crier_common::random::unit())
    }
}

/// The settle of a run whose lease was lost writes nothing, this word least of all.
fn lease_lost() -> Box<dyn Ending> {
    Box::new(Outcome::Cancelled("the lease was lost".into()))
}

fn expired(message: impl Into<String>) -> Failure {
    Failure::coded(Category::AuthExpired, "account_expired", message)
}

fn deleted() -> Failure {
    Failure::coded(Category::Missed, "post_deleted", "The post was deleted before it was published here.")
}

fn disconnected() -> Failure {
    Failure::coded(
        Category::Account,
        "account_disconnected",
        "The account is no longer connected to this brand. Connect it again, then publish the post again.",
    )
}
