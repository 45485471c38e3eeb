//! The operator's settings for each platform, and their defaults. `platforms.rs` has the keys.

use std::collections::BTreeMap;
use std::time::Duration;

use crier_domain::analytics::Metric;
use crier_domain::application::Application;
use crier_domain::catalogue::{self, daily_posts};
use crier_domain::platform::{ConnectTarget, Platform, VideoLimits};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;

/// One platform's settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlatformConfig {
    pub client_id: Option<String>,
    pub client_secret: Option<SecretString>,
    /// The second application, for pages, if the platform requires one.
    pub page_client_id: Option<String>,
    pub page_client_secret: Option<SecretString>,
    /// Replaces the host of the API and of the token endpoint.
    pub base_url: Option<String>,
    /// Replaces the directory of Bluesky's accounts.
    pub plc_url: Option<String>,
    /// Replaces Bluesky's video service.
    pub video_url: Option<String>,
    /// Replaces the host of the authorization page.
    pub auth_url: Option<String>,
    pub api_version: Option<String>,
    /// The daily limit of posts per account; 0 means unlimited.
    pub daily_posts: Option<u32>,
    /// Permissions that are requested in addition to those for publishing.
    pub scopes: Vec<String>,
    /// The same for pages, if the platform requires a second application; `None`: those of `scopes`.
    pub page_scopes: Option<Vec<String>>,
    /// The platform's names of metrics; they replace the built-in ones.
    pub metrics: Vec<(Metric, Vec<String>)>,
    /// Whether the inbox is disabled: messages are not read, and replies are not sent.
    pub no_inbox: bool,
    /// Whether metrics are read; `None`: if reading them is free.
    pub analytics: Option<bool>,
    /// The maximum size of a video, in bytes; it replaces the built-in one.
    pub video_max_bytes: Option<u64>,
    /// The maximum duration of a video, in milliseconds; it replaces the built-in one.
    pub video_max_ms: Option<u32>,
}

/// The settings of all platforms.
#[derive(Clone, Debug)]
pub struct PlatformsConfig {
    /// The time limit for a call to a platform.
    pub timeout: Duration,
    pub platforms: BTreeMap<Platform, PlatformConfig>,
}

impl Default for PlatformsConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), platforms: BTreeMap::new() }
    }
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} {message}")]
pub struct BadSetting {
    /// The variable's name, e.g. `CRIER_TELEGRAM_BASE_URL`.
    pub variable: String,
    /// The end of a sentence that begins with the variable's name; it says which values are valid.
    pub message: &'static str,
}

/// Returns the variables of an application: that of its id and that of its secret. `target` comes from
/// [`Platform::application_target`].
pub fn application_variables(platform: Platform, target: ConnectTarget) -> [String; 2] {
    let page = if target == ConnectTarget::Page { "PAGE_" } else { "" };
    let key = platform.as_str().to_uppercase();
    ["ID", "SECRET"].map(|part| format!("CRIER_{key}_{page}CLIENT_{part}"))
}

impl PlatformConfig {
    /// Returns the id and the secret of an application, each if it is set.
    fn parts(&self, target: ConnectTarget) -> (Option<&str>, Option<&SecretString>) {
        let (id, secret) = match target {
            ConnectTarget::Default => (&self.client_id, &self.client_secret),
            ConnectTarget::Page => (&self.page_client_id, &self.page_client_secret),
        };
        let id = id.as_deref().filter(|id| !id.trim().is_empty());
        (id, secret.as_ref().filter(|secret| !secret.expose_secret().trim().is_empty()))
    }

    /// Returns which half of an application is missing if the other half is set: 0 is the id, 1 the secret, as in
    /// [`application_variables`].
    pub fn missing_half(&self, target: ConnectTarget) -> Option<usize> {
        match self.parts(target) {
            (None, Some(_)) => Some(0),
            (Some(_), None) => Some(1),
            _ => None,
        }
    }

    /// Returns the application for a target, if its id and its secret are set. `target` comes from
    /// [`Platform::application_target`].
    pub fn application(&self, target: ConnectTarget) -> Option<Application> {
        let (id, secret) = self.parts(target);
        Some(Application { client_id: id?.to_owned(), client_secret: secret?.clone() })
    }

    /// Returns the permissions to request in addition to those for publishing. `target` comes from
    /// [`Platform::application_target`].
    pub fn further_scopes(&self, target: ConnectTarget) -> &[String] {
        match (target, &self.page_scopes) {
            (ConnectTarget::Page, Some(scopes)) => scopes,
            _ => &self.scopes,
        }
    }
}

impl PlatformsConfig {
    /// Returns the settings of a platform.
    pub fn of(&self, platform: Platform) -> &PlatformConfig {
        static DEFAULT: PlatformConfig = PlatformConfig {
            client_id: None,
            client_secret: None,
            page_client_id: None,
            page_client_secret: None,
            base_url: None,
            plc_url: None,
            video_url: None,
            auth_url: None,
            api_version: None,
            daily_posts: None,
            scopes: Vec::new(),
            page_scopes: None,
            metrics: Vec::new(),
            no_inbox: false,
            analytics: None,
            video_max_bytes: None,
            video_max_ms: None,
        };
        self.platforms.get(&platform).unwrap_or(&DEFAULT)
    }

    /// Returns the daily limit of posts per account; `None` means unlimited.
    pub fn daily_posts(&self, platform: Platform) -> Option<u32> {
        self.of(platform).daily_posts.or(daily_posts(platform)).filter(|cap| *cap > 0)
    }

    /// Returns the limits of videos that the operator has set for a platform.
    pub fn video_limits(&self, platform: Platform) -> VideoLimits {
        let config = self.of(platform);
        VideoLimits { max_bytes: config.video_max_bytes, max_duration_ms: config.video_max_ms }
    }

    /// Returns whether the metrics of a platform are read. If reading them costs money (X), it must be enabled
    /// explicitly.
    pub fn collects_metrics(&self, platform: Platform) -> bool {
        let is_free = platform != Platform::Twitter;
        catalogue::descriptor(platform).capabilities.analytics && self.of(platform).analytics.unwrap_or(is_free)
    }

    /// Returns the platforms whose metrics are read.
    pub fn with_metrics(&self) -> Vec<Platform> {
        Platform::ALL.iter().copied().filter(|platform| self.collects_metrics(*platform)).collect()
    }

    /// Returns a copy with a daily limit for a platform.
    pub fn with_daily_posts(mut self, platform: Platform, cap: u32) -> Self {
        self.platforms.entry(platform).or_default().daily_posts = Some(cap);
        self
    }

    /// Returns a copy with a base URL for a platform.
    pub fn with_base_url(mut self, platform: Platform, base_url: impl Into<String>) -> Self {
        self.platforms.entry(platform).or_default().base_url = Some(base_url.into());
        self
    }

    /// Checks every URL. Connectors rely on this check.
    pub fn validate(&self) -> Result<(), BadSetting> {
        for (platform, config) in &self.platforms {
            for (what, value) in [
                ("BASE_URL", &config.base_url),
                ("AUTH_URL", &config.auth_url),
                ("PLC_URL", &config.plc_url),
                ("VIDEO_URL", &config.video_url),
            ] {
                let Some(value) = value else { continue };
                if base(value).is_none() {
                    let variable = format!("CRIER_{}_{what}", platform.as_str().to_uppercase());
                    return Err(BadSetting { variable, message: "must be an http:// or https:// URL" });
                }
            }
        }
        Ok(())
    }

    /// Returns the host of a platform's authorization page without a trailing slash; `default` if it is unset or
    /// invalid.
    pub fn auth_url(&self, platform: Platform, default: &str) -> String {
        self.of(platform).auth_url.as_deref().and_then(base).unwrap_or_else(|| default.to_owned())
    }

    /// Returns the URL of Bluesky's directory without a trailing slash; `default` if it is unset or invalid.
    pub fn plc_url(&self, default: &str) -> String {
        self.of(Platform::Bluesky).plc_url.as_deref().and_then(base).unwrap_or_else(|| default.to_owned())
    }

    /// Returns the URL of Bluesky's video service without a trailing slash; `default` if it is unset or invalid.
    pub fn video_url(&self, default: &str) -> String {
        self.of(Platform::Bluesky).video_url.as_deref().and_then(base).unwrap_or_else(|| default.to_owned())
    }

    /// Returns the base URL of a platform without a trailing slash; `default` if it is unset or invalid.
    pub fn base_url(&self, platform: Platform, default: &str) -> String {
        self.of(platform).base_url.as_deref().and_then(base).unwrap_or_else(|| default.to_owned())
    }
}

/// Normalizes a base URL; returns `None` if it is invalid.
fn base(text: &str) -> Option<String> {
    let url = Url::parse(text.trim()).ok()?;
    let usable = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
    usable.then(|| url.as_str().trim_end_matches('/').to_owned())
}
