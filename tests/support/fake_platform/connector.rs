//! The fake platform as a connector.

use async_trait::async_trait;

use super::*;

#[async_trait]
impl Connector for FakePlatform {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(self.platform)
    }

    async fn connect(&self, _workspace_id: i64, _credentials: &Secrets) -> Result<Connected, ConnectError> {
        Err(ConnectError::Rejected("the fake takes no connections".into()))
    }

    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        self.called("refresh", None);
        let held = self.held_refresh.lock().expect("no panic").take();
        if let Some(gate) = held {
            gate.enter().await;
        }
        if let Some(result) = self.refreshes.lock().expect("no panic").pop_front() {
            return result;
        }
        // A refresh token is valid once, as on platforms that rotate refresh tokens.
        let mut used_tokens = self.used_tokens.lock().expect("no panic");
        if used_tokens.contains(&token(account)) {
            return Err(CallError::Reauth(auth()));
        }
        used_tokens.push(token(account));
        let new = self.token.lock().expect("no panic").clone().unwrap_or_else(|| "fresh".to_owned());
        Ok(RefreshedTokens { secrets: Some(secrets(&new)), token_expires_at: None, refresh_expires_at: None })
    }

    fn inbox(&self) -> Option<&dyn InboxConnector> {
        Some(&self.inbox)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        let left = |panics: usize| panics.checked_sub(1);
        let panics = self.panics_at_marker.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left);
        assert!(panics.is_err(), "the process dies here, as the test wants");
        Marker::from_iter([("key".to_owned(), json!(format!("{}-{:016x}", seed.target_id, seed.random)))])
    }

    fn can_reconcile(&self) -> bool {
        self.can_reconcile.load(Ordering::SeqCst)
    }

    fn image_transfer(&self) -> ImageTransfer {
        *self.image_transfer.lock().expect("no panic")
    }

    async fn upload(&self, account: &ConnectorAccount, post: &OutgoingPost, image: &Image) -> Result<Value, CallError> {
        self.called("upload", Some(post));
        self.check_token(account)?;
        let next = self.upload_script.lock().expect("no panic").pop_front().unwrap_or(UploadStep::Accept);
        if let UploadStep::Reject(error) = next {
            return Err(error);
        }
        if let UploadStep::Wait(gate) = &next {
            gate.enter().await;
        }
        let number = {
            let mut uploads = self.uploads.lock().expect("no panic");
            uploads.push(image.clone());
            uploads.len()
        };
        match next {
            UploadStep::AcceptAndHang(gate) => gate.hang().await,
            _ => Ok(json!(format!("upload-{number}"))),
        }
    }

    fn video_transfer(&self) -> VideoTransfer {
        self.videos.transfer()
    }

    async fn send_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        self.called("send_video", Some(post));
        self.check_token(account)?;
        self.videos.step(video).await
    }

    async fn abort_video(&self, _account: &ConnectorAccount, upload: &VideoUpload) -> Result<(), CallError> {
        self.videos.abort(upload);
        Ok(())
    }

    fn upload_quota(&self, _account: &ConnectorAccount) -> Option<UploadQuota> {
        self.videos.quota()
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        Ok(self.follow_script(account, std::slice::from_ref(post)).await?.remove(0))
    }

    fn publishes_whole_threads(&self) -> bool {
        self.publishes_whole_threads.load(Ordering::SeqCst)
    }

    async fn publish_thread(
        &self,
        account: &ConnectorAccount,
        parts: &[OutgoingPost],
    ) -> Result<Vec<Published>, CallError> {
        self.follow_script(account, parts).await
    }

    async fn reconcile_thread(
        &self,
        account: &ConnectorAccount,
        parts: &[OutgoingPost],
    ) -> Result<Option<Vec<Published>>, CallError> {
        self.called("reconcile", parts.first());
        self.check_token(account)?;
        let posts = self.posts();
        let found = posts.iter().filter(|posted| posted.marker == key(&parts[0]));
        let found: Vec<Published> = found.map(|posted| published(&posted.id)).collect();
        Ok(Some(found).filter(|found| !found.is_empty()))
    }

    fn analytics(&self) -> Option<&dyn AnalyticsConnector> {
        self.has_metrics.load(Ordering::SeqCst).then_some(self as &dyn AnalyticsConnector)
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        self.called("reconcile", Some(post));
        self.check_token(account)?;
        if let Some(result) = self.reconcile_results.lock().expect("no panic").pop_front() {
            return result;
        }
        let found = self.posts().into_iter().find(|posted| posted.marker == key(post));
        let held = self.held.lock().expect("no panic").take();
        if let Some(gate) = held {
            gate.enter().await;
        }
        Ok(found.map_or(ReconcileResult::Absent, |posted| ReconcileResult::Found(published(&posted.id))))
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        self.called("unpublish", None);
        self.check_token(account)?;
        self.unpublishes.lock().expect("no panic").push(post.clone());
        let next = self.unpublish_script.lock().expect("no panic").pop_front();
        match next.unwrap_or(UnpublishStep::Delete) {
            UnpublishStep::Delete => self.remove(&post.external_id),
            UnpublishStep::Reject(error) => return Err(error),
            UnpublishStep::DeleteAnd(error) => {
                self.remove(&post.external_id);
                return Err(error);
            }
            UnpublishStep::DeleteAndHang(gate) => {
                self.remove(&post.external_id);
                gate.hang().await
            }
        }
        Ok(())
    }
}

#[async_trait]
impl AnalyticsConnector for FakePlatform {
    fn posts_per_call(&self) -> usize {
        10
    }

    fn assigns_ids_later(&self) -> bool {
        self.late_id.lock().expect("no panic").is_some()
    }

    async fn find_id(&self, _account: &ConnectorAccount, marker: &Marker) -> Result<Option<Published>, CallError> {
        assert!(!marker.is_empty(), "the marker of the publish is passed");
        self.called("find_id", None);
        if let Some(error) = self.metrics_errors.lock().expect("no panic").pop_front() {
            return Err(error);
        }
        Ok(self.late_id.lock().expect("no panic").clone().flatten())
    }

    async fn post_metrics(
        &self,
        _account: &ConnectorAccount,
        posts: &[PublishedPost],
        aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        self.called("post_metrics", None);
        if let Some(error) = self.metrics_errors.lock().expect("no panic").pop_front() {
            return Err(error);
        }
        if let Some(name) =
            self.rejected_metric.lock().expect("no panic").as_deref().filter(|name| !aside.contains(name))
        {
            self.called("rejected_metric", None);
            aside.add(name);
        }
        let set = self.post_metrics.lock().expect("no panic").clone();
        let of = |index: usize| set.get(index).copied().unwrap_or(Some(PostMetrics::default()));
        Ok((0..posts.len()).map(of).collect())
    }

    async fn later_rejections(
        &self,
        _account: &ConnectorAccount,
        _posts: &[PublishedPost],
    ) -> Result<Vec<Option<Failure>>, CallError> {
        self.called("later_rejections", None);
        Ok(self.later_rejections.lock().expect("no panic").clone())
    }

    async fn account_metrics(
        &self,
        _account: &ConnectorAccount,
        _aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        self.called("account_metrics", None);
        Ok(AccountMetrics { followers: Some(7), ..AccountMetrics::default() })
    }
}
