//! Videos on WordPress, against a site whose media library responds like its REST API.

use std::sync::Arc;

use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, Image, OutgoingPost, VideoStep};
use serde_json::json;
use wiremock::{MockServer, ResponseTemplate};

use super::support::{connector, image, post, publish, send_video_step, video};
use super::wordpress::{rejected, wordpress_account};
use crate::support::call_faults::{CallFault, CallFaults};
use crate::support::wordpress_media::WordpressMedia;

struct Site {
    fake: WordpressMedia,
    faults: Arc<CallFaults>,
    server: MockServer,
}

impl Site {
    async fn start() -> Self {
        let fake = WordpressMedia::default();
        let (faults, server) = CallFaults::start(fake.clone()).await;
        Self { fake, faults, server }
    }

    fn account(&self) -> ConnectorAccount {
        wordpress_account(&self.server.uri())
    }

    /// The names of the files in the media library.
    fn files(&self) -> Vec<String> {
        self.fake.files().into_iter().map(|file| file.filename).collect()
    }
}

fn wordpress() -> Arc<dyn Connector> {
    connector(Platform::Wordpress, "http://unused.example")
}

fn post_of(connector: &dyn Connector) -> OutgoingPost {
    OutgoingPost { videos: vec![video("moving bytes")], ..post(connector, "Moving\n\nLook") }
}

fn cover() -> Option<Image> {
    Some(Image { id: 5, ..image("cat") })
}

#[tokio::test]
async fn a_video_is_uploaded_raw_and_shown_in_a_block() {
    let (site, connector) = (Site::start().await, wordpress());
    let mut outgoing = post_of(connector.as_ref());
    publish(connector.as_ref(), &site.account(), &mut outgoing).await.unwrap();
    let files = site.fake.files();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert_eq!((file.filename.as_str(), file.mime_type.as_str()), ("post-7-2r-9.mp4", "video/mp4"));
    assert_eq!(file.bytes, b"moving bytes");
    let body = &site.fake.posts()[0];
    let block = "<!-- wp:video {\"id\":31} -->\n<figure class=\"wp-block-video\"><video controls \
                 src=\"https://blog.example/post-7-2r-9.mp4\"></video></figure>\n<!-- /wp:video -->";
    assert_eq!(body["content"], json!(format!("<p>Look</p>\n{block}")));
    assert_eq!((&body["title"], body.get("featured_media")), (&json!("Moving"), None));
}

#[tokio::test]
async fn a_cover_becomes_the_poster_and_the_featured_image() {
    let (site, connector) = (Site::start().await, wordpress());
    let mut outgoing = post_of(connector.as_ref());
    outgoing.videos[0].cover = cover();
    publish(connector.as_ref(), &site.account(), &mut outgoing).await.unwrap();
    assert_eq!(site.files(), ["post-7-2r-9.mp4", "post-7-2r-9-poster-5.png"]);
    let body = &site.fake.posts()[0];
    assert_eq!(body["featured_media"], 32);
    let content = body["content"].as_str().unwrap();
    assert!(
        content.contains("<video controls poster=\"https://blog.example/post-7-2r-9-poster-5.png\" src="),
        "{content}"
    );
}

#[tokio::test]
async fn the_first_image_of_a_post_with_a_video_is_featured() {
    let (site, connector) = (Site::start().await, wordpress());
    let mut outgoing = post_of(connector.as_ref());
    outgoing.videos[0].cover = cover();
    outgoing.images = vec![image("cat"), image("dog")];
    publish(connector.as_ref(), &site.account(), &mut outgoing).await.unwrap();
    let body = &site.fake.posts()[0];
    assert_eq!(body["featured_media"], 31);
    let content = body["content"].as_str().unwrap();
    let (video, gallery) = (content.find("wp:video").unwrap(), content.find("wp:gallery").unwrap());
    assert!(video < gallery && content.contains("post-7-2r-2.png"), "{content}");
}

#[tokio::test]
async fn a_post_without_text_has_its_video() {
    let (site, connector) = (Site::start().await, wordpress());
    let mut outgoing = OutgoingPost { text: String::new(), ..post_of(connector.as_ref()) };
    publish(connector.as_ref(), &site.account(), &mut outgoing).await.unwrap();
    let content = site.fake.posts()[0]["content"].as_str().unwrap().to_owned();
    assert!(content.starts_with("<!-- wp:video"), "{content}");
}

#[tokio::test]
async fn an_upload_resumes_at_the_cover_in_another_process() {
    let (site, connector) = (Site::start().await, wordpress());
    let mut outgoing = post_of(connector.as_ref());
    outgoing.videos[0].cover = cover();
    let step = send_video_step(connector.as_ref(), &site.account(), &mut outgoing).await.unwrap();
    assert!(matches!(step, VideoStep::Next(_)), "{step:?}");
    site.fake.script_upload(ResponseTemplate::new(503));
    let failed = send_video_step(connector.as_ref(), &site.account(), &mut outgoing).await.unwrap_err();
    assert!(matches!(failed, CallError::Transient(_)), "{failed:?}");

    let other = wordpress();
    let mut resumed = OutgoingPost { has_earlier_attempt: true, ..post_of(other.as_ref()) };
    (resumed.videos[0].cover, resumed.videos[0].upload) = (cover(), outgoing.videos[0].upload.clone());
    publish(other.as_ref(), &site.account(), &mut resumed).await.unwrap();
    assert_eq!(site.files(), ["post-7-2r-9.mp4", "post-7-2r-9-poster-5.png"]);
    assert_eq!(site.fake.posts().len(), 1);
}

#[tokio::test]
async fn a_cut_response_does_not_upload_the_video_twice() {
    let (site, connector) = (Site::start().await, wordpress());
    let mut outgoing = post_of(connector.as_ref());
    site.faults.fail_call(0, CallFault::Break, true);
    let cut = send_video_step(connector.as_ref(), &site.account(), &mut outgoing).await.unwrap_err();
    assert!(matches!(&cut, CallError::Transient(failure) if failure.category == Category::Network), "{cut:?}");
    assert!(site.faults.has_failed());
    outgoing.has_earlier_attempt = true;
    publish(connector.as_ref(), &site.account(), &mut outgoing).await.unwrap();
    assert_eq!(site.files(), ["post-7-2r-9.mp4"]);
    assert_eq!(site.fake.posts().len(), 1);
}

async fn upload_error(response: ResponseTemplate) -> CallError {
    let (site, connector) = (Site::start().await, wordpress());
    site.fake.script_upload(response);
    let mut outgoing = post_of(connector.as_ref());
    let error = send_video_step(connector.as_ref(), &site.account(), &mut outgoing).await.unwrap_err();
    assert!(outgoing.videos[0].upload.is_empty() && site.fake.files().is_empty());
    error
}

#[tokio::test]
async fn a_rejected_file_and_a_full_site_are_permanent() {
    for response in [
        rejected(500, "rest_upload_sideload_error", "Sorry, you are not allowed to upload this file type."),
        rejected(400, "rest_upload_file_too_big", "This file is too big."),
        rejected(400, "rest_upload_limited_space", "Not enough space to upload. 7 KB needed."),
        ResponseTemplate::new(413),
    ] {
        let error = upload_error(response).await;
        assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent), "{error:?}");
    }
    let forbidden = upload_error(rejected(403, "rest_cannot_create", "Sorry")).await;
    assert!(matches!(&forbidden, CallError::Permanent(f) if f.category == Category::Account), "{forbidden:?}");
}

#[tokio::test]
async fn a_limit_or_a_fault_of_the_site_delays_the_video() {
    let limited = upload_error(ResponseTemplate::new(429).insert_header("retry-after", "7")).await;
    assert!(matches!(limited, CallError::RateLimited { until: Some(_), .. }), "{limited:?}");
    let without_url = ResponseTemplate::new(201).set_body_json(json!({ "id": 31 }));
    for response in [ResponseTemplate::new(502), without_url] {
        let failed = upload_error(response).await;
        assert!(matches!(failed, CallError::Transient(_)), "{failed:?}");
    }
}

/// The names are derived from the slug, which stays.
#[tokio::test]
async fn a_cover_that_was_replaced_after_a_failure_is_uploaded() {
    let (site, connector) = (Site::start().await, wordpress());
    let mut outgoing = post_of(connector.as_ref());
    outgoing.videos[0].cover = cover();
    while outgoing.videos[0].uploaded.is_none() {
        send_video_step(connector.as_ref(), &site.account(), &mut outgoing).await.unwrap();
    }
    let mut changed = OutgoingPost { has_earlier_attempt: true, ..post_of(connector.as_ref()) };
    changed.videos[0].cover = Some(Image { id: 6, ..image("cat") });
    publish(connector.as_ref(), &site.account(), &mut changed).await.unwrap();
    assert_eq!(site.files(), ["post-7-2r-9.mp4", "post-7-2r-9-poster-5.png", "post-7-2r-9-poster-6.png"]);
    let content = site.fake.posts()[0]["content"].as_str().unwrap().to_owned();
    assert!(content.contains("post-7-2r-9-poster-6.png"), "{content}");
}

#[tokio::test]
async fn rejected_credentials_expire_the_account() {
    let rejection = upload_error(rejected(401, "rest_cannot_create", "Sorry")).await;
    assert!(matches!(rejection, CallError::Reauth(_)), "{rejection:?}");
}

#[tokio::test]
async fn a_video_or_a_poster_that_was_deleted_is_uploaded_again() {
    for id in [31, 32] {
        let (site, connector) = (Site::start().await, wordpress());
        let mut outgoing = post_of(connector.as_ref());
        outgoing.videos[0].cover = cover();
        while outgoing.videos[0].uploaded.is_none() {
            send_video_step(connector.as_ref(), &site.account(), &mut outgoing).await.unwrap();
        }
        site.fake.delete_file(id);
        let missing = connector.publish(&site.account(), &outgoing).await.unwrap_err();
        assert!(matches!(missing, CallError::UploadsMissing(_)), "{missing:?}");
        assert!(site.fake.posts().is_empty());
    }
}
