//! Link-in-bio pages.

use crier_domain::bio_page::Theme;
use serde_json::{Value, json};

use super::driver::Driver;
use super::{DESKTOP, PHONE};
use crate::support::app::TestApp;
use crate::support::images;
use crate::support::store::TestStore;

fn link(title: &str) -> Value {
    json!({ "title": title, "url": "https://example.com/" })
}

/// Pages that are hard to render, with the names of their screenshots.
fn odd_pages() -> Vec<(&'static str, Value)> {
    let many: Vec<Value> = (1..=100).map(|n| link(&format!("Link number {n}"))).collect();
    vec![
        ("one-link", json!({ "title": "One link", "links": [link("The only one")] })),
        ("no-link", json!({ "title": "Nothing yet", "bio": "Soon there will be something here." })),
        ("many-links", json!({ "title": "A hundred links", "theme": "ocean", "links": many })),
        (
            "long",
            json!({
                "title": "The Incorporated Society of Very Long Names That Do Not Fit Into One Line of a Telephone Held Upright, Founded 1820s",
                "bio": format!("{} {}", "A bio of five hundred characters. ".repeat(12), "Donaudampfschifffahrtsgesellschaftskapitän".repeat(2)),
                "theme": "sunset",
                "links": [link(&"A very long name of a link that goes on ".repeat(3)), link(&"Unbreakable".repeat(10)), link("ok")],
            }),
        ),
        (
            "emoji",
            json!({ "title": "🥐 Bäckerei 👩‍👩‍👧‍👦 🇪🇺", "bio": "🍞🥖🥨\n\nFresh\nevery\nday", "theme": "forest", "links": [link("🛒 Shop"), link("📍"), link("👩🏽‍🍳 The bakers")] }),
        ),
        (
            "right-to-left",
            json!({ "title": "مخبز الحي", "bio": "خبز طازج كل صباح! من السابعة.", "theme": "dark", "links": [link("القائمة (PDF)"), link("מתכונים שלנו"), link("Mixed مرحبا text!")] }),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_render_without_errors_in_every_theme() {
    let app = TestApp::start(TestStore::sqlite().await).await;
    let Some(browser) = Driver::start(&app.url).await else { return };
    let t = app.tenant("unlimited").await;
    let links =
        json!([link("Our shop"), link("This week's menu"), link("Book a table"), link("Instagram"), link("Call us")]);
    let asset = t.upload("me.jpg", &images::jpeg(300, 200), &[("alt_text", "The bakers")]).await.data(201);
    let mut pages = odd_pages();
    pages
        .push(("avatar", json!({ "title": "With an image", "theme": "ocean", "avatar": asset["id"], "links": links })));
    pages.extend(Theme::ALL.iter().map(|theme| {
        let bio = "Bread and cakes from our own oven, every day from seven. Come in, or have it brought to you.";
        (theme.as_str(), json!({ "title": "Acme Bakery", "bio": bio, "theme": theme.as_str(), "links": links }))
    }));
    for (name, mut body) in pages {
        body["slug"] = json!(format!("x-{name}"));
        t.post(&t.path("/link-in-bio"), body).await.expect(201);
        let sizes: &[_] = if name.parse::<Theme>().is_ok() { &[PHONE, DESKTOP] } else { &[PHONE] };
        for size in sizes {
            browser.save_screenshot(&format!("/@x-{name}"), &format!("bio-{name}"), *size).await;
        }
    }
    let page = browser.save_screenshot("/@x-ocean", "bio-ocean", PHONE).await;
    assert!(page.contains("<title>Acme Bakery</title>") && page.contains("This week's menu"), "{page}");
    assert_eq!(page.matches("rel=\"noopener nofollow ugc\"").count(), 5, "{page}");
    assert_eq!(page.matches("<a href=\"/@x-ocean/l/").count(), 5, "{page}");
    for size in [PHONE, DESKTOP] {
        let page = browser.save_screenshot("/@no-page", "bio-missing", size).await;
        assert!(page.contains("<title>Not found · Crier</title>"), "{page}");
    }
    browser.quit().await;
}
