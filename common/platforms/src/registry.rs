//! The connectors of this installation, by platform.
//!
//! **To add a connector:** add a line to [`ConnectorRegistry::new`], or call [`ConnectorRegistry::register`] if the
//! connector needs something that is not available there (the sandbox needs its data).

use std::collections::BTreeMap;
use std::sync::Arc;

use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::application::Application;
use crier_domain::catalogue;
use crier_domain::platform::{ConnectTarget, Descriptor, Mode, Platform, VideoLimits};
use crier_http::HttpClient;

use super::address::UrlCheck;
use super::bluesky::Bluesky;
use super::facebook::Facebook;
use super::google_business::GoogleBusiness;
use super::instagram::Instagram;
use super::linkedin::Linkedin;
use super::mastodon::Mastodon;
use super::pinterest::Pinterest;
use super::reddit::Reddit;
use super::sanitized::{EnabledFeatures, SanitizingConnector};
use super::shopify::Shopify;
use super::telegram::Telegram;
use super::threads::Threads;
use super::tiktok::Tiktok;
use super::tumblr::Tumblr;
use super::twitter::Twitter;
use super::woocommerce::Woocommerce;
use super::wordpress::Wordpress;
use super::youtube::Youtube;

use super::Connector;

/// The HTTP clients and the URL check that connectors use.
#[derive(Clone)]
pub struct Clients {
    /// For platform APIs and URLs set by the operator.
    pub trusted: HttpClient,
    /// For URLs that users type: sites, stores, personal data servers.
    pub guarded: HttpClient,
    /// Checks a typed URL when it is saved.
    pub addresses: Arc<dyn UrlCheck>,
}

/// The connectors, and the settings of every platform.
pub struct ConnectorRegistry {
    connectors: BTreeMap<Platform, Arc<dyn Connector>>,
    config: PlatformsConfig,
}

impl ConnectorRegistry {
    /// Creates a registry with every connector that needs only configuration and HTTP.
    pub fn new(config: PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        let mut registry = Self { connectors: BTreeMap::new(), config };
        registry.register(Arc::new(Telegram::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Bluesky::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Wordpress::new(clients, clock)));
        registry.register(Arc::new(Woocommerce::new(clients, clock)));
        registry.register(Arc::new(Mastodon::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Shopify::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Facebook::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Instagram::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Threads::new(&registry.config, clients, clock)));
        registry.register(Arc::new(GoogleBusiness::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Reddit::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Linkedin::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Pinterest::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Tiktok::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Tumblr::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Twitter::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Youtube::new(&registry.config, clients, clock)));
        registry
    }

    /// Adds a connector, replacing the platform's previous one. Its results are sanitized.
    pub fn register(&mut self, connector: Arc<dyn Connector>) {
        let platform = connector.descriptor().platform;
        let enabled = EnabledFeatures { inbox: self.has_inbox(platform), analytics: self.collects_metrics(platform) };
        self.connectors.insert(platform, Arc::new(SanitizingConnector(connector, enabled)));
    }

    /// Returns the connector of a platform; `None` if Crier cannot publish to it.
    pub fn get(&self, platform: Platform) -> Option<Arc<dyn Connector>> {
        self.connectors.get(&platform).cloned()
    }

    pub fn descriptor(&self, platform: Platform) -> &'static Descriptor {
        catalogue::descriptor(platform)
    }

    /// Returns whether accounts of this platform can be connected. A browser connect needs the connector and, for most
    /// platforms, an application, from the variables or set by an operator (`has_application`). The sandbox must be
    /// enabled. All others need nothing.
    pub fn is_configured(&self, platform: Platform, has_application: bool) -> bool {
        let has_connector = self.connectors.contains_key(&platform);
        let descriptor = catalogue::descriptor(platform);
        match descriptor.mode {
            Mode::SelfConnect => platform != Platform::Sandbox || has_connector,
            Mode::Oauth | Mode::SelfConnectOauth => {
                let targets = [ConnectTarget::Default, ConnectTarget::Page];
                let is_set = targets.iter().any(|target| self.application(platform, *target).is_some());
                let has_application = has_application || is_set;
                has_connector && (has_application || !descriptor.needs_application())
            }
        }
    }

    /// Returns the application from the variables for a target.
    pub fn application(&self, platform: Platform, target: ConnectTarget) -> Option<Application> {
        self.config.of(platform).application(platform.application_target(target))
    }

    /// Returns the scopes that the operator requests in addition to those needed for publishing, for a target.
    /// Applications that Crier registers itself have none.
    pub fn further_scopes(&self, platform: Platform, target: ConnectTarget) -> &[String] {
        match catalogue::descriptor(platform).needs_application() {
            true => self.config.of(platform).further_scopes(platform.application_target(target)),
            false => &[],
        }
    }

    /// Returns the daily limit of posts per account. `None` means unlimited.
    pub fn daily_posts(&self, platform: Platform) -> Option<u32> {
        self.config.daily_posts(platform)
    }

    /// Returns the limits of videos that the operator has set for a platform.
    pub fn video_limits(&self, platform: Platform) -> VideoLimits {
        self.config.video_limits(platform)
    }

    /// Returns whether the inbox of a platform is enabled. Its descriptor lists what it supports.
    pub fn has_inbox(&self, platform: Platform) -> bool {
        !self.config.of(platform).no_inbox
    }

    /// Returns whether metrics of a platform are collected.
    pub fn collects_metrics(&self, platform: Platform) -> bool {
        self.config.collects_metrics(platform)
    }

    /// Returns every platform's descriptor, in the order of [`Platform::ALL`].
    pub fn all(&self) -> &'static [Descriptor] {
        catalogue::all()
    }
}
