//! GIFs on X, against a server that responds as its documents specify.

use std::sync::Arc;

use chrono::TimeDelta;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, Image, OutgoingPost, StageResult, UploadedImage};
use serde_json::{Value, json};
use wiremock::{MockServer, ResponseTemplate};

use super::support::{account, connector, image, is_invalid, now, post};
use crate::support::twitter_videos::{TwitterVideos, problem};

const MIB: usize = 1024 * 1024;

struct Started {
    fake: TwitterVideos,
    _server: MockServer,
    connector: Arc<dyn Connector>,
    account: ConnectorAccount,
}

impl Started {
    async fn new() -> Self {
        let (fake, server) = TwitterVideos::start().await;
        let connector = connector(Platform::Twitter, &server.uri());
        let account = account("44", json!({ "access_token": "access-0" }));
        let account = ConnectorAccount { username: Some("ann_b".to_owned()), ..account };
        Self { fake, _server: server, connector, account }
    }

    async fn upload(&self, gif: Image) -> Result<OutgoingPost, CallError> {
        let mut outgoing = OutgoingPost { images: vec![gif], ..post(self.connector.as_ref(), "Hi") };
        let name = self.connector.upload(&self.account, &outgoing, &outgoing.images[0]).await?;
        outgoing.images[0].uploaded = Some(UploadedImage { name, uploaded_in_this_run: true });
        Ok(outgoing)
    }

    /// Checks the upload, twice if its first check is stored.
    async fn stage(&self, outgoing: &mut OutgoingPost) -> Result<StageResult, CallError> {
        assert!(self.connector.has_stages(outgoing));
        match self.connector.stage(&self.account, outgoing).await? {
            StageResult::Created(marker) => {
                outgoing.marker = marker;
                self.connector.stage(&self.account, outgoing).await
            }
            staged => Ok(staged),
        }
    }
}

fn gif(bytes: Vec<u8>) -> Image {
    Image { bytes: bytes.into(), mime_type: "image/gif".to_owned(), filename: "cat.gif".to_owned(), ..image("cat") }
}

#[tokio::test]
async fn a_gif_is_uploaded_in_segments_and_posted_when_x_has_processed_it() {
    let s = Started::new().await;
    let in_progress = || json!({ "state": "in_progress", "check_after_secs": 2 });
    s.fake.state().states.extend([in_progress(), in_progress()]);
    let bytes: Vec<u8> = (0..5 * MIB - 1).map(|position| u8::try_from(position / MIB).unwrap()).collect();
    let mut outgoing = s.upload(gif(bytes.clone())).await.unwrap();
    assert_eq!(
        s.stage(&mut outgoing).await.unwrap(),
        StageResult::Pending(TimeDelta::seconds(2)),
        "as long as X asks for"
    );
    assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Ready);
    s.connector.publish(&s.account, &outgoing).await.unwrap();

    let state = s.fake.state();
    let upload = &state.uploads[0];
    let begun = json!({ "media_type": "image/gif", "media_category": "tweet_gif", "total_bytes": bytes.len() });
    assert_eq!((&upload.initialized, upload.is_final), (&begun, true));
    assert_eq!(upload.segments.values().map(Vec::len).collect::<Vec<_>>(), [4 * MIB, MIB - 1]);
    assert!(upload.bytes() == bytes, "the segments are the file");
    let id = outgoing.images[0].uploaded.as_ref().map(|uploaded| uploaded.name.clone()).unwrap();
    assert_eq!(state.alts, [json!({ "id": id, "metadata": { "alt_text": { "text": "a <cat>" } } })]);
    assert_eq!(state.tweets, [json!({ "text": "Hi", "media": { "media_ids": [id] } })]);
}

#[tokio::test]
async fn a_gif_that_x_cannot_process_fails_the_post() {
    let s = Started::new().await;
    s.fake.state().states.push_back(json!({ "state": "failed" }));
    let mut outgoing = s.upload(gif(vec![7])).await.unwrap();
    let error = s.stage(&mut outgoing).await.unwrap_err();
    assert!(is_invalid(&error) && error.failure().message.contains("GIF"), "{error:?}");
}

#[tokio::test]
async fn a_gif_that_x_never_processes_is_uploaded_again() {
    let s = Started::new().await;
    s.fake.state().states.extend((0..5).map(|_| json!({ "state": "in_progress" })));
    let mut outgoing = s.upload(gif(vec![7])).await.unwrap();
    assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Pending(TimeDelta::seconds(5)));
    outgoing.marker["processing"]["since"] = json!((now() - TimeDelta::minutes(31)).to_rfc3339());
    let error = s.stage(&mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::UploadsMissing(_)), "{error:?}");
    // Another upload has a time of its own.
    let name = s.connector.upload(&s.account, &outgoing, &outgoing.images[0]).await.unwrap();
    outgoing.images[0].uploaded = Some(UploadedImage { name, uploaded_in_this_run: true });
    assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Pending(TimeDelta::seconds(5)));
}

#[tokio::test]
async fn a_failed_step_of_an_upload_is_an_error() {
    for step in ["/initialize", "/append", "/finalize"] {
        let s = Started::new().await;
        s.fake.state().rejected.push_back((step, problem(503, "Over capacity")));
        let error = s.upload(gif(vec![7])).await.unwrap_err();
        assert!(matches!(error, CallError::Transient(_)), "{step}: {error:?}");
    }
}

#[tokio::test]
async fn posts_without_a_gif_that_x_knows_are_not_waited_for() {
    let s = Started::new().await;
    let plain = post(s.connector.as_ref(), "Hi");
    assert!(!s.connector.has_stages(&plain));
    // X deleted the upload, or it was sent as another type.
    let mut outgoing = s.upload(gif(vec![7])).await.unwrap();
    s.fake.state().uploads[0].is_deleted = true;
    assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Ready);
    let other = json!({ "id": "1900000000000000001" });
    s.fake.state().rejected.push_back(("/media/upload", respond(other)));
    assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Ready);
    s.fake.oauth.revoke("access-0");
    assert!(matches!(s.stage(&mut outgoing).await, Err(CallError::AuthExpired(_))));
}

fn respond(data: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({ "data": data }))
}
