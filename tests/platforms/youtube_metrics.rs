//! YouTube: metrics, and videos that are rejected after their upload.

use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_platforms::analytics::{MetricsSetAside, PublishedPost};
use serde_json::json;

use super::support::{now, publish};
use super::youtube::{channel, start, with_video};
use crate::support::youtube::video_id;

#[tokio::test]
async fn metrics_of_many_videos_are_read_with_one_call() {
    let (fake, _server, connector) = start().await;
    publish(connector.as_ref(), &channel(), &mut with_video(connector.as_ref(), "x")).await.unwrap();
    fake.state().calls.clear();
    let analytics = connector.analytics().unwrap();
    assert_eq!(analytics.posts_per_call(), 50);
    let ids = [video_id(0), video_id(7), "not an id".to_owned()];
    let posts = ids.map(|external_id| PublishedPost { external_id, published_at: now() });
    let mut aside = MetricsSetAside::default();
    let known = PostMetrics { impressions: Some(1_234_567), likes: Some(12), ..PostMetrics::default() };
    let expected = [Some(known), None, Some(PostMetrics::default())];
    assert_eq!(analytics.post_metrics(&channel(), &posts, &mut aside).await.unwrap(), expected);
    assert_eq!(fake.state().calls.len(), 1);
    let own = AccountMetrics { followers: Some(1_230), posts: Some(7), ..AccountMetrics::default() };
    assert_eq!(analytics.account_metrics(&channel(), &mut aside).await.unwrap(), own);
}

#[tokio::test]
async fn a_video_that_is_rejected_while_it_is_processed_is_reported() {
    let (fake, _server, connector) = start().await;
    let states = [
        json!({ "uploadStatus": "uploaded" }),
        json!({ "uploadStatus": "processed", "privacyStatus": "private" }),
        json!({ "uploadStatus": "failed", "failureReason": "codec" }),
        json!({ "uploadStatus": "rejected", "rejectionReason": "duplicate" }),
        json!({ "uploadStatus": "rejected", "rejectionReason": "<b>why</b>" }),
    ];
    for (number, state) in states.iter().enumerate() {
        let mut outgoing = with_video(connector.as_ref(), format!("video {number}"));
        publish(connector.as_ref(), &channel(), &mut outgoing).await.unwrap();
        fake.state().sessions[number].status = state.clone();
    }
    fake.state().calls.clear();
    let analytics = connector.analytics().unwrap();
    let ids = ["not an id".to_owned(), video_id(7)].into_iter().chain((0..states.len()).map(video_id));
    let posts: Vec<_> = ids.map(|external_id| PublishedPost { external_id, published_at: now() }).collect();
    let found = analytics.later_rejections(&channel(), &posts).await.unwrap();
    let found: Vec<_> = found.iter().map(|failure| failure.as_ref().map(|f| f.message.as_str())).collect();
    let failed = "YouTube could not process this video after its upload, so it is not shown. Reason: codec. YouTube \
                  Studio has the details.";
    let rejected = |reason: &str| {
        format!(
            "YouTube rejected this video after its upload, so it is not shown. Reason: {reason}. YouTube Studio has \
             the details."
        )
    };
    let (duplicate, unknown) = (rejected("duplicate"), rejected("unknown"));
    let expected = [None, None, None, None, Some(failed), Some(duplicate.as_str()), Some(unknown.as_str())];
    assert_eq!((found.as_slice(), fake.state().calls.len()), (&expected[..], 1));
}
