//! What the operator sets for the platforms: `CRIER_<PLATFORM>_CLIENT_ID`, `_CLIENT_SECRET`, `_BASE_URL`, `_AUTH_URL`,
//! `_API_VERSION`, `_DAILY_POSTS`, and `CRIER_PLATFORM_TIMEOUT`. Everything has a default: the platform's own address and version.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use url::Url;

use super::catalogue::daily_posts;
use crate::domain::platform::Platform;

/// One platform's settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlatformConfig {
    pub client_id: Option<String>,
    pub client_secret: Option<SecretString>,
    /// Stands for the API's and the token's host.
    pub base_url: Option<String>,
    /// Stands for the page a person sees.
    pub auth_url: Option<String>,
    pub api_version: Option<String>,
    /// How many posts a day on one account; 0: no cap.
    pub daily_posts: Option<u32>,
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

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} {message}")]
pub struct BadSetting {
    /// The variable's name, `CRIER_TELEGRAM_BASE_URL`.
    pub variable: String,
    /// Completes "The variable …", saying what would be right.
    pub message: &'static str,
}

impl PlatformsConfig {
    /// The settings of a platform; empty where nothing was set.
    pub fn of(&self, platform: Platform) -> &PlatformConfig {
        static NOTHING: PlatformConfig = PlatformConfig {
            client_id: None,
            client_secret: None,
            base_url: None,
            auth_url: None,
            api_version: None,
            daily_posts: None,
        };
        self.platforms.get(&platform).unwrap_or(&NOTHING)
    }

    /// How many posts a day may go out on one account; `None`: any number.
    pub fn daily_posts(&self, platform: Platform) -> Option<u32> {
        self.of(platform).daily_posts.or(daily_posts(platform)).filter(|cap| *cap > 0)
    }

    /// The same with a cap for a platform.
    pub fn with_daily_posts(mut self, platform: Platform, cap: u32) -> Self {
        self.platforms.entry(platform).or_default().daily_posts = Some(cap);
        self
    }

    /// The same with a base URL for a platform.
    pub fn with_base_url(mut self, platform: Platform, base_url: impl Into<String>) -> Self {
        self.platforms.entry(platform).or_default().base_url = Some(base_url.into());
        self
    }

    /// Checks every address. Connectors take what passed here for granted.
    pub fn validate(&self) -> Result<(), BadSetting> {
        for (platform, config) in &self.platforms {
            for (what, value) in [("BASE_URL", &config.base_url), ("AUTH_URL", &config.auth_url)] {
                let Some(value) = value else { continue };
                if base(value).is_none() {
                    let variable = format!("CRIER_{}_{what}", platform.as_str().to_uppercase());
                    return Err(BadSetting { variable, message: "must be an http:// or https:// URL" });
                }
            }
        }
        Ok(())
    }

    /// The base URL of a platform without a slash at its end, `default` where none (or none that can be used) is set.
    pub(super) fn base_url(&self, platform: Platform, default: &str) -> String {
        self.of(platform).base_url.as_deref().and_then(base).unwrap_or_else(|| default.to_owned())
    }
}

/// A base URL in its normal form, `None` where it is none.
fn base(text: &str) -> Option<String> {
    let url = Url::parse(text.trim()).ok()?;
    let usable = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
    usable.then(|| url.as_str().trim_end_matches('/').to_owned())
}
