//! Containers, in which Instagram and Threads create a post in steps. Each image and video of a carousel gets a
//! container, the post gets one that references them, and a last call publishes it. Nothing is visible before that call,
//! and a container is published at most once, so its status shows the outcome of a call whose response was lost.
//!
//! The ids are in the post's marker, which is stored after each step. A container that failed or expired (after 24
//! hours) is replaced, up to a maximum, unless the platform does not accept its file (`file_errors.rs`).
//!
//! Only Threads publishes replies in containers. They have their own permission, quota and list.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConnectTarget, Platform};
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::file_errors;
use super::graph::{Access, GraphFailure, List, parse_time};
use super::inbox::is_permission;
use super::insights::is_gone;
use crate::call::Effect;
use crate::inbox::permission::missing_permission;
use crate::text::comparable::is_same;
use crate::window::{self, CallWindow, Listed};
use crate::{CallError, Marker, Medium, OutgoingPost, Published, ReconcileResult, StageResult, marker_field};

/// The maximum number of containers created for one post.
const MAX_CONTAINERS: u64 = 3;
/// The maximum time that a platform may process a container with images, and one with videos.
const MAX_WORK: TimeDelta = TimeDelta::minutes(10);
const MAX_VIDEO_WORK: TimeDelta = TimeDelta::minutes(30);
/// The bounds of the pause before a container's status is read again. Between them, the pause equals the time waited so
/// far.
const MIN_PAUSE: TimeDelta = TimeDelta::seconds(2);
const MAX_PAUSE: TimeDelta = TimeDelta::minutes(1);
/// The maximum number of recent posts that are searched for one whose id is unknown.
const MAX_RECENT_POSTS: usize = 25;
/// The pause if the account's quota is used up, because the platform names no time.
const QUOTA_PAUSE: TimeDelta = TimeDelta::hours(1);

/// Meta's code for an invalid parameter, and its subcode if the object does not exist.
const INVALID_PARAMETER: i64 = 100;
const NO_SUCH_OBJECT: i64 = 33;
/// Meta's subcodes for a container that does not exist, has expired, or whose image is not downloaded yet.
const CONTAINER_NOT_FOUND: i64 = 2_207_006;
const CONTAINER_EXPIRED: i64 = 2_207_008;
const MEDIA_NOT_READY: i64 = 2_207_027;
/// The code of Threads for something that does not exist, or not yet.
pub(crate) const NOT_FOUND: i64 = 24;

/// The list of the account's replies, and that of its stories.
const REPLIES: &str = "replies";
const STORIES: &str = "stories";

/// The fields of the marker: the containers of a carousel's items, and the time of the last one.
const CHILDREN: &str = "children";
const CHILDREN_AT: &str = "children_at";

/// The container calls of one account, with the paths and fields in which the two platforms differ.
pub(crate) struct Containers<'a> {
    pub(crate) access: Access<'a>,
    /// The account's id.
    pub(crate) account: &'a str,
    /// The path, below the account, that creates containers.
    pub(crate) create: &'static str,
    /// The path, below the account, that publishes a container.
    pub(crate) publish: &'static str,
    /// The path, below the account, that lists the published posts.
    pub(crate) list: &'static str,
    /// The path, below the account, that returns the number of posts published within 24 hours, and its limit.
    pub(crate) quota: &'static str,
    /// The name of the field for a container's status.
    pub(crate) status_field: &'static str,
    /// The name of the field for the reason of a container's failure.
    pub(crate) reason_field: &'static str,
    /// The name of the field for a post's text.
    pub(crate) text: &'static str,
    /// Whether the post is a story, which has no text and is in another list.
    pub(crate) is_story: bool,
}

/// The parameters that create a container.
pub(crate) type ContainerRequest = Map<String, Value>;

#[derive(Deserialize)]
struct Created {
    id: String,
}

enum Status {
    InProgress,
    Finished,
    Published,
    /// It failed, expired, or is unknown, for this reason.
    Gone(String),
    /// The platform does not accept its file.
    Rejected(Failure),
}

/// Returns whether an id consists of digits, so that it may become part of a URL.
pub(crate) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_digit())
}

impl Containers<'_> {
    /// Creates the next container, or checks the last one. `item` returns the request for one image or video of a
    /// carousel, `whole` the request for the post.
    pub(crate) async fn stage(
        &self,
        post: &OutgoingPost,
        item: impl Fn(Medium<'_>) -> ContainerRequest,
        whole: impl Fn(&[&str]) -> Result<ContainerRequest, CallError>,
    ) -> Result<StageResult, CallError> {
        if let Some(container) = post.marker.get("container").and_then(Value::as_str) {
            return self.check_container(post, container).await;
        }
        let (items, media) = (children(&post.marker), post.media());
        if items.is_empty() {
            self.check_quota(post.reply_to.is_some()).await?;
        }
        let next_item = if media.len() > 1 { media.get(items.len()) } else { None };
        let request = match next_item {
            Some(medium) => item(*medium),
            None => {
                if let Some(unfinished) = self.check_items(post, &items).await? {
                    return Ok(unfinished);
                }
                whole(&items)?
            }
        };
        let created = match self.create(&request).await {
            Ok(created) => created,
            // An image of the carousel is not downloaded yet.
            Err(GraphFailure { subcode: Some(MEDIA_NOT_READY), .. }) => {
                return self.pause(post, if items.is_empty() { "at" } else { CHILDREN_AT });
            }
            Err(failure) if next_item.is_none() && is_parent_missing(post, &failure) => {
                return Err(parent_missing(self.access.client.name(), &failure));
            }
            Err(failure) => return Err(post_error(post, failure)),
        };
        Ok(StageResult::Created(self.marker_with(post, created, next_item.is_some())))
    }

    /// Returns the marker with a new container, of an item or of the post.
    fn marker_with(&self, post: &OutgoingPost, created: String, is_item: bool) -> Marker {
        let mut marker = post.marker.clone();
        let now = Value::from(self.access.client.now().to_rfc3339_opts(SecondsFormat::Millis, true));
        if is_item {
            let mut items: Vec<Value> = children(&marker).into_iter().map(Value::from).collect();
            items.push(Value::from(created));
            marker.insert(CHILDREN.to_owned(), Value::from(items));
            marker.insert(CHILDREN_AT.to_owned(), now);
        } else {
            marker.insert("container".to_owned(), Value::from(created));
            marker.insert("container_at".to_owned(), now);
            marker.insert("containers".to_owned(), Value::from(container_count(&marker) + 1));
        }
        marker
    }

    /// Checks the videos of a carousel, whose container can be created when the platform has processed them. `None` if
    /// it has.
    async fn check_items(&self, post: &OutgoingPost, items: &[&str]) -> Result<Option<StageResult>, CallError> {
        for (item, medium) in items.iter().zip(post.media()) {
            if matches!(medium, Medium::Image(_)) {
                continue;
            }
            match self.status(item).await? {
                Status::Finished | Status::Published => {}
                Status::InProgress => return self.pause(post, CHILDREN_AT).map(Some),
                Status::Rejected(failure) => return Err(CallError::Permanent(failure)),
                Status::Gone(why) => {
                    // The container of the post, which would count, does not exist yet.
                    let mut marker = post.marker.clone();
                    marker.insert("containers".to_owned(), Value::from(container_count(&marker) + 1));
                    return self.replace(marker, &why).map(Some);
                }
            }
        }
        Ok(None)
    }

    /// Publishes the container.
    pub(crate) async fn publish(&self, post: &OutgoingPost) -> Result<Published, CallError> {
        let container = marker_field(&post.marker, "container")?;
        let path = format!("{}/{}", self.account, self.publish);
        let request = self.access.request(Method::POST, &path).form(&[("creation_id", container)]);
        let created = self.access.call_with_codes::<Created>(Effect::Publishes, request).await;
        let created = created.map_err(|failure| post_error(post, failure))?;
        // The post is published, even if its URL cannot be read.
        let url = if is_id(&created.id) { self.permalink(&created.id).await.ok().flatten() } else { None };
        Ok(Published::new(created.id, url))
    }

    /// Creates a container and publishes it without storing its id. After a lost response, the caller must search for
    /// the post.
    pub(crate) async fn publish_unstored(&self, request: &ContainerRequest) -> Result<Published, GraphFailure> {
        let container = self.create(request).await?;
        let path = format!("{}/{}", self.account, self.publish);
        let request = self.access.request(Method::POST, &path).form(&[("creation_id", container)]);
        let created: Created = self.access.call_with_codes(Effect::Publishes, request).await?;
        Ok(Published::new(created.id, None))
    }

    /// Looks up whether an earlier call published the container.
    pub(crate) async fn reconcile(&self, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        // The id is stored before the call.
        let Some(container) = post.marker.get("container").and_then(Value::as_str) else {
            return Ok(ReconcileResult::Absent);
        };
        Ok(match self.status(container).await? {
            Status::Published => match self.find(post, post.called_at).await? {
                ReconcileResult::Matches(found) => ReconcileResult::PublishedAmong(found),
                _ => ReconcileResult::PublishedAmong(Vec::new()),
            },
            Status::InProgress => {
                let waited = post.called_at.map_or(MIN_PAUSE, |called_at| self.access.client.now() - called_at);
                ReconcileResult::Pending(waited.clamp(MIN_PAUSE, MAX_PAUSE))
            }
            Status::Finished => ReconcileResult::Absent,
            // The platform deletes a published container after a while.
            Status::Gone(_) | Status::Rejected(_) => match self.find(post, post.called_at).await? {
                // Without a text, it may be a story that Crier did not publish.
                ReconcileResult::Matches(_) if self.is_story => ReconcileResult::Unsupported,
                found => found,
            },
        })
    }

    async fn check_container(&self, post: &OutgoingPost, container: &str) -> Result<StageResult, CallError> {
        match self.status(container).await? {
            Status::Finished => Ok(StageResult::Ready),
            Status::Published => Ok(match self.find(post, Some(marker_timestamp(&post.marker, "at")?)).await? {
                ReconcileResult::Matches(found) => StageResult::Published(found),
                _ => StageResult::Published(Vec::new()),
            }),
            Status::InProgress => self.pause(post, "container_at"),
            Status::Rejected(failure) => Err(CallError::Permanent(failure)),
            Status::Gone(why) => self.replace(post.marker.clone(), &why),
        }
    }

    /// Waits for a container that was created at the time in this field of the marker.
    fn pause(&self, post: &OutgoingPost, created_at: &str) -> Result<StageResult, CallError> {
        let waited = self.access.client.now() - marker_timestamp(&post.marker, created_at)?;
        let (max, what) = if post.videos.is_empty() { (MAX_WORK, "images") } else { (MAX_VIDEO_WORK, "videos") };
        if waited > max {
            let message = format!("{} has been processing this post's {what} for too long.", self.access.client.name());
            return Err(CallError::Transient(Failure::of(Category::Media, message)));
        }
        Ok(StageResult::Pending(waited.clamp(MIN_PAUSE, MAX_PAUSE)))
    }

    /// Forgets the containers, so that the next steps create new ones. Fails if there were too many.
    fn replace(&self, mut marker: Marker, why: &str) -> Result<StageResult, CallError> {
        if container_count(&marker) >= MAX_CONTAINERS {
            let message = format!("{} cannot process this post: {why}", self.access.client.name());
            return Err(CallError::invalid(message));
        }
        for name in ["container", CHILDREN, CHILDREN_AT] {
            marker.remove(name);
        }
        Ok(StageResult::Created(marker))
    }

    async fn create(&self, request: &ContainerRequest) -> Result<String, GraphFailure> {
        let path = format!("{}/{}", self.account, self.create);
        let request = self.access.request(Method::POST, &path).json(request);
        let created: Created = self.access.call_with_codes(Effect::Repeatable, request).await?;
        if is_id(&created.id) {
            return Ok(created.id);
        }
        let message = format!("{} returned no container ID.", self.access.client.name());
        Err(CallError::Transient(Failure::of(Category::PlatformError, message)).into())
    }

    async fn status(&self, container: &str) -> Result<Status, CallError> {
        let fields = format!("{},{}", self.status_field, self.reason_field);
        let request = self.access.request(Method::GET, container).query(&[("fields", fields.as_str())]);
        let container: Map<String, Value> = match self.access.call_with_codes(Effect::Repeatable, request).await {
            Ok(container) => container,
            Err(
                GraphFailure { code: INVALID_PARAMETER, subcode: Some(NO_SUCH_OBJECT), .. }
                | GraphFailure { subcode: Some(CONTAINER_NOT_FOUND | CONTAINER_EXPIRED), .. },
            ) => return Ok(Status::Gone("it no longer exists.".to_owned())),
            Err(failure) => return Err(failure.error),
        };
        let text = |name: &str| container.get(name).and_then(Value::as_str).unwrap_or_default();
        Ok(match text(self.status_field) {
            "FINISHED" => Status::Finished,
            "PUBLISHED" => Status::Published,
            "ERROR" | "EXPIRED" => match text(self.reason_field) {
                "" => Status::Gone("it gave no reason.".to_owned()),
                reason => match file_errors::rejected(self.access.client.name(), reason) {
                    Some(failure) => Status::Rejected(failure),
                    None => Status::Gone(reason.to_owned()),
                },
            },
            _ => Status::InProgress,
        })
    }

    /// Fails if the account has published as many posts, or replies, as it may within 24 hours. If the quota cannot be
    /// read, continues, and the publish call is rejected.
    async fn check_quota(&self, is_reply: bool) -> Result<(), CallError> {
        #[derive(Deserialize)]
        struct Quotas {
            #[serde(default)]
            data: Vec<Map<String, Value>>,
        }
        let (usage, config) = if is_reply { ("reply_quota_usage", "reply_config") } else { ("quota_usage", "config") };
        let path = format!("{}/{}", self.account, self.quota);
        let request = self.access.request(Method::GET, &path).query(&[("fields", format!("{usage},{config}"))]);
        let quotas: Quotas = match self.access.call(Effect::Repeatable, request).await {
            Ok(quotas) => quotas,
            Err(error @ (CallError::Reauth(_) | CallError::AuthExpired(_) | CallError::RateLimited { .. })) => {
                return Err(error);
            }
            Err(_) => return Ok(()),
        };
        let full = |quota: Map<String, Value>| {
            let total = quota.get(config)?["quota_total"].as_u64().filter(|total| *total > 0)?;
            Some(quota.get(usage)?.as_u64()? >= total)
        };
        match quotas.data.into_iter().next().and_then(full) {
            Some(true) => {
                let what = if is_reply { "replies" } else { "posts" };
                Err(self.access.client.daily_limit(what, QUOTA_PAUSE, "quota"))
            }
            _ => Ok(()),
        }
    }

    async fn permalink(&self, id: &str) -> Result<Option<String>, CallError> {
        #[derive(Deserialize)]
        struct Permalink {
            permalink: Option<String>,
        }
        let request = self.access.request(Method::GET, id).query(&[("fields", "permalink")]);
        let post: Permalink = self.access.call(Effect::Repeatable, request).await?;
        Ok(post.permalink)
    }

    /// Finds the post among the account's newest, by its text and time, and a reply also by its parent.
    async fn find(&self, post: &OutgoingPost, called_at: Option<DateTime<Utc>>) -> Result<ReconcileResult, CallError> {
        let parent = post.reply_to.as_ref().map(|reply_to| reply_to.parent.external_id.as_str());
        let (list, more) = match parent {
            Some(_) => (REPLIES, ",replied_to"),
            None if self.is_story => (STORIES, ""),
            None => (self.list, ""),
        };
        let fields = format!("id,timestamp,permalink,{}{more}", self.text);
        let query = [("fields", fields.as_str()), ("limit", &MAX_RECENT_POSTS.to_string())];
        let request = self.access.request(Method::GET, &format!("{}/{list}", self.account)).query(&query);
        let newest: List<Map<String, Value>> = match self.access.call_with_codes(Effect::Repeatable, request).await {
            Ok(newest) => newest,
            // The list of replies needs a permission that publishing them does not need.
            Err(failure) if parent.is_some() && is_permission(&failure) => return Ok(ReconcileResult::Unsupported),
            Err(failure) => return Err(failure.error),
        };
        let listed = newest.data.iter().map(|found| {
            let text = |name: &str| found.get(name).and_then(Value::as_str).unwrap_or_default();
            let url = Some(text("permalink").to_owned()).filter(|url| !url.is_empty());
            let replied_to = found.get("replied_to").and_then(|replied_to| replied_to["id"].as_str());
            Listed {
                at: parse_time(text("timestamp")),
                is_same: replied_to == parent && (self.is_story || is_same(text(self.text), &post.text)),
                published: Published::new(text("id"), url),
            }
        });
        let window = CallWindow::of(called_at).with_next_page(newest.has_next_page());
        Ok(window::find(window, listed.collect(), MAX_RECENT_POSTS))
    }
}

/// Returns the failure of a reply for which the permission is missing.
pub(crate) fn missing_reply_permission() -> Failure {
    missing_permission(Platform::Threads, ConnectTarget::Default, "reply as this account", "threads_manage_replies")
}

/// Converts the error of a call that creates or publishes a post.
fn post_error(post: &OutgoingPost, failure: GraphFailure) -> CallError {
    if post.reply_to.is_none() || !is_permission(&failure) {
        return failure.error;
    }
    CallError::Permanent(missing_reply_permission().from_platform(failure.platform_code()))
}

/// Returns whether the error of creating the container of a reply means that its parent does not exist.
fn is_parent_missing(post: &OutgoingPost, failure: &GraphFailure) -> bool {
    // For a carousel, the code may refer to one of its images, which Threads does not find immediately either.
    let is_not_found = failure.code == NOT_FOUND && post.media().len() < 2;
    post.reply_to.is_some() && (is_not_found || is_gone(failure))
}

fn parent_missing(name: &str, failure: &GraphFailure) -> CallError {
    let message = format!("{name} cannot find the post to reply to. It may have been deleted.");
    let missing = Failure::of(Category::PlatformRejected, message);
    CallError::ParentMissing(missing.from_platform(failure.platform_code()))
}

fn children(marker: &Marker) -> Vec<&str> {
    let ids = marker.get(CHILDREN).and_then(Value::as_array);
    ids.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn container_count(marker: &Marker) -> u64 {
    marker.get("containers").and_then(Value::as_u64).unwrap_or_default()
}

fn marker_timestamp(marker: &Marker, name: &str) -> Result<DateTime<Utc>, CallError> {
    marker_field(marker, name)?
        .parse()
        .map_err(|_| CallError::Transient(Failure::of(Category::Internal, "The post's marker has no valid time.")))
}
