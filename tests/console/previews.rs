//! The previews of a post in the composer.

use crier_domain::platform::Platform;
use crier_store::accounts::NewAccount;

use crate::support::app::{Tenant, TestApp, on_one_app};
use crate::support::console::{ConsoleUser, Page};
use crate::support::images;
use crate::support::store::new_account;

on_one_app!(
    every_platform_has_a_preview,
    links_are_highlighted_as_on_the_platform,
    problems_of_images_are_beside_the_images,
);

/// Connects an account with the name Demo and the username `user_PLATFORM`.
pub async fn connect(t: &Tenant<'_>, platform: Platform) -> String {
    let username = Some(format!("user_{platform}"));
    let new = NewAccount { platform, username, ..new_account(platform.as_str(), "token") };
    t.store_account(&new).await.to_string()
}

/// Returns the panel "Preview" for a post, in a page.
pub async fn preview(t: &Tenant<'_>, person: &ConsoleUser<'_>, fields: &[(&str, &str)]) -> Page {
    let form = format!("/brands/{}/posts/new", t.brand);
    let hidden = person.get(&form).await.hidden_fields(&form);
    let csrf = hidden.iter().find(|(name, _)| name == "_csrf").expect("a token").1.as_str();
    let fields: Vec<(&str, &str)> = fields.iter().copied().chain([("_csrf", csrf)]).collect();
    person.post(&format!("/brands/{}/posts/check", t.brand), &fields).await
}

/// Returns the part of the panel for an account.
pub fn result_of(page: &Page, platform: Platform) -> &str {
    let name = format!("<bdi>user_{platform}</bdi>");
    let mut results = page.text.split("<div class=\"result\">").skip(1);
    results.find(|result| result.contains(&name)).unwrap_or_else(|| panic!("{platform}: {}", page.text))
}

async fn every_platform_has_a_preview(app: TestApp) {
    // The names, the arrangement and the number of five images, whether they are above the text, and the label after a
    // text of 45 lines with 15 characters each.
    let looks = [
        (Platform::Telegram, "Demo", "mosaic", 4, true, ""),
        (Platform::Bluesky, "Demo @user_bluesky", "mosaic", 4, false, "Show More"),
        (Platform::Wordpress, "Demo", "first", 1, true, ""),
        (Platform::Woocommerce, "Demo", "first", 1, true, ""),
        (Platform::Sandbox, "Demo @user_sandbox", "mosaic", 4, false, ""),
        (Platform::Mastodon, "Demo @user_mastodon", "mosaic", 4, false, "Read more"),
        (Platform::Shopify, "Demo", "first", 1, true, ""),
        (Platform::Facebook, "Demo", "mosaic", 4, false, "See more"),
        (Platform::Instagram, "user_instagram", "first", 1, true, "more"),
        (Platform::Threads, "user_threads", "row", 3, false, ""),
        (Platform::Twitter, "Demo @user_twitter", "mosaic", 4, false, ""),
        (Platform::Linkedin, "Demo", "mosaic", 4, false, "more"),
        (Platform::Pinterest, "Demo", "first", 1, true, ""),
        (Platform::Tiktok, "user_tiktok", "first", 1, true, ""),
        (Platform::GoogleBusiness, "Demo", "first", 1, true, ""),
        (Platform::Reddit, "u/user_reddit", "first", 1, false, ""),
        (Platform::Tumblr, "user_tumblr", "mosaic", 4, true, ""),
        (Platform::Youtube, "Demo", "first", 1, true, ""),
    ];
    assert_eq!(looks.map(|look| look.0), Platform::ALL);
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let content = "Fresh bread 14\n".repeat(45);
    let mut fields = vec![("content", content)];
    for platform in Platform::ALL {
        fields.push(("accounts", connect(&t, *platform).await));
    }
    for _ in 0..5 {
        fields.push(("media", t.upload("bread.png", &images::png(20, 20), &[]).await.data(201)["id"].to_string()));
    }
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let page = preview(&t, &person, &fields).await;
    for (platform, names, grid, images, images_first, label) in looks {
        let result = result_of(&page, platform);
        let (name, handle) = names.split_once(' ').unwrap_or((names, ""));
        assert!(result.contains(&format!("<strong dir=\"auto\">{name}</strong>")), "{platform}: {result}");
        let shown = format!("<bdi class=\"muted\">{handle}</bdi>");
        assert_eq!(result.contains(&shown), !handle.is_empty(), "{platform}: {result}");
        let ending = if label.is_empty() {
            "…</p>".to_owned()
        } else {
            format!("… <span class=\"muted\">{label}</span></p>")
        };
        assert!(result.contains(&ending), "{platform}: {result}");
        let start = result.find(&format!("<div class=\"grid grid-{grid}\">")).expect("its grid");
        let gallery = result[start..].split("</div>").next().unwrap_or_default();
        assert_eq!(gallery.matches("<img").count(), images, "{platform}: {result}");
        assert!(result.contains(&format!("and {} more", 5 - images)), "{platform}: {result}");
        let text = result.find("Fresh bread").expect("the text");
        assert_eq!(start < text, images_first, "{platform}: {result}");
        assert!(result.contains(&format!("src=\"/marks/{platform}.svg?")), "{platform}: {result}");
        person.get(&format!("/marks/{platform}.svg")).await.expect(200, "<svg");
    }
    person.get("/marks/unknown.svg").await.expect(404, "");
}

async fn links_are_highlighted_as_on_the_platform(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let (mastodon, instagram) = (connect(&t, Platform::Mastodon).await, connect(&t, Platform::Instagram).await);
    let fields = [
        ("content", "<b> https://a.example/x #bread"),
        ("accounts", mastodon.as_str()),
        ("accounts", instagram.as_str()),
    ];
    let page = preview(&t, &person, &fields).await;
    let links = |platform: Platform| -> Vec<&str> {
        let links = result_of(&page, platform).split("<span class=\"link\">").skip(1);
        links.filter_map(|link| link.split("</span>").next()).collect()
    };
    assert_eq!(links(Platform::Mastodon), ["https://a.example/x", "#bread"]);
    assert_eq!(links(Platform::Instagram), ["#bread"]);
    // Without images, the preview has no grid, and the text is not HTML.
    assert!(!page.has("<div class=\"grid"), "{}", page.text);
    let html = String::from_utf8_lossy(&page.reply.body).into_owned();
    assert!(!html.contains("<b>"), "{html}");
}

async fn problems_of_images_are_beside_the_images(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let instagram = connect(&t, Platform::Instagram).await;
    let page = preview(&t, &person, &[("content", "Bread"), ("accounts", instagram.as_str())]).await;
    page.expect(200, "<div id=\"media-check\"><p class=\"error\" dir=\"auto\"><bdi>user_instagram</bdi>: ");
    // The script copies the problem from the panel.
    assert!(result_of(&page, Platform::Instagram).contains("data-about=\"user_instagram\""), "{}", page.text);
    let long = "x".repeat(3_000);
    let page = preview(&t, &person, &[("content", long.as_str()), ("accounts", instagram.as_str())]).await;
    assert_eq!(page.text.matches("data-about=").count(), 1, "a long text is not a problem of images: {}", page.text);
}
