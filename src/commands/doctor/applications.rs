//! Incomplete settings of applications and of the AI provider.

use crier_config::{Config, application_variables};
use crier_domain::platform::ConnectTarget;

use super::Finding;

/// Returns a finding for each application with an ID but no secret, or a secret but no ID.
pub fn incomplete(config: &Config) -> Vec<Finding> {
    let check = |(platform, settings): (&_, &crier_config::PlatformConfig)| {
        let targets = [ConnectTarget::Default, ConnectTarget::Page];
        targets.map(|target| {
            let missing = settings.missing_half(target)?;
            let variables = application_variables(*platform, target);
            let (set, missing) = (variables.get(1 - missing)?, variables.get(missing)?);
            let detail = format!("{set} is set without {missing}, so the application is not used");
            Some(Finding::warning(format!("{platform}_application"), detail, format!("set {missing}, or remove {set}")))
        })
    };
    config.platforms.iter().flat_map(check).flatten().collect()
}

pub fn ai(config: &Config) -> Finding {
    let ai = &config.ai;
    let models = [("texts", &ai.text_model), ("images", &ai.image_model)];
    let generated: Vec<&str> = models.iter().filter(|(_, model)| model.is_some()).map(|(what, _)| *what).collect();
    match (&ai.base_url, generated.as_slice()) {
        (None, []) if ai.api_key.is_none() => Finding::ok("ai", "not configured"),
        (None, _) => Finding::warning(
            "ai",
            "a model or a key is set without CRIER_AI_BASE_URL, so AI features are unavailable",
            "set CRIER_AI_BASE_URL, or remove the others",
        ),
        (Some(_), []) => Finding::warning(
            "ai",
            "CRIER_AI_BASE_URL is set without a model, so AI features are unavailable",
            "set CRIER_AI_TEXT_MODEL or CRIER_AI_IMAGE_MODEL",
        ),
        (Some(_), generated) => Finding::ok("ai", format!("generates {}", generated.join(" and "))),
    }
}
