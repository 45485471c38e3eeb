//! The rows of lists of posts, with the accounts, the first image and the error of each.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use crier_domain::account::SocialAccount;
use crier_domain::media::Asset;
use crier_domain::post::{Post, PostStatus};
use crier_endpoints::error::Result;
use crier_endpoints::routes::posts::list;
use crier_store::targets::{self, TargetSummary};
use crier_store::{Conn, accounts, media, recurring_posts};

use super::post_labels::label_links;
use super::shared::{AccountChip, Badge, Image, Platform, PostRow};
use super::video::VideoFile;
use super::visit::Visit;

const MAX_TEXT: usize = 200;

/// What a row shows of a post.
pub struct ListedPost {
    id: i64,
    status: PostStatus,
    is_queued: bool,
    content: String,
    scheduled_at: Option<DateTime<Utc>>,
    published_at: Option<DateTime<Utc>>,
    updated_at: DateTime<Utc>,
    first_image: Option<i64>,
    labels: Vec<String>,
    recurring_id: Option<i64>,
}

impl From<Post> for ListedPost {
    fn from(post: Post) -> Self {
        Self {
            id: post.id,
            status: post.status,
            is_queued: post.queued,
            content: post.content,
            scheduled_at: post.scheduled_at,
            published_at: post.published_at,
            updated_at: post.updated_at,
            first_image: post.media.first().copied(),
            labels: post.labels,
            recurring_id: post.recurring_id,
        }
    }
}

impl From<list::Post> for ListedPost {
    fn from(post: list::Post) -> Self {
        let fields = post.fields;
        Self {
            id: post.id,
            status: fields.status,
            is_queued: fields.queued,
            content: fields.content,
            scheduled_at: fields.scheduled_at.map(|at| at.0),
            published_at: fields.published_at.map(|at| at.0),
            updated_at: post.updated_at.0,
            first_image: fields.media.first().copied(),
            labels: fields.labels,
            recurring_id: fields.recurring_id,
        }
    }
}

/// The targets, accounts and images of several posts.
#[derive(Default)]
pub struct Related {
    targets: Vec<TargetSummary>,
    accounts: HashMap<i64, AccountChip>,
    images: HashMap<i64, Image>,
}

impl Related {
    /// Loads what belongs to the posts with these ids, and these images.
    pub async fn load(visit: &Visit, conn: &mut Conn, post_ids: &[i64], image_ids: &[i64]) -> Result<Self> {
        if post_ids.is_empty() {
            return Ok(Self::default());
        }
        let brand = visit.brand()?.0.id;
        let targets = targets::target_summaries(conn, post_ids).await?;
        let mut account_ids: Vec<i64> = targets.iter().map(|target| target.account_id).collect();
        account_ids.sort_unstable();
        account_ids.dedup();
        let accounts = accounts::find_many(conn, brand, &account_ids).await?;
        let assets = media::find_many(conn, brand, image_ids).await?;
        Ok(Self {
            targets,
            accounts: accounts.into_iter().map(|account| (account.id, chip(&account))).collect(),
            images: assets.into_iter().map(|asset| (asset.id, image(visit, asset))).collect(),
        })
    }

    /// Returns the accounts of a post. Disconnected accounts are omitted.
    pub fn chips(&self, post_id: i64) -> Vec<AccountChip> {
        let own = self.targets.iter().filter(|target| target.post_id == post_id);
        own.filter_map(|target| self.accounts.get(&target.account_id).cloned()).collect()
    }

    fn error(&self, post: &ListedPost) -> Option<String> {
        let failed = matches!(post.status, PostStatus::Failed | PostStatus::PartiallyPublished);
        let mut own = self.targets.iter().filter(|target| target.post_id == post.id);
        own.find_map(|target| target.error.as_ref()).filter(|_| failed).map(|error| error.message.clone())
    }
}

/// Returns the rows of a list.
pub async fn rows<P: Into<ListedPost>>(visit: &Visit, conn: &mut Conn, posts: Vec<P>) -> Result<Vec<PostRow>> {
    let brand = visit.brand()?.0.id;
    let posts: Vec<ListedPost> = posts.into_iter().map(Into::into).collect();
    let ids: Vec<i64> = posts.iter().map(|post| post.id).collect();
    let images: Vec<i64> = posts.iter().filter_map(|post| post.first_image).collect();
    let related = Related::load(visit, conn, &ids, &images).await?;
    let mut rules: Vec<i64> = posts.iter().filter_map(|post| post.recurring_id).collect();
    rules.sort_unstable();
    rules.dedup();
    let rules = recurring_posts::existing(conn, brand, &rules).await?;
    let row = |post: ListedPost| {
        let (when_label, when) = match post.status {
            PostStatus::Published | PostStatus::PartiallyPublished => ("Published", post.published_at),
            PostStatus::Scheduled => ("Scheduled for", post.scheduled_at),
            PostStatus::Draft | PostStatus::PendingApproval if post.scheduled_at.is_some() => {
                ("Planned for", post.scheduled_at)
            }
            _ => ("Updated", None),
        };
        PostRow {
            id: post.id,
            text: beginning(&post.content, MAX_TEXT),
            status: Badge::whole_post(post.status, post.is_queued),
            when_label: when_label.to_owned(),
            when: Some(visit.time(when.unwrap_or(post.updated_at))),
            accounts: related.chips(post.id),
            image: post.first_image.and_then(|id| related.images.get(&id).cloned()),
            labels: label_links(brand, &post.labels),
            is_recurring: post.recurring_id.is_some(),
            recurring: post
                .recurring_id
                .filter(|id| rules.contains(id))
                .map(|id| format!("/brands/{brand}/recurring/{id}")),
            error: related.error(&post),
            is_selected: false,
            seen: post.updated_at.timestamp_micros(),
        }
    };
    Ok(posts.into_iter().map(row).collect())
}

/// Returns at most `max` characters of a text, on one line.
pub fn beginning(text: &str, max: usize) -> String {
    let mut words = text.split_whitespace().flat_map(|word| word.chars().chain([' ']));
    let mut start: String = words.by_ref().take(max).collect();
    if words.next().is_some() {
        start.push('…');
    }
    start.trim_end().to_owned()
}

pub fn chip(account: &SocialAccount) -> AccountChip {
    let name = account.username.clone().unwrap_or_else(|| account.name.clone());
    AccountChip { platform: Platform::of(account.platform.as_str()), name }
}

pub fn image(visit: &Visit, asset: Asset) -> Image {
    Image {
        id: asset.id,
        video: VideoFile::of(&asset, visit.own_path(&visit.app.library.url(&asset.key))),
        src: asset.thumbnail_key.as_deref().map(|key| visit.own_path(&visit.app.library.url(key))).unwrap_or_default(),
        filename: asset.filename,
        alt: asset.alt_text.unwrap_or_default(),
    }
}
