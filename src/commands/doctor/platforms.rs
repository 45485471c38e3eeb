//! The applications at platforms, and what each platform still requires.

use crier_config::Config;
use crier_domain::platform::{ConnectTarget, Descriptor, Platform};
use crier_http::Guard;
use crier_platforms::ConnectorRegistry;
use crier_runtime::platforms_of;
use crier_store::{Store, applications};

use super::{Finding, SEE_ERRORS};

/// Returns a finding for each application, and findings for all platforms together.
pub async fn all(config: &Config, store: Option<&Store>) -> Vec<Finding> {
    let Some(store) = store else { return Vec::new() };
    let stored = match stored_platforms(store).await {
        Ok(stored) => stored,
        Err(error) => {
            let detail = format!("the applications cannot be read: {error}");
            return vec![Finding::failure("platforms", detail, SEE_ERRORS)];
        }
    };
    let registry = platforms_of(config, store, &Guard::new(config.guard.allowed_private_networks.clone()));
    let is_usable = |d: &&Descriptor| registry.is_configured(d.platform, stored.contains(&d.platform));
    let usable: Vec<&Descriptor> = registry.all().iter().filter(is_usable).collect();
    let mut findings = vec![Finding::ok("platforms", format!("can be connected: {}", names(&usable)))];
    findings.push(metrics(&registry, &usable));
    findings.extend(usable.iter().filter(|d| d.needs_application()).map(|d| application(config, &registry, d)));
    findings
}

/// Returns a finding that names the platforms that metrics are collected from, and those where this is disabled.
fn metrics(registry: &ConnectorRegistry, usable: &[&Descriptor]) -> Finding {
    let (read, off): (Vec<&Descriptor>, Vec<&Descriptor>) =
        usable.iter().filter(|d| d.capabilities.analytics).partition(|d| registry.collects_metrics(d.platform));
    let mut detail = format!("metrics are collected from: {}", names(&read));
    for descriptor in off {
        let key = descriptor.platform.as_str().to_uppercase();
        detail += &format!("; not from {} (set CRIER_{key}_ANALYTICS=true to collect them)", descriptor.platform);
    }
    Finding::ok("metrics", detail)
}

fn names(all: &[&Descriptor]) -> String {
    all.iter().map(|d| d.platform.as_str()).collect::<Vec<_>>().join(", ")
}

async fn stored_platforms(store: &Store) -> crier_store::Result<Vec<Platform>> {
    let listed = applications::list(&mut store.read().await?).await?;
    Ok(listed.into_iter().map(|application| application.platform).collect())
}

fn application(config: &Config, registry: &ConnectorRegistry, descriptor: &Descriptor) -> Finding {
    let platform = descriptor.platform;
    let callback = config.absolute(&format!("/connect/callback/{platform}"));
    let detail = format!("its callback URL at {} must be {callback}", descriptor.name);
    let connector = registry.get(platform);
    let gate = connector.as_ref().and_then(|connector| connector.oauth()?.gate(ConnectTarget::Default));
    match gate {
        Some(gate) => Finding::warning(platform.as_str(), detail, gate),
        None if config.public_url.scheme() != "https" => {
            let remedy = "most platforms accept only https; set CRIER_PUBLIC_URL to an https URL";
            Finding::warning(platform.as_str(), detail, remedy)
        }
        None => Finding::ok(platform.as_str(), detail),
    }
}
