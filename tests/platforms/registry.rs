//! The catalogue and the registry, against the contract's rules for descriptors.

use std::sync::Arc;

use async_trait::async_trait;
use crier_base::clock::Clock;
use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::catalogue;
use crier_domain::platform::{ConnectMethod, ConversationType, Descriptor, Mode, Platform};
use crier_platforms::inbox::ReplyThread;
use crier_platforms::{
    CallError, ConnectError, Connected, Connector, ConnectorAccount, ConnectorRegistry, ImageTransfer, OutgoingPost,
    Published, ReconcileResult, RefreshedTokens, Secrets, options, text,
};
use secrecy::SecretString;
use serde_json::{Map, json};

use super::support::{account, clients, now, unpublish_post};

fn registry(config: PlatformsConfig) -> ConnectorRegistry {
    ConnectorRegistry::new(config, &clients(), &Clock::manual(now()))
}

#[test]
fn descriptors_follow_the_platform_order() {
    let registry = registry(PlatformsConfig::default());
    let listed: Vec<Platform> = registry.all().iter().map(|d| d.platform).collect();
    assert_eq!(listed, Platform::ALL);
    for &platform in Platform::ALL {
        let descriptor = registry.descriptor(platform);
        assert_eq!(descriptor.platform, platform);
        let by_form = descriptor.mode == Mode::SelfConnect;
        assert_eq!(descriptor.connect_method == ConnectMethod::Credentials, by_form, "{platform}");
        assert_eq!(!descriptor.credential_fields.is_empty(), by_form, "{platform}");
        let media = &descriptor.capabilities.media;
        // A platform without images may have covers of videos.
        let has_images = media.max_images > 0 || options::has(platform, options::COVER_MEDIA_ID);
        assert_eq!(has_images, !media.mime_types.is_empty(), "{platform}");
    }
}

#[test]
fn modes_and_fields_match_the_contract() {
    let of = |mode| Platform::ALL.iter().filter(move |&&p| catalogue::descriptor(p).mode == mode).count();
    assert_eq!((of(Mode::SelfConnect), of(Mode::SelfConnectOauth), of(Mode::Oauth)), (5, 2, 11));
    let fields = |platform| -> Vec<String> {
        let shown = |f: &crier_domain::platform::CredentialField| {
            format!("{} {}{}", f.name, f.field_type, if f.required { "" } else { "?" })
        };
        catalogue::descriptor(platform).credential_fields.iter().map(shown).collect()
    };
    assert_eq!(fields(Platform::Telegram), ["bot_token password", "chat_id text"]);
    assert_eq!(fields(Platform::Bluesky), ["identifier text", "app_password password", "service url?"]);
    assert_eq!(fields(Platform::Wordpress), ["site_url url", "username text", "application_password password"]);
    assert_eq!(fields(Platform::Woocommerce), ["store_url url", "consumer_key password", "consumer_secret password"]);
    assert_eq!(fields(Platform::Sandbox), ["handle text"]);
    let sandbox = serde_json::to_value(catalogue::descriptor(Platform::Sandbox)).unwrap();
    assert_eq!(sandbox["capabilities"]["text"]["max"], json!(5000));
    assert_eq!(sandbox["capabilities"]["replies"], json!(["comment"]));
    assert_eq!(sandbox["connect_method"], json!("credentials"));
}

/// The catalogue lists the kinds of messages that the connectors read and reply to.
#[test]
fn inboxes_match_the_catalogue() {
    let registry = registry(PlatformsConfig::default());
    for connector in Platform::ALL.iter().filter_map(|platform| registry.get(*platform)) {
        let Descriptor { platform, capabilities, .. } = connector.descriptor();
        let Some(inbox) = connector.inbox() else {
            assert!(capabilities.inbox.is_empty() && capabilities.replies.is_empty(), "{platform} has no inbox");
            continue;
        };
        assert!(!inbox.streams().is_empty() && !capabilities.inbox.is_empty(), "{platform}");
        for &kind in ConversationType::ALL {
            let thread = ReplyThread {
                kind,
                thread_id: "1".to_owned(),
                participant_external_id: None,
                subject_external_id: None,
                last_inbound_at: Some(now()),
                limits: None,
                context: Map::new(),
            };
            let is_read = capabilities.inbox.contains(&kind);
            let accepts_replies = is_read && inbox.rejection(&thread, now()).is_none();
            assert_eq!(capabilities.replies.contains(&kind), accepts_replies, "{platform} {kind}");
        }
    }
}

#[test]
fn connectors_look_posts_up_where_the_platform_can() {
    let registry = registry(PlatformsConfig::default());
    for connector in Platform::ALL.iter().filter_map(|platform| registry.get(*platform)) {
        let platform = connector.descriptor().platform;
        assert_eq!(connector.can_reconcile(), platform.has_post_lookup(), "{platform}");
    }
}

#[test]
fn missing_required_options_are_listed() {
    let reddit = catalogue::descriptor(Platform::Reddit);
    let options = Map::from_iter([("subreddit".to_owned(), json!("rust")), ("title".to_owned(), json!(" "))]);
    assert_eq!(text::missing_options(reddit, &Map::new()), ["subreddit", "title"]);
    assert_eq!(text::missing_options(reddit, &options), ["title"]);
}

#[test]
fn a_platform_is_configured_only_with_a_connector() {
    let mut config = PlatformsConfig::default();
    let application = |id: &str, secret: Option<&str>| PlatformConfig {
        client_id: Some(id.to_owned()),
        client_secret: secret.map(SecretString::from),
        ..PlatformConfig::default()
    };
    config.platforms.insert(Platform::Tiktok, application("id", Some("secret")));
    config.platforms.insert(Platform::Twitter, application("id", Some("secret")));
    config.platforms.insert(Platform::Reddit, application(" ", Some("secret")));
    // An incomplete application counts as none.
    config.platforms.insert(Platform::Pinterest, application("id", None));
    config.platforms.insert(Platform::Tumblr, application("id", Some("")));
    let mut registry = registry(config);
    for (platform, configured) in [
        (Platform::Telegram, true),
        (Platform::Bluesky, true),
        (Platform::Mastodon, true),
        (Platform::Shopify, false),
        (Platform::Tiktok, true),
        (Platform::Twitter, true),
        (Platform::Reddit, false),
        (Platform::Pinterest, false),
        (Platform::Tumblr, false),
        (Platform::Facebook, false),
        (Platform::Sandbox, false),
    ] {
        assert_eq!(registry.is_configured(platform, false), configured, "{platform}");
    }
    assert!(registry.get(Platform::Sandbox).is_none());
    registry.register(Arc::new(Sandbox));
    assert!(registry.is_configured(Platform::Sandbox, false) && registry.get(Platform::Sandbox).is_some());
}

#[test]
fn an_inbox_can_be_switched_off() {
    let mut config = PlatformsConfig::default();
    config.platforms.insert(Platform::Twitter, PlatformConfig { no_inbox: true, ..PlatformConfig::default() });
    let registry = registry(config);
    let has_inbox = |platform| registry.get(platform).is_some_and(|connector| connector.inbox().is_some());
    assert!(!has_inbox(Platform::Twitter) && has_inbox(Platform::Mastodon));
}

/// X charges for reads.
#[test]
fn metrics_are_collected_where_that_is_free_or_switched_on() {
    let read = |analytics| {
        let settings = PlatformConfig { analytics, ..PlatformConfig::default() };
        let platforms = [Platform::Twitter, Platform::Mastodon, Platform::Shopify];
        let config = PlatformsConfig {
            platforms: platforms.map(|platform| (platform, settings.clone())).into(),
            ..PlatformsConfig::default()
        };
        let with_metrics = config.with_metrics();
        let registry = registry(config);
        platforms.map(|platform| {
            let is_read = registry.collects_metrics(platform);
            let connector = registry.get(platform).unwrap();
            assert_eq!((connector.analytics().is_some(), with_metrics.contains(&platform)), (is_read, is_read));
            is_read
        })
    };
    assert_eq!(read(None), [false, true, false]);
    assert_eq!(read(Some(true)), [true, true, false], "Shopify gives none");
    assert_eq!(read(Some(false)), [false; 3]);
}

#[test]
fn platforms_that_download_images_take_them_by_url() {
    let registry = registry(PlatformsConfig::default());
    let downloads = |platform: &&Platform| catalogue::descriptor(**platform).capabilities.media.downloaded;
    let connectors = Platform::ALL.iter().filter(downloads).filter_map(|platform| registry.get(*platform));
    let transfers: Vec<ImageTransfer> = connectors.map(|connector| connector.image_transfer()).collect();
    assert!(transfers.len() >= 3 && transfers.iter().all(|one| *one == ImageTransfer::Fetched), "{transfers:?}");
}

#[tokio::test]
async fn no_platform_is_called_to_delete_a_post_without_an_id() {
    let registry = registry(PlatformsConfig::default());
    for connector in Platform::ALL.iter().filter_map(|platform| registry.get(*platform)) {
        for id in ["", " "] {
            let error = connector.unpublish(&account("1", json!({})), &unpublish_post(id)).await.unwrap_err();
            let CallError::Permanent(failure) = &error else { panic!("{}: {error:?}", connector.descriptor().name) };
            assert_eq!(failure.code, "external_id_unknown", "{}", connector.descriptor().name);
        }
    }
}

#[test]
fn an_invalid_base_url_is_reported_by_variable() {
    let good = PlatformsConfig::default().with_base_url(Platform::Telegram, "http://127.0.0.1:9/x/");
    assert_eq!(good.validate(), Ok(()));
    for bad in ["telegram", "ftp://example.com", "https://", "https://example.com/?a=b"] {
        let config = PlatformsConfig::default().with_base_url(Platform::GoogleBusiness, bad);
        let error = config.validate().unwrap_err();
        assert_eq!(error.to_string(), "CRIER_GOOGLE_BUSINESS_BASE_URL must be an http:// or https:// URL", "{bad}");
    }
}

#[test]
fn secrets_are_redacted_and_keep_other_fields() {
    let secrets = super::support::secrets(json!({ "a": "1", "b": "2" }));
    assert_eq!(format!("{secrets:?}"), "Secrets([REDACTED])");
    assert_eq!(
        super::support::shown(&secrets.with(&[("b", "3"), ("c", "4")])),
        json!({ "a": "1", "b": "3", "c": "4" })
    );
    assert!(matches!(secrets.require("d"), Err(CallError::Reauth(_))));
    let published = Published { secrets: Some(secrets), ..Published::new("1", None) };
    assert_eq!(serde_json::to_value(&published).unwrap(), json!({ "external_id": "1", "url": null }));
}

struct Sandbox;

#[async_trait]
impl Connector for Sandbox {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Sandbox)
    }

    async fn connect(&self, _: i64, _: &Secrets) -> Result<Connected, ConnectError> {
        Err(ConnectError::Rejected(String::new()))
    }

    async fn refresh(&self, _: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        Err(CallError::network(""))
    }

    fn can_reconcile(&self) -> bool {
        false
    }

    async fn publish(&self, _: &ConnectorAccount, _: &OutgoingPost) -> Result<Published, CallError> {
        Err(CallError::network(""))
    }

    async fn reconcile(&self, _: &ConnectorAccount, _: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        Ok(ReconcileResult::Unsupported)
    }
}

#[test]
fn descriptors_say_which_platforms_report_metrics() {
    let mut config = PlatformsConfig::default();
    config.platforms.insert(Platform::Twitter, PlatformConfig { analytics: Some(true), ..PlatformConfig::default() });
    let registry = registry(config);
    for descriptor in registry.all() {
        if let Some(connector) = registry.get(descriptor.platform) {
            assert_eq!(connector.analytics().is_some(), descriptor.capabilities.analytics, "{}", descriptor.platform);
        }
    }
}
