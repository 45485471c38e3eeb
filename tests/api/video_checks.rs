//! Posts with videos are checked against the rules of their platforms before they are accepted.

use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::limits::AccountLimits;
use crier_domain::media::{AssetType, VideoProperties};
use crier_domain::platform::Platform;
use crier_store::accounts::NewAccount;
use crier_store::files::{self, NewFile};
use crier_store::media::{self, NewAsset};
use crier_store::post_media;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::images;
use crate::support::store::{TestStore, new_account, on_one};

on_one_app!("unlimited" =>
    a_video_that_exceeds_a_limit_is_rejected,
    a_video_satisfies_a_platform_that_requires_media,
    a_downloaded_video_needs_a_public_url,
    an_upright_image_can_be_a_story,
    the_server_of_an_account_limits_its_videos,
    the_cover_of_a_video_is_checked_with_the_post,
    a_platform_may_require_a_cover,
    an_image_cannot_be_a_video,
);
on_both_apps!("unlimited" => the_cover_of_a_video_is_in_use);
on_one!(the_limits_of_videos_are_published, an_operator_sets_uncertain_limits);

async fn account(t: &Tenant<'_>, platform: Platform, limits: Option<AccountLimits>) -> i64 {
    let new = NewAccount { platform, limits, ..new_account(platform.as_str(), "token") };
    t.store_account(&new).await
}

/// A video of the library, whose bytes nobody reads.
struct Clip {
    seconds: i64,
    size: i64,
    has_thumbnail: bool,
}

impl Default for Clip {
    fn default() -> Self {
        Self { seconds: 10, size: 1_000_000, has_thumbnail: false }
    }
}

impl Clip {
    async fn create(&self, t: &Tenant<'_>) -> i64 {
        let number = t.app.count_rows("files").await;
        let properties = VideoProperties {
            duration_ms: self.seconds * 1_000,
            rotation: 0,
            frame_rate: Some(30.0),
            video_codec: "h264".to_owned(),
            audio_codec: None,
            index_first: true,
        };
        let file = NewFile {
            workspace_id: t.workspace,
            brand_id: t.brand,
            key: format!("clip-{}-{number}.mp4", t.brand),
            thumbnail_key: self.has_thumbnail.then(|| format!("clip-{}-{number}.jpg", t.brand)),
            sha256: [u8::try_from(number).unwrap(); 32],
            mime_type: "video/mp4",
            size_bytes: self.size,
            width: 1_080,
            height: 1_920,
            video: Some(properties),
        };
        let created = t.app.write(async |tx| {
            let reserved = files::reserve(tx, &file, None).await?.unwrap();
            files::mark_stored(tx, reserved.id).await?;
            let (filename, alt_text, source_url) = ("clip.mp4", None, None);
            let asset = NewAsset { file_id: reserved.id, asset_type: AssetType::Video, filename, alt_text, source_url };
            media::insert(tx, t.brand, &asset).await
        });
        created.await
    }
}

async fn image(t: &Tenant<'_>) -> i64 {
    t.upload("a.png", &images::png(20, 20), &[]).await.data(201)["id"].as_i64().unwrap()
}

fn body(account: i64, media: &[i64], options: Value) -> Value {
    json!({
        "content": "Fresh bread", "accounts": [account], "media": media, "schedule_type": "now",
        "overrides": [{ "account_id": account, "options": options }],
    })
}

async fn validate(t: &Tenant<'_>, body: Value) -> Value {
    t.post(&t.path("/posts/validate"), body).await.data(200)["targets"][0].clone()
}

/// Returns the fields and codes of problems or warnings.
fn codes(found: &Value) -> Vec<(&str, &str)> {
    found.as_array().unwrap().iter().map(|p| (p["field"].as_str().unwrap(), p["code"].as_str().unwrap())).collect()
}

async fn a_video_that_exceeds_a_limit_is_rejected(t: Tenant<'_>) {
    let tiktok = account(&t, Platform::Tiktok, None).await;
    let private = json!({ "visibility": "private" });
    let long = Clip { seconds: 724, ..Clip::default() }.create(&t).await;
    let sentence =
        format!("Account {tiktok} (Demo): TikTok accepts videos of at most 10 minutes; video 1 has 12:04 minutes.");
    let checked = validate(&t, body(tiktok, &[long], private.clone())).await;
    let problem = json!({ "field": "media", "code": "video_too_long", "message": sentence });
    assert_eq!(checked["problems"], json!([problem]));
    let error = t.post(&t.path("/posts"), body(tiktok, &[long], private.clone())).await;
    assert_eq!(error.expect_error(422, "validation_failed")["fields"]["media"], json!([sentence]));

    // A draft may have any video, but cannot be published.
    let mut draft = body(tiktok, &[long], private.clone());
    draft["schedule_type"] = json!("draft");
    let id = t.post(&t.path("/posts"), draft).await.data(201)["id"].clone();
    let published = t.put(&t.path(&format!("/posts/{id}")), json!({ "schedule_type": "now" })).await;
    assert_eq!(published.invalid_fields(), ["media"]);

    let two = [Clip::default().create(&t).await, Clip::default().create(&t).await];
    let with_image = [two[0], image(&t).await];
    let checked = validate(&t, body(tiktok, &two, private.clone())).await;
    assert_eq!(codes(&checked["problems"]), [("media", "too_many_videos")]);
    // TikTok cannot download the image from this app either, because its address is private.
    let both = [("media", "video_with_images"), ("media", "pictures_unreachable")];
    assert_eq!(codes(&validate(&t, body(tiktok, &with_image, private)).await["problems"]), both);
    let shopify = account(&t, Platform::Shopify, None).await;
    let checked = validate(&t, body(shopify, &two[..1], json!({}))).await;
    assert_eq!(codes(&checked["problems"]), [("media", "video_unsupported")]);
    let sandbox = t.account("demo").await;
    let mixed = [two[0], with_image[1], two[1]];
    assert_eq!(validate(&t, body(sandbox, &mixed, json!({}))).await["problems"], json!([]));
}

async fn a_video_satisfies_a_platform_that_requires_media(t: Tenant<'_>) {
    let (tiktok, video) = (account(&t, Platform::Tiktok, None).await, Clip::default().create(&t).await);
    let options = json!({ "visibility": "private" });
    let checked = validate(&t, body(tiktok, &[], options.clone())).await;
    assert_eq!(codes(&checked["problems"]), [("media", "image_required")]);
    let message = "TikTok requires an image or a video; this post has neither.";
    assert!(checked["problems"][0]["message"].as_str().unwrap().ends_with(message), "{checked}");
    assert_eq!(validate(&t, body(tiktok, &[video], options)).await["problems"], json!([]));
    // A video is enough without a text.
    let mut silent = body(t.account("demo").await, &[video], json!({}));
    silent.as_object_mut().unwrap().remove("content");
    t.post(&t.path("/posts"), silent).await.expect(201);
}

async fn a_downloaded_video_needs_a_public_url(t: Tenant<'_>) {
    let video = Clip::default().create(&t).await;
    for (platform, format, problems) in [
        (Platform::Instagram, "reel", &[("media", "pictures_unreachable")][..]),
        (Platform::Facebook, "feed", &[("media", "pictures_unreachable")]),
        (Platform::Facebook, "reel", &[]),
    ] {
        let id = account(&t, platform, None).await;
        let checked = validate(&t, body(id, &[video], json!({ "format": format }))).await;
        assert_eq!(codes(&checked["problems"]), problems, "{platform} {format}");
    }
    let facebook = account(&t, Platform::Facebook, None).await;
    let checked = validate(&t, body(facebook, &[video], json!({ "format": "feed" }))).await;
    let message = checked["problems"][0]["message"].as_str().unwrap();
    assert!(message.contains("Facebook downloads videos from Crier but cannot reach http://127.0.0.1"), "{message}");
    let story = validate(&t, body(facebook, &[video], json!({ "format": "story" }))).await;
    assert_eq!(codes(&story["warnings"]), [("content", "caption_not_shown")]);
    let text = validate(&t, body(facebook, &[], json!({ "format": "story" }))).await;
    assert_eq!(codes(&text["warnings"]), [("media", "format_not_used")]);
}

async fn an_upright_image_can_be_a_story(t: Tenant<'_>) {
    let instagram = account(&t, Platform::Instagram, None).await;
    let upright = t.upload("b.png", &images::png(90, 160), &[]).await.data(201)["id"].as_i64().unwrap();
    let unreachable = ("media", "pictures_unreachable");
    let feed = validate(&t, body(instagram, &[upright], json!({}))).await;
    assert_eq!(codes(&feed["problems"]), [("media", "image_ratio"), unreachable]);
    let story = validate(&t, body(instagram, &[upright], json!({ "format": "story" }))).await;
    assert_eq!(codes(&story["problems"]), [unreachable]);
    assert_eq!(codes(&story["warnings"]), [("content", "caption_not_shown")]);
}

async fn the_server_of_an_account_limits_its_videos(t: Tenant<'_>) {
    let video = Clip { size: 2_000_000, ..Clip::default() }.create(&t).await;
    let limits = |video_types: &[&str], max_video_bytes| AccountLimits {
        video_types: Some(video_types.iter().map(|kind| (*kind).to_owned()).collect()),
        max_video_bytes,
        ..AccountLimits::default()
    };
    for (limits, expected) in [
        (None, &[] as &[(&str, &str)]),
        (Some(limits(&["video/mp4"], Some(2_000_000))), &[]),
        (Some(limits(&["video/mp4"], Some(1_999_999))), &[("media", "video_too_large")]),
        (Some(limits(&["video/webm"], None)), &[("media", "video_type")]),
        (Some(limits(&[], None)), &[("media", "video_unsupported")]),
    ] {
        let id = account(&t, Platform::Mastodon, limits.clone()).await;
        let checked = validate(&t, body(id, &[video], json!({}))).await;
        assert_eq!(codes(&checked["problems"]), expected, "{limits:?}");
    }
}

async fn the_cover_of_a_video_is_checked_with_the_post(t: Tenant<'_>) {
    let stranger = t.app.tenant("unlimited").await;
    let (mine, theirs, video) = (image(&t).await, image(&stranger).await, Clip::default().create(&t).await);
    let pinterest = account(&t, Platform::Pinterest, None).await;
    let with = |name: &str, value: Value| {
        let mut options = json!({ "board": "1" });
        options[name] = value;
        body(pinterest, &[video], options)
    };
    for (name, wrong) in [
        ("cover_media_id", json!(theirs)),
        ("cover_media_id", json!(999_999)),
        ("cover_media_id", json!(video)),
        ("cover_media_id", json!("x")),
        ("cover_at_ms", json!(-1)),
        ("cover_at_ms", json!("1")),
        ("cover_at_ms", json!(10_000)),
    ] {
        let field = format!("overrides.0.options.{name}");
        let checked = validate(&t, with(name, wrong.clone())).await;
        assert_eq!(codes(&checked["problems"]), [(field.as_str(), "option_invalid")], "{name} {wrong}");
        assert_eq!(t.post(&t.path("/posts"), with(name, wrong.clone())).await.invalid_fields(), [field], "{wrong}");
    }
    for (name, right) in [
        ("cover_media_id", json!(mine)),
        ("cover_media_id", json!(null)),
        ("cover_at_ms", json!(0)),
        ("cover_at_ms", json!(9_999)),
    ] {
        assert_eq!(validate(&t, with(name, right.clone())).await["problems"], json!([]), "{name} {right}");
    }
    // Other platforms ignore the option.
    let sandbox = t.account("demo").await;
    let ignored = body(sandbox, &[video], json!({ "cover_media_id": theirs, "cover_at_ms": 10_000 }));
    assert_eq!(validate(&t, ignored).await["problems"], json!([]));
}

async fn a_platform_may_require_a_cover(t: Tenant<'_>) {
    let reddit = account(&t, Platform::Reddit, None).await;
    let (bare, cover) = (Clip::default().create(&t).await, image(&t).await);
    let with_own = Clip { has_thumbnail: true, ..Clip::default() }.create(&t).await;
    let options = json!({ "subreddit": "Bread", "title": "Bread" });
    let checked = validate(&t, body(reddit, &[bare], options.clone())).await;
    assert_eq!(codes(&checked["problems"]), [("overrides.0.options.cover_media_id", "option_required")]);
    let mut covered = options.clone();
    covered["cover_media_id"] = json!(cover);
    assert_eq!(validate(&t, body(reddit, &[bare], covered)).await["problems"], json!([]));
    assert_eq!(validate(&t, body(reddit, &[with_own], options.clone())).await["problems"], json!([]));
    assert_eq!(validate(&t, body(reddit, &[cover], options)).await["problems"], json!([]), "an image needs none");
}

async fn an_image_cannot_be_a_video(t: Tenant<'_>) {
    let (bluesky, video) = (account(&t, Platform::Bluesky, None).await, Clip::default().create(&t).await);
    let card = json!({ "link_card": { "url": "https://example.com", "media_id": video } });
    let checked = validate(&t, body(bluesky, &[], card)).await;
    assert_eq!(codes(&checked["problems"]), [("overrides.0.options.link_card", "option_invalid")]);
}

async fn the_cover_of_a_video_is_in_use(t: Tenant<'_>) {
    let pinterest = account(&t, Platform::Pinterest, None).await;
    let (video, cover) = (Clip::default().create(&t).await, image(&t).await);
    let options = json!({ "board": "1", "cover_media_id": cover });
    let id = t.post(&t.path("/posts"), body(pinterest, &[video], options)).await.data(201)["id"].clone();
    assert!(post_media::in_use(&mut t.app.conn().await, cover).await.unwrap());
    t.delete(&t.path(&format!("/media/{cover}"))).await.expect_error(409, "media_in_use");
    t.app.end_post(id.as_i64().unwrap(), "published", &["published"]).await;
    t.delete(&t.path(&format!("/media/{cover}"))).await.expect(204);
}

async fn descriptor_of(t: &Tenant<'_>, platform: &str) -> Value {
    let platforms = t.get(&t.path("/social-accounts/platforms")).await.data(200);
    let found = platforms.as_array().unwrap().iter().find(|found| found["platform"] == platform).unwrap();
    found["capabilities"]["video"].clone()
}

async fn the_limits_of_videos_are_published(s: TestStore) {
    let app = TestApp::start(s).await;
    let t = app.tenant("unlimited").await;
    let expected = json!({
        "max_bytes": 300_000_000, "min_duration_ms": 3_000, "max_duration_ms": 900_000,
        "containers": ["video/mp4", "video/quicktime"], "video_codecs": ["h264", "hevc"],
        "aspect_ratios": { "min": "0.01:1", "max": "10:1" }, "max_count": 10, "mixes_with_images": true,
    });
    assert_eq!(descriptor_of(&t, "instagram").await, expected);
    let expected = json!({
        "max_bytes": null, "min_duration_ms": null, "max_duration_ms": null,
        "containers": ["video/mp4", "video/quicktime", "video/webm"], "video_codecs": [], "aspect_ratios": null,
        "max_count": 10, "mixes_with_images": true,
    });
    assert_eq!(descriptor_of(&t, "sandbox").await, expected);
    assert_eq!(descriptor_of(&t, "shopify").await, json!(null));
}

async fn an_operator_sets_uncertain_limits(s: TestStore) {
    let settings =
        PlatformConfig { video_max_bytes: Some(1_000), video_max_ms: Some(9_000), ..PlatformConfig::default() };
    let platforms = [(Platform::Twitter, settings)].into();
    let config = PlatformsConfig { platforms, ..PlatformsConfig::default() };
    let app = TestApp::start_with_platforms(s, config).await;
    let t = app.tenant("unlimited").await;
    let found = descriptor_of(&t, "twitter").await;
    assert_eq!((&found["max_bytes"], &found["max_duration_ms"]), (&json!(1_000), &json!(9_000)));
    let (twitter, video) = (account(&t, Platform::Twitter, None).await, Clip::default().create(&t).await);
    let checked = validate(&t, body(twitter, &[video], json!({}))).await;
    assert_eq!(codes(&checked["problems"]), [("media", "video_too_large"), ("media", "video_too_long")]);
}
