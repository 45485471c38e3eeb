//! The connectors that this installation has, by platform.
//!
//! **To add one:** a line in [`Registry::new`], or [`Registry::register`] where it needs what is not known here (the
//! sandbox needs the database).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::address::AddressCheck;
use super::bluesky::Bluesky;
use super::checked::Checked;
use super::telegram::Telegram;
use super::woocommerce::Woocommerce;
use super::wordpress::Wordpress;
use super::{Connector, PlatformsConfig, catalogue};
use crate::clock::Clock;
use crate::domain::platform::{Descriptor, Mode, Platform};
use crate::http::HttpClient;

/// What connectors call with.
#[derive(Clone)]
pub struct Clients {
    /// For the addresses that the operator set, and the platforms' own.
    pub trusted: HttpClient,
    /// For the addresses that users type: sites, stores, personal data servers.
    pub guarded: HttpClient,
    /// Judges such an address when it is saved.
    pub addresses: Arc<dyn AddressCheck>,
}

/// The connectors, and what is known of every platform.
pub struct Registry {
    connectors: BTreeMap<Platform, Arc<dyn Connector>>,
    config: PlatformsConfig,
}

impl Registry {
    /// With every connector that needs nothing but configuration and HTTP.
    pub fn new(config: PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        let mut registry = Self { connectors: BTreeMap::new(), config };
        registry.register(Arc::new(Telegram::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Bluesky::new(&registry.config, clients, clock)));
        registry.register(Arc::new(Wordpress::new(clients, clock)));
        registry.register(Arc::new(Woocommerce::new(clients, clock)));
        registry
    }

    /// Adds a connector, in place of the one that its platform had. What it gives is checked from here on.
    pub fn register(&mut self, connector: Arc<dyn Connector>) {
        self.connectors.insert(connector.descriptor().platform, Arc::new(Checked(connector)));
    }

    /// The connector of a platform; `None` where Crier cannot publish to it.
    pub fn get(&self, platform: Platform) -> Option<Arc<dyn Connector>> {
        self.connectors.get(&platform).cloned()
    }

    pub fn descriptor(&self, platform: Platform) -> &'static Descriptor {
        catalogue::descriptor(platform)
    }

    /// Whether accounts of this platform can be connected here: an OAuth platform needs its connector and the operator's client id, the
    /// sandbox has to be switched on, all others need nothing.
    pub fn configured(&self, platform: Platform) -> bool {
        match catalogue::descriptor(platform).mode {
            Mode::Oauth => {
                let client_id = self.config.of(platform).client_id.as_deref();
                client_id.is_some_and(|id| !id.trim().is_empty()) && self.connectors.contains_key(&platform)
            }
            Mode::SelfConnect => platform != Platform::Sandbox || self.connectors.contains_key(&platform),
            Mode::SelfConnectOauth => true,
        }
    }

    /// How many posts a day may go out on one account of the platform; `None`: any number.
    pub fn daily_posts(&self, platform: Platform) -> Option<u32> {
        self.config.daily_posts(platform)
    }

    /// Every platform's descriptor, in the order of [`Platform::ALL`].
    pub fn all(&self) -> &'static [Descriptor] {
        catalogue::all()
    }
}
