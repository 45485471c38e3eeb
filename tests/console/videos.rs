//! Videos in the library, in lists, in the composer and in its preview.

use crier_domain::platform::Platform;
use serde_json::{Value, json};

use super::previews::{connect, preview, result_of};
use crate::support::app::{Reply, Tenant, on_one_app};
use crate::support::console::{ConsoleUser, Page};
use crate::support::images;
use crate::support::videos::{VideoSpec, mp4};

on_one_app!(console "unlimited" =>
    a_video_is_shown_changed_and_deleted,
    a_video_is_uploaded_with_a_form,
    images_and_videos_are_listed_separately,
    a_video_is_chosen_for_a_post,
    a_cover_is_chosen_in_seconds,
    a_preview_has_the_shape_of_the_platform,
    a_limit_that_a_video_exceeds_is_shown_while_a_post_is_written,
);

const UPRIGHT: VideoSpec = VideoSpec {
    width: 1_080,
    height: 1_920,
    duration_ms: 32_000,
    frames: 960,
    data: 4_000,
    index_first: true,
    rotation: 0,
};

async fn upload(t: &Tenant<'_>, spec: VideoSpec) -> String {
    t.upload("oven.mp4", &mp4(spec), &[("asset_type", "video")]).await.data(201)["id"].to_string()
}

async fn only_post(t: &Tenant<'_>) -> Value {
    let listed = t.get(&t.path("/posts")).await.data(200);
    t.get(&t.path(&format!("/posts/{}", listed[0]["id"]))).await.data(200)
}

async fn a_video_is_shown_changed_and_deleted(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = upload(&t, UPRIGHT).await;
    let (list, path) = (t.path("/media"), t.path(&format!("/media/{id}")));
    let page = person.get(&list).await;
    page.expect(200, "<video src=\"/media/").expect(200, "preload=\"metadata\" muted playsinline");
    page.expect(200, "<small>0:32</small>").expect(200, "1080 × 1920, 0:32, ").expect(200, "iB, H.264");
    page.expect(200, &format!("data-uploads=\"/console{list}/uploads\" data-csrf=\""));
    let page = person.get(&path).await;
    page.expect(200, "controls preload=\"metadata\"").expect(200, "About the video").expect(200, "MP4");
    page.expect(200, "<dt>Audio codec</dt><dd>No sound</dd>").expect(200, "<dd>30 frames per second</dd>");
    page.expect(200, "<dt>Ready for streaming</dt><dd>Yes</dd>");
    assert!(!page.has("name=\"asset_type\""), "a video stays a video: {}", page.text);
    let page = person.submit(&path, &path, &[("filename", "Oven"), ("alt_text", "A hot <oven>")]).await;
    page.expect(200, "Video saved.").expect(200, "aria-label=\"A hot <oven>\"");
    person.submit(&path, &format!("{path}/delete"), &[]).await.expect(200, "Video deleted.");

    let last = upload(&t, VideoSpec { index_first: false, ..UPRIGHT }).await;
    let page = person.get(&t.path(&format!("/media/{last}"))).await;
    page.expect(200, "<dt>Ready for streaming</dt><dd>No. The index is at the end of the file");
}

/// Sends the upload form of the page.
async fn send(t: &Tenant<'_>, person: &ConsoleUser<'_>, page: &Page, bytes: &[u8], is_fetch: bool) -> Reply {
    let start = page.text.find(&format!("{}?_key=", t.path("/media"))).expect("the form");
    let form = page.text[start..].split('"').next().unwrap_or_default().replace("&amp;", "&");
    let request = t.app.visit("POST", &format!("{}{form}", t.app.url)).header("cookie", &person.cookie);
    let request = request.header("origin", &t.app.url);
    let request = if is_fetch { request.header("x-requested-with", "fetch") } else { request };
    request.form(Some(("oven.mp4", bytes)), &[("asset_type", "video"), ("alt_text", "")]).send().await
}

async fn a_video_is_uploaded_with_a_form(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (path, file) = (t.path("/media"), mp4(UPRIGHT));
    let sent = send(&t, &person, &person.get(&path).await, &file, false).await;
    assert_eq!(sent.status, 303, "{sent:?}");
    let to = sent.header("location").unwrap_or_default();
    person.get(to).await.expect(200, "Video uploaded.").expect(200, "oven.mp4");
    // The script gets the ID, or the error as text.
    let sent = send(&t, &person, &person.get(&path).await, &file, true).await;
    let id: i64 = String::from_utf8_lossy(&sent.body).parse().expect("an id");
    assert_eq!((sent.status, t.app.newest_id("media").await), (201, id));
    let rejected = send(&t, &person, &person.get(&path).await, b"no video", true).await;
    assert!(rejected.status == 415 && !rejected.body.starts_with(b"<"), "{rejected:?}");
    let rejected = send(&t, &person, &person.get(&path).await, b"no video", false).await;
    let text = String::from_utf8_lossy(&rejected.body);
    assert!(rejected.status == 422 && text.contains("e-file"), "{text}");
}

async fn images_and_videos_are_listed_separately(t: Tenant<'_>, person: ConsoleUser<'_>) {
    upload(&t, UPRIGHT).await;
    t.upload("bread.png", &images::png(20, 20), &[]).await.expect(201);
    let path = t.path("/media");
    for (query, has_image, has_video) in [("", true, true), ("image", true, false), ("video", false, true)] {
        let page = person.get(&format!("{path}?asset_type={query}")).await;
        assert_eq!((page.has("bread.png"), page.has("oven.mp4")), (has_image, has_video), "{query}: {}", page.text);
    }
    person.get(&path).await.expect(200, "<option value=\"video\">Videos</option>");
}

async fn a_video_is_chosen_for_a_post(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = upload(&t, UPRIGHT).await;
    let new = t.path("/posts/new");
    // In the library, it is a tile with a play mark.
    let page = person.get(&new).await;
    page.expect(200, "class=\"video").expect(200, "href=\"#i-play\"").expect(200, "data-video=\"/media/");
    assert!(!page.has("<video src"), "only a chosen video has a player: {}", page.text);
    let page = person.get(&format!("{new}?media={id}")).await;
    page.expect(200, "<video src=\"/media/").expect(200, "controls preload=\"metadata\"");
    page.expect(200, "1080 × 1920, 0:32, ");
    let fields = [("content", ""), ("media", id.as_str()), ("schedule_type", "draft")];
    person.submit_from(&page, &new, &fields).await.expect(200, "This post has no text.").expect(200, "video of 0:32");
    assert_eq!(only_post(&t).await["media"].to_string(), format!("[{id}]"));
    person.get(&t.path("/posts")).await.expect(200, "no text").expect(200, "class=\"video thumb");
}

async fn a_cover_is_chosen_in_seconds(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (video, account) = (upload(&t, UPRIGHT).await, connect(&t, Platform::Instagram).await);
    let image = t.upload("bread.png", &images::png(600, 600), &[]).await.data(201)["id"].to_string();
    let (new, at, cover) =
        (t.path("/posts/new"), "overrides.0.options.cover_at_ms", "overrides.0.options.cover_media_id");
    let page = person.get(&format!("{new}?media={video}")).await;
    page.expect(200, &format!("type=\"number\" id=\"f-{at}\" name=\"{at}\"")).expect(200, "Time of the cover");
    let options = page.text.split(&format!("name=\"{cover}\"")).nth(1).expect("the choice of the cover");
    let options = options.split("</select>").next().unwrap_or_default();
    assert!(options.contains(&format!("value=\"{image}\"")), "{options}");
    assert!(!options.contains(&format!("value=\"{video}\"")), "a video is not a cover: {options}");
    let with = |schedule_type, name, value| {
        [
            ("content", "Bread"),
            ("media", video.as_str()),
            ("accounts", account.as_str()),
            ("overrides.0.account_id", account.as_str()),
            ("schedule_type", schedule_type),
            (name, value),
        ]
    };
    let page = person.submit_from(&page, &new, &with("now", at, "soon")).await;
    page.expect(422, &format!("id=\"e-{at}\"")).expect(422, "value=\"soon\"");
    let page = person.submit_from(&page, &new, &with("draft", at, "3.25")).await;
    page.expect(200, "Draft saved.").expect(200, "Time of the cover: <bdi>3.25 s</bdi>");
    let post = only_post(&t).await;
    assert_eq!(post["targets"][0]["options"], json!({ "cover_at_ms": 3_250 }));
    let edit = t.path(&format!("/posts/{}/edit", post["id"]));
    let page = person.get(&edit).await;
    page.expect(200, &format!("name=\"{at}\" value=\"3.25\""));

    person.submit_from(&page, &edit, &with("draft", cover, image.as_str())).await.expect(200, "Draft saved.");
    let options = only_post(&t).await["targets"][0]["options"].take();
    assert_eq!(options, json!({ "cover_media_id": image.parse::<i64>().unwrap() }));
    let page = person.get(&edit).await;
    page.expect(200, &format!("<option value=\"{image}\" selected>"));

    // A video of the account replaces that of the post, also for the slider.
    let (own, field) = (upload(&t, VideoSpec { data: 5_000, ..UPRIGHT }).await, "overrides.0.media");
    let of_account = [("overrides.0.own_media", "1"), (field, own.as_str())];
    let fields = [&with("draft", at, "3.25")[..], &of_account].concat();
    person.submit_from(&page, &edit, &fields).await.expect(200, "Draft saved.");
    let page = person.get(&edit).await;
    page.expect(200, &format!("type=\"hidden\" name=\"{field}\" value=\"{own}\" data-video=\"/media/"));
    page.expect(200, "data-label=\"oven.mp4\"");
}

async fn a_preview_has_the_shape_of_the_platform(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let wide = upload(&t, VideoSpec { width: 1_280, height: 720, ..UPRIGHT }).await;
    let mut fields = vec![("content", "Bread".to_owned()), ("media", wide)];
    let platforms = [Platform::Tiktok, Platform::Instagram, Platform::Facebook, Platform::Mastodon];
    for platform in platforms {
        fields.push(("accounts", connect(&t, platform).await));
    }
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let page = preview(&t, &person, &fields).await;
    for (platform, is_upright) in platforms.into_iter().zip([true, true, false, false]) {
        let result = result_of(&page, platform);
        assert_eq!(result.contains("class=\"video upright\""), is_upright, "{platform}: {result}");
        assert!(result.contains("oven.mp4, video of 0:32") && result.contains("#i-play"), "{platform}: {result}");
    }
    assert!(!page.has("autoplay"), "{}", page.text);
}

async fn a_limit_that_a_video_exceeds_is_shown_while_a_post_is_written(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (long, account) =
        (upload(&t, VideoSpec { duration_ms: 724_000, ..UPRIGHT }).await, connect(&t, Platform::Tiktok).await);
    let fields = [("content", "Bread"), ("media", long.as_str()), ("accounts", account.as_str())];
    let page = preview(&t, &person, &fields).await;
    let problem = "TikTok accepts videos of at most 10 minutes; video 1 has 12:04 minutes.";
    let result = result_of(&page, Platform::Tiktok);
    assert!(result.contains(problem), "in the preview: {result}");
    page.expect(200, &format!("<bdi>user_tiktok</bdi>: {problem}"));
    assert!(t.get(&t.path("/posts")).await.data(200).as_array().unwrap().is_empty(), "nothing was saved");
}
