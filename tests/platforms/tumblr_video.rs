//! Videos on Tumblr, against a server that responds as its documentation specifies.

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, OutgoingPost, ReconcileResult};
use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::support::{connector, image, now, post, publish, video};
use super::tumblr::{start, tumblr_account};
use crate::support::call_faults::{CallFault, CallFaults};
use crate::support::tumblr::error;

fn post_of(connector: &dyn Connector) -> OutgoingPost {
    OutgoingPost { videos: vec![video("moving bytes")], ..post(connector, "Moving") }
}

async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let (tumblr, _server, connector, account) = start().await;
    tumblr.script(response);
    let error = connector.publish(&account, &post_of(connector.as_ref())).await.unwrap_err();
    assert!(tumblr.posts().is_empty());
    error
}

#[tokio::test]
async fn a_video_is_a_part_of_the_publishing_request() {
    let (tumblr, _server, connector, account) = start().await;
    let mut outgoing = post_of(connector.as_ref());
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let (sent, raw) = &tumblr.posts()[0];
    let media = json!({ "type": "video/mp4", "identifier": "video-0", "width": 720, "height": 1_280 });
    let content = json!([{ "type": "video", "media": media }, { "type": "text", "text": "Moving" }]);
    assert_eq!(sent["content"], content);
    assert!(
        raw.contains("name=\"video-0\"; filename=\"clip.mp4\"\r\nContent-Type: video/mp4\r\n\r\nmoving bytes"),
        "{raw}"
    );
}

#[tokio::test]
async fn images_and_a_video_keep_their_order() {
    let (tumblr, _server, connector, account) = start().await;
    let mut outgoing = post_of(connector.as_ref());
    outgoing.images = vec![image("cat"), image("dog")];
    outgoing.videos[0].position = 1;
    outgoing.videos[0].cover = Some(image("bird"));
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let (sent, raw) = &tumblr.posts()[0];
    let identifier = |block: &Value| match &block["media"] {
        Value::Array(media) => media[0]["identifier"].clone(),
        media => media["identifier"].clone(),
    };
    let blocks = sent["content"].as_array().unwrap();
    let identifiers: Vec<Value> = blocks[..3].iter().map(identifier).collect();
    assert_eq!(identifiers, ["picture-0", "video-0", "picture-1"]);
    let poster = json!([{ "type": "image/png", "identifier": "poster-0", "width": 400, "height": 300 }]);
    assert_eq!(blocks[1]["poster"], poster);
    for part in
        ["bytes of cat", "bytes of dog", "bytes of bird", "moving bytes", "name=\"poster-0\"; filename=\"bird.png\""]
    {
        assert_eq!(raw.matches(part).count(), 1, "{part} in {raw}");
    }
}

#[tokio::test]
async fn an_earlier_video_that_is_still_transcoded_delays_the_post() {
    let busy = error(403, Some(8010), "A video upload is still transcoding");
    let limited = publish_expecting_error(busy).await;
    let CallError::RateLimited { until, .. } = limited else { panic!("{limited:?}") };
    assert_eq!(until, Some(now() + TimeDelta::minutes(5)));
}

#[tokio::test]
async fn the_daily_limit_of_videos_delays_the_post() {
    let limited = publish_expecting_error(error(403, Some(8011), "No more videos today")).await;
    let CallError::RateLimited { until, failure } = limited else { panic!("{limited:?}") };
    assert_eq!((until, failure.is_daily_limit()), (Some(now() + TimeDelta::hours(3)), true));
}

#[tokio::test]
async fn a_rejected_file_is_permanent_and_a_failed_upload_is_not() {
    let rejected = publish_expecting_error(error(400, Some(8005), "Bad format")).await;
    assert!(matches!(&rejected, CallError::Permanent(f) if f.category == Category::Media), "{rejected:?}");
    let failed = publish_expecting_error(error(500, Some(8009), "Unknown upload error")).await;
    assert!(matches!(&failed, CallError::Transient(f) if f.category == Category::Media), "{failed:?}");
    // A server that rejects the size of a request has no code.
    let rejected = publish_expecting_error(ResponseTemplate::new(413)).await;
    assert!(matches!(rejected, CallError::Permanent(_)), "{rejected:?}");
}

#[tokio::test]
async fn an_expired_token_is_renewed_before_the_video_is_sent_again() {
    let (tumblr, _server, connector, account) = start().await;
    tumblr.oauth.revoke("access-0");
    let outgoing = post_of(connector.as_ref());
    let expired = connector.publish(&account, &outgoing).await.unwrap_err();
    assert!(matches!(expired, CallError::AuthExpired(_)), "{expired:?}");
    assert!(tumblr.posts().is_empty());
    let secrets = connector.refresh(&account).await.unwrap().secrets.unwrap();
    let renewed = ConnectorAccount { secrets, ..account };
    connector.publish(&renewed, &outgoing).await.unwrap();
    assert_eq!(tumblr.posts().len(), 1);
}

#[tokio::test]
async fn a_cut_response_leaves_the_outcome_unknown_until_the_post_is_found() {
    let (tumblr, _server, _connector, _account) = start().await;
    let (faults, server) = CallFaults::start(tumblr.clone()).await;
    let (connector, account) = (connector(Platform::Tumblr, &server.uri()), tumblr_account());
    for (takes_effect, posts) in [(false, 0), (true, 1)] {
        let outgoing = post_of(connector.as_ref());
        faults.fail_call(0, CallFault::Break, takes_effect);
        let cut = connector.publish(&account, &outgoing).await.unwrap_err();
        assert!(matches!(cut, CallError::Unknown(_)), "{cut:?}");
        assert_eq!(tumblr.posts().len(), posts);
        let found = connector.reconcile(&account, &outgoing).await.unwrap();
        match takes_effect {
            true => assert!(matches!(&found, ReconcileResult::Found(post) if post.external_id == "7001"), "{found:?}"),
            // Tumblr may list the post after its video is transcoded.
            false => assert!(matches!(found, ReconcileResult::Pending(_)), "{found:?}"),
        }
    }
}

#[tokio::test]
async fn a_missing_post_is_absent_when_its_video_must_have_been_transcoded() {
    let (_tumblr, _server, connector, account) = start().await;
    let outgoing = post_of(connector.as_ref());
    for (minutes, is_absent) in [(59, false), (60, true)] {
        let called_at = Some(now() - TimeDelta::minutes(minutes));
        let found = connector.reconcile(&account, &OutgoingPost { called_at, ..outgoing.clone() }).await.unwrap();
        assert_eq!(found == ReconcileResult::Absent, is_absent, "{minutes}: {found:?}");
    }
    let without_video = OutgoingPost { videos: Vec::new(), ..outgoing };
    assert_eq!(connector.reconcile(&account, &without_video).await.unwrap(), ReconcileResult::Absent);
}

#[tokio::test]
async fn a_repeated_call_does_not_publish_a_post_that_is_listed() {
    let (tumblr, _server, connector, account) = start().await;
    let mut outgoing = post_of(connector.as_ref());
    let published = connector.publish(&account, &outgoing).await.unwrap();
    outgoing.has_earlier_attempt = true;
    assert_eq!(connector.publish(&account, &outgoing).await.unwrap(), published);
    assert_eq!(tumblr.posts().len(), 1);
}
