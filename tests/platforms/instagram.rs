//! Instagram and Threads, against a server that creates and publishes containers as Meta documents.

use std::sync::Arc;

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, OutgoingPost, Published, ReconcileResult, StageResult};
use serde_json::json;
use wiremock::{MockServer, ResponseTemplate};

use super::support::{account, connect_in_browser, connector, image, now, post, shown};
use crate::support::containers::{ACCOUNT, ContainerServer, INSTAGRAM, THREADS, Words};
use crate::support::facebook::error;
use crate::support::request::assert_fields;

/// A connector and its server.
pub struct Started {
    pub server: ContainerServer,
    pub connector: Arc<dyn Connector>,
    pub account: ConnectorAccount,
    _mock: MockServer,
}

pub async fn start(platform: Platform, words: Words) -> Started {
    let (server, mock) = ContainerServer::start(words, "2026-03-01T12:00:05+0000").await;
    let connector = connector(platform, &mock.uri());
    let account = account(ACCOUNT, json!({ "access_token": "token", "client_id": "id", "client_secret": "secret" }));
    Started { server, connector, account, _mock: mock }
}

pub async fn both() -> [Started; 2] {
    [start(Platform::Instagram, INSTAGRAM).await, start(Platform::Threads, THREADS).await]
}

impl Started {
    pub fn post(&self, images: &[&str]) -> OutgoingPost {
        let mut outgoing = post(self.connector.as_ref(), "Fresh bread");
        outgoing.images = images.iter().map(|name| image(name)).collect();
        outgoing
    }

    /// Runs the steps as the worker does, until the post is ready or has to wait.
    pub async fn stage(&self, post: &mut OutgoingPost) -> Result<StageResult, CallError> {
        for _ in 0..10 {
            match self.connector.stage(&self.account, post).await? {
                StageResult::Created(marker) => post.marker = marker,
                other => return Ok(other),
            }
        }
        panic!("too many steps")
    }

    pub async fn publish(&self, post: &mut OutgoingPost) -> Result<Published, CallError> {
        assert_eq!(self.stage(post).await?, StageResult::Ready);
        self.connector.publish(&self.account, post).await
    }

    pub async fn reconcile(&self, post: &OutgoingPost) -> ReconcileResult {
        self.connector.reconcile(&self.account, post).await.unwrap()
    }
}

#[tokio::test]
async fn one_image_is_one_container() {
    for s in both().await {
        let mut outgoing = s.post(&["cat"]);
        let published = s.publish(&mut outgoing).await.unwrap();
        let url = Some("https://www.example/p/800/");
        assert_eq!((published.external_id.as_str(), published.url.as_deref()), ("800", url));
        let made = s.server.made();
        assert_eq!(made.len(), 1);
        assert_fields(&made[0], json!({ "image_url": "https://crier.example/media/cat.png", "alt_text": "a <cat>" }));
        assert_eq!(s.server.published(), ["Fresh bread"]);
        for request in s.server.requests() {
            assert!(!request.contains("token"), "{request}");
        }
    }
}

#[tokio::test]
async fn several_images_are_a_carousel_in_order() {
    for s in both().await {
        let mut outgoing = s.post(&["cat", "dog"]);
        s.publish(&mut outgoing).await.unwrap();
        let made = s.server.made();
        for (item, name) in made.iter().zip(["cat", "dog"]) {
            assert_eq!(item["image_url"], format!("https://crier.example/media/{name}.png"));
            assert_eq!((&item["is_carousel_item"], &item["alt_text"]), (&json!(true), &json!(format!("a <{name}>"))));
        }
        assert_eq!((&made[2]["media_type"], &made[2]["children"]), (&json!("CAROUSEL"), &json!("100,101")));
        assert_eq!(s.server.published(), ["Fresh bread"]);
    }
}

#[tokio::test]
async fn threads_publishes_text_with_its_options() {
    let s = start(Platform::Threads, THREADS).await;
    let mut outgoing = s.post(&[]);
    for (name, value) in [("link", "https://a.example/"), ("reply_control", "mentioned_only"), ("topic_tag", "bread")] {
        outgoing.options.insert(name.to_owned(), json!(value));
    }
    s.publish(&mut outgoing).await.unwrap();
    let expected = json!({
        "media_type": "TEXT", "text": "Fresh bread", "link_attachment": "https://a.example/",
        "reply_control": "mentioned_only", "topic_tag": "bread",
    });
    assert_eq!(s.server.made(), [expected]);
}

#[tokio::test]
async fn a_container_in_progress_is_waited_for() {
    for s in both().await {
        s.server.set_polls(1);
        let mut outgoing = s.post(&["cat"]);
        assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Pending(TimeDelta::seconds(2)));
        let container_at = outgoing.marker["container_at"].clone();
        assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Ready);
        assert_eq!(s.server.made().len(), 1, "the same container");
        // After ten minutes, it fails and is retried.
        s.server.set_status("100", "IN_PROGRESS");
        let old = now() - TimeDelta::minutes(11);
        outgoing.marker.insert("container_at".to_owned(), json!(old.to_rfc3339()));
        s.server.script("{}", ResponseTemplate::new(200).set_body_json(json!({ "status": "x", "status_code": "x" })));
        let failed = s.connector.stage(&s.account, &outgoing).await;
        assert!(matches!(&failed, Err(CallError::Transient(f)) if f.category == Category::Media), "{failed:?}");
        assert_ne!(container_at, outgoing.marker["container_at"]);
    }
}

#[tokio::test]
async fn images_of_a_carousel_that_are_not_ready_are_waited_for_as_long_as_a_container() {
    for s in both().await {
        let edge = if s.connector.descriptor().platform == Platform::Threads { "threads" } else { "media" };
        let mut outgoing = s.post(&["cat", "dog"]);
        for _ in ["cat", "dog"] {
            match s.connector.stage(&s.account, &outgoing).await.unwrap() {
                StageResult::Created(marker) => outgoing.marker = marker,
                other => panic!("{other:?}"),
            }
        }
        let mut stage_after = async |seconds| {
            let created = now() - TimeDelta::seconds(seconds);
            outgoing.marker.insert("children_at".to_owned(), json!(created.to_rfc3339()));
            s.server.script(edge, error(400, 9_007, Some(2_207_027), "Media ID is not available"));
            s.connector.stage(&s.account, &outgoing).await
        };
        assert_eq!(stage_after(0).await.unwrap(), StageResult::Pending(TimeDelta::seconds(2)));
        assert_eq!(stage_after(30).await.unwrap(), StageResult::Pending(TimeDelta::seconds(30)));
        assert_eq!(stage_after(300).await.unwrap(), StageResult::Pending(TimeDelta::minutes(1)));
        let failed = stage_after(601).await;
        assert!(matches!(&failed, Err(CallError::Transient(f)) if f.category == Category::Media), "{failed:?}");
    }
}

#[tokio::test]
async fn a_container_that_is_still_in_progress_after_its_call_is_looked_up_less_and_less_often() {
    for s in both().await {
        let mut outgoing = s.post(&["cat"]);
        assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Ready);
        for (waited, expected) in [(0, 2), (30, 30), (3_600, 60)] {
            let unknown = json!({ "status": "x", "status_code": "x" });
            s.server.script("{}", ResponseTemplate::new(200).set_body_json(unknown));
            outgoing.called_at = Some(now() - TimeDelta::seconds(waited));
            let found = s.reconcile(&outgoing).await;
            assert_eq!(found, ReconcileResult::Pending(TimeDelta::seconds(expected)), "after {waited} seconds");
        }
    }
}

#[tokio::test]
async fn a_failed_container_is_made_anew_a_few_times() {
    for s in both().await {
        let mut outgoing = s.post(&["cat", "dog"]);
        s.stage(&mut outgoing).await.unwrap();
        for (container, made) in [("102", 6), ("105", 9)] {
            s.server.set_status(container, "EXPIRED");
            assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Ready);
            assert_eq!(s.server.made().len(), made, "its images expired with it");
        }
        s.server.set_status("108", "ERROR");
        let rejected = s.stage(&mut outgoing).await.unwrap_err();
        let CallError::Permanent(failure) = &rejected else { panic!("{rejected:?}") };
        assert!(failure.message.contains("2207082"), "{failure:?}");
        assert!(s.server.published().is_empty());
    }
}

#[tokio::test]
async fn a_container_that_is_gone_is_made_anew() {
    for s in both().await {
        let mut outgoing = s.post(&["cat"]);
        s.stage(&mut outgoing).await.unwrap();
        s.server.forget_containers();
        s.publish(&mut outgoing).await.unwrap();
        assert_eq!(s.server.published(), ["Fresh bread"]);
    }
}

#[tokio::test]
async fn reconcile_looks_up_the_container() {
    for s in both().await {
        let mut outgoing = s.post(&["cat"]);
        assert_eq!(s.reconcile(&outgoing).await, ReconcileResult::Absent, "nothing was made");
        s.stage(&mut outgoing).await.unwrap();
        assert_eq!(s.reconcile(&outgoing).await, ReconcileResult::Absent, "it is not published");
        let published = s.publish(&mut outgoing).await.unwrap();
        assert_eq!(s.reconcile(&outgoing).await, ReconcileResult::PublishedAmong(vec![published.clone()]));
        // A step before another call finds it too, so nothing is published twice.
        assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Published(vec![published.clone()]));
        s.server.forget_containers();
        assert_eq!(s.reconcile(&outgoing).await, ReconcileResult::Matches(vec![published]), "by its text and time");
        let other = OutgoingPost { text: "Other".to_owned(), ..outgoing.clone() };
        assert_eq!(s.reconcile(&other).await, ReconcileResult::Absent);
        let mut later = outgoing.clone();
        later.called_at = Some(now() + TimeDelta::hours(1));
        assert_eq!(s.reconcile(&later).await, ReconcileResult::Absent);
        s.server.script("{}", error(500, 2, None, "Service temporarily unavailable"));
        assert!(matches!(s.connector.reconcile(&s.account, &outgoing).await, Err(CallError::Transient(_))));
    }
}

#[tokio::test]
async fn an_account_without_quota_waits() {
    for s in both().await {
        s.server.set_quota_usage(100);
        let limited = s.stage(&mut s.post(&["cat"])).await.unwrap_err();
        let until = Some(now() + TimeDelta::hours(1));
        assert!(matches!(&limited, CallError::RateLimited { until: at, .. } if *at == until), "{limited:?}");
        assert!(limited.failure().is_daily_limit() && s.server.made().is_empty());
        // A platform that returns no quota does not prevent a post.
        let edge = if s.account.external_id.is_empty() { "" } else { "content_publishing_limit" };
        s.server.set_quota_usage(0);
        s.server.script(edge, error(400, 100, None, "Tried accessing nonexisting field"));
        s.server.script("threads_publishing_limit", error(400, 100, None, "Tried accessing nonexisting field"));
        s.publish(&mut s.post(&["cat"])).await.unwrap();
    }
}

#[tokio::test]
async fn errors_are_classified_by_the_subcode() {
    for s in both().await {
        let edge = if s.connector.descriptor().platform == Platform::Threads { "threads" } else { "media" };
        let create = async |code, subcode| {
            s.server.script(edge, error(400, code, subcode, "No"));
            s.stage(&mut s.post(&["cat"])).await
        };
        for (code, subcode) in [(36_000, 2_207_004), (36_003, 2_207_009), (110, 2_207_010)] {
            let error = create(code, Some(subcode)).await.unwrap_err();
            assert!(
                matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent),
                "{subcode}: {error:?}"
            );
        }
        for (code, subcode) in [(1, 2_207_052), (-2, 2_207_003)] {
            let error = create(code, Some(subcode)).await.unwrap_err();
            assert!(matches!(&error, CallError::Transient(f) if f.category == Category::Media), "{subcode}: {error:?}");
        }
        let limited = create(9, Some(2_207_042)).await.unwrap_err();
        assert!(matches!(&limited, CallError::RateLimited { until: Some(_), failure } if failure.is_daily_limit()));
        assert!(
            matches!(create(25, Some(2_207_050)).await, Err(CallError::Permanent(f)) if f.category == Category::Account)
        );
        assert!(matches!(create(9_007, Some(2_207_027)).await, Ok(StageResult::Pending(_))));

        let publish = async |code, subcode| {
            let mut outgoing = s.post(&["cat"]);
            assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Ready);
            s.server.script(&format!("{edge}_publish"), error(400, code, subcode, "No"));
            s.connector.publish(&s.account, &outgoing).await.unwrap_err()
        };
        // "Action blocked" may be returned although the post is published.
        assert!(matches!(publish(4, Some(2_207_051)).await, CallError::Unknown(_)));
        assert!(matches!(publish(-1, Some(2_207_001)).await, CallError::Unknown(_)));
        assert!(matches!(publish(9_007, Some(2_207_027)).await, CallError::Transient(_)));
        assert!(matches!(publish(24, None).await, CallError::Transient(_)));
        assert!(matches!(publish(190, Some(463)).await, CallError::Reauth(_)));
    }
}

#[tokio::test]
async fn a_token_is_exchanged_for_a_longer_one_and_renewed_with_itself() {
    for s in both().await {
        s.server.oauth.add_client("id", "secret");
        let (attempt, connected) = connect_in_browser(s.connector.as_ref(), &s.server.oauth).await.unwrap();
        assert!(attempt.server.authorize_url.ends_with("/oauth/authorize"), "{attempt:?}");
        assert_eq!((connected.external_id.as_str(), connected.username.as_deref()), (ACCOUNT, Some("bakery")));
        assert_eq!(connected.token_expires_at, Some(now() + TimeDelta::days(60)));
        assert!(connected.renewal.is_some_and(|renewal| renewal.renewable));
        let account = ConnectorAccount { secrets: connected.secrets, ..s.account.clone() };
        let refreshed = s.connector.refresh(&account).await.unwrap();
        assert_eq!(refreshed.token_expires_at, Some(now() + TimeDelta::days(60)));
        let secrets = refreshed.secrets.unwrap();
        assert_ne!(shown(&secrets)["access_token"], shown(&account.secrets)["access_token"]);
        let renewed = ConnectorAccount { secrets, ..account.clone() };
        let mut outgoing = s.post(&["cat"]);
        assert!(matches!(s.connector.stage(&renewed, &outgoing).await, Ok(StageResult::Created(_))));

        s.server.oauth.revoke("token");
        assert!(matches!(s.connector.refresh(&s.account).await, Err(CallError::Reauth(_))));
        assert!(matches!(s.stage(&mut outgoing).await, Err(CallError::Reauth(_))));
    }
}
