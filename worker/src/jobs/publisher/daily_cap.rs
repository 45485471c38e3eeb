//! Daily caps: Crier starts no more calls on an account within 24 hours than its platform's cap allows. If the platform
//! limits the uploads of several accounts together, Crier begins no more uploads per day on all of them.
//!
//! A post over the cap has not failed and uses up no attempt: its job is rescheduled to when the cap allows it, and its
//! target contains the reason. Each of these jobs has its own due time. The account's lane is not paused, because
//! replies and the inbox share that lane and have no cap. In addition, a job that waited in the lane for a day would
//! fail as `missed`, whereas the wait for a due time does not count as lateness.

use chrono::{DateTime, SecondsFormat, Utc};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::Platform;
use crier_platforms::{ConnectorRegistry, UploadQuota};
use crier_store::{Result, Tx, calls, targets};

use super::{Ending, PublishCall, Publisher, Step, Stop, Subject, SubjectKind};
use crate::engine::Run;

/// Counts a call for a post if one `begins` now. If the account's daily cap is reached, postpones the target and returns
/// how the run ends. The caller commits. Later parts of a thread and comments do not count.
pub(in crate::jobs) async fn check_daily_cap(
    tx: &mut Tx,
    platforms: &ConnectorRegistry,
    subject: &Subject,
    begins: bool,
) -> Result<Option<Ending>> {
    let cap = platforms.daily_posts(subject.platform).filter(|_| subject.kind == SubjectKind::Post);
    let Some(cap) = cap else { return Ok(None) };
    let full = match begins {
        true => calls::begin(tx, subject.account_id, cap).await?,
        false => calls::full_until(tx, subject.account_id, cap).await?,
    };
    let Some(until) = full else { return Ok(None) };
    let failure = daily_cap_failure(subject.platform, cap, until);
    targets::postpone(tx, subject.target_id, subject.attempts - 1, &failure, until).await?;
    Ok(Some(Ending::Postponed { until, why: failure.message }))
}

impl Publisher {
    /// Counts the upload of a video that begins now, if the account shares a daily limit of uploads with others. Stops if
    /// that limit is reached. An upload that begins again counts again, as it does at the platform.
    pub(super) async fn count_upload(&self, run: &Run, p: &PublishCall) -> Step<()> {
        let (quota, cap) = (p.upload_quota(), self.platforms.daily_posts(p.subject.platform));
        let Some((quota, cap)) = quota.zip(cap) else { return Ok(()) };
        let mut tx = self.begin_held(run).await?;
        let (target, uploader) = (p.subject.target_id, (p.subject.account_id, p.session.account.workspace_id));
        if calls::begin_upload(&mut tx, uploader, &quota.name, quota.since, cap).await? {
            return Ok(tx.commit().await?);
        }
        let failure = upload_quota_failure(p.session.connector.descriptor().name, cap, &quota);
        targets::postpone(&mut tx, target, p.subject.attempts - 1, &failure, quota.until).await?;
        tx.commit().await?;
        Err(Stop::Ended(Ending::Postponed { until: quota.until, why: failure.message }))
    }
}

fn upload_quota_failure(platform: &str, cap: u32, quota: &UploadQuota) -> Failure {
    let (at, resets_at) = (quota.until.to_rfc3339_opts(SecondsFormat::Secs, true), quota.resets_at);
    Failure::of(
        Category::RateLimited,
        format!(
            "The daily limit of the application is reached: {platform} accepts at most {cap} videos per day from all \
             accounts of an application together. The day ends at {resets_at}. This post continues at {at}."
        ),
    )
}

fn daily_cap_failure(platform: Platform, cap: u32, until: DateTime<Utc>) -> Failure {
    let at = until.to_rfc3339_opts(SecondsFormat::Secs, true);
    Failure::of(
        Category::RateLimited,
        format!(
            "The daily limit is reached: Crier publishes at most {cap} posts per {platform} account within 24 hours. \
             This post continues at {at}."
        ),
    )
}
