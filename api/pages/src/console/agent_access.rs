//! The choices of access for agents, which the consent page and the page **Agents** share, and of brands, which the page
//! **API keys** has too.

use crier_domain::access::{AgentPreset, Role, Scope, Scopes};
use crier_endpoints::app::App;
use crier_endpoints::error::{ApiError, ErrorCode, Result};

use super::shared::Choice;
use super::visit::Visit;

/// The form value for all brands.
const ALL_BRANDS: &str = "all";

/// Fails if the operator does not let agents use this installation.
pub fn check_is_on(app: &App) -> Result<()> {
    let message = "Agents cannot use this installation. Its operator can enable them with CRIER_MCP=true.";
    if app.has_mcp { Ok(()) } else { Err(ApiError::new(ErrorCode::NotFound, message)) }
}

/// Returns the presets to choose from, for an application that requests these scopes.
pub fn presets(requested: &Scopes, chosen: Option<AgentPreset>) -> Vec<Choice> {
    let offered = AgentPreset::ALL.iter().copied().filter(|preset| is_offered(*preset, requested));
    let choice = |preset: AgentPreset| {
        let scopes = preset.scopes().intersection(requested);
        let hint = format!("{} {}", purpose(preset), in_words(&scopes));
        Choice { hint, ..Choice::new(preset.as_str(), preset.label(), chosen == Some(preset)) }
    };
    offered.map(choice).collect()
}

/// Returns whether an application that requests these scopes can have a preset.
pub fn is_offered(preset: AgentPreset, requested: &Scopes) -> bool {
    let has_any = !preset.scopes().intersection(requested).is_empty();
    let writes = match preset {
        AgentPreset::ReadOnly => true,
        AgentPreset::Drafts | AgentPreset::Publish => requested.has(Scope::PostsWrite),
    };
    has_any && writes
}

const fn purpose(preset: AgentPreset) -> &'static str {
    match preset {
        AgentPreset::ReadOnly => "It cannot change anything.",
        AgentPreset::Drafts => {
            "It writes drafts for a person to publish. It cannot schedule or publish. It cannot read the inbox or feeds, \
             because text by strangers could trick it into sending your data to them."
        }
        AgentPreset::Publish => {
            "It schedules, publishes and deletes posts without asking you. It cannot read the inbox or feeds, because \
             text by strangers could trick it into publishing what they want."
        }
    }
}

/// Returns the name of the access that a grant with these scopes has.
pub fn label(scopes: &Scopes, role_limit: Option<Role>) -> &'static str {
    let preset = match role_limit {
        Some(_) => AgentPreset::Drafts,
        None if scopes.iter().all(|scope| verb(scope).1 == "read") => AgentPreset::ReadOnly,
        None => AgentPreset::Publish,
    };
    preset.label()
}

/// Returns scopes as a text: "Reads: brands, posts. Writes: posts, media."
pub fn in_words(scopes: &Scopes) -> String {
    let parts = [("read", "Reads"), ("write", "Writes")].into_iter().filter_map(|(wanted, label)| {
        let kinds = scopes.iter().map(verb).filter(|(_, verb)| *verb == wanted);
        let names: Vec<String> = kinds.map(|(kind, _)| noun(kind)).collect();
        (!names.is_empty()).then(|| format!("{label}: {}.", names.join(", ")))
    });
    parts.collect::<Vec<_>>().join(" ")
}

/// Returns the kind of resource and the verb of a scope.
fn verb(scope: Scope) -> (&'static str, &'static str) {
    scope.as_str().split_once(':').unwrap_or((scope.as_str(), ""))
}

/// Returns the name of a kind of resource as a label.
pub fn kind_label(kind: &'static str) -> &'static str {
    match kind {
        "brands" => "Brands",
        "accounts" => "Accounts",
        "posts" => "Posts",
        "media" => "Media",
        "analytics" => "Analytics",
        "linkinbio" => "Link in bio",
        "content" => "Plans",
        "feeds" => "Feeds",
        "webhooks" => "Webhooks",
        "ai" => "AI",
        "reports" => "Reports",
        "inbox" => "Inbox",
        other => other,
    }
}

fn noun(kind: &'static str) -> String {
    match kind {
        "ai" => "texts and images with AI".to_owned(),
        kind => kind_label(kind).to_lowercase(),
    }
}

/// Returns the brands to choose from, in the order of their names.
pub fn brands(visit: &Visit, chosen: &[i64]) -> Vec<Choice> {
    let mut memberships: Vec<_> = visit.memberships.iter().collect();
    memberships.sort_by_key(|one| (one.brand.name.to_lowercase(), one.brand.id));
    let choice = |id: i64, name: &str| Choice::new(&id.to_string(), name, chosen.contains(&id));
    memberships.into_iter().map(|one| choice(one.brand.id, &one.brand.name)).collect()
}

/// The maximum number of brands that a text names.
const MAX_NAMES: usize = 5;

/// Returns the names of these brands of the user.
pub fn names(visit: &Visit, ids: &[i64]) -> String {
    let own = visit.memberships.iter().filter(|one| ids.contains(&one.brand.id));
    list(own.map(|one| one.brand.name.as_str()).collect())
}

/// Returns the names of brands as a text: "Bakery, Café and 3 more".
pub fn list(mut names: Vec<&str>) -> String {
    names.sort_unstable_by_key(|name| name.to_lowercase());
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    match (names.is_empty(), more) {
        (true, _) => "no brands".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}

/// The error of a form without a valid brand.
pub const NO_BRANDS: &str = "Choose at least one of your brands, or all brands.";

/// The brands that a form names.
#[derive(Debug, PartialEq, Eq)]
pub enum ChosenBrands {
    /// Including brands that the user creates or joins later.
    All,
    Some(Vec<i64>),
}

impl ChosenBrands {
    /// Reads the brands of a form. `None` if it names none, or one of which the user is not a member.
    pub fn read(visit: &Visit) -> Option<Self> {
        if is_all(visit) {
            return Some(Self::All);
        }
        let mut ids = visit.form.ids("brands");
        ids.sort_unstable();
        ids.dedup();
        let is_own = |id: &i64| visit.memberships.iter().any(|one| one.brand.id == *id);
        let is_valid = !ids.is_empty() && ids.iter().all(is_own);
        is_valid.then_some(Self::Some(ids))
    }

    /// Returns the ids. `None` for all brands.
    pub fn ids(&self) -> Option<&[i64]> {
        match self {
            Self::All => None,
            Self::Some(ids) => Some(ids),
        }
    }
}

/// Returns whether a submitted form chooses all brands.
pub fn is_all(visit: &Visit) -> bool {
    visit.form.all("brands").any(|value| value == ALL_BRANDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(list: &str) -> Scopes {
        list.parse().unwrap()
    }

    #[test]
    fn only_what_is_requested_is_offered() {
        let values = |list: &str| -> Vec<String> {
            presets(&scopes(list), None).into_iter().map(|choice| choice.value).collect()
        };
        assert_eq!(values("all"), ["read_only", "drafts", "publish"]);
        assert_eq!(values("posts:read"), ["read_only"]);
        assert_eq!(values("posts:read,posts:write"), ["read_only", "drafts", "publish"]);
        assert_eq!(values("posts:write"), ["drafts", "publish"]);
        assert!(values("webhooks:write").is_empty());
        let hint = &presets(&scopes("posts:read,posts:write,webhooks:read"), None)[1].hint;
        assert!(hint.ends_with("Reads: posts. Writes: posts."), "{hint}");
    }

    #[test]
    fn a_grant_has_the_name_of_its_preset() {
        for preset in AgentPreset::ALL {
            let requested = scopes("posts:read,posts:write");
            let granted = preset.scopes().intersection(&requested);
            assert_eq!(label(&granted, preset.role_limit()), preset.label());
        }
        assert_eq!(
            in_words(&scopes("brands:read,linkinbio:read,ai:write")),
            "Reads: brands, link in bio. Writes: texts and images with AI."
        );
    }
}
