//! `POST /brands/{brand}/posts/{post}/duplicate`

use std::collections::HashSet;

use crier_domain::access::Scope;
use crier_domain::post::{Post, Target, TargetOverride, ThreadPart};
use crier_platforms::link_card;
use crier_platforms::options::COVER_MEDIA_ID;
use crier_posts::desired::distinct_media;
use crier_posts::{PostChange, PostOverride};
use crier_store::{Conn, Tx, accounts, media, posts, targets};
use serde_json::{Map, Value};

use super::create::create_post;
use super::{PostDetail, TAG, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{PatchField, Problems};
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<PostDetail>> {
    Endpoint::post("/brands/{brand}/posts/{post}/duplicate", "duplicatePost", Scope::PostsWrite)
        .tag(TAG)
        .adds(Growth::Texts)
        .summary("Duplicate a post")
        .description(
            "Creates a draft with the same content, images, videos, thread, first comment, overrides, labels and \
             accounts, without a time. Disconnected accounts, and deleted images and videos, are omitted.",
        )
        .extension()
        .status(201)
        .error_codes(&[ErrorCode::ValidationFailed])
        .writes(duplicate)
        .with_rerender("duplicate", show_duplicate)
}

async fn duplicate(cx: &Context, tx: &mut Tx) -> Result<Reply<PostDetail>> {
    let post = show::find(cx, tx).await?;
    let targets = targets::list(tx, post.id).await?;
    let available = Available::load(tx, &post, &targets).await?;
    create_post(cx, tx, &available.change(post, targets), Problems::default()).await
}

/// Returns the new post. The post in the path is the one that was duplicated.
async fn show_duplicate(cx: &Context, conn: &mut Conn) -> Result<Reply<PostDetail>> {
    let found = posts::find(conn, cx.brand()?.id, cx.id("duplicate")?).await?;
    let post = found.ok_or_else(|| ApiError::not_found("post"))?;
    Ok(Reply::from(PostDetail::load(conn, post).await?))
}

/// The accounts and images of a post that the brand still has.
struct Available {
    accounts: HashSet<i64>,
    media: HashSet<i64>,
}

impl Available {
    async fn load(conn: &mut Conn, post: &Post, targets: &[Target]) -> Result<Self> {
        let account_ids: Vec<i64> = targets.iter().map(|target| target.account_id).collect();
        let overrides: Vec<_> = targets.iter().map(Target::current_override).collect();
        let media_ids = distinct_media(&post.media, &post.thread, overrides.iter());
        let accounts = accounts::summaries(conn, post.brand_id, &account_ids).await?;
        let media = media::find_many(conn, post.brand_id, &media_ids).await?;
        Ok(Self {
            accounts: accounts.into_iter().map(|account| account.id).collect(),
            media: media.into_iter().map(|asset| asset.id).collect(),
        })
    }

    /// Returns the change of an empty draft to the duplicate.
    fn change(&self, post: Post, mut targets: Vec<Target>) -> PostChange {
        targets.retain(|target| self.accounts.contains(&target.account_id));
        let accounts = targets.iter().map(|target| target.account_id).collect();
        let overrides = targets.into_iter().map(|target| PostOverride {
            account_id: Some(target.account_id),
            target_override: TargetOverride {
                content: target.content,
                media: target.media.map(|ids| self.keep(ids)),
                options: self.keep_options(target.options),
                signature: None,
                thread: target.thread.map(|parts| self.keep_parts(parts)),
                first_comment: target.first_comment,
            },
        });
        PostChange {
            content: PatchField::Value(post.content),
            accounts: PatchField::Value(accounts),
            media: PatchField::Value(self.keep(post.media)),
            overrides: PatchField::Value(overrides.collect()),
            labels: PatchField::Value(post.labels),
            thread: PatchField::Value(self.keep_parts(post.thread)),
            first_comment: post.first_comment.map_or(PatchField::Omitted, PatchField::Value),
            ..PostChange::default()
        }
    }

    fn keep(&self, mut media_ids: Vec<i64>) -> Vec<i64> {
        media_ids.retain(|id| self.media.contains(id));
        media_ids
    }

    /// Returns the options without deleted images.
    fn keep_options(&self, mut options: Map<String, Value>) -> Map<String, Value> {
        let is_deleted = |id: Option<&Value>| id.and_then(Value::as_i64).is_some_and(|id| !self.media.contains(&id));
        if is_deleted(options.get(COVER_MEDIA_ID)) {
            options.remove(COVER_MEDIA_ID);
        }
        if let Some(Value::Object(card)) = options.get_mut(link_card::OPTION)
            && is_deleted(card.get("media_id"))
        {
            card.remove("media_id");
        }
        options
    }

    /// Returns the parts that still have text or an image.
    fn keep_parts(&self, parts: Vec<ThreadPart>) -> Vec<ThreadPart> {
        let kept = parts.into_iter().map(|part| ThreadPart { media: self.keep(part.media), ..part });
        kept.filter(|part| !part.content.is_empty() || !part.media.is_empty()).collect()
    }
}
