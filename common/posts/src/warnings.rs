//! The warnings about a post on its accounts: about its text, and about other posts there. They never prevent
//! publishing.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use crier_domain::analytics::zone;
use crier_domain::platform::Platform;
use crier_domain::post::ThreadPart;
use crier_domain::snippet::parts_with;
use crier_platforms::text::ContentProblem;
use crier_platforms::warnings;
use crier_store::Conn;
use crier_store::nearby_posts::{self, NearbyPost, NearbyQuery};

use crate::check::TargetProblem;
use crate::desired::{DesiredPost, DesiredTarget};
use crate::{PostContext, Result};

/// The time between two posts with the same text.
const SAME_TEXT: TimeDelta = TimeDelta::days(7);
/// The time between two posts.
const ANY_TEXT: TimeDelta = TimeDelta::minutes(5);

/// What the warnings of all targets of a post need.
pub struct Warnings<'a> {
    desired: &'a DesiredPost,
    /// The time of the post. Now, if it has none.
    at: DateTime<Utc>,
    zone: Tz,
    /// The other posts, by account.
    nearby: HashMap<i64, Vec<NearbyPost>>,
    /// The warning about the post's own text, which is read only once for all accounts of a platform.
    of_text: HashMap<Platform, Option<ContentProblem>>,
    /// The warnings about the post's own thread, each with the index of its part.
    of_thread: HashMap<Platform, Vec<(usize, ContentProblem)>>,
}

impl<'a> Warnings<'a> {
    /// Looks up the other posts. `time_zone` is that of the times in the warnings, `except` the post that is changed.
    pub async fn load(
        cx: &PostContext<'_>,
        conn: &mut Conn,
        desired: &'a DesiredPost,
        time_zone: &str,
        except: Option<i64>,
    ) -> Result<Self> {
        let at = desired.scheduled_at.unwrap_or(cx.now);
        let account = |target: &'a DesiredTarget| (target.account_id, target.target_override.content.as_deref());
        let query = NearbyQuery {
            brand_id: cx.brand_id,
            except,
            content: &desired.content,
            accounts: desired.targets.iter().map(account).collect(),
            same_text: at - SAME_TEXT..=at + SAME_TEXT,
            any_text: at - ANY_TEXT..=at + ANY_TEXT,
        };
        let mut nearby: HashMap<i64, Vec<NearbyPost>> = HashMap::new();
        for post in nearby_posts::find(conn, &query).await? {
            nearby.entry(post.account_id).or_default().push(post);
        }
        Ok(Self {
            desired,
            at,
            zone: zone(Some(time_zone)),
            nearby,
            of_text: HashMap::new(),
            of_thread: HashMap::new(),
        })
    }

    /// Returns the warnings about a target.
    pub fn of(&mut self, target: &DesiredTarget, platform: Platform) -> Vec<TargetProblem> {
        let own = &target.target_override;
        let of_text = match (&own.content, &own.signature) {
            (None, None) => {
                let text = &self.desired.content;
                self.of_text.entry(platform).or_insert_with(|| warnings::of(platform, text)).clone()
            }
            (_, signature) => {
                warnings::of(platform, &parts_with(signature.as_deref(), self.desired.content_of(own)).concat())
            }
        };
        let of_text = of_text.map(|warning| TargetProblem::new(target, warning));
        let of_thread = self.of_thread(target, platform);
        let of_texts = of_text.into_iter().chain(of_thread);
        of_texts.chain(self.of_same_text(target)).chain(self.of_any_text(target)).collect()
    }

    fn of_thread(&mut self, target: &DesiredTarget, platform: Platform) -> Vec<TargetProblem> {
        let own = target.target_override.thread.as_deref();
        let found = match own {
            Some(parts) => of_parts(platform, parts),
            None => {
                let parts = &self.desired.thread;
                self.of_thread.entry(platform).or_insert_with(|| of_parts(platform, parts)).clone()
            }
        };
        let warning = |(n, warning): (usize, ContentProblem)| TargetProblem {
            field: target.path(own.is_some(), &format!("thread.{n}.content")),
            code: warning.code,
            message: warning.message,
        };
        found.into_iter().map(warning).collect()
    }

    fn of_same_text(&self, target: &DesiredTarget) -> Option<TargetProblem> {
        // Images are not compared.
        let is_empty = self.desired.content_of(&target.target_override).trim().is_empty();
        let nearest = self.nearest(target, |post| post.has_same_text && !is_empty)?;
        let (what, word) = if nearest.is_published { ("was published", "on") } else { ("is scheduled", "for") };
        let message = format!("The same text {what} on this account {word} {}.", self.time(nearest));
        Some(TargetProblem::new(target, ContentProblem { field: "content", code: "same_text", message }))
    }

    fn of_any_text(&self, target: &DesiredTarget) -> Option<TargetProblem> {
        let nearest = self.nearest(target, |post| (post.at - self.at).abs() <= ANY_TEXT)?;
        let message = format!("This account has another post within 5 minutes, on {}.", self.time(nearest));
        Some(TargetProblem { field: "scheduled_at".to_owned(), code: "other_post", message })
    }

    fn nearest(&self, target: &DesiredTarget, is_meant: impl Fn(&NearbyPost) -> bool) -> Option<&NearbyPost> {
        let posts = self.nearby.get(&target.account_id)?;
        posts.iter().filter(|post| is_meant(post)).min_by_key(|post| (post.at - self.at).abs())
    }

    fn time(&self, post: &NearbyPost) -> String {
        post.at.with_timezone(&self.zone).format("%Y-%m-%d at %H:%M").to_string()
    }
}

/// Returns the warnings about the texts of parts, each with the index of its part.
fn of_parts(platform: Platform, parts: &[ThreadPart]) -> Vec<(usize, ContentProblem)> {
    parts.iter().enumerate().filter_map(|(n, part)| Some((n, warnings::of(platform, &part.content)?))).collect()
}
