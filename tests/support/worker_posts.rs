//! Creates and reads the records of a [`TestWorker`]'s workspace: posts with their jobs, images, webhook endpoints, and
//! their results.

#![allow(dead_code, reason = "each test uses only a part")]

use chrono::{DateTime, Utc};
use crier_domain::account::{AccountStatus, SocialAccount};
use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobState, Lane, NewJob};
use crier_domain::media::{AssetType, VideoProperties};
use crier_domain::post::{
    Attempt, FirstComment, Post, PostStatus, StoredFirstComment, Target, TargetOverride, ThreadPart,
};
use crier_domain::webhook::{Delivery, Webhook};
use crier_media::{self as media, AssetDetails, Owner};
use crier_platforms::Connector as _;
use crier_store::files::{self, NewFile};
use crier_store::media::{self as assets, NewAsset};
use crier_store::webhooks::{self, NewWebhook};
use crier_store::{accounts, deliveries, first_comments, jobs, post_media, posts, targets};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::jobs::TestWorker;
use super::store::{World, new_post};

impl TestWorker {
    /// Returns the id of the target's job, for which there must be a notification. Discards all notifications.
    pub async fn notified_job_of_target(&self, target: i64) -> i64 {
        let id = self.job_of(target).await.id;
        assert!(self.s.notifier.take().contains(&id), "the job is notified");
        id
    }

    /// Creates another account in the same workspace and brand.
    pub async fn another_account(&self, external_id: &str) -> SocialAccount {
        self.s.account(self.world, external_id, "token-0").await
    }

    /// Stores an image in the library, and returns its id.
    pub async fn image(&self, filename: &str, bytes: Vec<u8>, alt_text: Option<&str>) -> i64 {
        let owner = Owner { workspace_id: self.world.workspace, brand_id: self.world.brand, cap: None };
        let stored = self.media().ingest(&self.store, &owner, &bytes::Bytes::from(bytes).into()).await;
        let stored = stored.expect("the image is accepted");
        let described = AssetDetails { asset_type: AssetType::Image, filename, alt_text, source_url: None };
        let asset = self.write(async |tx| media::create_asset(tx, self.world.brand, &stored, &described).await).await;
        asset.expect("the asset is created")
    }

    /// Stores a video in the library without checking it, and returns its id.
    pub async fn video(&self, filename: &str, bytes: Vec<u8>, alt_text: Option<&str>) -> i64 {
        self.video_with_index(filename, bytes, alt_text, true).await
    }

    /// Like `video`, for a file whose index comes first or last.
    pub async fn video_with_index(
        &self,
        filename: &str,
        bytes: Vec<u8>,
        alt_text: Option<&str>,
        index_first: bool,
    ) -> i64 {
        let number = self.count_rows("files").await;
        let mut sha256 = [7; 32];
        sha256[..8].copy_from_slice(&number.to_be_bytes());
        let properties = VideoProperties {
            duration_ms: 5_000,
            rotation: 0,
            frame_rate: Some(30.0),
            video_codec: "h264".to_owned(),
            audio_codec: None,
            index_first,
        };
        let file = NewFile {
            workspace_id: self.world.workspace,
            brand_id: self.world.brand,
            key: format!("{number:0>40}.mp4"),
            thumbnail_key: None,
            sha256,
            mime_type: "video/mp4",
            size_bytes: i64::try_from(bytes.len()).expect("a size"),
            width: 720,
            height: 1_280,
            video: Some(properties),
        };
        self.media().storage().put(&file.key, bytes.into()).await.expect("the bytes are stored");
        self.write(async |tx| {
            let row = files::reserve(tx, &file, None).await?.expect("there is space");
            assert!(files::mark_stored(tx, row.id).await?);
            let asset =
                NewAsset { file_id: row.id, asset_type: AssetType::Video, filename, alt_text, source_url: None };
            assets::insert(tx, self.world.brand, &asset).await
        })
        .await
    }

    /// Creates a publishing post with images or videos on one account, and returns the ids of the post and its target.
    pub async fn publish_images(&self, account: i64, images: &[i64]) -> (i64, i64) {
        let (post, created) = self.publish(&[account]).await;
        self.change_post(post, |p| p.media = images.to_vec()).await;
        self.write(async |tx| post_media::set(tx, self.world.brand, post, images).await).await;
        (post, created[0])
    }

    /// Creates a publishing post with a job for each account, and returns the ids of the post and its targets.
    pub async fn publish(&self, accounts: &[i64]) -> (i64, Vec<i64>) {
        let (post, created) = self.s.post(self.world, accounts).await;
        for (target, account) in created.iter().zip(accounts) {
            self.enqueue(*target, *account, self.clock.now()).await;
        }
        (post, created)
    }

    /// Like `publish`, for the worker's own account.
    pub async fn publish_one(&self) -> (i64, i64) {
        let (post, created) = self.publish(&[self.account.id]).await;
        (post, created[0])
    }

    /// Like `publish_one`, with these parts after the post.
    pub async fn publish_thread(&self, texts: &[&str]) -> (i64, i64) {
        let (post, target) = self.publish_one().await;
        let part = |text: &&str| ThreadPart { content: (*text).to_owned(), media: Vec::new() };
        self.change_post(post, |p| p.thread = texts.iter().map(part).collect()).await;
        (post, target)
    }

    /// Like `publish_one`, with a first comment.
    pub async fn publish_with_comment(&self, comment: &str, delay_seconds: i64) -> (i64, i64) {
        let (post, target) = self.publish_one().await;
        let comment = FirstComment { content: comment.to_owned(), delay_seconds };
        self.change_post(post, |p| p.first_comment = Some(comment)).await;
        (post, target)
    }

    /// Returns the stored first comment of a target.
    pub async fn comment(&self, target: i64) -> StoredFirstComment {
        let found = first_comments::find(&mut self.conn().await, target).await.expect("a query");
        found.expect("the target has a comment")
    }

    /// Creates a scheduled post on the worker's account, and returns the ids of the post and its target.
    pub async fn schedule(&self, at: DateTime<Utc>) -> (i64, i64) {
        let (post, created) = self.s.post(self.world, &[self.account.id]).await;
        self.change_post(post, |p| (p.status, p.scheduled_at) = (PostStatus::Scheduled, Some(at))).await;
        self.enqueue(created[0], self.account.id, at).await;
        (post, created[0])
    }

    /// Retries the failed targets of a post, as the API does.
    pub async fn publish_again(&self, post: i64) {
        let all = targets::list(&mut self.conn().await, post).await.expect("targets");
        self.change_post(post, |p| p.status = PostStatus::Publishing).await;
        for target in all.iter().filter(|t| t.status.as_str() == "failed") {
            self.write(async |tx| targets::reset(tx, target.id, !self.fake.can_reconcile()).await).await;
            self.enqueue(target.id, target.account_id, self.clock.now()).await;
        }
    }

    pub async fn enqueue(&self, target: i64, account: i64, at: DateTime<Utc>) -> i64 {
        let job = NewJob::new(JobKind::PublishTarget, target, at)
            .lane(Lane::Account(account))
            .trace(Some("request-1".to_owned()));
        let id = self.write(async |tx| jobs::enqueue(tx, &job).await).await;
        id.expect("the target has no other job")
    }

    pub async fn change_post(&self, post: i64, change: impl FnOnce(&mut Post)) {
        self.write(async |tx| {
            let mut post = posts::lock(tx, post).await?.expect("the post is there").post;
            change(&mut post);
            posts::update(tx, &post).await
        })
        .await;
    }

    /// Changes the overrides and the signature of a target.
    pub async fn change_target(&self, target: i64, change: impl FnOnce(&mut TargetOverride)) {
        let mut own = self.target(target).await.current_override();
        change(&mut own);
        self.write(async |tx| targets::set_overrides(tx, target, &own).await).await;
    }

    /// Replaces the options of a target.
    pub async fn set_options(&self, target: i64, options: Value) {
        let Value::Object(options) = options else { panic!("options are an object") };
        self.change_target(target, |own| own.options = options).await;
    }

    pub async fn set_alt_text(&self, asset: i64, alt_text: &str) {
        let found = assets::find(&mut self.conn().await, self.world.brand, asset).await.expect("a look-up");
        let mut asset = found.expect("the asset is there");
        asset.alt_text = Some(alt_text.to_owned());
        self.write(async |tx| assets::update(tx, &asset).await).await;
    }

    pub async fn post_status(&self, post: i64) -> PostStatus {
        let found = posts::find(&mut self.conn().await, self.world.brand, post).await.expect("a look-up");
        found.expect("the post is there").status
    }

    pub async fn target(&self, target: i64) -> Target {
        targets::find(&mut self.conn().await, target).await.expect("a look-up").expect("the target is there")
    }

    /// Returns all attempts of a post's targets, oldest first.
    pub async fn attempts(&self, post: i64) -> Vec<Attempt> {
        let mut all = targets::attempts(&mut self.conn().await, post, i64::MAX).await.expect("a look-up");
        all.reverse();
        all
    }

    /// Returns the newest job of a target.
    pub async fn job_of(&self, target: i64) -> jobs::operate::JobRow {
        self.show(self.newest_job_of(JobKind::PublishTarget, target).await).await
    }

    /// Runs the scheduled job of a target before it is due.
    pub async fn run_early(&self, target: i64) {
        let job = self.job_of(target).await.id;
        self.set_job_state(format!("jobs WHERE id = {job}"), JobState::Ready).await;
        self.engine.run(job).await;
    }

    /// Returns the worker's account as it is stored.
    pub async fn stored_account(&self) -> SocialAccount {
        let found = accounts::find_any(&mut self.conn().await, self.account.id).await;
        found.expect("a look-up").expect("the account is there")
    }

    /// Returns the token of the worker's account.
    pub async fn stored_token(&self) -> String {
        let found = accounts::with_secrets(&mut self.conn().await, self.cipher(), self.account.id).await;
        let (_, secrets) = found.expect("a look-up").expect("the account is there");
        let fields: Value = serde_json::from_str(secrets.expose_secret()).expect("JSON");
        fields["token"].as_str().expect("a token").to_owned()
    }

    pub async fn account_status(&self) -> AccountStatus {
        self.stored_account().await.status
    }

    /// Creates an active webhook endpoint at `url` for the results of posts.
    pub async fn listen_at(&self, url: &str) -> Webhook {
        self.listen_for(url, &[EventName::PostPublished, EventName::PostFailed]).await
    }

    /// Creates an active webhook endpoint at `url` for these events.
    pub async fn listen_for(&self, url: &str, events: &[EventName]) -> Webhook {
        let secret = SecretString::from("whsec_of_the_tests");
        let new = NewWebhook { url, events, description: None, is_active: true, secret: &secret };
        self.write(async |tx| webhooks::create(tx, self.world.user, &new).await).await
    }

    /// Returns the names of the emitted events, in order.
    pub async fn events(&self) -> Vec<String> {
        let payloads = self.event_payloads().await;
        payloads.iter().map(|payload| payload["event"].as_str().expect("a name").to_owned()).collect()
    }

    pub async fn delivery(&self, id: i64) -> Delivery {
        deliveries::find_any(&mut self.conn().await, id).await.expect("a look-up").expect("the delivery is there")
    }
}

/// Returns a draft post.
pub fn draft(world: World) -> Post {
    new_post(world, PostStatus::Draft)
}
