//! Operator settings for the platforms: `CRIER_<PLATFORM>_CLIENT_ID`, `_CLIENT_SECRET`, `_BASE_URL`, `_AUTH_URL`,
//! `_API_VERSION`, `_DAILY_POSTS`, for Bluesky `_PLC_URL`, for LinkedIn and Instagram `_PAGE_CLIENT_ID`, `_PAGE_CLIENT_SECRET` and
//! `_PAGE_SCOPES`, and `CRIER_PLATFORM_TIMEOUT`. All have defaults: the platform's own address and version.

use std::collections::BTreeMap;
use std::time::Duration;

use crier_domain::analytics::Figure;
use crier_domain::application::Application;
use crier_domain::catalogue::{self, daily_posts};
use crier_domain::platform::{ConnectTarget, Platform};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;

/// One platform's settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlatformConfig {
    pub client_id: Option<String>,
    pub client_secret: Option<SecretString>,
    /// The second application, for pages, where the platform wants one.
    pub page_client_id: Option<String>,
    pub page_client_secret: Option<SecretString>,
    /// Replaces the host of the API and of the token endpoint.
    pub base_url: Option<String>,
    /// Replaces the directory of Bluesky's accounts.
    pub plc_url: Option<String>,
    /// Replaces the address of the authorization page.
    pub auth_url: Option<String>,
    pub api_version: Option<String>,
    /// The daily limit of posts per account; 0 means unlimited.
    pub daily_posts: Option<u32>,
    /// Permissions that people are asked for beyond those that a publish needs.
    pub scopes: Vec<String>,
    /// The same for pages, where the platform wants a second application; `None`: those of `scopes`.
    pub page_scopes: Option<Vec<String>>,
    /// The names of metrics, in place of those of `metrics.rs`.
    pub metrics: Vec<(Figure, Vec<String>)>,
    /// Messages are neither read nor answered.
    pub no_inbox: bool,
    /// Whether figures are read; unset: where that is free.
    pub analytics: Option<bool>,
}

/// All platforms' settings.
#[derive(Clone, Debug)]
pub struct PlatformsConfig {
    /// The deadline of one call to a platform.
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
    /// Completes "The variable …" with what is valid.
    pub message: &'static str,
}

/// Returns the variables of an application: that of its id and that of its secret. `target`: of
/// [`Platform::application_target`].
pub fn application_variables(platform: Platform, target: ConnectTarget) -> [String; 2] {
    let page = if target == ConnectTarget::Page { "PAGE_" } else { "" };
    let key = platform.as_str().to_uppercase();
    ["ID", "SECRET"].map(|part| format!("CRIER_{key}_{page}CLIENT_{part}"))
}

impl PlatformConfig {
    /// Returns the id and the secret of an application, as far as they are set.
    fn parts(&self, target: ConnectTarget) -> (Option<&str>, Option<&SecretString>) {
        let (id, secret) = match target {
            ConnectTarget::Default => (&self.client_id, &self.client_secret),
            ConnectTarget::Page => (&self.page_client_id, &self.page_client_secret),
        };
        let id = id.as_deref().filter(|id| !id.trim().is_empty());
        (id, secret.as_ref().filter(|secret| !secret.expose_secret().trim().is_empty()))
    }

    /// Returns which half of an application is missing if the other one is set: 0 is the id, 1 the secret, as in
    /// [`application_variables`].
    pub fn missing_half(&self, target: ConnectTarget) -> Option<usize> {
        match self.parts(target) {
            (None, Some(_)) => Some(0),
            (Some(_), None) => Some(1),
            _ => None,
        }
    }

    /// Returns the application for a target, if its id and its secret are set. `target`: of [`Platform::application_target`].
    pub fn application(&self, target: ConnectTarget) -> Option<Application> {
        let (id, secret) = self.parts(target);
        Some(Application { client_id: id?.to_owned(), client_secret: secret?.clone() })
    }

    /// Returns the permissions to ask for beyond those that a publish needs. `target`: of
    /// [`Platform::application_target`].
    pub fn further_scopes(&self, target: ConnectTarget) -> &[String] {
        match (target, &self.page_scopes) {
            (ConnectTarget::Page, Some(scopes)) => scopes,
            _ => &self.scopes,
        }
    }
}

impl PlatformsConfig {
    /// Returns the settings of a platform; empty if nothing was set.
    pub fn of(&self, platform: Platform) -> &PlatformConfig {
        static NOTHING: PlatformConfig = PlatformConfig {
            client_id: None,
            client_secret: None,
            page_client_id: None,
            page_client_secret: None,
            base_url: None,
            plc_url: None,
            auth_url: None,
            api_version: None,
            daily_posts: None,
            scopes: Vec::new(),
            page_scopes: None,
            metrics: Vec::new(),
            no_inbox: false,
            analytics: None,
        };
        self.platforms.get(&platform).unwrap_or(&NOTHING)
    }

    /// Returns the daily limit of posts per account; `None` means unlimited.
    pub fn daily_posts(&self, platform: Platform) -> Option<u32> {
        self.of(platform).daily_posts.or(daily_posts(platform)).filter(|cap| *cap > 0)
    }

    /// Returns whether the figures of a platform are read: those that cost the operator money only where that was set.
    pub fn reads_figures(&self, platform: Platform) -> bool {
        let is_free = platform != Platform::Twitter;
        catalogue::descriptor(platform).capabilities.analytics && self.of(platform).analytics.unwrap_or(is_free)
    }

    /// Returns the platforms whose figures are read.
    pub fn with_figures(&self) -> Vec<Platform> {
        Platform::ALL.iter().copied().filter(|platform| self.reads_figures(*platform)).collect()
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

    /// Checks every address. Connectors rely on this check.
    pub fn validate(&self) -> Result<(), BadSetting> {
        for (platform, config) in &self.platforms {
            for (what, value) in
                [("BASE_URL", &config.base_url), ("AUTH_URL", &config.auth_url), ("PLC_URL", &config.plc_url)]
            {
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

    /// Returns the address of Bluesky's directory without a trailing slash; `default` if it is unset or invalid.
    pub fn plc_url(&self, default: &str) -> String {
        self.of(Platform::Bluesky).plc_url.as_deref().and_then(base).unwrap_or_else(|| default.to_owned())
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
