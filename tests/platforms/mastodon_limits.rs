//! The limits of servers that implement Mastodon's API: each sets its own, and the software decides how lengths are
//! counted.

use crier_domain::catalogue::descriptor;
use crier_domain::limits::AccountLimits;
use crier_domain::platform::Platform;
use crier_domain::post::TargetStatus;
use crier_platforms::{CallError, text};
use crier_scheduler::tasks;
use crier_store::accounts::{self, NewAccount};
use crier_store::inbox_syncs;
use secrecy::SecretString;
use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::support::{account, connector, post};
use crate::support::images;
use crate::support::jobs::TestWorker;
use crate::support::mastodon::{Limits, Mastodon, RunningMastodon};
use crate::support::store::{TestStore, new_account, on_both};

on_both!(
    limits_are_read_when_an_account_is_looked_at_and_once_a_day,
    a_failed_reading_leaves_the_limits_and_the_messages,
    limits_are_read_although_messages_cannot_be_read,
    images_and_alt_texts_are_made_to_fit_the_server,
    limits_of_other_credentials_are_not_stored,
);

const TOKEN: &str = "access-of-ann";

fn secrets_at(base: &str) -> Value {
    json!({
        "instance": base, "access_token": TOKEN, "account_id": "23634", "client_id": "app-1", "client_secret": "shh-1",
    })
}

struct Server {
    w: TestWorker,
    mastodon: RunningMastodon,
    account: i64,
}

impl Server {
    async fn start(s: TestStore, limits: Limits) -> Self {
        let mastodon = Mastodon::start("2026-01-01T00:00:00Z").await;
        mastodon.fake.oauth.add_token(TOKEN);
        mastodon.fake.set_limits(limits);
        let w = TestWorker::with_base_url(s, Platform::Mastodon, &mastodon.server.uri()).await;
        let secrets = SecretString::from(secrets_at(&mastodon.server.uri()).to_string());
        let new = NewAccount { platform: Platform::Mastodon, secrets, ..new_account("ann@example.social", "") };
        let account = w
            .write(async |tx| {
                let made = accounts::save(tx, w.world.workspace, &new).await?;
                accounts::attach(tx, w.world.brand, made.id).await?;
                inbox_syncs::start(tx, made.id).await?;
                Ok(made.id)
            })
            .await;
        Self { w, mastodon, account }
    }

    /// Syncs the account's inbox, if that is due.
    async fn look(&self) {
        tasks::inbox::run(&self.w.scheduler).await.unwrap();
        self.w.run_jobs().await;
    }

    async fn limits(&self) -> Option<AccountLimits> {
        accounts::find_any(&mut self.w.conn().await, self.account).await.unwrap().unwrap().limits
    }
}

async fn limits_are_read_when_an_account_is_looked_at_and_once_a_day(s: TestStore) {
    let t = Server::start(s, Limits { max_characters: 1_000, ..Limits::default() }).await;
    assert_eq!(t.limits().await, None);
    t.look().await;
    let first = t.limits().await.unwrap();
    let expected = AccountLimits {
        read_at: t.w.now(),
        software: Some("mastodon".to_owned()),
        max_characters: Some(1_000),
        url_length: Some(23),
        max_images: Some(4),
        max_alt_text: Some(1_500),
        max_image_bytes: Some(16 << 20),
        max_image_pixels: Some(33_177_600),
        mime_types: ["image/jpeg", "image/png", "image/gif", "image/webp"].map(str::to_owned).to_vec(),
        max_video_bytes: Some(103_809_024),
        max_video_pixels: Some(8_294_400),
        max_frame_rate: Some(120),
        video_types: Some(vec!["video/mp4".to_owned()]),
        boards: Vec::new(),
    };
    assert_eq!(first, expected);

    let is_old = true;
    let akkoma =
        Limits { software: "akkoma", max_characters: 7_000, max_alt_text: Some(90), is_old, ..Limits::default() };
    t.mastodon.fake.set_limits(akkoma);
    t.w.advance(23 * 3_600);
    t.look().await;
    assert_eq!(t.limits().await, Some(first), "a day has not passed");
    t.w.advance(3_600);
    t.look().await;
    let second = t.limits().await.unwrap();
    assert_eq!((second.software.as_deref(), second.max_characters), (Some("akkoma"), Some(7_000)));
    assert_eq!((second.max_alt_text, second.max_image_bytes, second.max_images), (Some(90), Some(16 << 20), None));
}

async fn a_failed_reading_leaves_the_limits_and_the_messages(s: TestStore) {
    let t = Server::start(s, Limits::default()).await;
    t.look().await;
    let before = t.limits().await.unwrap();
    t.mastodon.fake.set_limits(Limits { max_characters: 9, ..Limits::default() });
    t.w.advance(24 * 3_600);
    t.mastodon.fake.script("/api/v2/instance", ResponseTemplate::new(503));
    t.look().await;
    assert_eq!(t.limits().await.as_ref(), Some(&before));
    let sync = inbox_syncs::find(&mut t.w.conn().await, t.account).await.unwrap().unwrap();
    assert_eq!((sync.synced_at, sync.failures), (Some(t.w.now()), 0), "the messages were read");
    // A page instead of the documents, as during maintenance.
    t.w.advance(3_600);
    for path in ["/api/v2/instance", "/api/v1/instance"] {
        t.mastodon.fake.script(path, ResponseTemplate::new(200).set_body_string("<html>"));
    }
    t.look().await;
    assert_eq!(t.limits().await, Some(before));
    t.w.advance(3_600);
    t.look().await;
    assert_eq!(t.limits().await.unwrap().max_characters, Some(9));
}

async fn limits_are_read_although_messages_cannot_be_read(s: TestStore) {
    let t = Server::start(s, Limits { max_characters: 1_000, ..Limits::default() }).await;
    t.mastodon.fake.script("/api/v1/notifications", ResponseTemplate::new(503));
    t.look().await;
    let sync = inbox_syncs::find(&mut t.w.conn().await, t.account).await.unwrap().unwrap();
    assert_eq!(sync.failures, 1);
    assert_eq!(t.limits().await.unwrap().max_characters, Some(1_000));

    // Without access or within a rate limit, the server gets no other call.
    let account = t.account;
    t.w.write(async |tx| {
        let account = accounts::find_any(tx, account).await?.unwrap();
        accounts::set_limits(tx, &account, &AccountLimits::default()).await
    })
    .await;
    t.mastodon.fake.script("/api/v1/notifications", ResponseTemplate::new(429));
    t.w.advance(24 * 3_600);
    t.look().await;
    assert_eq!(t.limits().await, Some(AccountLimits::default()));
}

async fn images_and_alt_texts_are_made_to_fit_the_server(s: TestStore) {
    let limits = Limits {
        max_image_bytes: 3_000,
        max_image_pixels: 900,
        max_alt_text: Some(12),
        mime_types: &["image/png", "image/jpeg"],
        ..Limits::default()
    };
    let t = Server::start(s, limits).await;
    t.look().await;
    let images = [
        t.w.image("large.png", images::png(100, 50), Some("A loaf of fresh bread")).await,
        t.w.image("noisy.png", images::noise(30), Some("A loaf")).await,
        t.w.image("cat.gif", images::gif(20, 20), None).await,
        t.w.image("cat.webp", images::webp(20, 20), None).await,
    ];
    let (_, target) = t.w.publish_images(t.account, &images).await;
    t.w.run_jobs().await;
    let published = t.w.target(target).await;
    assert_eq!((published.status, published.error), (TargetStatus::Published, None));
    let files = t.mastodon.fake.files();
    let sides: Vec<_> = files.iter().map(|file| image::load_from_memory(file).unwrap()).collect();
    assert_eq!((sides[0].width(), sides[0].height()), (42, 21));
    assert_eq!((sides[2].width(), sides[2].height()), (20, 20));
    let bodies = t.mastodon.fake.media();
    assert!(bodies["100"].contains("A loaf of…"), "{}", bodies["100"]);
    assert!(bodies["101"].contains("A loaf") && !bodies["101"].contains('…'));
}

async fn limits_of_other_credentials_are_not_stored(s: TestStore) {
    let t = Server::start(s, Limits::default()).await;
    let before = accounts::find_any(&mut t.w.conn().await, t.account).await.unwrap().unwrap();
    let secrets = SecretString::from(secrets_at("https://elsewhere.example").to_string());
    let stated = AccountLimits { max_characters: Some(77), ..AccountLimits::default() };
    t.w.write(async |tx| {
        let new = NewAccount {
            platform: Platform::Mastodon,
            secrets,
            limits: Some(stated.clone()),
            ..new_account("ann@example.social", "")
        };
        accounts::save(tx, t.w.world.workspace, &new).await?;
        accounts::set_limits(tx, &before, &AccountLimits::default()).await
    })
    .await;
    assert_eq!(t.limits().await, Some(stated));
}

/// Texts whose lengths differ by software, each with a content warning.
const TEXTS: [(&str, &str); 8] = [
    ("", "Fresh bread at seven"),
    ("", "https://example.com/a/very/long/path/that/goes/on?and=on#and-on"),
    ("", "See https://t.co/a and @ann@a.very.long.server.example"),
    ("Food", "@ann @bob@example.com @cy@d.example 👩\u{200D}👩\u{200D}👧\u{200D}👦"),
    ("A warning: https://example.com/a/very/long/path/that/goes/on", "e\u{301}e\u{301}e\u{301}"),
    ("👍🏽👍🏽", "example.com and www.example.com/path"),
    ("@ann@example.com", "日本語のパン"),
    ("", "mail me@example.com or /@ann@example.com"),
];

#[tokio::test]
async fn validation_and_publishing_agree_for_each_software() {
    let connector = connector(Platform::Mastodon, "");
    // glitch-soc calls itself "mastodon".
    for software in ["mastodon", "", "pleroma", "akkoma", "gotosocial", "pixelfed", "friendica"] {
        let mastodon = Mastodon::start("2026-03-01T12:00:05.000Z").await;
        mastodon.fake.oauth.add_token(TOKEN);
        let ann = account("ann@example.social", secrets_at(&mastodon.server.uri()));
        for (number, (warning, text)) in (0_u64..).zip(TEXTS) {
            // At the limit, and one above it.
            mastodon.fake.set_limits(Limits { software, ..Limits::default() });
            let rules = descriptor(Platform::Mastodon).with_limits(connector.limits(&ann).await.unwrap().as_ref());
            let measured = text::measure(&rules, text).with_warning(&rules, warning);
            let length = text::check_measured(&rules, &measured, text::MediaCount::NONE).length;
            for (max_characters, is_taken) in [(length, true), (length - 1, false)] {
                mastodon.fake.set_limits(Limits {
                    software,
                    max_characters: max_characters as usize,
                    ..Limits::default()
                });
                let limits = connector.limits(&ann).await.unwrap();
                let rules = descriptor(Platform::Mastodon).with_limits(limits.as_ref());
                let checked = text::check_measured(&rules, &measured, text::MediaCount::NONE);
                assert_eq!((checked.limit, checked.problems.is_empty()), (Some(max_characters), is_taken), "{text}");
                let mut outgoing = post(connector.as_ref(), text);
                let key = format!("{number}-{max_characters}");
                outgoing.marker.insert("key".to_owned(), Value::from(key));
                outgoing.options.insert("spoiler_text".to_owned(), Value::from(warning));
                let published = connector.publish(&ann, &outgoing).await;
                assert_eq!(published.is_ok(), is_taken, "{software} {max_characters} {warning} {text}: {published:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_a_server_does_not_state_is_left_to_the_platform() {
    let mastodon = Mastodon::start("2026-03-01T12:00:05.000Z").await;
    mastodon.fake.oauth.add_token(TOKEN);
    let (connector, ann) = (connector(Platform::Mastodon, ""), account("ann", secrets_at(&mastodon.server.uri())));
    let read = async || connector.limits(&ann).await.unwrap().unwrap();
    let default = descriptor(Platform::Mastodon);

    mastodon.fake.script("/api/v2/instance", ResponseTemplate::new(404));
    mastodon.fake.script("/api/v1/instance", ResponseTemplate::new(200).set_body_json(json!({})));
    mastodon.fake.script("/.well-known/nodeinfo", ResponseTemplate::new(404));
    let nothing = read().await;
    assert_eq!(nothing, AccountLimits { read_at: nothing.read_at, ..AccountLimits::default() });
    mastodon.fake.set_limits(Limits { software: "", ..Limits::default() });
    mastodon.fake.script(
        "/api/v2/instance",
        ResponseTemplate::new(200).set_body_json(json!({
            "configuration": {
                "statuses": { "max_characters": 0, "max_media_attachments": "four", "characters_reserved_per_url": -1 },
                "media_attachments": { "image_size_limit": 0, "supported_mime_types": "all" },
            },
        })),
    );
    assert_eq!(read().await, nothing);
    assert_eq!(default.with_limits(Some(&nothing)).capabilities, default.capabilities);

    mastodon.fake.set_limits(Limits { software: "pixelfed", max_alt_text: None, ..Limits::default() });
    assert_eq!(read().await.max_alt_text, Some(1_000));
    mastodon.fake.set_limits(Limits { software: "x".repeat(65).leak(), ..Limits::default() });
    assert_eq!(read().await.software, None);
}

#[tokio::test]
async fn absurd_limits_are_ignored_or_reduced() {
    let mastodon = Mastodon::start("2026-03-01T12:00:05.000Z").await;
    mastodon.fake.oauth.add_token(TOKEN);
    let (connector, ann) = (connector(Platform::Mastodon, ""), account("ann", secrets_at(&mastodon.server.uri())));
    let read = async |value: &Value| {
        let body = json!({
            "configuration": {
                "statuses": {
                    "max_characters": value, "max_media_attachments": value, "characters_reserved_per_url": value,
                },
                "media_attachments": {
                    "description_limit": value, "image_size_limit": value, "image_matrix_limit": value,
                    "supported_mime_types": value, "video_size_limit": value, "video_matrix_limit": value,
                    "video_frame_rate_limit": value,
                },
            },
        });
        mastodon.fake.script("/api/v2/instance", ResponseTemplate::new(200).set_body_json(body));
        connector.limits(&ann).await.unwrap().unwrap()
    };
    let nothing = read(&json!(null)).await;
    let software = Some("mastodon".to_owned());
    assert_eq!(nothing, AccountLimits { read_at: nothing.read_at, software, ..AccountLimits::default() });
    for value in [json!(0), json!(-1), json!(0.5), json!(1e18), json!("500"), json!(true), json!([500]), json!({})] {
        assert_eq!(read(&value).await, nothing, "{value}");
    }
    for value in [json!(1_000_000_000_000_000_000_u64), json!(u64::MAX)] {
        let expected = AccountLimits {
            max_characters: Some(1_000_000),
            url_length: Some(32),
            max_images: Some(1_000),
            max_alt_text: Some(1_000_000),
            max_image_bytes: Some(1 << 40),
            max_image_pixels: Some(1 << 40),
            max_video_bytes: Some(1 << 40),
            max_video_pixels: Some(1 << 40),
            max_frame_rate: Some(1_000),
            ..nothing.clone()
        };
        assert_eq!(read(&value).await, expected, "{value}");
    }
    // Nobody can send an image of one byte, or wants one of one pixel.
    let smallest = read(&json!(1)).await;
    assert_eq!((smallest.max_characters, smallest.max_images), (Some(1), Some(1)));
    assert_eq!((smallest.max_image_bytes, smallest.max_image_pixels), (None, None));
    assert_eq!((smallest.max_video_bytes, smallest.max_video_pixels, smallest.max_frame_rate), (None, None, Some(1)));
}

#[tokio::test]
async fn a_document_that_cannot_be_read_is_not_one_without_limits() {
    let mastodon = Mastodon::start("2026-03-01T12:00:05.000Z").await;
    mastodon.fake.oauth.add_token(TOKEN);
    let (connector, ann) = (connector(Platform::Mastodon, ""), account("ann", secrets_at(&mastodon.server.uri())));
    let page = |body: &str| ResponseTemplate::new(200).set_body_string(body);
    let too_large = format!(r#"{{"x":"{}"}}"#, "x".repeat(2 << 20));
    let too_deep = "[".repeat(100_000);
    for unreadable in ["<html>", "", "[]", "7", too_large.as_str(), too_deep.as_str()] {
        let start = unreadable.get(..9).unwrap_or(unreadable);
        mastodon.fake.script("/api/v2/instance", page(unreadable));
        mastodon.fake.script("/api/v1/instance", page(unreadable));
        let failed = connector.limits(&ann).await;
        assert!(matches!(failed, Err(CallError::Transient(_))), "{start}: {failed:?}");

        // Some servers return their home page for paths that they do not know.
        mastodon.fake.script("/api/v2/instance", page(unreadable));
        mastodon.fake.script("/api/v1/instance", page(r#"{"max_toot_chars":70}"#));
        assert_eq!(connector.limits(&ann).await.unwrap().unwrap().max_characters, Some(70), "{start}");
    }
    mastodon.fake.script("/api/v2/instance", ResponseTemplate::new(404));
    mastodon.fake.script("/api/v1/instance", ResponseTemplate::new(404));
    assert!(matches!(connector.limits(&ann).await, Err(CallError::Transient(_))));
}
